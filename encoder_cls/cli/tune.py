"""`encoder-cls tune`: search hyperparameters within a time budget."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.options import (
    RUNS,
    AsJson,
    ConfigFile,
    ConfigOption,
    Device,
    Overrides,
    print_json,
    the_config,
)
from encoder_cls.errors import ConfigError
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.system.display import seconds_named
from encoder_cls.system.machine import check_installed, check_training_installed
from encoder_cls.system.reporter import SILENT
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.tuning import Search, TrialResult

RESERVED = 1.2  # times the time of two trials, to train them again at the end


def tune_command(
    config_file: ConfigFile = None,
    config: ConfigOption = None,
    overrides: Overrides = None,
    budget: Annotated[
        str, typer.Option(help="Total time, such as 90s, 30m or 2h.", metavar="TIME")
    ] = "30m",
    run_dir: Annotated[
        Path | None, typer.Option(help="The search folder. Default: runs/<config name>-tune.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Search hyperparameters by validation score, then train the best and the unchanged config to compare them.

    Run again, the same command continues the search; several processes may share one.
    """
    check_training_installed()
    check_installed("optuna", needed_by="tune", install="'encoder-cls[tune]'")

    from encoder_cls.classifier.model_folder import load_classifier
    from encoder_cls.cli.display import stop_signals
    from encoder_cls.config.loading import load_config
    from encoder_cls.evaluation.report_text import summary_text
    from encoder_cls.metrics.logits import MULTI_LABEL
    from encoder_cls.run.evaluate import evaluate_run
    from encoder_cls.system.machine import resolve_device
    from encoder_cls.tuning import Search

    started = time.monotonic()
    try:
        seconds = seconds_named(budget)
    except ValueError as error:
        raise ConfigError(f"--budget {budget}: {error}") from None
    settings = load_config(the_config(config_file, config), overrides or ())
    torch_device = resolve_device(device)
    with stop_signals(), TerminalReporter() as reporter:
        folder = run_dir or RUNS / f"{settings.name}-tune"
        search = Search(settings, folder, device=torch_device, reporter=reporter)
        for result in search.results:
            note(f"{_line(result, settings)} (before)")
        note(f"searching in {search.folder}")
        for result in search.trials(
            lambda: time.monotonic() - started < seconds - RESERVED * _seconds_at_end(search)
        ):
            reporter.note(_line(result, settings))
        best = search.best
        assert best
        if not search.train_again(best):
            return
    path = search.trained_again(best.number).path
    is_compared = best.number > 0 and load_classifier(path).task is not MULTI_LABEL
    other = search.trained_again(0).path if is_compared else None
    report = evaluate_run(path, data=None, folder=None, reporter=SILENT, against=other)
    if as_json:
        trials = [asdict(it) for it in search.results]
        print_json({"trials": trials, "best": asdict(best), "report": report.to_dict()})
        return
    against = report.against
    # Surely, at 95%.
    is_better = None if against is None else against.accuracy_difference_interval[1] < 0
    print_out(
        f"{summary_text(report)}\n{_conclusion(search, best, settings, is_better=is_better)}\n"
    )
    note(f'\nnext: encoder-cls predict --model {path} --explain "some text"')


def _seconds_at_end(search: Search) -> float:
    """The time to train the best trial and the unchanged config again."""
    again = {0, search.best.number} if search.best else set()
    return sum(it.seconds for it in search.results if it.number in again)


def _line(result: TrialResult, config: Config) -> str:
    """A trial in one line, with a star if it is the best so far."""
    score = "" if result.score is None else f"  {config.train.monitor} {result.score:.4f}"
    which = ", ".join(_settings(result)) if result.number else "the config as it is"
    state = "" if result.state == "complete" else f"  {result.state}"
    return f"trial {result.number:3d}{score}  {result.seconds:5.0f} s{state}{'  *' * result.is_best}  {which}"


def _settings(result: TrialResult) -> list[str]:
    return [
        f"{key}={it:.3g}" if isinstance(it, float) else f"{key}={it}"
        for key, it in result.values.items()
    ]


def _conclusion(
    search: Search, best: TrialResult, config: Config, *, is_better: bool | None
) -> str:
    """The best trial, and whether it is significantly better than the unchanged config (None: not compared)."""
    judged = f"of {len(search.results)} trials, judged by the validation {config.train.monitor}"
    if best.number == 0:
        return f"{judged}, none was better than the config as it is: keep it"
    settings, other = (
        " ".join(f"--set {it}" for it in _settings(best)),
        search.trained_again(0).path,
    )
    compared = f"as far as these texts show, the config as it is (above: {other}) is as good"
    if is_better is None:
        compared = f"beside it the config as it is: encoder-cls compare {search.folder}/trained-*"
    elif is_better:
        compared = f"it is better than the config as it is (above: {other})"
    return f"{judged}, the best was trial {best.number}: {settings}\n{compared}"
