"""What a person sees of a run in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from encoder_cls.system.display import counted

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset, Split
    from encoder_cls.training.prepared import Prepared


import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.system.terminal import note, note_above, print_out

if TYPE_CHECKING:
    from encoder_cls.training.events import EncoderGain, Event, Finished, LinearFitted, Stepped, StepsDecided, Validated


def described(prepared: Prepared) -> Iterator[str]:
    """How the data was read, and what will be trained on what, in a few lines."""
    yield from prepared.dataset.notes
    dataset, config, statistics = prepared.dataset, prepared.config, prepared.data_statistics
    if dataset.has_names_alone:
        yield from _described_by_names(prepared)
        return
    test = f", {len(dataset.test):,} test" if dataset.test else ""
    more = f", {len(dataset.unlabelled.texts):,} unlabelled" if dataset.unlabelled.texts else ""
    yield (
        f"data: {len(dataset.train):,} training, {len(dataset.validation):,} validation{test}{more} texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')}, "
        f"of {_sizes(dataset.train, dataset.label_names)} training texts"
    )
    if dataset.is_multi_label:
        yield _several_labels(dataset)
    if dataset.corrected:
        changed = counted(len(dataset.corrected), "label")
        yield f"corrections: {changed} of {config.data.corrections} in place of those of the data"
    yield from _groups(dataset, config.data.group_column)
    if not config.model.encoder:
        yield f"tokens: vocabulary {prepared.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}"
        yield "model: a linear model alone, without steps of training (model.encoder=false)"
        return
    yield (
        f"tokens: vocabulary {prepared.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}, "
        f"texts longer than the encoder reads {statistics['truncated_fraction']:.1%}, padding "
        f"{statistics['padding_fraction']:.1%}"
    )
    shape = f"{counted(config.model.num_layers, 'layer')} of width {config.model.d_model}"
    plan = prepared.plan
    beside = ", beside it a linear model" if plan.linear else ""
    beside += " (from a stream: there is much text)" if plan.linear_fit == "stream" else ""
    if config.model.linear and not plan.linear:
        beside = ", no linear model beside it (too much text for so many classes)"
    yield f"model: {shape}, {prepared.num_parameters:,} parameters{beside}"
    lengths = {"masked-LM pretraining": plan.pretraining, "training on labels": plan.training}
    passes = [f"{it.epochs} epoch{'s' * (it.epochs > 1)} of {what}" for what, it in lengths.items() if it]
    yield f"steps: {plan.total_steps:,} in all; {', '.join(passes)}"


def _described_by_names(prepared: Prepared) -> Iterator[str]:
    """The same where no text has a label."""
    dataset = prepared.dataset
    held_out = {"validation": len(dataset.validation), "test": len(dataset.test or ())}
    others = "".join(f", {count:,} {name}" for name, count in held_out.items() if count)
    yield (
        f"data: no labelled text to learn from{others}, {len(dataset.unlabelled.texts):,} unlabelled texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')} by their names (data.label_names)"
    )
    yield f"tokens: vocabulary {prepared.vocab_size:,}"
    yield "model: a linear model alone, learned from what the names of the classes say"


def _several_labels(dataset: Dataset) -> str:
    """That texts may have several labels, and how many they have."""
    labels = dataset.train.labels.sum(axis=1)
    why = f"{dataset.several}: labels in a list" if dataset.several else "data.label_separator"
    return (
        f"multi-label ({why}): {labels.mean():.2f} labels a text, several {(labels > 1).mean():.1%}, none "
        f"{(labels == 0).mean():.1%}"
    )


def _groups(dataset: Dataset, column: str | None) -> Iterator[str]:
    """How many groups each split has, where a column names them."""
    import numpy as np

    from encoder_cls.data.holdout import NO_GROUP
    from encoder_cls.system.display import shown

    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    groups = {name: split.groups for name, split in splits.items() if split is not None and split.groups is not None}
    if not groups:
        return
    counts = ", ".join(f"{len(np.unique(it[it != NO_GROUP])):,} {name}" for name, it in groups.items())
    alone = sum(int((it == NO_GROUP).sum()) for it in groups.values())
    without = f"; {counted(alone, 'text')} without one (each alone)" if alone else ""
    yield f"groups by {shown(column or '')}: {counts}{without}"


def _sizes(split: Split, label_names: Sequence[str]) -> str:
    """How many texts the smallest class has, and the largest."""
    from encoder_cls.system.display import shown

    sizes = sorted(zip(split.class_counts(len(label_names)).tolist(), label_names, strict=True))
    return " to ".join(f"{size:,} ({shown(name, limit=30)})" for size, name in (sizes[0], sizes[-1]))


SECONDS_BETWEEN_LINES = 30
# Of a validation, in words.
SCORES = {
    "loss": "loss",
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "mean_average_precision": "mean average precision",
    "linear_weight": "linear weight",
}

NOTHING_KNOWN = """no text has a label, so nothing is known of how often it is right, nor of how sure it may be:
  probabilities are uncalibrated, and there is no report, threshold or promise
  read some of its answers; then label some texts, and train on these"""


def _step_and_epoch(stage: str, event: Stepped | Validated) -> str:
    return f"{stage:11}  epoch {event.epoch:5.1f}  step {event.step:6d}"


def show_training(events: Iterator[Event], run: Path, *, num_processes: int = 1) -> None:
    """Follow a training: a progress bar on a terminal, a plain line now and then elsewhere."""
    from tqdm import tqdm

    from encoder_cls.training.events import (
        Finished,
        LinearFitted,
        Noted,
        StageStarted,
        Started,
        Stepped,
        StepsDecided,
        Validated,
    )

    started = next(events, None)
    if not isinstance(started, Started):
        return  # another process has finished this run in the meantime
    together = f" with {num_processes} processes" if num_processes > 1 else ""
    note(f"training in {run}{together}" + (f", going on after step {started.step}" if started.step else ""))
    on_terminal, last_line = sys.stderr.isatty(), time.monotonic()
    stage, step, total_steps = "", started.step, started.total_steps
    with tqdm(
        total=started.total_steps,
        initial=started.step,
        unit="step",
        disable=not on_terminal or not started.total_steps,
        dynamic_ncols=True,
    ) as bar:
        # Above the bar; where there is none, standard error may be closed by whoever read it.
        tell = note if bar.disable else partial(note_above, bar)
        for event in events:
            match event:
                case Stepped():
                    bar.update()
                    step = event.step
                    if event.values:
                        numbers = f"loss {event.values['loss']:.3f}, {event.values['tokens_per_s']:,.0f} tokens/s"
                        bar.set_postfix_str(numbers)
                        if not on_terminal and time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
                            note(f"{_step_and_epoch(stage, event)} of {bar.total}: {numbers}")
                            last_line = time.monotonic()
                case Noted():
                    tell(f"warning: {event.message}")
                case LinearFitted():
                    tell(_linear_classifier(event))
                case StageStarted():
                    stage, total_steps = event.stage, event.total_steps
                    bar.set_description(stage)
                    bar.total = total_steps
                    bar.refresh()
                case StepsDecided():
                    bar.total = total_steps = event.total_steps
                    tell(_time_budget(event))
                case Validated():
                    tell(_validation_line(stage, event))
                    last_line = time.monotonic()
                case Finished():
                    bar.close()
                    early = f", stopped at step {step} of {total_steps} (train.patience)" if step < total_steps else ""
                    _show_finished(event, run, early=early)


def _validation_line(stage: str, event: Validated) -> str:
    """A validation in one line, with a star where it is the best of the stage so far."""
    when = _step_and_epoch(stage, event) if event.step else "linear model"
    scores = [f"{SCORES[name]} {value:.4f}" for name, value in event.result.scores.items() if name in SCORES]
    return f"{when}: validation {'  '.join(scores)}{'  *' * event.is_best}"


def _linear_classifier(event: LinearFitted) -> str:
    """What has been kept of all that was tried, and what it is worth."""
    result = event.result
    twice = result.accuracy_with_twice
    outlook = "" if twice is None else f", with twice the labels about {twice:.0%}"
    if not any(result.kept):
        return (
            "linear classifier: from the labels alone, since nothing else that was tried was seen to help; accuracy by "
            f"cross-validation {result.accuracy:.1%}{outlook}"
        )
    accuracies = f"{result.accuracy_before:.1%} -> {result.accuracy:.1%}{outlook}"
    return f"linear classifier: {result.kept.listed}; accuracy by cross-validation {accuracies}"


def _show_finished(event: Finished, run: Path, *, early: str) -> None:
    """The summary of a run, how long it took and how large its model is."""
    from encoder_cls.evaluation.sections import summary_text

    if event.report:
        print_out(f"{summary_text(event.report)}\n")
    else:
        note(NOTHING_KNOWN)
    size = sum(file.stat().st_size for file in (run / "model").iterdir()) / 1e6
    best = f"; best weights from step {event.best_step}" if event.best_step else ""
    if event.gain:
        note(f"\n{_gain(event.gain, is_kept=event.best_step > 0)}")
    note(f"\ntrained in {event.seconds:.0f} s{early}{best}; {size:.{1 if size < 10 else 0}f} MB")
    note_what_is_next(run, has_report=event.report is not None)


def _time_budget(event: StepsDecided) -> str:
    """How many steps there is time for."""
    if not event.steps:
        return f"time budget: none is left for {event.stage}"
    return f"time budget: {counted(event.steps, 'step')} of {event.stage}"


def _gain(gain: EncoderGain, *, is_kept: bool) -> str:
    """What the encoder brought to the linear classifier, by the score that chose the weights."""
    score = f"validation {SCORES[gain.monitor]}"
    if gain.with_encoder is None:
        return f"{score}: linear model {gain.linear:.4f}; there was no time for an encoder"
    both = f"{score}: linear model {gain.linear:.4f}, with the encoder {gain.with_encoder:.4f}"
    return both if is_kept else f"{both} at best, which is no better: the model is the linear one alone"


def note_what_is_next(run: Path, *, has_report: bool) -> None:
    """What to do with a run, as commands that a shell takes."""
    name = shlex.quote(str(run))
    note(f'next: encoder-cls predict --model {name} --explain "some text"')
    if not has_report:
        note(
            f"      encoder-cls suggest {name} --input TEXTS.csv --n 50 --output next.csv    (the texts to label first)"
        )
        return
    note(f"      encoder-cls eval {name}    (each class; in a browser: {run / 'eval' / 'report.html'})")
    note(f"      tensorboard --logdir {shlex.quote(str(run.parent))}")
