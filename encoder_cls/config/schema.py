"""The schema of a config: frozen, validated, every field with its default and meaning.

It holds only what a person chose; facts of the data, such as its classes, are passed beside it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from encoder_cls.config.yaml import to_yaml
from encoder_cls.system.display import seconds_named
from encoder_cls.system.encodings import delimiter_named, encoding_named

# Seeds are numbers of 32 bits, as NumPy takes them.
SEEDS = 2**32
# Steps and texts are counted in 32 bits.
COUNTS = 2**31
# With more passes the learning rate would not even rise to its peak within days.
MAX_EPOCHS = 1_000_000
# The largest number of PyTorch's float32.
LARGEST_FLOAT = 3.4e38
# A year.
MAX_MINUTES = 365 * 24 * 60

# A sub-word tokenizer asks for memory for all these tokens before it learns the first one.
MAX_TOKENS_IN_VOCABULARY = 10_000_000
# Each table of hashed features has at most so many rows.
MAX_BUCKETS = 2**24
# The numbers of an encoder without its vocabulary: 16 GiB in float32, and four times as much memory
# in training.
MAX_PARAMETERS = 2**32
# The attention scores of a layer for one text, num_heads * max_seq_len^2: 2 GiB of float32 numbers.
# `encoder/architecture` has the same limit for a model that is loaded.
MAX_SCORES = 2**29
# A step loops over the shards of its batch.
MAX_SHARDS = 1024
# A larger weight of a class, or of R-Drop, leaves nothing of the rest of the loss.
LARGEST_CLASS_WEIGHT = 1e6
LARGEST_RDROP_WEIGHT = 1000


def _minutes(value: Any) -> Any:
    """The minutes of a time such as `90s`; a number is minutes already."""
    if isinstance(value, str):
        return seconds_named(value) / 60
    return value


def _as_tuple(value: Any) -> Any:
    """A single name as the only one."""
    if isinstance(value, str):
        return (value,)
    return value


Seed = Annotated[int, Field(ge=0, lt=SEEDS)]
Count = Annotated[int, Field(ge=1, lt=COUNTS)]
Epochs = Annotated[int, Field(ge=1, le=MAX_EPOCHS)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Minutes = Annotated[float, Field(gt=0, le=MAX_MINUTES), BeforeValidator(_minutes)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
NotEmpty = Annotated[str, Field(min_length=1)]
ClassWeight = Annotated[float, Field(gt=0, le=LARGEST_CLASS_WEIGHT)]


class Section(BaseModel):
    """A part of the config: frozen, unknown keys refused, field docstrings kept as descriptions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
    )


