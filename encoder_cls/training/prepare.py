"""Read the data, train the tokenizer and make the plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.continued_data import config_of_base
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_all_data
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.run.checkpoint import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.text.tokenized_data import TokenizedData, tokenized_data
from encoder_cls.training.plan import (
    LINEAR_LENGTHS,
    CorpusSize,
    Counts,
    Plan,
    check_fits,
    make_plan,
)
from encoder_cls.training.prepared import Prepared, model_rows
from encoder_cls.training.time_budget import TimeBudget, check_least_fits


def prepare(
    config: Config,
    *,
    train_rows: Iterable[Row] | None = None,
    started: float | None = None,
    reporter: Reporter = SILENT,
) -> Prepared:
    """Read the data of a run, train its tokenizer, and make its plan.

    Args:
        config: what a person chose.
        train_rows: as in `load_dataset`.
        started: as in `TimeBudget`.
        reporter: hears what happens.

    Raises:
        StoppedError: a signal arrived while a sub-word tokenizer was trained.
        DataError: the data is missing, malformed or not enough.
        ConfigError: the config does not fit the data or the base run, or the time budget ends
            before training starts.
    """
    budget = TimeBudget(config, started=started)

    def check_budget() -> None:
        if budget.seconds_for(pretraining=False) == 0:
            raise ConfigError(
                f"train.time_budget: it ends while the {config.tokenizer.type} tokenizer is "
                "trained; give it more time, or set tokenizer.type=word_level, which takes seconds"
            )

    reporter.working(f"reading {config.data.train}")
    base_run = None
    base = None
    if config.from_run:
        base_run = _checked_base_run(Path(config.from_run), config)
        base = load_classifier(base_run.model, device="cpu", engine="numpy")
        _check_shape(base, base_run, config)

    if train_rows is None:
        check_least_fits(config, seconds=budget.left)
    dataset = load_all_data(config, train_rows=train_rows, reporter=reporter)
    if base_run and dataset.base:
        _check_base_data(dataset.base, base_run)
    check_fits(config, dataset)

    reporter.working(f"tokenizing {len(dataset.train):,} texts")
    parts = (dataset.train, dataset.unlabelled, dataset.known_validation)
    tokens = tokenized_data(
        dataset.texts_to_learn,
        dataset.known_validation.texts,
        config,
        fingerprints=[part.fingerprint for part in parts],
        base=base.tokenizer if base else None,
        check=check_budget,
        reporter=reporter,
    )
    plan = _plan(config, dataset, tokens, base)
    reporter.working("")
    return Prepared(
        config=config,
        dataset=dataset,
        tokenizer=tokens.tokenizer,
        texts=tokens.texts,
        validation_texts=tokens.validation_texts,
        long_words=tokens.long_words,
        plan=plan,
        budget=budget,
        base=base,
    )


def _plan(config: Config, dataset: Dataset, tokens: TokenizedData, base: Classifier | None) -> Plan:
    """Count what the plan of a run depends on, and make the plan."""
    texts = tokens.texts
    num_labelled = len(dataset.train)

    linear_tokens = {}
    for multiple in LINEAR_LENGTHS:
        max_tokens = multiple * config.model.max_seq_len
        lengths = texts.lengths_within(max_tokens)[:num_labelled]
        linear_tokens[max_tokens] = int(lengths.sum())

    counts = Counts(
        labelled=num_labelled,
        unlabelled=len(texts) - num_labelled,
        validation=len(tokens.validation_texts),
        classes=len(dataset.label_names),
        corpus=CorpusSize.of(texts.lengths, config),
        linear_tokens=linear_tokens,
        is_multi_label=dataset.is_multi_label,
        has_base_encoder=base is not None and base.encoder is not None,
    )

    def model_corpus(has_pseudo_labels: bool) -> CorpusSize:
        rows = model_rows(texts, num_labelled, has_pseudo_labels)
        return CorpusSize.of(texts.lengths[rows], config)

    return make_plan(config, counts, model_corpus=model_corpus)


def _checked_base_run(path: Path, config: Config) -> RunDir:
    """Return a base run, which must be finished and have the same tokenizer."""
    run = RunDir(path)
    base_config = config_of_base(str(path))
    if not run.is_finished():
        raise ConfigError(f"{run.path}: is not a finished run; finish it first (train --resume)")
    if base_config.tokenizer != config.tokenizer:
        raise ConfigError(
            f"tokenizer: differs from that of {run.path}, which a continued run keeps; leave the "
            "section out"
        )

    # The report needs this table, so a damaged one is noticed now.
    HeldOutPredictions.of_run(run.held_out_predictions)
    return run


def _check_shape(base: Classifier, run: RunDir, config: Config) -> None:
    """Raise a `ConfigError` if the encoder of a base run has another shape than that of the run."""
    # A base run without an encoder fits any shape: a new encoder is trained.
    if base.encoder is None or not config.model.encoder:
        return
    if base.encoder.architecture != EncoderArchitecture.of(config.model):
        raise ConfigError(
            f"model: the encoder of {run.path} has another shape; leave the section out to keep it"
        )


def _check_base_data(dataset: Dataset, run: RunDir) -> None:
    """Raise a `DataError` if the data of a base run is not what it was trained on."""
    fingerprints = newest_fingerprint(run.checkpoints)
    for kind, split in (("training", dataset.train), ("validation", dataset.validation)):
        expected = fingerprints.get(f"{kind}_data", split.fingerprint)
        if split.fingerprint != expected:
            source = run.load_config().data.train
            raise DataError(
                f"{run.path}: its {kind} data ({source}) has changed since it was trained"
            )
