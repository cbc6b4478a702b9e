"""Read the data, train the tokenizer and make the plan."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice

import numpy as np

from encoder_cls.config import Config
from encoder_cls.data.base_run import load_all_data
from encoder_cls.data.dataset import Dataset, listed
from encoder_cls.data.load import reading_of
from encoder_cls.data.readers import read_rows
from encoder_cls.data.rows import Row
from encoder_cls.data.sources import every_file
from encoder_cls.errors import ConfigError
from encoder_cls.system.stop import checking
from encoder_cls.system.work import begin_work
from encoder_cls.training.base_run import base_classifier, check_base_data
from encoder_cls.training.linear.features import sample_rows
from encoder_cls.training.plan import LINEAR_LENGTHS, CorpusSize, Counts, TimeBudget, make_plan
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.tokens import tokenized_data

# Of a source of so many bytes, reading so many rows shows the least time of a run, in times of reading alone.
LARGE, TIMED_ROWS, LEAST_WORK = 5_000_000, 5000, 9.0
MONITORS = ("loss", "accuracy", "macro_f1")
MULTI_LABEL_MONITORS = ("loss", "micro_f1", "macro_f1", "mean_average_precision")


def prepare(config: Config, *, train_rows: Iterable[Row] | None = None, started: float | None = None) -> Prepared:
    """Prepare a run; `train_rows` as in `load_dataset`, `started` as in `TimeBudget`.

    Raises:
        StoppedError: a signal asked to stop while a sub-word tokenizer was trained.
        DataError: the data is missing, malformed or not enough.
        ConfigError: it does not fit the data or the base run, or the time budget ends before training can start.
    """
    budget = TimeBudget(config, started=started)

    def check_budget() -> None:
        if budget.seconds_for(pretraining=False) == 0:
            raise ConfigError(
                f"train.time_budget: it is over while the {config.tokenizer.type} tokenizer is trained; give it more "
                "time, or set tokenizer.type=word_level, which takes seconds"
            )

    begin_work(f"reading {config.data.train or config.data.unlabelled}")
    base = base_classifier(config)
    if train_rows is None:
        _check_least_fits(config, budget)
    dataset = load_all_data(config, train_rows=train_rows)
    check_base_data(config, dataset)
    _check_fits(config, dataset)
    begin_work(f"tokenizing {len(dataset.train):,} texts")
    with checking(check_budget):
        tokens = tokenized_data(dataset, config, base=base.tokenizer if base else None)
    texts, num_labelled, max_seq_len = tokens.texts, len(dataset.train), config.model.max_seq_len
    labelled, rows = texts[:num_labelled], np.arange(num_labelled)

    def model_corpus(has_pseudo_labels: bool) -> CorpusSize:
        nonlocal rows
        if has_pseudo_labels:
            rows = sample_rows(texts, num_labelled, max_seq_len)
        return CorpusSize.of(texts.take(rows) if has_pseudo_labels else labelled, config)

    counts = Counts(
        labelled=num_labelled,
        unlabelled=len(texts) - num_labelled,
        validation=len(tokens.validation_texts),
        classes=len(dataset.label_names),
        corpus=CorpusSize.of(texts, config),
        linear_tokens=tuple(int(labelled.lengths_within(part * max_seq_len).sum()) for part in LINEAR_LENGTHS),
        is_multi_label=dataset.is_multi_label,
        names_only=dataset.has_names_alone,
        has_base_encoder=base is not None and base.encoder is not None,
    )
    begin_work("")
    return Prepared(
        config=config,
        dataset=dataset,
        tokenizer=tokens.tokenizer,
        texts=texts,
        validation_texts=tokens.validation_texts,
        plan=make_plan(config, counts, model_corpus=model_corpus),
        model_rows=rows,
        budget=budget,
        base=base,
        long_words=tokens.long_words,
    )


def _check_least_fits(config: Config, budget: TimeBudget) -> None:
    """Read a few rows of a large source: their time shows whether a run with all of them is possible."""
    source, seconds = config.data.train, budget.left
    if seconds is None or source is None or ":" in source:
        return
    size = sum(file.stat().st_size for file in every_file(source) if file.is_file())
    if size < LARGE:
        return
    columns, reading = (config.data.text_column, config.data.label_column), reading_of(config.data)
    rows = read_rows(source, role="train", text_columns=columns[0], label_column=columns[1], reading=reading)
    began = time.monotonic()
    read = sum(len(row.text.encode()) for row in islice(rows, TIMED_ROWS))
    least = LEAST_WORK * (time.monotonic() - began) * size / max(1, read)
    if least > seconds:
        raise ConfigError(
            f"train.time_budget: {source} has {size / 1e6:,.0f} MB of text, which takes this machine about "
            f"{least:.0f} s at the least; give it more time, or fewer texts"
        )


def _check_fits(config: Config, dataset: Dataset) -> None:
    """Check what the config asks of the data: class weights, the monitored score, a classifier that can learn."""
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(
            f"train.class_weights: no class is called {unknown[0]!r}; there are {listed(dataset.label_names)}"
        )
    monitor, known = config.train.monitor, MULTI_LABEL_MONITORS if dataset.is_multi_label else MONITORS
    if monitor not in known:
        what = "may have several labels" if dataset.is_multi_label else "has one label"
        raise ConfigError(
            f"train.monitor: {monitor} is no score of this data, in which a text {what}; there are {', '.join(known)}"
        )
    if dataset.has_names_alone and not config.model.linear:
        raise ConfigError(
            "model.linear=false: no text has a label, and only a linear classifier learns from names alone"
        )
