"""The command `encoder-cls tune`: search hyperparameters within a time budget."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.command_options import (
    RUNS,
    AsJson,
    ConfigArgument,
    ConfigOption,
    Device,
    Overrides,
    Quiet,
    chosen_config_file,
    print_json,
)
from encoder_cls.system.display import seconds_named
from encoder_cls.system.libraries import check_installed, check_training_installed
from encoder_cls.system.stop_signals import stop_signals
from encoder_cls.system.terminal import note, print_out
from encoder_cls.system.terminal_reporter import TerminalReporter

if TYPE_CHECKING:
    from encoder_cls import Config, Report
    from encoder_cls.extras.tune.search import Search, TrialResult

# The time to reserve for training the best trial and the unchanged config again at the end, as a
# multiple of the time that they took.
RESERVED_TIME = 1.2


def tune_command(
    config_argument: ConfigArgument = None,
    config_option: ConfigOption = None,
    overrides: Overrides = None,
    budget: Annotated[
        str, typer.Option(help="Total time, such as 90s, 30m or 2h.", metavar="TIME")
    ] = "30m",
    run_dir: Annotated[
        Path | None, typer.Option(help="The search folder. Default: runs/<config name>-tune.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,  # noqa: ARG001 - the callback of the option handles it
) -> None:
    """Search hyperparameters by validation score, and compare the best with the unchanged config.

    To continue a search, run the same command again; several processes can share a search.
    """
    check_training_installed()
    check_installed("optuna", needed_by="tune", install="'encoder-cls[tune]'")

    from encoder_cls import load_config
    from encoder_cls.extras.tune.search import Search
    from encoder_cls.system.machine import resolve_device

    started = time.monotonic()
    budget_seconds = _parsed_budget(budget)
    config = load_config(chosen_config_file(config_argument, config_option), overrides or ())
    folder = run_dir or RUNS / f"{config.name}-tune"
    # An unknown device is noticed before the search begins.
    resolve_device(device)

    with stop_signals(), TerminalReporter() as reporter:
        search = Search(config, folder, device=device, reporter=reporter)
        for result in search.results:
            note(f"{_trial_line(result, config)} (before)")
        note(f"searching in {search.folder}")

        def has_time() -> bool:
            time_left = budget_seconds - (time.monotonic() - started)
            return time_left > RESERVED_TIME * _seconds_to_train_again(search)

        for result in search.run_trials(has_time):
            reporter.note(_trial_line(result, config))

        best = search.best
        assert best
        if not search.train_again(best):
            return

    report = search.report_on(best)
    if as_json:
        trials = [asdict(result) for result in search.results]
        print_json({"trials": trials, "best": asdict(best), "report": report.to_dict()})
    else:
        _show_best(search, best, report, config)


def _parsed_budget(budget: str) -> float:
    try:
        return seconds_named(budget)
    except ValueError as error:
        raise ConfigError(f"--budget {budget}: {error}") from None


def _seconds_to_train_again(search: Search) -> float:
    if search.best is None:
        return 0.0
    numbers = {0, search.best.number}
    return sum(result.seconds for result in search.results if result.number in numbers)


def _show_best(search: Search, best: TrialResult, report: Report, config: Config) -> None:
    print_out(f"{report.summary()}\n{_conclusion(search, best, report, config)}\n")
    run = shlex.quote(str(search.trained_again(best.number)))
    note(f'\nnext: encoder-cls predict --model {run} --explain "some text"')


def _trial_line(result: TrialResult, config: Config) -> str:
    """Describe a trial in one line, with a star if it is the best so far."""
    line = f"trial {result.number:3d}"
    if result.score is not None:
        line += f"  {config.train.monitor} {result.score:.4f}"
    line += f"  {result.seconds:5.0f} s"

    if result.state != "complete":
        line += f"  {result.state}"
    if result.is_best:
        line += "  *"

    settings = "the config as it is"
    if result.number > 0:
        settings = ", ".join(_settings(result))
    return f"{line}  {settings}"


def _settings(result: TrialResult) -> list[str]:
    settings = []
    for key, value in result.values.items():
        if isinstance(value, float):
            settings.append(f"{key}={value:.3g}")
        else:
            settings.append(f"{key}={value}")
    return settings


def _conclusion(search: Search, best: TrialResult, report: Report, config: Config) -> str:
    trials = f"of {len(search.results)} trials, compared by the validation {config.train.monitor}"
    if best.number == 0:
        return f"{trials}, none was better than the config as it is: keep it"

    options = " ".join(f"--set {setting}" for setting in _settings(best))
    best_trial = f"{trials}, the best was trial {best.number}: {options}"

    assert report.against is not None
    unchanged = f"the config as it is (above: {search.trained_again(0)})"
    # The 95% interval of the main score of the unchanged config minus that of the best trial. The
    # best trial is significantly better if even the upper end is negative.
    _, upper_end = report.against.difference_interval
    if upper_end < 0:
        return f"{best_trial}\nit is better than {unchanged}"
    return f"{best_trial}\nas far as these texts show, {unchanged} is as good"


COMMANDS: dict[str, Callable[..., None]] = {"tune": tune_command}
