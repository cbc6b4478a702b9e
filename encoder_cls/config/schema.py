"""The schema of a config: frozen, validated, every field with its default and meaning.

It holds only what a person chose; facts of the data (classes, vocabulary size) are passed beside it.
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
    NonNegativeFloat,
    PositiveFloat,
    field_validator,
    model_validator,
)

from encoder_cls.config.yaml import to_yaml
from encoder_cls.system.display import seconds_named
from encoder_cls.system.encodings import delimiter_named, encoding_named

# Attention scores of a layer for one text, num_heads * max_seq_len^2: 2 GiB of float32 numbers, as
# in `inference/encoder`.
MOST_SCORES = 2**29

Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Minutes = Annotated[
    PositiveFloat, BeforeValidator(lambda it: seconds_named(it) / 60 if isinstance(it, str) else it)
]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda it: (it,) if isinstance(it, str) else it),
    Field(min_length=1),
]


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
    (`__label__spam win now`); a folder or glob of these; a folder of class folders with .txt files; `example:train`
    (the bundled data); or `hub:owner/name[?config=...&split=...&revision=...]`. Relative paths start at the current
    folder, else at that of the config file. With `label_names`, rows may lack a label."""
    validation: str | None = None
    """The same for the validation split; null: a part of train is held out, stratified by class."""
    test: str | None = None
    """The same for the test split; null: the final report is on the validation split."""
    unlabelled: str | None = None
    """Further texts without labels, to learn the language from: as above, or `.txt`, a text a line; null: none."""
    validation_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """The part of train held out where `validation` is null, at most 50,000 texts. Texts that differ only in case,
    white space, punctuation and digits are held out together."""
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the choice of held-out texts: runs with another `seed` are validated on the same texts."""
    text_column: Names = ("text",)
    """The column with the text; the texts of several columns are joined with a space."""
    label_column: str = "label"
    """The column with the class: a name or an integer. Lists of these, or several labels on a fastText line, make the
    data multi-label: each text may have several labels, or none."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """The separator of several labels in one cell, such as `|` in `late|refund`; makes the data multi-label. An
    empty cell has no labels; null: a cell is one label."""
    group_column: str | None = None
    """The column with the group of a row, such as its customer or thread: groups are never split between training,
    validation and folds of cross-validation. A row without a value is a group by itself; null: no groups."""
    corrections: str | None = None
    """A table of corrected labels, as `encoder-cls review` writes it: the label column of the data, and the column
    `key`, a hash of the text. A correction holds for every row with this text; null: no corrections."""
    label_names: tuple[str, ...] | None = None
    """The classes in order. Labels are all names, or all numbers (0: the first); spaces around them do not count."""
    fold_labels: bool = False
    """Whether labels that differ only in case, in spaces or in how Unicode writes the same characters are one class,
    named as in `label_names`, else by the most frequent spelling in train."""
    empty_texts: Literal["auto", "drop", "error"] = "auto"
    """Rows with an empty text: `auto` drops (and warns of) up to 1% of a split, `drop` all; `error` refuses any."""
    bad_rows: Literal["error", "skip"] = "error"
    """Rows that cannot be read, such as with a field too many: `error` stops; `skip` leaves them out with a warning."""
    delimiter: Annotated[str, AfterValidator(delimiter_named)] | None = None
    """The field separator of CSV and TSV files: a character, or `comma`, `semicolon`, `tab` or `pipe`; null: a comma, a
    tab in .tsv, or the only one that fits the header. Predictions use it too."""
    encoding: Annotated[str, AfterValidator(encoding_named)] = "utf-8"
    """The encoding of text files, such as `windows-1252` or `utf-16`. Predictions use it too."""
    cache: Annotated[str, Field(min_length=1)] | None = None
    """A folder that keeps rows and tokens as read, so that the next run on the same files and settings starts at once;
    runs may share it, and any part of it may be deleted; null: nothing is kept."""

    @field_validator("train", mode="before")
    @classmethod
    def _check_train_is_named(cls, source: object) -> object:
        if source is None:
            raise ValueError("name a file of labelled texts; without labels, label about 20 first")
        return source

    @field_validator("label_names", "text_column")
    @classmethod
    def _no_name_twice(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if names and names.count(name) > 1:
                raise ValueError(f"{name!r} is listed twice")
        return names

    @model_validator(mode="after")
    def _check_columns(self) -> DataConfig:
        if self.label_column == self.group_column:
            raise ValueError(
                f"group_column is label_column, {self.label_column!r}; name another column, or null"
            )
        if self.label_column in self.text_column:
            raise ValueError(
                f"label_column {self.label_column!r} is in text_column, too; leave it out of one"
            )
        return self


class TokenizerConfig(Section):
    """How a text becomes tokens; learned from the training texts and those without labels."""

    type: Literal["word_level", "word_piece", "bpe", "unigram"] = "word_level"
    """Whole words (`word_level`), or sub-words: `word_piece`, `bpe` or `unigram`, of words up to 500 characters."""
    lowercase: bool = True
    """Fold upper case to lower case."""
    normalization: Literal["none", "nfc", "nfkc"] = "nfkc"
    """The Unicode normalization form: `none`, `nfc` or `nfkc`."""
    strip_accents: bool = False
    """Remove accents, so that "café" and "cafe" are one word."""
    max_vocab_size: Annotated[int, Field(ge=16, lt=2**31)] = 30_000
    """The most tokens kept, special tokens included."""
    min_frequency: Count = 1
    """A token seen less often than this in training becomes `[UNK]`."""


class ModelConfig(Section):
    """The shape of the encoder and its classifier head, and the linear classifier beside them."""

    d_model: Annotated[int, Field(ge=1, le=8192)] = 128
    """Width of the token vectors."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of encoder layers."""
    num_heads: Annotated[int, Field(ge=1, le=8192)] = 4
    """Attention heads a layer; divides d_model."""
    d_ff: Annotated[int, Field(ge=1, le=65_536)] = 512
    """Inner width of the feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, le=65_536)] = 512
    """The most tokens of a text that the encoder reads, `[CLS]` included; longer texts are reported. The attention to
    one text may take 2 GiB: 11,585 tokens with four heads. The linear classifier reads up to eight times as many."""
    norm: Literal["pre", "post"] = "pre"
    """`pre`: LayerNorm before each sublayer and once at the end; `post`: after each residual sum."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The non-linearity of the feed-forward network: `relu` or `gelu`."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """The position embeddings: `sinusoidal`, `learned` or `none`."""
    char_ngram_buckets: Annotated[int, Field(ge=0, le=2**24)] = 32_768
    """Rows of the table of character n-grams, from which unknown words get vectors; 0: no table."""
    bigram_buckets: Annotated[int, Field(ge=0, le=2**24)] = 32_768
    """Rows of the table of pairs of neighbouring tokens; 0: no table."""
    dropout: Fraction = 0.1
    """Dropout on the embeddings and on each sublayer's output."""
    head_dropout: Fraction = 0.1
    """Dropout on the pooled vector before the last linear map."""
    encoder: bool | Literal["auto"] = "auto"
    """Whether to train an encoder; `auto`: unless at most 2,000 training texts have labels and more have none; false: the
    linear classifier alone is the model, trained in seconds."""
    linear: bool = True
    """Whether to add the logits of a linear classifier of word and character n-grams to the encoder's; beyond 12
    million tokens it learns from a stream, from words and pairs of words."""
    cascade: bool = True
    """Whether a text skips the encoder where the linear classifier is sure, if validation texts show that this changes
    next to nothing; false: both answer every text."""

    @model_validator(mode="after")
    def _check_shape(self) -> ModelConfig:
        if not self.encoder and not self.linear:
            raise ValueError("neither encoder nor linear is left; one of both is to be true")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        if self.encoder and self.num_heads * self.max_seq_len**2 > MOST_SCORES:
            longest = math.isqrt(MOST_SCORES // self.num_heads)
            raise ValueError(
                f"max_seq_len {self.max_seq_len:,}: the attention to one text takes more than 2 GiB;"
                f" with num_heads {self.num_heads}, {longest:,} tokens are the most"
            )
        return self


class PretrainConfig(Section):
    """Pretraining, before any class is learned; with the batches, learning rate and precision of `train`."""

    objective: Literal["masked_lm", "denoising"] = "masked_lm"
    """The task where `epochs` is a number: `masked_lm`, to guess masked tokens; `denoising`, where tokens are
    deleted and a decoder, thrown away afterwards, writes the whole text."""
    epochs: Annotated[int, Field(ge=0, lt=2**31)] | Literal["auto"] = "auto"
    """Passes over the texts; 0: none; `auto`: none, but where most texts lack a label, embeddings start from word
    vectors (a truncated SVD of co-occurrences), made in seconds."""
    time_budget: Minutes | None = None
    """The most time, such as 90s or 5m, estimated from its first steps; a bare number is minutes; null: no limit."""
    mask_probability: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """The part of the tokens that is masked or deleted."""


class TrainConfig(Section):
    """How the weights are learned."""

    epochs: Count | Literal["auto"] = "auto"
    """The most passes over the training texts (see patience); `auto`: the fewer the more text there is."""
    time_budget: Minutes | None = None
    """The most time of the whole run, such as 5m or 2h, from reading the data to the report; a bare number is minutes.
    The number of steps is estimated from the first steps of each stage; null: no limit."""
    batch_size: Count = 64
    """The most texts in a batch."""
    batch_tokens: Count = 8192
    """The most tokens in a batch, padding included; a batch of long texts holds fewer of them. Where each text is in it
    twice (see rdrop_weight), it counts once."""
    accumulation_steps: Count = 1
    """Batches whose gradients are summed before one update."""
    gradient_shards: Count = 1
    """Shards into which the texts of a batch are divided: the most processes that can share a training (torchrun). At
    equal shards, weights for any number of processes differ by rounding alone."""
    learning_rate: Annotated[float, Field(gt=0, le=3.4e38)] = 1e-3
    """The peak learning rate."""
    warmup_fraction: Fraction = 0.1
    """The part of all steps during which the learning rate rises to its peak; then it falls as a cosine."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """AdamW's weight decay on matrices; biases, norms and embeddings have none."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients longer than this are scaled down to it."""
    label_smoothing: Fraction = 0.0
    """The part of the target probability that is spread evenly over all classes."""
    word_dropout: Fraction = 0.25
    """The part of the words replaced by `[UNK]` in training, so that the model learns what an unknown word means."""
    rdrop_weight: NonNegativeFloat = 1.0
    """Weight of R-Drop, the symmetric KL divergence of two dropout passes, in the loss; 0: each text passes once."""
    class_weights: Literal["none", "balanced"] | dict[str, PositiveFloat] = "none"
    """Weights of the classes in the loss: `none`, `balanced` (the rarer the heavier), or by name: {spam: 2.0}. Recall
    of heavier classes rises; validation and probabilities are unweighted."""
    lsa_dimensions: Annotated[int, Field(ge=0, le=2000)] = 200
    """Dimensions of a truncated SVD of all texts (latent semantic analysis) as features of the linear classifier; 0:
    none. Used, as the next three, with at most 2,000 labelled texts, without those held out."""
    label_names_as_texts: bool = True
    """Whether the words of a class's name count as one more text of that class."""
    self_training: bool = True
    """Whether the linear classifier learns from its own answers to unlabelled texts, in rounds, unless out-of-fold
    answers are better without (ag_news, 100 labels: +13)."""
    naive_bayes_em: bool = True
    """Whether naive Bayes is added to the SVMs of each round of self-training (sst2, 50 labels: +4)."""
    pseudo_labels: bool = True
    """Whether, with at most 2,000 labelled texts, the encoder also learns the probabilities that the linear classifier
    gives to unlabelled texts."""
    refit_on_validation: bool = True
    """Whether the final linear classifier also learns from the texts held out of train for validation, never from a
    file named in data.validation. Validation then uses its answers from before; with at most 2,000 labelled texts,
    those of cross-validation."""
    monitor: Literal["accuracy", "micro_f1", "macro_f1", "mean_average_precision", "loss"] = "loss"
    """The validation score that chooses the best weights: `loss`, `macro_f1` or `accuracy`; of multi-label data `loss`,
    `macro_f1`, `micro_f1` or `mean_average_precision`."""
    patience: Count | None = 2
    """Stop after this many validations without a better score, once the learning rate has risen; null: never."""
    validate_every: Count | None = None
    """Steps between validations; null: at the end of each epoch, or of every few short epochs where they are `auto`."""
    checkpoint_every: Count | None = None
    """Steps between further checkpoints; null: after validations, at least 15 seconds apart."""
    keep_checkpoints: Count = 2
    """How many of the newest checkpoints stay on disk."""
    log_every: Count = 10
    """Steps between rows of training metrics."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Matrix products in training: `float32`, `bfloat16`, or `auto`: bfloat16 where the hardware is fast at it."""


class SearchRange(Section):
    """A range of numbers that `encoder-cls tune` searches."""

    low: int | float
    """The lowest; where both ends are integers, only integers are tried."""
    high: int | float
    """The highest."""
    log: bool = False
    """Whether to search on a logarithmic scale."""

    @model_validator(mode="after")
    def _is_a_range(self) -> SearchRange:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"with log, low is to be above 0, not {self.low}")
        return self


class Config(Section):
    """Everything a person chose for one run."""

    name: Annotated[str, Field(pattern=r"^[\w][\w.\-]*$", max_length=100)]
    """The run's name, and by default its folder under `runs/`; default: made of the config file's name."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of everything random except the choice of held-out texts (data.split_seed)."""
    from_run: str | None = None
    """The base run: the folder of a finished run (`--from`) whose data and encoder this one continues with. Its
    sections `model` and `tokenizer` hold here, too; null: start from nothing."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    train: TrainConfig = TrainConfig()
    tune: dict[str, SearchRange | Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """The search space of `encoder-cls tune`, by dotted key: a range {low: 0.0003, high: 0.003, log: true}, or a list
    of values. {}: learning rate, batch size, both kinds of dropout and R-Drop."""

    @field_validator("data", "tokenizer", "model", "pretrain", "train", "tune", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        return {} if value is None else value  # `model:` with nothing under it is YAML for null

    def to_yaml(self) -> str:
        """Every value as YAML text; `load_config` of it gives an equal config."""
        return to_yaml(self.model_dump(mode="json"))
