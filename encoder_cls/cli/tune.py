"""`encoder-cls tune`: a config and a budget of time in, trials and the best of them trained again out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from encoder_cls.cli.options import RUNS, ConfigFile, ConfigOption, Device, Overrides, duration_named, the_config
from encoder_cls.system.installed import check_installed, check_training_installed
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from encoder_cls.config import Config
    from encoder_cls.evaluation.report import Report
    from encoder_cls.tuning.search import Search, TrialResult

RESERVED = 1.2  # times as long as their trials, for the trainings at the end


def tune_command(
    config_file: ConfigFile = None,
    config: ConfigOption = None,
    overrides: Overrides = None,
    budget: Annotated[str, typer.Option(help="Time for all, such as 90s, 30m or 2h.", metavar="TIME")] = "30m",
    run_dir: Annotated[
        Path | None, typer.Option(help="The search's folder. Default: runs/<config name>-tune.", show_default=False)
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Search hyperparameters by validation, then train the best again, beside the config as it is.

    The same command goes on with a search, and several processes may share one.
    """
    check_training_installed()
    check_installed("optuna", needed_by="tune", install="'encoder-cls[tune]'")

    from encoder_cls.cli.train import stop_signals
    from encoder_cls.config import load_config
    from encoder_cls.system.machine import resolve_device
    from encoder_cls.training.encoder.processes import ALONE
    from encoder_cls.tuning.search import Search

    seconds, started = duration_named(budget, option="--budget"), time.monotonic()
    settings = load_config(the_config(config_file, config), overrides or ())
    torch_device = resolve_device(device)
    with stop_signals(ALONE):
        folder = run_dir or RUNS / f"{settings.name}-tune"
        search = Search(settings, folder, device=torch_device)
        for result in search.results:
            note(f"{_line(result, settings)} (before)")
        note(f"searching in {folder}")
        for result in search.trials(lambda: time.monotonic() - started < seconds - RESERVED * _seconds_at_end(search)):
            note(_line(result, settings))
        best = search.best
        assert best
        if not _train_again(search, best, device=torch_device):
            return
    report = _report(search, best)
    if as_json:
        _print_json(search.results, best, report)
        return
    for line in _lines(search, best, report, settings):
        print_out(f"{line}\n")
    note(f'\nnext: encoder-cls predict --model {search.trained_again(best.number).path} --explain "some text"')


def _seconds_at_end(search: Search) -> float:
    """What training the best again takes, and the config as it is."""
    first, best = next((it for it in search.results if it.number == 0), None), search.best
    if not first or not best:
        return 0.0
    return first.seconds + (best.seconds if best.number else 0.0)


def _train_again(search: Search, best: TrialResult, *, device: torch.device) -> bool:
    """Train the best, and the config as it is, each to a finished run with its report; whether both are."""
    from encoder_cls.system.locks import LockedError
    from encoder_cls.training.prepare import prepare
    from encoder_cls.training.run import train

    for number in sorted({best.number, 0}, reverse=True):
        run, config = search.trained_again(number), search.config_of(number, best.values)
        if run.is_finished():
            continue
        try:
            with run.lock():
                run.check_trainable(config, resume=True)
                note(f"training {run.path}, to its report")
                setup = prepare(config)
                for _ in train(setup, run, device=device, resume=True):
                    pass
        except LockedError:
            note(f"{run.path}: another process of this search trains here, and will report")
            return False
    return True


def _report(search: Search, best: TrialResult) -> Report:
    """The report of the best, with the config as it is beside it where that is another and each text has one label."""
    from encoder_cls.inference.folder import load_classifier
    from encoder_cls.inference.task import MULTI_LABEL
    from encoder_cls.runs.evaluate import evaluate_run

    path = search.trained_again(best.number).path
    is_compared = best.number > 0 and load_classifier(path).task is not MULTI_LABEL
    other = search.trained_again(0).path if is_compared else None
    return evaluate_run(path, data=None, folder=None, tell=lambda _: None, against=other)


def _line(result: TrialResult, config: Config) -> str:
    """A trial in one line, with a star where it is the best so far."""
    score = "" if result.score is None else f"  {config.train.monitor} {result.score:.4f}"
    values = ", ".join(f"{key}={_short(value)}" for key, value in result.values.items())
    which = "the config as it is" if result.number == 0 else values
    state = "" if result.state == "complete" else f"  {result.state}"
    return f"trial {result.number:3d}{score}  {result.seconds:5.0f} s{state}{'  *' * result.is_best}  {which}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _lines(search: Search, best: TrialResult, report: Report, config: Config) -> list[str]:
    """What came of the search."""
    from encoder_cls.evaluation.sections import summary_text

    judged = f"{len(search.results)} trials, judged by the validation {config.train.monitor}"
    if best.number == 0:
        return [summary_text(report), f"of {judged}, none was better than the config as it is: keep it"]
    settings = " ".join(f"--set {key}={_short(value)}" for key, value in best.values.items())
    lines = [summary_text(report), f"of {judged}, the best was trial {best.number}: {settings}"]
    against = getattr(report, "against", None)
    if against is None:
        lines.append(f"beside it the config as it is: encoder-cls compare {search.folder}/trained-*")
    elif against.is_sure and against.accuracy_difference < 0:
        lines.append(f"it is better than the config as it is (above: {search.trained_again(0).path})")
    else:
        lines.append(
            f"as far as these texts tell, the config as it is (above: {search.trained_again(0).path}) is as good"
        )
    return lines


def _print_json(results: Sequence[TrialResult], best: TrialResult, report: Report) -> None:
    from dataclasses import asdict

    from encoder_cls.system.files import to_json

    values = {"trials": [asdict(it) for it in results], "best": asdict(best), "report": report.to_dict()}
    print_out(to_json(values).decode() + "\n")
