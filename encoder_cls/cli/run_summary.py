"""The lines at the end of a training: the scores, the encoder's gain, and the next commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.system.display import duration
from encoder_cls.system.json_values import json_text
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls.training.train import EncoderGain, Finished


def show_finished(finished: Finished, run: Path, *, total_steps: int, as_json: bool) -> None:
    """Print the summary of a report, and note the gain, the time, the size and what to do next.

    With `as_json`, JSON is printed, and the summary noted.
    """
    if finished.report:
        summary = finished.report.summary()
        if as_json:
            note(summary)
        else:
            print_out(f"{summary}\n")

    if finished.gain:
        note(f"\n{_gain_line(finished.gain, is_better=finished.best_step > 0)}")
    note("")
    note(f"{_time_line(finished, total_steps)}; {_model_size(run)}", has_time=True)
    note_next_commands(run)

    if as_json:
        print_main_figures(run)


def print_main_figures(run: Path) -> None:
    """Print the main figures of a run as one line of JSON."""
    from encoder_cls.run.compare import main_figures

    print_out(f"{json_text(main_figures(run))}\n")


def _gain_line(gain: EncoderGain, *, is_better: bool) -> str:
    from encoder_cls.metrics.scores import SCORES

    line = f"validation {SCORES[gain.monitor].name}: linear model {gain.linear:.4f}"
    if gain.with_encoder is None:
        return f"{line}; there was no time to train an encoder"

    line = f"{line}, with the encoder {gain.with_encoder:.4f}"
    if not is_better:
        line += " at best, not better by a standard error: the model is the linear one alone"
    return line


def _time_line(finished: Finished, total_steps: int) -> str:
    line = f"trained in {duration(finished.seconds)}"
    stages = []
    for stage, seconds in finished.seconds_of_stages.items():
        stages.append(f"{stage} {duration(seconds)}")
    if stages:
        line += f" ({', '.join(stages)})"
    if finished.last_step < total_steps:
        line += f", stopped at step {finished.last_step} of {total_steps} (train.patience)"
    if finished.best_step:
        line += f"; best weights from step {finished.best_step}"
    return line


def _model_size(run: Path) -> str:
    num_bytes = sum(file.stat().st_size for file in (run / "model").iterdir())
    megabytes = num_bytes / 1e6
    if megabytes < 10:
        return f"{megabytes:.1f} MB"
    return f"{megabytes:.0f} MB"


def note_next_commands(run: Path) -> None:
    """Note shell commands that a user may want to run next."""
    name = shlex.quote(str(run))
    page = run / "eval" / "report.html"
    note(f'next: encoder-cls predict --model {name} --explain "some text"')
    note(f"      encoder-cls eval {name}    (each class; in a browser: {page})")
    note(f"      tensorboard --logdir {shlex.quote(str(run.parent))}")
