"""The schema of a config: every key with its type, its default and its meaning.

A config is frozen and validated. It holds only settings that a person chose. Facts about the data,
such as its classes, are passed on separately.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.system.display import seconds_named
from encoder_cls.system.encodings import delimiter_named, encoding_named
from encoder_cls.system.json_values import label_name
from encoder_cls.system.yaml import to_yaml

# Seeds are below this number, since NumPy takes seeds of 32 bits.
SEEDS = 2**32
# Numbers of steps and of texts are below this number, since they are kept in signed 32 bits.
COUNTS = 2**31
# With more epochs than this, the learning rate would not even rise to its peak within days.
MAX_EPOCHS = 1_000_000
LARGEST_FLOAT = 3.4e38
MAX_MINUTES = 365 * 24 * 60

# A sub-word tokenizer reserves memory for its whole vocabulary before it learns the first token.
MAX_TOKENS_IN_VOCABULARY = 10_000_000
# The largest number of rows of a table of hashed features.
MAX_BUCKETS = 2**24
# The largest number of parameters of an encoder, without its token embeddings. In float32 they take
# 16 GiB, and training takes four times as much memory.
MAX_PARAMETERS = 2**32
# The largest number of attention scores of a layer for one text, num_heads * max_seq_len^2. In
# float32 they take 2 GiB. `encoder/architecture` has the same limit for a model that is loaded.
MAX_SCORES = 2**29
# The largest number of shards of a batch, since each training step has a loop over the shards.
MAX_SHARDS = 1024
# The largest length of a prefix of a code: longer names are no codes.
MAX_CODE_LENGTH = 1000
# The largest weight of a class, and of R-Drop: with a larger weight, the rest of the loss would not
# count any more.
LARGEST_CLASS_WEIGHT = 1e6
LARGEST_RDROP_WEIGHT = 1000


def _number(value: Any) -> Any:
    """Turn a text that is a number into an integer if it is written so, or else into a float."""
    if isinstance(value, str):
        for number in (int, float):
            with suppress(ValueError):
                return number(value)
    return value


def _minutes(value: Any) -> Any:
    """Turn a time such as `90s` into minutes, which a number is already."""
    minutes = _number(value)
    if isinstance(minutes, str):
        return seconds_named(minutes) / 60
    return minutes


def _searched(value: Any) -> Any:
    words = {"true": True, "false": False, "null": None}
    if isinstance(value, str) and value in words:
        return words[value]
    return _number(value)


def _as_tuple(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return value


def _named(path: Any) -> Any:
    """Turn a path object into text, and refuse an empty path, which is the current folder."""
    if isinstance(path, os.PathLike):
        return os.fspath(path)
    if path == "":
        raise ValueError("names no file or folder; leave the key out if there is none")
    return path


def _prefix_lengths(levels: Any) -> Any:
    """Turn a single number into a list of it: one level above the classes."""
    if isinstance(levels, int) or (isinstance(levels, str) and levels.isdecimal()):
        return (levels,)
    return levels


def _by_name(weights: Any) -> Any:
    """Name labels of a mapping, which may be numbers, also those of NumPy."""
    if isinstance(weights, Mapping):
        return {label_name(label): weight for label, weight in weights.items()}
    return weights


Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
Count = Annotated[int, Field(ge=1, lt=COUNTS)]
Epochs = Annotated[int, Field(ge=1, le=MAX_EPOCHS)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Minutes = Annotated[float, Field(gt=0, le=MAX_MINUTES), BeforeValidator(_minutes)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
Searched = Annotated[Any, BeforeValidator(_searched)]
NotEmpty = Annotated[str, Field(min_length=1)]
Source = Annotated[str, BeforeValidator(_named)]
PrefixLength = Annotated[int, Field(ge=1, le=MAX_CODE_LENGTH)]
Levels = Annotated[
    Annotated[tuple[PrefixLength, ...], Field(min_length=1)] | NotEmpty | dict[NotEmpty, str],
    BeforeValidator(_prefix_lengths),
]
ClassWeight = Annotated[float, Field(gt=0, le=LARGEST_CLASS_WEIGHT)]
ClassWeights = Annotated[
    Literal["none", "balanced"] | dict[str, ClassWeight], BeforeValidator(_by_name)
]


def _check_ends(code: str, parents: Mapping[str, str]) -> None:
    above = parents[code]
    seen = {code}
    while above:
        if above in seen:
            raise ValueError(f"the code {above!r} is above itself")
        seen.add(above)
        above = parents.get(above, "")


def types_in(annotation: Any) -> list[Any]:
    """All types in an annotation, also those of the items of a list, but not of a mapping."""
    origin = get_origin(annotation)
    types = [annotation, origin]
    if origin is not dict:
        for part in get_args(annotation):
            types += types_in(part)
    return types


class Section(BaseModel):
    """A section of the config.

    It is frozen, it refuses unknown keys, and the docstrings of its fields are their descriptions.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _read_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Read `1e3` where an integer is meant, and 1.0 as a float where either may be."""
        field = cls.model_fields[str(info.field_name)]
        if int in types_in(field.annotation):
            return _number(value)
        return value


class DataConfig(Section):
    """Where the labelled texts are, and how they are read."""

    train: Source
    """The labelled texts to learn from. This is a CSV, TSV, JSONL, JSON, Parquet or Excel file (the
    first four also with .gz); a fastText file, .txt or .ft, with lines such as
    `__label__spam win now`; a folder or glob of such files; a folder with a subfolder of .txt files
    for each class; `example:train`, the bundled data; or
    `hub:owner/name[?config=...&split=...&revision=...]`. A relative path starts at the current
    folder or, if nothing is there, at the folder of the config file. If `label_names` is set, rows
    may lack a label."""
    validation: Source | None = None
    """The validation texts, named in the same ways as `train`. If null, a part of train is held out
    for validation, stratified by class."""
    test: Source | None = None
    """The test texts, named in the same ways as `train`. If null, the final report scores the
    validation texts."""
    unlabelled: Source | None = None
    """More texts to learn the language from, without labels. They are named in the same ways as
    `train`, or in a `.txt` file with one text per line. If null, there are none."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the rows of train that are read, chosen at random. If null, all rows are read,
    or as many as `train.time_budget` allows; the run then records the share."""
    validation_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """The share of train that is held out if `validation` is null, at most 50,000 texts. Texts that
    differ only in case, white space, punctuation and digits are held out together."""
    split_seed: Seed = 0
    """The seed of the choice of held-out texts. It is separate from `seed`, so that runs with other
    seeds are validated on the same texts."""
    text_column: Names = ("text",)
    """The column with the text. If several columns are named, their texts are joined, and a word is
    also known as a word of its column. In JSON, `payload.body` is the field `body` of the object
    `payload`; all columns may be named so."""
    features: Names | tuple[()] = ()
    """The columns beside the text that say something about the class, such as
    `[channel, employees]`. A column of numbers counts by size, any other by its frequent values.
    Empty cells are a value of their own. If it is [], only the text counts."""
    label_column: str = "label"
    """The column with the class, as a name or a number. If a value is a list of names or numbers,
    or a fastText line has several labels, the data is multi-label: each text may have several
    labels, or none."""
    label_separator: NotEmpty | None = None
    """The separator between several labels in one cell, such as `|` in `late|refund`. It makes the
    data multi-label, and an empty cell has no labels. If null, a cell is one label."""
    group_column: str | None = None
    """The column with the group of a row, such as its customer or its thread. A group is never
    divided between training and validation, or between folds of cross-validation. A row with an
    empty cell is a group by itself. If null, there are no groups."""
    weight_column: str | None = None
    """The column of train with the weight of a row, a number from 0 to a million: a text of weight
    2 counts in the loss as two texts of weight 1, and a row of weight 0 is left out. Weights are
    divided by their mean, so only their ratios matter. An empty cell is a weight of 1. Scores and
    probabilities are not weighted. If null, all rows count alike."""
    corrections: Source | None = None
    """A table of corrected labels, as `encoder-cls review` writes it. It has the label column of
    the data and the column `key`, a hash of the text. A correction applies to every row with this
    text. If null, no label is corrected."""
    label_names: tuple[str, ...] | None = None
    """The names of the classes, in order, as a list or as a file: a name on each line, or .csv with
    a number and a name. A label in the data is a name, or a number (0 for the first name); spaces
    around it are ignored. If null, the classes are the labels that occur in train."""
    levels: Levels | None = None
    """How codes are divided into levels, such as those of occupations or products: the lengths of
    their beginnings, as in `[1, 2]` for 2, 25 and 2512; a separator, as in `.` for C, C.10 and
    C.10.5; or a file, .csv, .tsv or .xlsx, with the columns `code`, `parent` and, if there are
    names, `name`. The last level is the class itself. The model is the same; reports and
    predictions have all levels. If null, there are none."""
    code_names: dict[NotEmpty, NotEmpty] | None = None
    """The names that are shown beside codes, of all levels: a file, .csv, .tsv or .xlsx, with the
    columns `code` and `name`, or a mapping such as `{2512: Software developers}`. The classes stay
    the codes, unlike with `label_names`. If null, they are those of the file of `levels`, or
    none."""
    label_map: dict[NotEmpty, NotEmpty] | None = None
    """The class that each of some labels becomes, such as `{Refunds: refund, rfund: refund}`, or a
    file of two columns, the label and its class. All other labels stay as they are. If null, each
    label is its own class."""
    none_label: str | None = None
    """The class of texts that belong to none of the others, such as `other`. It is learned like a
    class, but is no answer: a text of it gets no label, and the reason `none`. If null, there is
    no such class."""
    fold_labels: bool = False
    """Whether labels that differ only in case, in spaces or in how Unicode writes the same
    characters are one class. It is named as in `label_names`, or else by its most frequent spelling
    in train."""
    empty_texts: Literal["auto", "drop", "error"] = "auto"
    """What happens to rows with an empty text or a null. `auto` drops them with a warning if they
    are at most 1% of a split and refuses more, `drop` drops all of them, and `error` refuses any of
    them."""
    bad_rows: Literal["error", "skip"] = "error"
    """What happens to rows that cannot be read, such as rows with too many fields. `error` stops
    with an error, and `skip` leaves them out with a warning."""
    delimiter: Annotated[str, AfterValidator(delimiter_named)] | None = None
    """The field separator of CSV and TSV files: a character, or `comma`, `semicolon`, `tab` or
    `pipe`. If null, it is a tab in .tsv files and a comma in other files, unless only another one
    fits the header. It also applies to files to predict."""
    encoding: Annotated[str, AfterValidator(encoding_named)] = "utf-8"
    """The encoding of text files, such as `windows-1252` or `utf-16`. It also applies to files to
    predict."""
    sheet: NotEmpty | None = None
    """The sheet of Excel files to read. If null, or if a file has no sheet of this name, only one
    sheet may have the columns."""
    cache: Source | None = None
    """A folder for the rows and tokens that were read, so that the next run on the same files with
    the same settings starts at once. Several runs may share the folder, and any file in it may be
    deleted. If null, nothing is kept."""

    @field_validator("train", mode="before")
    @classmethod
    def _check_train_is_named(cls, source: object) -> object:
        if source is None:
            raise ValueError("name a file of labelled texts; without labels, label about 20 first")
        return source

    @field_validator("label_names", "text_column", "features")
    @classmethod
    def _check_names_differ(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        seen = set()
        for name in names or ():
            if not name:
                raise ValueError("an item is empty; a name is expected")
            if name in seen:
                raise ValueError(f"{name!r} is listed twice")
            seen.add(name)
        return names

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: Levels | None) -> Levels | None:
        if isinstance(levels, tuple) and any(a >= b for a, b in pairwise(levels)):
            raise ValueError("the lengths must increase, such as [1, 2, 4]")
        if isinstance(levels, dict):
            for code in levels:
                _check_ends(code, levels)
        return levels

    @model_validator(mode="after")
    def _check_columns(self) -> DataConfig:
        if self.label_column == self.group_column:
            raise ValueError(
                f"group_column and label_column are both {self.label_column!r}; name another "
                "group_column, or null"
            )
        if self.weight_column in {self.label_column, self.group_column, *self.text_column} - {None}:
            raise ValueError(
                f"weight_column {self.weight_column!r} is also the column of the text, the label "
                "or the group; name another weight_column, or null"
            )
        roles = {self.label_column, self.weight_column, *self.text_column}
        for feature in self.features:
            if feature in roles:
                raise ValueError(
                    f"features: {feature!r} is also the column of the text, the label or the "
                    "weight; remove it from features"
                )
        if self.label_column in self.text_column:
            raise ValueError(
                f"label_column {self.label_column!r} is also in text_column; remove it from one of "
                "them"
            )
        return self

    @property
    def reading_options(self) -> ReadingOptions:
        """How the files of the data are read."""
        return ReadingOptions(
            delimiter=self.delimiter,
            encoding=self.encoding,
            sheet=self.sheet,
            bad_rows=self.bad_rows,
        )


class TokenizerConfig(Section):
    """How a text becomes tokens.

    The tokens are learned from the training texts and the texts without labels.
    """

    type: Literal["word_level", "word_piece", "bpe", "unigram"] = "word_level"
    """The kind of tokens: whole words (`word_level`), or sub-words (`word_piece`, `bpe` or
    `unigram`). Sub-words are made of words of up to 500 characters."""
    lowercase: bool = True
    """Whether upper case is changed to lower case."""
    normalization: Literal["none", "nfc", "nfkc"] = "nfkc"
    """The Unicode normalization form: `none`, `nfc` or `nfkc`. Characters that cannot be seen, such
    as soft hyphens, are removed in any case."""
    strip_accents: bool = False
    """Whether accents are removed, so that "café" and "cafe" are one word."""
    max_vocab_size: Annotated[int, Field(ge=16, le=MAX_TOKENS_IN_VOCABULARY)] = 30_000
    """The maximum number of tokens in the vocabulary, including special tokens. It may be up to 10
    million."""
    min_frequency: Count = 2
    """The minimum number of texts that a word is in; near-duplicates count once, as do the texts of
    a group (`data.group_column`). Rarer words, and sub-words of several characters, are in no file
    of the model, and become `[UNK]` or shorter sub-words. If 1, all words are learned, which is
    more accurate where thousands of classes have a few texts each."""


class ModelConfig(Section):
    """The shape of the encoder and its classifier head, and the use of the linear model."""

    d_model: Annotated[int, Field(ge=1, le=8192)] = 128
    """The width of the token vectors."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 2
    """The number of encoder layers."""
    num_heads: Annotated[int, Field(ge=1, le=8192)] = 4
    """The number of attention heads of a layer. It must divide `d_model`."""
    d_ff: Annotated[int, Field(ge=1, le=65_536)] = 512
    """The inner width of the feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, le=65_536)] = 512
    """The maximum number of tokens of a text that the encoder reads, including `[CLS]`. Longer
    texts are reported. The attention to one text may take up to 2 GiB, which is 11,585 tokens with
    four heads. The linear model reads up to eight times as many tokens."""
    norm: Literal["pre", "post"] = "pre"
    """The place of LayerNorm: `pre` for before each sublayer and once at the end, or `post` for
    after each residual sum."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The activation function of the feed-forward network: `relu` or `gelu`."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """The position embeddings: `sinusoidal`, `learned` or `none`."""
    pooling: Literal["mean", "cls", "max"] = "mean"
    """How the vectors of a text's tokens become the one vector that the head reads: `mean` for
    their mean, `cls` for the vector of `[CLS]`, the first token of every text, or `max` for the
    maximum of each feature. Mean and maximum include `[CLS]`. Only labels, not pretraining, teach
    the vector of `[CLS]` to stand for a text."""
    char_ngram_buckets: Annotated[int, Field(ge=0, le=MAX_BUCKETS)] = 32_768
    """The number of rows in the table of character n-grams, which give vectors to unknown words. If
    0, there is no such table."""
    bigram_buckets: Annotated[int, Field(ge=0, le=MAX_BUCKETS)] = 32_768
    """The number of rows in the table of pairs of neighbouring tokens. If 0, there is no such
    table."""
    dropout: Fraction = 0.1
    """The dropout rate of the embeddings and of the output of each sublayer."""
    head_dropout: Fraction = 0.1
    """The dropout rate of the pooled vector before the last linear layer."""
    encoder: bool | Literal["auto"] = "auto"
    """Whether an encoder is trained. With `auto`, it is trained unless at most 2,000 training texts
    have labels and more texts have none. If false, the model is the linear model alone, which is
    trained in seconds."""
    linear: bool = True
    """Whether a linear model of word and character n-grams is trained, whose logits are added to
    those of the encoder."""
    cascade: bool = True
    """Whether the encoder is skipped for texts that the linear model is sure about, if validation
    texts show that predictions hardly change. If false, both models classify every text."""

    @model_validator(mode="after")
    def _check_parts(self) -> ModelConfig:
        if not self.encoder and not self.linear:
            raise ValueError("encoder and linear are both false; set one of them to true")
        return self

    @model_validator(mode="after")
    def _check_width(self) -> ModelConfig:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> ModelConfig:
        if not self.encoder:
            return self

        if self.num_heads * self.max_seq_len**2 > MAX_SCORES:
            longest = math.isqrt(MAX_SCORES // self.num_heads)
            raise ValueError(
                f"max_seq_len {self.max_seq_len:,}: the attention to one text takes more than "
                f"2 GiB; with num_heads {self.num_heads}, the maximum is {longest:,} tokens"
            )

        num_parameters = self._num_parameters_without_vocabulary()
        if num_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"the encoder has {num_parameters:,} parameters, even without its vocabulary; the "
                f"maximum is {MAX_PARAMETERS:,}; choose a smaller d_model, d_ff, num_layers, "
                "char_ngram_buckets or bigram_buckets"
            )
        return self

    def _num_parameters_without_vocabulary(self) -> int:
        """The parameters of layers and of embeddings other than those of tokens."""
        attention = 4 * self.d_model**2
        feed_forward = 2 * self.d_model * self.d_ff

        num_rows = self.char_ngram_buckets + self.bigram_buckets
        if self.positions == "learned":
            num_rows += self.max_seq_len
        return self.num_layers * (attention + feed_forward) + num_rows * self.d_model


