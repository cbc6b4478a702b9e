"""The config of a run: frozen, validated, every field with its default and what it means.

The config holds only what a person chose. What is found in the data (classes, vocabulary size) is
passed beside it and never written into it. `configs/example.yaml` lists every value with its default.
"""

from __future__ import annotations

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

Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
LARGEST_FLOAT32 = 3.4e38


def _in_float32(value: float) -> float:
    if value > LARGEST_FLOAT32:
        raise ValueError(f"Input should be {LARGEST_FLOAT32:.1e} at most, the largest number in 32 bits")
    return value


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_minutes(value: Any) -> Any:
    return seconds_named(value) / 60 if isinstance(value, str) else value


Minutes = Annotated[PositiveFloat, BeforeValidator(_as_minutes)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), Field(min_length=1)]


class Section(BaseModel):
    """A part of the config: frozen, unknown keys refused, field docstrings kept as descriptions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        protected_namespaces=(),
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("holds a NUL character, which no name has")
        return value


class DataConfig(Section):
    """Where the labelled text is and how to read it."""

    train: str | None = None
    """A CSV, TSV, JSONL (also with .gz), JSON, Parquet or Excel file, a .txt or .ft file as fastText reads it
    (`__label__spam win now`), a folder or glob of them, a folder of class folders with .txt files, `example:train` (the
    bundled data), or `hub:owner/name[?config=...&split=...&revision=...]`. Relative paths start at the current folder,
    or else at that of the config file. Where `label_names` is there, rows may have no label; null: no text has one, and
    a first classifier is learned from those names and the texts of `unlabelled`."""
    validation: str | None = None
    """The same for the validation split; null: a part of train is held out, stratified by class."""
    test: str | None = None
    """The same for the test split; null: the final report is on the validation split."""
    unlabelled: str | None = None
    """Further texts, of which no class is known: in a file as above, or `.txt` with a text a line; null: none. The
    encoder learns their language."""
    validation_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """The part of train that is held out where no validation data is named, 50,000 texts at the most; rows of equal
    texts, which differ in case and white space at most, are held out together."""
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of what is held out, apart from `seed`: runs with another `seed` are validated on the same texts."""
    text_column: Names = ("text",)
    """The column with the text; of several columns the texts are joined with a space."""
    label_column: str = "label"
    """The column with the class: a name or an integer. Where it holds lists of these, or a fastText line has several
    labels, texts may have several labels each, or none: multi-label classification."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """What separates the labels of a text in one cell, such as `|` in `late|refund`; an empty cell has none. It makes
    the data multi-label; null: a cell is one label."""
    group_column: str | None = None
    """The column that says which rows belong together, such as those of one customer or thread: they are held out
    together, and cross-validation keeps them together. Rows without a value stand alone; null: there are no groups."""
    corrections: str | None = None
    """A CSV file with mended labels, as `encoder-cls review` writes it: each of its rows names file and line of a row
    of train, validation or test, with its text and the label that it is to have; null: labels are as they are."""
    label_names: tuple[str, ...] | None = None
    """The names of the classes in their order, as they are written. Labels are either all names, or all numbers: 0 for
    the first name, and so on."""
    empty_texts: Literal["auto", "drop", "error"] = "auto"
    """Rows whose text is empty: `auto` leaves out up to 1% of a split, with a warning, and refuses more; `drop` leaves
    all of them out, `error` refuses any."""
    bad_rows: Literal["error", "skip"] = "error"
    """Rows that cannot be read, such as one with a field too many: `error` ends with where the first is, `skip` leaves
    them out, with a warning."""
    delimiter: Annotated[str, AfterValidator(delimiter_named)] | None = None
    """What separates the fields of CSV and TSV files: a character, or `comma`, `semicolon`, `tab` or `pipe`; null: a
    comma, in .tsv a tab, or what the header leaves no doubt of. Predictions read the same way."""
    encoding: Annotated[str, AfterValidator(encoding_named)] = "utf-8"
    """The encoding of text files, such as `windows-1252` or `utf-16`. Predictions read the same way."""
    cache: Annotated[str, Field(min_length=1)] | None = None
    """A folder that keeps the rows and their tokens as they were read, so that the next run with the same files and
    settings begins at once; several runs may share it, and any part of it may be removed; null: nothing is kept."""

    @field_validator("label_names", "text_column")
    @classmethod
    def _no_name_twice(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        doubled = next((name for name in names or () if names and names.count(name) > 1), None)
        if doubled is not None:
            raise ValueError(f"{doubled!r} is there twice")
        return names

    @model_validator(mode="after")
    def _something_is_to_be_learned_from(self) -> DataConfig:
        if self.train is None and (self.unlabelled is None or self.label_names is None):
            raise ValueError(
                "train is missing; without a labelled text, a classifier can be learned from the texts of unlabelled "
                "and the names of the classes in label_names"
            )
        return self

    @model_validator(mode="after")
    def _label_is_no_group(self) -> DataConfig:
        if self.label_column == self.group_column:
            raise ValueError(
                f"group_column is label_column, {self.label_column!r}, so no class could be in two splits; "
                "name another column, or null"
            )
        return self

    @model_validator(mode="after")
    def _label_is_no_text(self) -> DataConfig:
        if self.label_column in self.text_column:
            raise ValueError(
                f"label_column {self.label_column!r} is in text_column, too, so the text would tell the label; "
                "leave it out of one"
            )
        return self


class TokenizerConfig(Section):
    """How a text becomes tokens; learned from the training texts and those without labels."""

    type: Literal["word_level", "word_piece", "bpe", "unigram"] = "word_level"
    """`word_level`: whole words; or one of the sub-word models `word_piece`, `bpe` and `unigram`, which do not learn
    from words of more than 500 characters."""
    lowercase: bool = True
    """Fold upper case to lower case."""
    normalization: Literal["none", "nfc", "nfkc"] = "nfkc"
    """The Unicode normalization form: `none`, `nfc` or `nfkc`."""
    strip_accents: bool = False
    """Remove accents, so that "café" and "cafe" are one word."""
    max_vocab_size: Annotated[int, Field(ge=16, lt=2**31)] = 30_000
    """The most tokens kept, special tokens counted."""
    min_frequency: Count = 1
    """A token seen less often than this in training becomes `[UNK]`."""


class ModelConfig(Section):
    """The shape of the encoder and its classifier head, and what stands beside them."""

    d_model: Annotated[int, Field(ge=1, le=8192)] = 128
    """Width of the token vectors."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 2
    """Number of encoder layers."""
    num_heads: Annotated[int, Field(ge=1, le=8192)] = 4
    """Attention heads a layer; divides d_model."""
    d_ff: Annotated[int, Field(ge=1, le=65_536)] = 512
    """Inner width of the feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, le=65_536)] = 512
    """The most tokens of a text that the encoder reads, `[CLS]` counted; longer texts are reported. The linear
    classifier reads up to eight times as many."""
    norm: Literal["pre", "post"] = "pre"
    """`pre`: LayerNorm before each sublayer and once at the end; `post`: after each residual sum."""
    activation: Literal["relu", "gelu"] = "gelu"
    """The non-linearity of the feed-forward network: `relu` or `gelu`."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """How the model is told a token's position: `sinusoidal`, `learned` or `none`."""
    char_ngram_buckets: Annotated[int, Field(ge=0, le=2**24)] = 32_768
    """Rows of the table of character n-grams, through which unknown words are read; 0: none."""
    bigram_buckets: Annotated[int, Field(ge=0, le=2**24)] = 32_768
    """Rows of the table of pairs of neighbouring tokens; 0: none."""
    dropout: Fraction = 0.1
    """Dropout on the embeddings and on each sublayer's output."""
    head_dropout: Fraction = 0.1
    """Dropout on the pooled vector before the last linear map."""
    encoder: bool = True
    """Whether there is an encoder; false: the linear classifier alone is the model, trained in seconds."""
    linear: bool = True
    """Whether the logits of a linear classifier of word and character n-grams are combined with the encoder's; of
    more than 12 million tokens it learns as a stream, from words and pairs."""

    @model_validator(mode="after")
    def _some_part_is_left(self) -> ModelConfig:
        if not self.encoder and not self.linear:
            raise ValueError("neither encoder nor linear is left; one of both is to be true")
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelConfig:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self


