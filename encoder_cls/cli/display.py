"""Show a training to people: its data and plan, its progress, its results; let them stop it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from encoder_cls.evaluation.files import SCORE_NAMES
from encoder_cls.system.display import counted, shown
from encoder_cls.system.machine import check_training_installed
from encoder_cls.system.stop import stopping_at
from encoder_cls.system.terminal import (
    be_quiet,
    discard_output_to_lost_terminal,
    handling_signals,
    hangup_signals,
    note,
    print_out,
    showing_work,
)

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.encoder.distributed import ProcessGroup
    from encoder_cls.linear.few_labels import FewLabels
    from encoder_cls.training.events import Event, Finished, Stepped, Validated
    from encoder_cls.training.prepared import Prepared

SECONDS_BETWEEN_LINES = 30
SCORES = {**SCORE_NAMES, "linear_weight": "linear weight"}
WITHOUT_LABELS = """no text has a label, so accuracy and calibration are unknown:
  probabilities are uncalibrated, and there is no report, threshold or guarantee
  check some of its answers; then label some texts, and train on them"""


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun has started, if any; only the first one notes more than errors."""
    check_training_installed()

    from encoder_cls.encoder.distributed import LostProcessError, joined_process_group

    with joined_process_group() as group:
        if not group.leads:
            be_quiet()
        try:
            yield group
        except LostProcessError:
            if group.leads:
                raise
            raise typer.Exit(
                1
            ) from None  # reported by the first process; if that has ended, by torchrun