class PretrainConfig(Section):
    """Pretraining of the encoder, before it learns any class.

    It uses the batches, the learning rate and the precision of `train`.
    """

    objective: Literal["masked_lm", "denoising"] = "masked_lm"
    """What the encoder learns in pretraining, if `epochs` is a number. With `masked_lm`, it
    predicts masked tokens. With `denoising`, tokens are deleted, and a decoder that is discarded
    afterwards writes the whole text."""
    epochs: Annotated[int, Field(ge=0, le=MAX_EPOCHS)] | Literal["auto"] = "auto"
    """The number of passes over the texts. If 0, there is no pretraining. With `auto`, there is
    none either, but if most texts lack a label, the embeddings start from word vectors (a truncated
    SVD of co-occurrences), which are made in seconds."""
    time_budget: Minutes | None = None
    """The maximum time of pretraining, such as 90s or 5m; a number without a unit is minutes. If
    null, there is no limit."""
    mask_probability: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """The share of the tokens that is masked or deleted."""


class TrainConfig(Section):
    """How the weights are learned."""

    epochs: Epochs | Literal["auto"] = "auto"
    """The maximum number of passes over the training texts (see `patience`). With `auto`, it is
    smaller for longer training data."""
    time_budget: Minutes | None = None
    """The maximum time of the whole run, from reading the data to the report, such as 5m or 2h; a
    number without a unit is minutes. If null, there is no limit."""
    batch_size: Count = 64
    """The maximum number of texts in a batch."""
    batch_tokens: Count = 8192
    """The maximum number of tokens in a batch, including padding, so that a batch of long texts
    holds fewer of them. If each text is in the batch twice (see `rdrop_weight`), it counts once."""
    accumulation_steps: Count = 1
    """The number of batches whose gradients are summed before one update."""
    gradient_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """The number of shards into which the texts of a batch are divided, at most 1,024. It is also
    the maximum number of processes that can share a training (torchrun). With the same number of
    shards, any number of processes gives the same weights except for rounding."""
    learning_rate: Annotated[float, Field(gt=0, le=LARGEST_FLOAT)] = 1e-3
    """The peak learning rate."""
    warmup_fraction: Fraction = 0.1
    """The share of all steps during which the learning rate rises to its peak. After them it falls
    along a cosine."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The weight decay of AdamW on matrices. Biases, norms and embeddings have none."""
    max_grad_norm: Annotated[float, Field(gt=0, le=LARGEST_FLOAT)] = 1.0
    """The maximum norm of the gradients. Larger gradients are scaled down to it."""
    label_smoothing: Fraction = 0.0
    """The share of the target probability that is spread evenly over all classes."""
    word_dropout: Fraction = 0.25
    """The share of the words that are replaced by `[UNK]` in training, so that the model learns
    what an unknown word means."""
    rdrop_weight: Annotated[float, Field(ge=0, le=LARGEST_RDROP_WEIGHT)] = 1.0
    """The weight of R-Drop in the loss, at most 1,000. R-Drop passes each text twice through the
    model with different dropout, and adds the symmetric KL divergence of the two predictions to the
    loss. If 0, each text passes once."""
    class_weights: ClassWeights = "none"
    """The weights of the classes in the loss: `none`, `balanced` (the rarer a class, the larger its
    weight), or a weight by name, such as {spam: 2.0}, at most a million. A larger weight raises the
    recall of a class, but not by naive Bayes, which alone may be the linear model of 200 classes or
    more. Validation scores and probabilities are not weighted."""
    lsa_dimensions: Annotated[int, Field(ge=0, le=2000)] = 200
    """The number of dimensions of a truncated SVD of all texts (latent semantic analysis) that are
    features of the linear model. If 0, there are none. This key and the next three apply if there
    are at most 2,000 labelled texts, not counting held-out texts."""
    label_names_as_texts: bool = True
    """Whether the words of a class's name are one more text of that class."""
    self_training: bool = True
    """Whether the linear model learns from its own predictions for unlabelled texts, in rounds. It
    does not if its out-of-fold predictions are better without them."""
    naive_bayes: bool = True
    """Whether a multinomial naive Bayes model of words is added to the NB-SVM, with half of its
    weight."""
    pseudo_labels: bool = True
    """Whether, with at most 2,000 labelled texts, the encoder also learns from the probabilities
    that the linear model predicts for unlabelled texts."""
    refit_on_validation: bool = True
    """Whether the final linear model also learns from the texts that are held out of train for
    validation. It never learns from a file named in `data.validation`. The validation scores are
    those of its predictions from before, which are out-of-fold predictions with at most 2,000
    labelled texts."""
    # These are the keys of the scores that can be monitored, as `metrics/scores` has them.
    monitor: Literal["accuracy", "micro_f1", "macro_f1", "mean_average_precision", "loss"] = "loss"
    """The validation score by which the best weights are selected: `loss`, `macro_f1` or
    `accuracy`. In multi-label data: `loss`, `macro_f1`, `micro_f1` or `mean_average_precision`."""
    patience: Count | None = 2
    """Training stops after this many validations without a better score, but not before the
    learning rate has reached its peak. If null, it never stops early."""
    validate_every: Count | None = None
    """The number of steps between validations. If null, a validation follows each epoch, or every
    few short epochs if `epochs` is `auto`."""
    checkpoint_every: Count | None = None
    """The number of steps between additional checkpoints. Checkpoints are also saved after
    validations, at least 15 seconds apart; if this key is null, only after validations."""
    keep_checkpoints: Annotated[int, Field(ge=0, lt=COUNTS)] = 2
    """The number of newest checkpoints that stay on disk while the run is training. A checkpoint
    takes three times as much space as the encoder. If 0, there are none, and a stopped run starts
    again from its first step. A finished run keeps none: `model` is all that prediction needs."""
    log_every: Count = 10
    """The number of steps between rows of training metrics."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The number format of matrix products in training: `float32` or `bfloat16`. `auto` is
    `bfloat16` on hardware that is fast at it, and else `float32`."""
    cuda_graphs: bool = True
    """Whether a GPU records its work on a batch, and replays it for other batches of similar size
    (CUDA graphs). This is several times as fast, and takes up to twice as much GPU memory. It is
    not done in trainings of several processes, with `gradient_shards`, and with a loss function of
    your own."""