class PretrainConfig(Section):
    """Masked-LM pretraining, before any class is learned; with the batches, learning rate and precision of `train`."""

    epochs: Annotated[int, Field(ge=0, lt=2**31)] | Literal["auto"] = "auto"
    """How often the texts are read; `auto`: the fewer the more text there is; 0: no pretraining."""
    time_budget: Minutes | None = None
    """The most time it may take, such as 90s or 5m, judged by its first steps; a bare number is minutes; null: as much
    as it takes."""
    mask_probability: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """The part of the tokens that are masked."""


class TrainConfig(Section):
    """How the weights are found."""

    epochs: Count | Literal["auto"] = "auto"
    """How often the training texts are read, at most (see patience); `auto`: the fewer the more text there is."""
    time_budget: Minutes | None = None
    """The most time of the whole run, such as 5m or 2h, from reading the data to the report; a bare number is minutes.
    The first steps of each stage tell how many there is time for. null: as much as it takes."""
    batch_size: Count = 64
    """The most texts in a batch."""
    batch_tokens: Count = 8192
    """The most tokens in a batch, padding counted; a batch of long texts holds fewer of them. Where texts are
    there twice (see rdrop_weight), each counts once."""
    accumulation_steps: Count = 1
    """Batches whose gradients are summed before one update."""
    gradient_shards: Count = 1
    """Shards into which each batch is cut, by texts; so many processes at most share a training (torchrun). At
    equal shards, weights differ by rounding alone, however many processes there are."""
    learning_rate: Annotated[PositiveFloat, AfterValidator(_in_float32)] = 1e-3
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
    """The part of the words replaced by `[UNK]` in training, so that unknown words are known to be unknown."""
    rdrop_weight: NonNegativeFloat = 1.0
    """The weight in the loss of the symmetric Kullback-Leibler divergence of two dropout passes (R-Drop); 0: each text
    passes once."""
    class_weights: Literal["none", "balanced"] | dict[str, PositiveFloat] = "none"
    """Weights of the classes in what is learned: `none`, `balanced` (the rarer the heavier), or by name: {spam: 2.0}.
    More texts of heavier classes are found; validation and probabilities go by the labels as they occur."""
    lsa_dimensions: Annotated[int, Field(ge=0, le=2000)] = 200
    """Of the latent semantics (a truncated SVD) of all texts, from which the linear classifier learns, too; 0: none. As
    the next three, tried with 2,000 labelled texts or fewer, and kept where cross-validation on them shows a gain
    (banking77, 300 labels: +4 points)."""
    label_names_as_texts: bool = True
    """Whether the words of a class's name may count as one more text of that class (banking77, 300 labels: +5)."""
    self_training: bool = True
    """Whether the linear classifier may learn from its own most confident answers on unlabelled texts (banking77, 300
    labels: +3 beside the others)."""
    naive_bayes_em: bool = True
    """Whether naive Bayes, learned from labelled and unlabelled texts by expectation maximization, may be added to the
    linear classifier (ag_news, 100 labels: +21; sst2: +12)."""
    pseudo_labels: bool = True
    """Whether, with 2,000 labelled texts or fewer, the encoder also learns from texts without labels: what the linear
    classifier says of them, as probabilities (ten trainings with 300 labels or 1,000: with the next, the encoder by
    itself +10.6 points, its sum with the linear classifier +0.6)."""
    refit_on_validation: bool = True
    """Whether the linear classifier in the end also learns from the texts held out of train for validation, never from
    a file named in data.validation. Validation then goes by what it said before; with 2,000 labelled texts or fewer, by
    its answers in cross-validation."""
    monitor: Literal["accuracy", "micro_f1", "macro_f1", "mean_average_precision", "loss"] = "loss"
    """What tells in validation which weights are best: `loss`, `macro_f1` or `accuracy`; of multi-label data `loss`,
    `macro_f1`, `micro_f1` or `mean_average_precision`."""
    patience: Count | None = 3
    """Stop after this many validations without a better score, once the learning rate has risen; null: never."""
    validate_every: Count | None = None
    """Steps between validations; null: at the end of each epoch; where epochs are short and `auto`, of every few."""
    checkpoint_every: Count | None = None
    """Steps between further checkpoints; null: they are written after validations, 15 seconds apart at the least."""
    keep_checkpoints: Count = 2
    """How many of the newest checkpoints stay on disk."""
    log_every: Count = 10
    """Steps between rows of training metrics."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Matrix products in training: `float32`, `bfloat16`, or `auto`: bfloat16 where the hardware is fast at it."""


class SearchRange(Section):
    """The numbers among which `encoder-cls tune` searches for one."""

    low: int | float
    """The lowest; of two integers the range has integers alone."""
    high: int | float
    """The highest."""
    log: bool = False
    """Whether the logarithm is what is searched."""

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
    """The run's name, and by default its folder under `runs/`; made of the config file's name where not given."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of everything random but of what is held out (data.split_seed)."""
    from_run: str | None = None
    """The folder of a finished run that this one goes on from, with its data and its encoder, as `--from` names it; its
    sections `model` and `tokenizer` hold here, too. null: a run begins from nothing."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrain: PretrainConfig = PretrainConfig()
    train: TrainConfig = TrainConfig()
    tune: dict[str, SearchRange | Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """What `encoder-cls tune` searches, by dotted key: a range {low: 0.0003, high: 0.003, log: true}, or a list of
    values. {}: learning rate, batch size, both kinds of dropout and R-Drop."""

    @field_validator("data", "tokenizer", "model", "pretrain", "train", "tune", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        return {} if value is None else value  # `model:` with nothing under it is YAML for null

    def to_yaml(self) -> str:
        """Every value as YAML text; `load_config` of it gives an equal config."""
        return to_yaml(self.model_dump(mode="json"))