class DataConfig(Section):
    """Where the labelled text is and how to read it."""

    train: str
    """A CSV, TSV, JSONL (also with .gz), JSON, Parquet or Excel file; a fastText file, .txt or .ft
    (`__label__spam win now`); a folder or glob of these; a folder of class folders with .txt files;
    `example:train` (the bundled data); or `hub:owner/name[?config=...&split=...&revision=...]`.
    Relative paths start at the current folder, else at that of the config file. With `label_names`,
    rows may lack a label."""
    validation: str | None = None
    """The same for the validation split; null: a part of train is held out, stratified by class."""
    test: str | None = None
    """The same for the test split; null: the final report is on the validation split."""
    unlabelled: str | None = None
    """More texts, without labels, to learn the language from: as above, or `.txt` with one text per
    line; null: none."""
    validation_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """The part of train held out where `validation` is null, at most 50,000 texts. Texts that
    differ only in case, white space, punctuation and digits are held out together."""
    split_seed: Seed = 0
    """Seed of the choice of held-out texts: runs with another `seed` are validated on the same
    texts."""
    text_column: Names = ("text",)
    """The column with the text; the texts of several columns are joined with a space."""
    label_column: str = "label"
    """The column with the class: a name or an integer. Lists of these, or several labels on a
    fastText line, make the data multi-label: each text may have several labels, or none."""
    label_separator: NotEmpty | None = None
    """The separator of several labels in one cell, such as `|` in `late|refund`; makes the data
    multi-label. An empty cell has no labels; null: a cell is one label."""
    group_column: str | None = None
    """The column with the group of a row, such as its customer or thread: groups are never split
    between training, validation and folds of cross-validation. A row without a value is a group by
    itself; null: no groups."""
    corrections: str | None = None
    """A table of corrected labels, as `encoder-cls review` writes it: the label column of the data,
    and the column `key`, a hash of the text. A correction holds for every row with this text; null:
    no corrections."""
    label_names: tuple[str, ...] | None = None
    """The classes in order. Labels are all names, or all numbers (0: the first); spaces around them
    do not count."""
    fold_labels: bool = False
    """Whether labels that differ only in case, in spaces or in how Unicode writes the same
    characters are one class, named as in `label_names`, else by the most frequent spelling in
    train."""
    empty_texts: Literal["auto", "drop", "error"] = "auto"
    """What happens to rows with an empty text: `auto` drops up to 1% of a split, with a warning;
    `drop` drops all; `error` refuses any."""
    bad_rows: Literal["error", "skip"] = "error"
    """What happens to rows that cannot be read, such as those with a field too many: `error` stops;
    `skip` leaves them out with a warning."""
    delimiter: Annotated[str, AfterValidator(delimiter_named)] | None = None
    """The field separator of CSV and TSV files: a character, or `comma`, `semicolon`, `tab` or
    `pipe`; null: a comma, a tab in .tsv, or the only one that fits the header. Predictions use it
    too."""
    encoding: Annotated[str, AfterValidator(encoding_named)] = "utf-8"
    """The encoding of text files, such as `windows-1252` or `utf-16`. Predictions use it too."""
    cache: NotEmpty | None = None
    """A folder that keeps rows and tokens as read, so that the next run on the same files and
    settings starts at once. Runs may share it, and any part of it may be deleted; null: nothing is
    kept."""

    @field_validator("train", mode="before")
    @classmethod
    def _check_train_is_named(cls, source: object) -> object:
        if source is None:
            raise ValueError("name a file of labelled texts; without labels, label about 20 first")
        return source

    @field_validator("label_names", "text_column")
    @classmethod
    def _check_names_differ(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        seen = set()
        for name in names or ():
            if name in seen:
                raise ValueError(f"{name!r} is listed twice")
            seen.add(name)
        return names

    @model_validator(mode="after")
    def _check_columns(self) -> DataConfig:
        if self.label_column == self.group_column:
            raise ValueError(
                f"group_column and label_column are both {self.label_column!r}; name another "
                "group_column, or null"
            )
        if self.label_column in self.text_column:
            raise ValueError(
                f"label_column {self.label_column!r} is also in text_column; remove it from one of "
                "them"
            )
        return self


class TokenizerConfig(Section):
    """How a text becomes tokens; learned from the training texts and those without labels."""

    type: Literal["word_level", "word_piece", "bpe", "unigram"] = "word_level"
    """Whole words (`word_level`), or sub-words: `word_piece`, `bpe` or `unigram`, of words up to
    500 characters."""
    lowercase: bool = True
    """Fold upper case to lower case."""
    normalization: Literal["none", "nfc", "nfkc"] = "nfkc"
    """The Unicode normalization form: `none`, `nfc` or `nfkc`."""
    strip_accents: bool = False
    """Remove accents, so that "café" and "cafe" are one word."""
    max_vocab_size: Annotated[int, Field(ge=16, le=MAX_TOKENS_IN_VOCABULARY)] = 30_000
    """The most tokens kept, special tokens included; at most 10 million."""
    min_frequency: Count = 1
    """A token seen less often than this in training becomes `[UNK]`."""


class ModelConfig(Section):
    """The shape of the encoder and its classifier head, and the linear model beside them."""

    d_model: Annotated[int, Field(ge=1, le=8192)] = 128
    """Width of the token vectors."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of encoder layers."""
    num_heads: Annotated[int, Field(ge=1, le=8192)] = 4
    """Attention heads of a layer; must divide d_model."""
    d_ff: Annotated[int, Field(ge=1, le=65_536)] = 512
    """Inner width of the feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, le=65_536)] = 512
    """The most tokens of a text that the encoder reads, `[CLS]` included; longer texts are
    reported. The attention to one text may take 2 GiB: 11,585 tokens with four heads. The linear
    model reads up to eight times as many."""
    norm: Literal["pre", "post"] = "pre"
    """`pre`: LayerNorm before each sublayer and once at the end; `post`: after each residual
    sum."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The non-linearity of the feed-forward network: `relu` or `gelu`."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """The position embeddings: `sinusoidal`, `learned` or `none`."""
    char_ngram_buckets: Annotated[int, Field(ge=0, le=MAX_BUCKETS)] = 32_768
    """Rows of the table of character n-grams, from which unknown words get vectors; 0: no table."""
    bigram_buckets: Annotated[int, Field(ge=0, le=MAX_BUCKETS)] = 32_768
    """Rows of the table of pairs of neighbouring tokens; 0: no table."""
    dropout: Fraction = 0.1
    """Dropout on the embeddings and on each sublayer's output."""
    head_dropout: Fraction = 0.1
    """Dropout on the pooled vector before the last linear map."""
    encoder: bool | Literal["auto"] = "auto"
    """Whether to train an encoder; `auto`: unless at most 2,000 training texts have labels and more
    have none; false: the linear model alone is the model, trained in seconds."""
    linear: bool = True
    """Whether to add the logits of a linear model of word and character n-grams to the
    encoder's; beyond 12 million tokens it learns from a stream, from words and pairs of words."""
    cascade: bool = True
    """Whether a text skips the encoder where the linear model is sure, if validation texts
    show that this changes next to nothing; false: both classify every text."""

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
                f"2 GiB; with num_heads {self.num_heads}, {longest:,} tokens are the most"
            )

        num_parameters = self._num_parameters_without_vocabulary()
        if num_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"the encoder has {num_parameters:,} parameters, even without its vocabulary; "
                f"{MAX_PARAMETERS:,} are the most; choose a smaller d_model, d_ff, num_layers, "
                "char_ngram_buckets or bigram_buckets"
            )
        return self

    def _num_parameters_without_vocabulary(self) -> int:
        """The numbers in the matrices of the layers, and in the tables but that of the tokens."""
        attention = 4 * self.d_model**2
        feed_forward = 2 * self.d_model * self.d_ff

        num_rows = self.char_ngram_buckets + self.bigram_buckets
        if self.positions == "learned":
            num_rows += self.max_seq_len
        return self.num_layers * (attention + feed_forward) + num_rows * self.d_model


