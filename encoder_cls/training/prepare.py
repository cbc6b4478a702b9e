"""Read the data, train the tokenizer and make the plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.continued_data import config_of_base
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_data
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.metrics.tasks import task_of
from encoder_cls.run.checkpoint_files import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.display import counted
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.text.row_tokens import row_form
from encoder_cls.text.tokenized_data import TokenizedData, tokenized_data
from encoder_cls.training.expected_time import scoring_seconds
from encoder_cls.training.plan import (
    LINEAR_LENGTHS,
    CorpusSize,
    Counts,
    Plan,
    check_config_fits_data,
    make_plan,
)
from encoder_cls.training.prepared import Prepared, rows_for_encoder
from encoder_cls.training.time_budget import TimeBudget


def prepare(
    config: Config,
    *,
    train_rows: Iterable[Row] | None = None,
    budget: TimeBudget | None = None,
    model_class: type[EncoderClassifier] | None = None,
    reporter: Reporter = SILENT,
) -> Prepared:
    """Read the data of a run, train its tokenizer, and make its plan.

    `train_rows` take the place of `data.train`; the time limits begin now by default.

    Raises:
        StoppedError: a signal arrived while a sub-word tokenizer was trained.
        DataError: the data is missing, malformed or not enough.
        ConfigError: the config does not fit the data or the base run, or there is no time to train.
    """
    budget = budget or TimeBudget(config)

    reporter.working(f"reading {config.data.train}")
    base_run = None
    base = None
    if config.from_run:
        base_run = _checked_base_run(Path(config.from_run), config)
        base = load_classifier(
            base_run.model, device="cpu", engine="numpy", model_class=model_class
        )
        _check_shape(base, base_run, config)

    dataset = load_data(config, train_rows=train_rows, reporter=reporter)
    if base_run and dataset.base:
        _check_base_data(dataset.base, base_run)
    check_config_fits_data(config, dataset)
    _check_validation_is_new(config, dataset)

    def check_time_is_left() -> None:
        if budget.is_spent:
            raise ConfigError(
                f"train.time_budget: it ends while the {config.tokenizer.type} tokenizer is "
                "trained; give it more time, or set tokenizer.type=word_level, which takes seconds"
            )

    reporter.working(f"tokenizing {len(dataset.train):,} texts")
    splits = (dataset.train, dataset.unlabelled, dataset.known_validation)
    tokens = tokenized_data(
        dataset.texts_to_learn,
        dataset.known_validation.texts,
        config,
        fingerprints=[split.fingerprint for split in splits],
        groups=lambda: dataset.groups_to_learn,
        base=base.tokenizer if base else None,
        check=check_time_is_left,
        reporter=reporter,
    )
    _check_room_for_words(config, tokens)
    counts, plan = _plan(config, dataset, tokens, base)
    if config.train.time_budget is not None:
        budget.keep_for_scoring(scoring_seconds(counts))
    reporter.working("")

    return Prepared(
        config=config,
        dataset=dataset,
        tokenizer=tokens.tokenizer,
        texts=tokens.texts,
        validation_texts=tokens.validation_texts,
        long_words=tokens.long_words,
        counts=counts,
        plan=plan,
        budget=budget,
        base=base,
        model_class=model_class,
    )


def _check_validation_is_new(config: Config, dataset: Dataset) -> None:
    """Raise a `DataError` if each validation text is in train, so that none can choose anything."""
    if not len(dataset.known_validation):
        texts = counted(len(dataset.validation), "text")
        raise DataError(
            config.data.validation or config.data.train,
            f"each of its {texts} is in train, too, so none shows how good a model is",
            "name other texts; or leave data.validation out, so that part of train is held out",
        )


def _check_room_for_words(config: Config, tokens: TokenizedData) -> None:
    """Raise a `ConfigError` if features take more than half of the tokens."""
    form = row_form(tokens.tokenizer)
    if form and 2 * form.most_tokens > config.model.max_seq_len:
        raise ConfigError(
            f"model.max_seq_len: {config.model.max_seq_len} tokens have too little room for words "
            f"beside the {len(form.features)} data.features, which take up to {form.most_tokens}; "
            f"set at least {2 * form.most_tokens}"
        )


def _plan(
    config: Config, dataset: Dataset, tokens: TokenizedData, base: Classifier | None
) -> tuple[Counts, Plan]:
    texts = tokens.texts
    num_labelled = len(dataset.train)

    # The plan also decides how many tokens of each text the linear model reads: count the tokens of
    # all labelled texts for each possible number.
    linear_tokens = {}
    for multiple in LINEAR_LENGTHS:
        max_tokens = multiple * config.model.max_seq_len
        lengths = texts.lengths_within(max_tokens)[:num_labelled]
        linear_tokens[max_tokens] = int(lengths.sum())

    counts = Counts(
        labelled=num_labelled,
        unlabelled=len(texts) - num_labelled,
        validation=len(tokens.validation_texts),
        scored=len(dataset.report_split[1]),
        classes=len(dataset.label_names),
        corpus=CorpusSize.of(texts.lengths, config),
        linear_tokens=linear_tokens,
        task=task_of(dataset.train.labels),
        has_base_encoder=base is not None and base.encoder is not None,
    )

    def encoder_corpus(has_pseudo_labels: bool) -> CorpusSize:
        rows = rows_for_encoder(texts, num_labelled, has_pseudo_labels)
        return CorpusSize.of(texts.lengths[rows], config)

    return counts, make_plan(config, counts, encoder_corpus=encoder_corpus)


def _checked_base_run(path: Path, config: Config) -> RunDir:
    base_run = RunDir(path)
    base_config = config_of_base(str(path))
    if not base_run.is_finished():
        raise ConfigError(
            f"{base_run.path}: is not a finished run; finish it first (train --resume)"
        )
    if base_config.tokenizer != config.tokenizer:
        raise ConfigError(
            f"tokenizer: differs from that of {base_run.path}, which a continued run keeps; leave "
            "the section out"
        )

    columns = (config.data.features, _fields(config))
    if columns != (base_config.data.features, _fields(base_config)):
        raise ConfigError(
            f"data.features, data.text_column: differ from those of {base_run.path}, which a "
            "continued run keeps; leave them out"
        )

    # Read the held-out predictions, which the final report needs, so that a damaged file is noticed
    # before the training.
    HeldOutPredictions.of_run(base_run.held_out_predictions)
    return base_run


def _fields(config: Config) -> tuple[str, ...]:
    """The names of text columns, which matter to the model only if there are several."""
    columns = config.data.text_column
    return columns if len(columns) > 1 else ()


def _check_shape(base: Classifier, base_run: RunDir, config: Config) -> None:
    # A base run without an encoder fits any shape: a new encoder is trained.
    if base.encoder is None or not config.model.encoder:
        return
    if base.encoder.architecture != EncoderArchitecture.of(config.model):
        raise ConfigError(
            f"model: the encoder of {base_run.path} has another shape; leave the section out to "
            "keep it"
        )


def _check_base_data(dataset: Dataset, base_run: RunDir) -> None:
    fingerprints = newest_fingerprint(base_run.checkpoints)
    for kind, split in (("training", dataset.train), ("validation", dataset.validation)):
        # A base run without checkpoints has no hashes, so there is nothing to compare.
        expected = fingerprints.get(f"{kind}_data", split.fingerprint)
        if split.fingerprint != expected:
            source = base_run.load_config().data.train
            raise DataError(
                f"{base_run.path}: its {kind} data ({source}) has changed since it was trained"
            )