class SearchRange(Section):
    """A range of numbers that `encoder-cls tune` searches."""

    low: int | float
    """The lowest number. If both ends are integers, only integers are tried."""
    high: int | float
    """The highest number."""
    log: bool = False
    """Whether the search is on a logarithmic scale."""

    @model_validator(mode="after")
    def _check_range(self) -> SearchRange:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"with log, low must be above 0, not {self.low}")
        return self


class Config(Section):
    """All settings that a person chose for one run."""

    name: Annotated[str, Field(pattern=r"^[\w][\w.\-]*$", max_length=100)]
    """The name of the run. By default it is made from the name of the config file. The run's folder
    under `runs/` has the same name, unless another folder is given."""
    seed: Seed = 0
    """The seed of all random choices except the choice of held-out texts (`data.split_seed`)."""
    from_run: Source | None = None
    """The base run (`--from`): the folder of a finished run, whose data and encoder this run
    continues with. Its sections `model` and `tokenizer`, and its `data.text_column`,
    `data.features`, `data.label_column` and `data.label_separator`, fill in what this config does
    not set. If null, the run starts from nothing."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    train: TrainConfig = TrainConfig()
    tune: dict[str, SearchRange | Annotated[tuple[Searched, ...], Field(min_length=1)]] = {}
    """The search space of `encoder-cls tune`: for each key, such as `train.learning_rate`, a list
    of values or a range {low: 0.0003, high: 0.003, log: true}. If it is {}, the learning rate, the
    batch size, both dropout rates and the weight of R-Drop are searched."""

    @field_validator("data", "tokenizer", "model", "pretrain", "train", "tune", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        """Turn an empty section, which is null in YAML, into one of defaults."""
        if value is None:
            return {}
        return value

    def to_yaml(self) -> str:
        """Write every value as YAML text, from which `load_config` makes an equal config."""
        return to_yaml(self.model_dump(mode="json"))