class PretrainConfig(Section):
    """Pretraining, before any class is learned.

    It uses the batches, learning rate and precision of `train`.
    """

    objective: Literal["masked_lm", "denoising"] = "masked_lm"
    """The task where `epochs` is a number: `masked_lm`, to guess masked tokens; `denoising`, where
    tokens are deleted and a decoder, thrown away afterwards, writes the whole text."""
    epochs: Annotated[int, Field(ge=0, le=MAX_EPOCHS)] | Literal["auto"] = "auto"
    """Passes over the texts; 0: none; `auto`: none, but where most texts lack a label, embeddings
    start from word vectors (a truncated SVD of co-occurrences), made in seconds."""
    time_budget: Minutes | None = None
    """The most time, such as 90s or 5m, estimated from its first steps; a bare number is minutes;
    null: no limit."""
    mask_probability: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """The part of the tokens that is masked or deleted."""


class TrainConfig(Section):
    """How the weights are learned."""

    epochs: Epochs | Literal["auto"] = "auto"
    """The most passes over the training texts (see patience); `auto`: the more text, the fewer."""
    time_budget: Minutes | None = None
    """The most time of the whole run, such as 5m or 2h, from reading the data to the report; a bare
    number is minutes. The number of steps is estimated from the first steps of pretraining and of
    training; null: no limit."""
    batch_size: Count = 64
    """The most texts in a batch."""
    batch_tokens: Count = 8192
    """The most tokens in a batch, padding included; a batch of long texts holds fewer of them.
    Where each text is in it twice (see rdrop_weight), it counts once."""
    accumulation_steps: Count = 1
    """Batches whose gradients are summed before one update."""
    gradient_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """Shards into which the texts of a batch are divided, at most 1,024: the most processes that
    can share a training (torchrun). At equal shards, weights for any number of processes differ by
    rounding alone."""
    learning_rate: Annotated[float, Field(gt=0, le=LARGEST_FLOAT)] = 1e-3
    """The peak learning rate."""
    warmup_fraction: Fraction = 0.1
    """The part of all steps during which the learning rate rises to its peak; then it falls as a
    cosine."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """AdamW's weight decay on matrices; biases, norms and embeddings have none."""
    max_grad_norm: Annotated[float, Field(gt=0, le=LARGEST_FLOAT)] = 1.0
    """Gradients longer than this are scaled down to it."""
    label_smoothing: Fraction = 0.0
    """The part of the target probability that is spread evenly over all classes."""
    word_dropout: Fraction = 0.25
    """The part of the words replaced by `[UNK]` in training, so that the model learns what an
    unknown word means."""
    rdrop_weight: Annotated[float, Field(ge=0, le=LARGEST_RDROP_WEIGHT)] = 1.0
    """Weight of R-Drop, the symmetric KL divergence of two dropout passes, in the loss, at most
    1,000; 0: each text passes once."""
    class_weights: Literal["none", "balanced"] | dict[str, ClassWeight] = "none"
    """Weights of the classes in the loss: `none`, `balanced` (the rarer the heavier), or by name:
    {spam: 2.0}, at most a million. Recall of heavier classes rises; validation and probabilities
    are unweighted."""
    lsa_dimensions: Annotated[int, Field(ge=0, le=2000)] = 200
    """Dimensions of a truncated SVD of all texts (latent semantic analysis) as features of the
    linear model; 0: none. Used, as the next three, with at most 2,000 labelled texts, without
    those held out."""
    label_names_as_texts: bool = True
    """Whether the words of a class's name count as one more text of that class."""
    self_training: bool = True
    """Whether the linear model learns from its own predictions for unlabelled texts, in rounds,
    unless out-of-fold predictions are better without (ag_news, 100 labels: +13)."""
    naive_bayes: bool = True
    """Whether multinomial naive Bayes of words is added to the NB-SVM, with half of its weight
    (sst2, 50 labels: +4)."""
    pseudo_labels: bool = True
    """Whether, with at most 2,000 labelled texts, the encoder also learns the probabilities that
    the linear model gives to unlabelled texts."""
    refit_on_validation: bool = True
    """Whether the final linear model also learns from the texts held out of train for
    validation, never from a file named in data.validation. Validation then uses its predictions
    from before; with at most 2,000 labelled texts, those of cross-validation."""
    # These are the keys of the scores that can be monitored, as `metrics/scores` has them.
    monitor: Literal["accuracy", "micro_f1", "macro_f1", "mean_average_precision", "loss"] = "loss"
    """The validation score that chooses the best weights: `loss`, `macro_f1` or `accuracy`; of
    multi-label data `loss`, `macro_f1`, `micro_f1` or `mean_average_precision`."""
    patience: Count | None = 2
    """Stop after this many validations without a better score, once the learning rate has risen;
    null: never."""
    validate_every: Count | None = None
    """Steps between validations; null: at the end of each epoch, or of every few short epochs where
    they are `auto`."""
    checkpoint_every: Count | None = None
    """Steps between further checkpoints; null: after validations, at least 15 seconds apart."""
    keep_checkpoints: Count = 2
    """How many of the newest checkpoints stay on disk."""
    log_every: Count = 10
    """Steps between rows of training metrics."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Matrix products in training: `float32`, `bfloat16`, or `auto`: bfloat16 where the hardware is
    fast at it."""


