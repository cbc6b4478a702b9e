"""The events of a training in, lines and a progress bar for a person out."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.cli.streams import note, note_above, print_out
from encoder_cls.system.display import counted

if TYPE_CHECKING:
    from encoder_cls.training.events import (
        EncoderGain,
        Event,
        Finished,
        LinearFitted,
        Stepped,
        StepsDecided,
        Validated,
    )

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
                    stage, total_steps = event.stage.name, event.total_steps
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
    from encoder_cls.evaluation.report import summary_text

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
        return f"time budget: none is left for {event.stage.name}"
    return f"time budget: {counted(event.steps, 'step')} of {event.stage.name}"


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
