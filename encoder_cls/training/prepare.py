"""Config in, `TrainingSetup` out: the data is read, a tokenizer trained, and the recipe decided."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from encoder_cls.config import Config
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, listed
from encoder_cls.data.load import load_all_data
from encoder_cls.data.readers import Row
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.inference.task import MULTI_LABEL, SINGLE_LABEL, task_of
from encoder_cls.text.tokenizer_trainer import LONGEST_LEARNED
from encoder_cls.training.base_run import check_former_data, former_classifier
from encoder_cls.training.interruptible import StopSignal
from encoder_cls.training.recipe import TimeBudget, resolve_auto, training_schedule
from encoder_cls.training.setup import TrainingSetup, corpus_size
from encoder_cls.training.tokens import tokenized_data

MOST_TRUNCATED = 0.05  # of the training texts, without a warning
MONITORS = {
    SINGLE_LABEL: ("loss", "accuracy", "macro_f1"),
    MULTI_LABEL: ("loss", "micro_f1", "macro_f1", "mean_average_precision"),
}


def prepare(
    config: Config, *, train_rows: Iterable[Row] | None = None, stop_signal: StopSignal = lambda: None
) -> TrainingSetup:
    """Read the data, train the tokenizer and decide on the recipe.

    Args:
        config: of the run.
        train_rows: as in `load_dataset`.
        stop_signal: asked now and then while a sub-word tokenizer is trained.

    Raises:
        StoppedError: a signal asked to stop.
        DataError: the data is missing, malformed or not enough.
        ConfigError: there is nothing to go on from as the config has it; class weights name a class that does not
            occur, or a score to monitor is none of the task; or the time budget ends before training can begin.
    """
    began = time.monotonic()
    budget = TimeBudget(config, seconds_spent=0.0)

    def stop_if_asked() -> None:
        signal_number = stop_signal()
        if signal_number is not None:
            raise StoppedError("stopped before the training began", signal_number=signal_number)
        if budget.seconds_for(pretraining=False) == 0:
            raise ConfigError(
                f"train.time_budget: it is over while the {config.tokenizer.type} tokenizer is trained; give it more "
                "time, or set tokenizer.type=word_level, which takes seconds"
            )

    former = former_classifier(config)
    dataset = load_all_data(config, train_rows=train_rows)
    check_former_data(config, dataset)
    _check_class_weights(config, dataset)
    _check_monitor(config, dataset)
    _check_linear(config, dataset)
    tokenized = tokenized_data(
        dataset, config, former=former.tokenizer if former else None, stop_if_asked=stop_if_asked
    )
    texts = tokenized.texts
    labelled = texts.first(len(dataset.train))
    recipe = resolve_auto(
        config,
        has_encoder=config.model.encoder and not dataset.has_names_alone,
        texts=corpus_size(texts, config),
        labelled=corpus_size(labelled, config),
        tokens_within=lambda max_tokens: int(labelled.lengths_within(max_tokens).sum()),
        num_classes=len(dataset.label_names),
    )
    setup = TrainingSetup(
        config=config,
        dataset=dataset,
        tokenizer=tokenized.tokenizer,
        texts=texts,
        validation_texts=tokenized.validation_texts,
        recipe=recipe,
        former=former,
        long_words=tokenized.long_words,
    )
    if setup.has_pseudo_labels:
        learned_from = corpus_size(texts.take(setup.rows_of_model_stage), config)
        setup = replace(setup, recipe=replace(recipe, training=training_schedule(config, learned_from)))
    return replace(setup, seconds=time.monotonic() - began)


def setup_warnings(setup: TrainingSetup) -> Iterator[str]:
    """What a person should look at before training: warnings about the data, and of texts that are cut."""
    yield from data_warnings(setup.dataset)
    yield from _of_names(setup)
    if setup.long_words:
        yield (
            f"words of more than {LONGEST_LEARNED} characters, which the {setup.config.tokenizer.type} tokenizer does "
            f"not learn from: {setup.long_words:,}; are they attachments?"
        )
    truncated = setup.data_statistics["truncated_fraction"]
    if setup.has_encoder and truncated > MOST_TRUNCATED:
        yield (
            f"{truncated:.1%} of the training texts are longer than the {setup.config.model.max_seq_len:,} tokens that "
            "the encoder reads; a larger model.max_seq_len reads more of them, and takes longer"
        )


def _of_names(setup: TrainingSetup) -> Iterator[str]:
    """A warning of classes whose names are all that is known of them, and say nothing of the texts."""
    dataset = setup.dataset
    if not dataset.has_names_alone:
        return
    names = setup.train_texts
    in_texts = setup.texts.word_counts() - names.word_counts()
    unseen = [
        name
        for name, start, end in zip(dataset.label_names, names.offsets[:-1] + 1, names.offsets[1:], strict=True)
        if not in_texts[names.words[start:end]].any()
    ]
    if unseen:
        yield (
            f"no text has a word of these names, so what is taken for their classes is chance: {listed(unseen)}; give "
            "classes names that say what their texts are about, of several words if need be (data.label_names)"
        )


def _check_monitor(config: Config, dataset: Dataset) -> None:
    """Make sure that what tells which weights are best is a score of this task."""
    monitor, known = config.train.monitor, MONITORS[task_of(dataset.train.labels)]
    if monitor not in known:
        what = "may have several labels" if dataset.is_multi_label else "has one label"
        raise ConfigError(
            f"train.monitor: {monitor} is no score of this data, in which a text {what}; there are {', '.join(known)}"
        )


def _check_linear(config: Config, dataset: Dataset) -> None:
    """Make sure that there is something to learn the names of the classes."""
    if dataset.has_names_alone and not config.model.linear:
        raise ConfigError(
            "model.linear=false: no text has a label, and only a linear classifier learns from names alone"
        )


def _check_class_weights(config: Config, dataset: Dataset) -> None:
    """Make sure that each class that has a weight occurs."""
    weights = config.train.class_weights
    unknown = sorted(weights.keys() - set(dataset.label_names)) if isinstance(weights, dict) else []
    if unknown:
        raise ConfigError(
            f"train.class_weights: no class is called {unknown[0]!r}; there are {listed(dataset.label_names)}"
        )
