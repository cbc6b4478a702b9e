"""`encoder-cls train`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from encoder_cls.cli.display import described, show_training
from encoder_cls.cli.options import RUNS, ConfigFile, ConfigOption, Device, Overrides, the_config
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.installed import check_training_installed
from encoder_cls.system.stop import stopping_at
from encoder_cls.system.terminal import be_quiet, handling_signals, note, print_out

if TYPE_CHECKING:
    from encoder_cls.config import Config, DataConfig
    from encoder_cls.tracking.run_dir import RunDir
    from encoder_cls.training.encoder.processes import ProcessGroup


@contextmanager
def stop_signals(group: ProcessGroup) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a request to stop; a second one ends at once.

    Several processes pass signals on to the first one. A second one changes nothing there, since torchrun repeats what
    a terminal has sent.
    """
    received: list[int] = []

    def receive(number: int) -> None:
        if received and group.size == 1:
            os._exit(128 + number)
        received.append(number)
        if not group.leads:
            group.ask_to_stop(number)
        elif len(received) == 1:
            once_more = b"; once more to stop at once" * (group.size == 1)
            with suppress(OSError):  # not through sys.stderr, which may be writing a line at this very moment
                os.write(2, b"\nstopping after this step" + once_more + b"\n")

    with (
        handling_signals((signal.SIGINT, signal.SIGTERM), receive),
        stopping_at(lambda: received[0] if received else group.asked_to_stop()),
    ):
        yield


class _Request(NamedTuple):
    """What the command line asks for."""

    config: Path | None
    overrides: Sequence[str]
    from_run: Path | None
    run_dir: Path | None
    resume: bool
    device: str
    dry_run: bool


def train_command(
    config_file: ConfigFile = None,
    config: ConfigOption = None,
    overrides: Overrides = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A finished run to go on from, with its data and new data, also of new labels.",
            show_default=False,
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/<config name>.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    device: Device = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check config and data, show what would be trained, train nothing.")
    ] = False,
) -> None:
    """Train a classifier, then report on its test split."""
    check_training_installed()

    from encoder_cls.training.encoder.processes import LostProcessError, is_restarted, joined_process_group

    file = the_config(config_file, config)
    request = _Request(file, overrides or (), from_run, run_dir, resume or is_restarted(), device, dry_run)
    with joined_process_group() as group:
        if not group.leads:
            be_quiet()
        try:
            _train(request, group)
        except LostProcessError:
            if group.leads:
                raise
            raise typer.Exit(1) from None  # reported by the first process; if that has ended, by torchrun


def _train(request: _Request, group: ProcessGroup) -> None:
    """Train as one of the processes of a group; the first one writes and prints."""
    with ExitStack() as held:
        with group.agreeing():
            settings, run = _settings(request)
            is_finished = False
            if group.leads and not request.dry_run:
                run.check_trainable(settings, resume=request.resume)
                is_finished = run.is_finished()
                if not is_finished:  # before everything slow: a second training in the same folder ends at once
                    held.enter_context(run.lock())
            group.check_size(settings.train.gradient_shards)
        if is_finished:
            note(f"{run.path}: this run is finished; nothing to do")
            return
        if not group.goes_on(is_for_all=not request.dry_run):
            return

        from encoder_cls.system.machine import resolve_device
        from encoder_cls.training.encoder.checkpoint import fingerprint
        from encoder_cls.training.encoder.loop import assist
        from encoder_cls.training.encoder.processes import device_of_rank
        from encoder_cls.training.prepare import prepare
        from encoder_cls.training.run import train

        with nullcontext() if request.dry_run else group.agreeing():
            torch_device = device_of_rank(resolve_device(request.device))
            _check_sources(settings.data, run, request.config)
            note(f"reading {settings.data.train or settings.data.unlabelled}")
            setup = prepare(settings)
        if request.dry_run:  # the long part first, so that a terminal ends with the summary
            print_out(settings.to_yaml())
        for line in described(setup):
            note(line)
        if request.dry_run:
            note(f"plan: {setup.plan}")
        for line in setup.warnings():
            note(f"warning: {line}")
        if request.dry_run:
            return
        with group.agreeing():
            facts = fingerprint(setup, device=torch_device)
            group.check_equal(facts | {"config": settings.model_dump(mode="json")})
        with stop_signals(group):
            if not group.leads:
                assist(setup, group, device=torch_device)
                return
            events = train(setup, run, device=torch_device, resume=request.resume, group=group)
            show_training(events, run.path, num_processes=group.size)


def _settings(request: _Request) -> tuple[Config, RunDir]:
    """The config, of a run to resume by default its own, and the run folder, which is not among the data."""
    from encoder_cls.answers.outputs import check_run_folder
    from encoder_cls.config import load_config
    from encoder_cls.tracking.run_dir import RunDir

    config = request.config
    if request.resume and config is None and request.run_dir is not None:
        resumed = RunDir(request.run_dir)
        if not resumed.is_run():
            raise ConfigError(f"{resumed.path}: no run to go on with; name another --run-dir, or a --config to start")
        config = resumed.config_file
    settings = load_config(config, request.overrides, from_run=request.from_run)
    run = RunDir(request.run_dir or RUNS / settings.name)
    check_run_folder(run, settings.data)
    return settings, run


def _check_sources(data: DataConfig, run: RunDir, config_file: Path | None) -> None:
    """Check that the files exist which the config names.

    Raises:
        DataError: one does not; the message has where it was looked for, and how another place is named.
    """
    from encoder_cls.config import missing_sources

    for key, source in missing_sources(data):
        if run.is_run():
            raise DataError(
                f"{run.config_file}: {key}: {source}: no such file or folder, where the run's data was; if it has been "
                f"moved, add --set {key}=PATH"
            )
        beside = f", and beside {config_file}" if config_file else ""
        places = "" if Path(source).is_absolute() else f" (looked for in the current folder, {Path.cwd()}{beside})"
        raise DataError(f"{source}: no such file or folder{places}; {key} names it")