@contextmanager
def stop_signals(group: ProcessGroup | None = None) -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a request to stop; a second one ends the process at once.

    A terminal that goes away may send SIGHUP more than once, so that this signal is never the second one. Several
    processes pass signals on to the first one, and ignore a second signal, since torchrun repeats those of the
    terminal.
    """
    from encoder_cls.encoder.distributed import ALONE

    processes = group or ALONE
    received: list[int] = []
    hangups = hangup_signals()

    def receive(number: int) -> None:
        is_hangup = number in hangups
        if is_hangup:
            discard_output_to_lost_terminal()
        is_second = any(earlier not in hangups for earlier in received)
        if is_second and not is_hangup and processes.size == 1:
            os._exit(128 + number)

        received.append(number)
        if not processes.leads:
            processes.ask_to_stop(number)
        elif len(received) == 1:
            message = "stopping after this step"
            if processes.size == 1 and not is_hangup:
                message += "; once more to stop at once"
            # Not through sys.stderr, which may be writing a line at this very moment.
            with suppress(OSError):
                os.write(2, f"\n{message}\n".encode())

    with (
        handling_signals((signal.SIGINT, signal.SIGTERM, *hangups), receive),
        stopping_at(lambda: received[0] if received else processes.asked_to_stop()),
    ):
        yield


def described(prepared: Prepared) -> Iterator[str]:
    """Describe the data and the training on it in a few lines."""
    dataset, config, plan, statistics = (
        prepared.dataset,
        prepared.config,
        prepared.plan,
        prepared.data_statistics,
    )
    yield from dataset.notes
    classes = counted(len(dataset.label_names), "class", "classes")
    counts = {
        "training": 0 if dataset.has_names_alone else len(dataset.train),
        "validation": len(dataset.validation),
    }
    counts |= {"test": len(dataset.test or ()), "unlabelled": len(dataset.unlabelled.texts)}
    texts = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    if dataset.has_names_alone:
        yield f"data: no labelled text to learn from, {texts} texts, {classes} by their names (data.label_names)"
        yield f"tokens: vocabulary {prepared.vocab_size:,}"
        yield "model: a linear model alone, learned from the names of the classes"
        return
    class_counts = dataset.train.class_counts(len(dataset.label_names)).tolist()
    by_size = sorted(zip(class_counts, dataset.label_names, strict=True))
    sizes = " to ".join(
        f"{size:,} ({shown(name, limit=30)})" for size, name in (by_size[0], by_size[-1])
    )
    yield f"data: {texts} texts, {classes}, of {sizes} training texts"
    if dataset.is_multi_label:
        labels = dataset.train.labels.sum(axis=1)
        why = f"{dataset.several}: labels in a list" if dataset.several else "data.label_separator"
        shares = f"several {(labels > 1).mean():.1%}, none {(labels == 0).mean():.1%}"
        yield f"multi-label ({why}): {labels.mean():.2f} labels a text, {shares}"
    if dataset.corrected:
        changed = counted(len(dataset.corrected), "label")
        yield f"corrections: {changed} of {config.data.corrections} in place of those of the data"
    yield from _groups(dataset, config.data.group_column)
    tokens = f"tokens: vocabulary {prepared.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}"
    if not plan.has_encoder:
        why = "few labels" if config.model.encoder else "model.encoder=false"
        yield tokens
        yield f"model: a linear model alone, without steps of training ({why})"
        return
    truncated, padding = statistics["truncated_fraction"], statistics["padding_fraction"]
    yield f"{tokens}, texts longer than the encoder reads {truncated:.1%}, padding {padding:.1%}"
    beside = (
        ", no linear model beside it (too much text for so many classes)"
        if config.model.linear
        else ""
    )
    if plan.linear:
        from_stream = " (from a stream: there is much text)" if plan.linear_fit == "stream" else ""
        beside = f", beside it a linear model{from_stream}"
    shape = f"{counted(config.model.num_layers, 'layer')} of width {config.model.d_model}"
    yield f"model: {shape}, {prepared.num_parameters:,} parameters{beside}"
    objective = config.pretrain.objective.replace("masked_lm", "masked-LM")
    lengths = {f"{objective} pretraining": plan.pretraining, "training on labels": plan.training}
    passes = [f"{counted(it.epochs, 'epoch')} of {what}" for what, it in lengths.items() if it]
    yield f"steps: {plan.total_steps:,} in all; {', '.join(passes)}"


def _groups(dataset: Dataset, column: str | None) -> Iterator[str]:
    """The number of groups in each split."""
    import numpy as np

    from encoder_cls.data.dataset import NO_GROUP

    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    groups = {
        name: split.groups for name, split in splits.items() if split and split.groups is not None
    }
    if groups:
        counts = ", ".join(
            f"{len(np.unique(it[it != NO_GROUP])):,} {name}" for name, it in groups.items()
        )
        alone = sum(int((it == NO_GROUP).sum()) for it in groups.values())
        without = f"; {counted(alone, 'text')} without one (each alone)" if alone else ""
        yield f"groups by {shown(column or '')}: {counts}{without}"


def show_training(events: Iterator[Event], run: Path, *, num_processes: int) -> None:
    """Follow a training with a progress bar on a terminal, or with plain lines elsewhere."""
    from tqdm import tqdm

    from encoder_cls.linear.few_labels import FewLabels
    from encoder_cls.training import events as kinds

    started = next(events, None)
    if not isinstance(started, kinds.Started):
        return  # another process has finished this run in the meantime
    together = f" with {num_processes} processes" if num_processes > 1 else ""
    note(
        f"training in {run}{together}"
        + (f", going on after step {started.step}" if started.step else "")
    )
    has_bar = sys.stderr.isatty() and started.total_steps > 0
    last_line = time.monotonic()
    stage, step, total_steps = "", started.step, started.total_steps
    with (
        tqdm(
            total=total_steps, initial=step, unit="step", disable=not has_bar, dynamic_ncols=True
        ) as bar,
        showing_work(bar if has_bar else None),
    ):
        show = partial(note, above=bar if has_bar else None)
        for event in events:
            match event:
                case kinds.Stepped():
                    bar.update()
                    step = event.step
                    if event.values:
                        numbers = f"loss {event.values['loss']:.3f}, {event.values['tokens_per_s']:,.0f} tokens/s"
                        bar.set_postfix_str(numbers)
                        if (
                            not sys.stderr.isatty()
                            and time.monotonic() - last_line > SECONDS_BETWEEN_LINES
                        ):
                            note(f"{_step_and_epoch(stage, event)} of {total_steps}: {numbers}")
                            last_line = time.monotonic()
                case kinds.Noted():
                    show(f"warning: {event.message}")
                case FewLabels():
                    show(_linear_line(event))
                case kinds.StageStarted():
                    stage, total_steps = event.stage, event.total_steps
                    bar.set_description(stage)
                    bar.total = total_steps
                    bar.refresh()
                case kinds.StepsDecided():
                    bar.total = total_steps = event.total_steps
                    steps = counted(event.steps, "step") if event.steps else "no step"
                    show(f"time budget: {steps} of {event.stage}")
                case kinds.Validated():
                    show(_validation_line(stage, event))
                    last_line = time.monotonic()
                case kinds.Finished():
                    bar.close()
                    early = (
                        f", stopped at step {step} of {total_steps} (train.patience)"
                        if step < total_steps
                        else ""
                    )
                    _show_finished(event, run, early=early)


def _step_and_epoch(stage: str, event: Stepped | Validated) -> str:
    return f"{stage:11}  epoch {event.epoch:5.1f}  step {event.step:6d}"


def _validation_line(stage: str, event: Validated) -> str:
    """A validation in one line, with a star if it is the best so far of its stage."""
    when = _step_and_epoch(stage, event) if event.step else "linear model"
    scores = [
        f"{SCORES[name]} {value:.4f}"
        for name, value in event.result.scores.items()
        if name in SCORES
    ]
    return f"{when}: validation {'  '.join(scores)}{'  *' * event.is_best}"


def _linear_line(result: FewLabels) -> str:
    """How the linear classifier learned from few labels, with its accuracy."""
    gain = f"{result.accuracy_before:.1%} -> " if result.accuracy != result.accuracy_before else ""
    twice = result.accuracy_with_twice
    outlook = "" if twice is None else f", with twice the labels about {twice:.0%}"
    low, high = result.interval
    accuracy = f"{gain}{result.accuracy:.1%} [{low:.1%}, {high:.1%}]"
    return f"linear classifier: {result.kept}; accuracy by cross-validation {accuracy}{outlook}"


def _show_finished(event: Finished, run: Path, *, early: str) -> None:
    """Print the summary of a run; note the encoder's gain, the time, the model's size and the next commands."""
    from encoder_cls.evaluation.report_text import summary_text

    if event.report:
        print_out(f"{summary_text(event.report)}\n")
    else:
        note(WITHOUT_LABELS)
    if gain := event.gain:
        outcome = "; there was no time for an encoder"
        if gain.with_encoder is not None:
            better = " at best, not better by a standard error: the model is the linear one alone"
            outcome = (
                f", with the encoder {gain.with_encoder:.4f}{'' if event.best_step > 0 else better}"
            )
        note(f"\nvalidation {SCORES[gain.monitor]}: linear model {gain.linear:.4f}{outcome}")
    size = sum(file.stat().st_size for file in (run / "model").iterdir()) / 1e6
    best = f"; best weights from step {event.best_step}" if event.best_step else ""
    note(f"\ntrained in {event.seconds:.0f} s{early}{best}; {size:.{1 if size < 10 else 0}f} MB")
    note_what_is_next(run, has_report=event.report is not None)


def note_what_is_next(run: Path, *, has_report: bool) -> None:
    """Note what to do with a run, as shell commands."""
    name = shlex.quote(str(run))
    note(f'next: encoder-cls predict --model {name} --explain "some text"')
    if has_report:
        note(
            f"      encoder-cls eval {name}    (each class; in a browser: {run / 'eval' / 'report.html'})"
        )
        note(f"      tensorboard --logdir {shlex.quote(str(run.parent))}")
    else:
        to_label = "--input TEXTS.csv --n 50 --output next.csv    (the texts to label first)"
        note(f"      encoder-cls suggest {name} {to_label}")