class SearchRange(Section):
    """A range of numbers that `encoder-cls tune` searches."""

    low: int | float
    """The lowest; where both ends are integers, only integers are tried."""
    high: int | float
    """The highest."""
    log: bool = False
    """Whether to search on a logarithmic scale."""

    @model_validator(mode="after")
    def _check_range(self) -> SearchRange:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"with log, low must be above 0, not {self.low}")
        return self


class Config(Section):
    """Everything a person chose for one run."""

    name: Annotated[str, Field(pattern=r"^[\w][\w.\-]*$", max_length=100)]
    """The run's name, and by default its folder under `runs/`; default: made of the config file's
    name."""
    seed: Seed = 0
    """Seed of everything random except the choice of held-out texts (data.split_seed)."""
    from_run: str | None = None
    """The base run: the folder of a finished run (`--from`) whose data and encoder this one
    continues with. Its sections `model` and `tokenizer` hold here, too; null: start from
    nothing."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    train: TrainConfig = TrainConfig()
    tune: dict[str, SearchRange | Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """The search space of `encoder-cls tune`, by dotted key: a range {low: 0.0003, high: 0.003,
    log: true}, or a list of values. {}: learning rate, batch size, both kinds of dropout and
    R-Drop."""

    @field_validator("data", "tokenizer", "model", "pretrain", "train", "tune", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        """Take `model:` with nothing under it, which is YAML for null, as a section of defaults."""
        if value is None:
            return {}
        return value

    def to_yaml(self) -> str:
        """Every value as YAML text; `load_config` of it gives an equal config."""
        return to_yaml(self.model_dump(mode="json"))
