"""Show a training to people: its data and plan, its progress, its results; let them stop it."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from encoder_cls.errors import EncoderClsError
from encoder_cls.run.terminal_reporter import SCORES
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
)

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.encoder.distributed import ProcessGroup
    from encoder_cls.training.prepared import Prepared
    from encoder_cls.training.train import EncoderGain, Finished

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
            # The first process reports it; if that one has ended, torchrun does.
            raise typer.Exit(1) from None
        except EncoderClsError:
            if group.leads:
                raise
            raise typer.Exit(0) from None  # the first process has the same error, and its exit code


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

    def asked() -> int | None:
        """The signal to stop at; the other processes end when the first one does."""
        if not processes.leads:
            return None
        return received[0] if received else processes.asked_to_stop()

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
        stopping_at(asked),
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


def show_finished(finished: Finished, run: Path, *, total_steps: int) -> None:
    """Print the summary of a run; note the encoder's gain, the time, the model's size and the next commands."""
    from encoder_cls.evaluation.report_text import summary_text

    if finished.report:
        print_out(f"{summary_text(finished.report)}\n")
    else:
        note(WITHOUT_LABELS)

    if finished.gain:
        note(f"\n{_gain_line(finished.gain, is_better=finished.best_step > 0)}")

    when = f"trained in {finished.seconds:.0f} s"
    if finished.last_step < total_steps:
        when += f", stopped at step {finished.last_step} of {total_steps} (train.patience)"
    if finished.best_step:
        when += f"; best weights from step {finished.best_step}"
    megabytes = sum(file.stat().st_size for file in (run / "model").iterdir()) / 1e6
    digits = 1 if megabytes < 10 else 0
    note(f"\n{when}; {megabytes:.{digits}f} MB")
    note_what_is_next(run, has_report=finished.report is not None)


def _gain_line(gain: EncoderGain, *, is_better: bool) -> str:
    """The validation score of the linear model, and what the encoder adds to it."""
    line = f"validation {SCORES[gain.monitor]}: linear model {gain.linear:.4f}"
    if gain.with_encoder is None:
        return f"{line}; there was no time for an encoder"
    line = f"{line}, with the encoder {gain.with_encoder:.4f}"
    if not is_better:
        line += " at best, not better by a standard error: the model is the linear one alone"
    return line


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
