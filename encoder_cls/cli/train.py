"""The command `encoder-cls train`: train a classifier, and save it in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.plan_text import plan_lines, time_line
from encoder_cls.cli.run_summary import print_main_figures, show_finished
from encoder_cls.cli.torchrun import process_group
from encoder_cls.errors import ConfigError, DataError, EncodingError, MissingColumnError
from encoder_cls.system.annexes import annexes_with
from encoder_cls.system.command_options import (
    RUNS,
    ConfigArgument,
    ConfigOption,
    Device,
    Overrides,
    Quiet,
    chosen_config_file,
)
from encoder_cls.system.stop_signals import stop_signals
from encoder_cls.system.terminal import WARNING, note, print_out
from encoder_cls.system.terminal_reporter import TerminalReporter

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.encoder_training.distributed import ProcessGroup
    from encoder_cls.run.run_folder import RunDir
    from encoder_cls.training.prepared import Prepared
    from encoder_cls.training.time_budget import TimeBudget


def train_command(
    config_argument: ConfigArgument = None,
    config_option: ConfigOption = None,
    overrides: Overrides = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Continue from a finished run, with its data and new data, which may have new "
            "labels.",
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/<config name>.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a stopped run from its newest checkpoint.")
    ] = False,
    device: Device = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check config and data, and show the plan.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the main figures of the report as one line of JSON, for programs."
        ),
    ] = False,
    quiet: Quiet = False,  # noqa: ARG001 - the callback of the option handles it
) -> None:
    """Train a classifier, then report on its test split."""
    # If torchrun has started several processes, each of them runs this function. Only the first
    # process writes files and prints. `group.failing_together` ends all of them if one has
    # an error.
    started = time.monotonic()
    if as_json and dry_run:
        raise ConfigError("--json: a dry run has no report; leave out --json or --dry-run")

    with process_group() as group, ExitStack() as stack:
        from encoder_cls.config.loading import load_config
        from encoder_cls.encoder_training.distributed import is_restarted
        from encoder_cls.run.output_checks import check_run_folder
        from encoder_cls.run.run_folder import RunDir
        from encoder_cls.training.time_budget import TimeBudget

        with group.failing_together():
            resumed_run = run_dir if resume else _run_before_restart(run_dir)
            resume = resume or is_restarted()
            config_file = chosen_config_file(config_argument, config_option)
            if config_file is None and resumed_run:
                config_file = _config_of(resumed_run)
            config = load_config(config_file, overrides or (), from_run=from_run)
            run = RunDir(run_dir or RUNS / config.name)
            check_run_folder(run, config.data)
            group.check_size(config.train.gradient_shards)
            budget = TimeBudget(config, started=started)

        if dry_run:
            # Only the first process is needed.
            if group.is_first:
                _dry_run(config, config_file, run, device=device, budget=budget)
            return

        with group.failing_together():
            finished_message = ""
            if group.is_first:
                run.check_trainable(config, resume=resume)
                if run.is_finished():
                    finished_message = _update_finished_run(run, config)
                else:
                    # Lock the folder before the slow work, so that a second training in this
                    # folder fails at once.
                    stack.enter_context(run.lock())
        # All processes get the message of the first process, and end if it is not empty.
        if group.broadcast_value(finished_message):
            note(finished_message)
            if as_json and group.is_first:
                print_main_figures(run.path)
            return

        with group.failing_together():
            if group.is_first:
                _check_sources(config, config_file, run)
        note(f"reading {config.data.train}", has_time=True)

        # PyTorch is imported only from here on, because that takes more than a second. So the first
        # line appears at once, and a second training in the folder fails at once.
        _prepare_and_train(
            config,
            run,
            device=device,
            resume=resume,
            group=group,
            budget=budget,
            as_json=as_json,
        )


def _config_of(resumed_run: Path) -> Path:
    from encoder_cls.run.run_folder import RunDir

    run = RunDir(resumed_run)
    if not run.is_run():
        raise ConfigError(
            f"{run.path}: no run to resume; name another --run-dir, or a --config to start a run"
        )
    return run.config_file


def _run_before_restart(run_dir: Path | None) -> Path | None:
    """The run that torchrun has restarted; None if there was none yet."""
    from encoder_cls.encoder_training.distributed import is_restarted
    from encoder_cls.run.run_folder import RunDir

    if run_dir and is_restarted() and RunDir(run_dir).is_run():
        return run_dir
    return None


def _dry_run(
    config: Config, config_file: Path | None, run: RunDir, *, device: str, budget: TimeBudget
) -> None:
    from encoder_cls.encoder_training.distributed import device_of_rank

    _check_sources(config, config_file, run)
    note(f"reading {config.data.train}", has_time=True)
    torch_device = device_of_rank(device)

    fraction = _train_fraction(config, run, budget=budget)
    prepared = _prepare(config, fraction, budget=budget)

    # Print the config first, because it is long: the plan is then at the bottom of a terminal.
    print_out(prepared.config.to_yaml())
    for line in plan_lines(prepared):
        note(line)
    note(f"plan: {prepared.plan}")
    _show_time(prepared, torch_device.type)
    _show_warnings(prepared)


def _prepare_and_train(
    config: Config,
    run: RunDir,
    *,
    device: str,
    resume: bool,
    group: ProcessGroup,
    budget: TimeBudget,
    as_json: bool,
) -> None:
    from encoder_cls.encoder_training.distributed import device_of_rank
    from encoder_cls.run.checkpoint_files import fingerprint
    from encoder_cls.training.train import train

    with group.failing_together():
        torch_device = device_of_rank(device)
        fraction = None
        if group.is_first:
            fraction = _train_fraction(config, run, budget=budget)
    # All processes read the same rows.
    fraction = group.broadcast_value(fraction)

    with group.failing_together():
        prepared = _prepare(config, fraction, budget=budget)
    for line in plan_lines(prepared):
        note(line)
    # The time of a resumed run is not estimated.
    if not run.is_run():
        _show_time(prepared, torch_device.type)
    _show_warnings(prepared)

    with group.failing_together():
        config = prepared.config
        facts = fingerprint(config, prepared.dataset, prepared.tokenizer, device=torch_device)
    group.check_equal(facts | {"config": config.model_dump(mode="json")})

    from encoder_cls.metrics.scores import names_shown_after_validation

    reporter = TerminalReporter(
        run=run.path, num_processes=group.size, score_names=names_shown_after_validation()
    )
    with stop_signals(group), reporter:
        finished = train(
            prepared, run, device=torch_device, resume=resume, group=group, reporter=reporter
        )
    if finished:
        show_finished(finished, run.path, total_steps=reporter.last_total, as_json=as_json)


def _check_sources(config: Config, config_file: Path | None, run: RunDir) -> None:
    from encoder_cls.config.data_paths import check_sources

    resumed_config = run.config_file if run.is_run() else None
    check_sources(config.data, config_file=config_file, of_run=resumed_config)


def _train_fraction(config: Config, run: RunDir, *, budget: TimeBudget) -> float | None:
    from encoder_cls.training.reading_time import affordable_train_fraction

    with _explained_errors(config):
        return affordable_train_fraction(config, run, budget=budget)


def _prepare(config: Config, fraction: float | None, *, budget: TimeBudget) -> Prepared:
    from encoder_cls.training.prepare import prepare
    from encoder_cls.training.reading_time import with_train_fraction

    with _explained_errors(config), TerminalReporter() as reporter:
        return prepare(with_train_fraction(config, fraction), budget=budget, reporter=reporter)


@contextmanager
def _explained_errors(config: Config) -> Iterator[None]:
    """Let annexes explain an error, if train has another form than the config says."""
    try:
        yield
    except (MissingColumnError, EncodingError) as error:
        from encoder_cls.data.source_files import files_named

        explained: DataError = error
        if any(error.where.startswith(str(file)) for file in files_named(config.data.train)):
            for annex in annexes_with("data_errors").values():
                explained = annex.explained(explained, config.data.train)
        raise explained from None


def _show_warnings(prepared: Prepared) -> None:
    from encoder_cls.training.run_warnings import run_warnings

    for message in run_warnings(prepared):
        note(f"{WARNING}{message}")


def _show_time(prepared: Prepared, device: str) -> None:
    """Note the time to expect, unless on a GPU, whose speed is unknown."""
    from encoder_cls.training.expected_time import expected_time_of_plan

    if device != "cpu":
        return
    expected = expected_time_of_plan(prepared.plan, prepared.counts, prepared.config)
    note(time_line(expected, budget=prepared.config.train.time_budget))


def _update_finished_run(run: RunDir, config: Config) -> str:
    """Remove what a finished run does not need, record where its data is now, and say so."""
    from encoder_cls.run.checkpoint_files import remove_files_to_resume
    from encoder_cls.run.reloaded_data import record_moved_data

    # A process that was killed at its very end may have left files.
    remove_files_to_resume(run.checkpoints)

    if record_moved_data(run, config):
        return f"{run.config_file}: has the new place of the data; this run is finished"
    return f"{run.path}: this run is finished; nothing to do"
