"""`encoder-cls train`."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.display import described, process_group, show_finished, stop_signals
from encoder_cls.cli.options import RUNS, ConfigFile, ConfigOption, Device, Overrides, the_config
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.run.run_folder import RunDir


def train_command(
    config_file: ConfigFile = None,
    config: ConfigOption = None,
    overrides: Overrides = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Continue from a finished run, with its data and new data, also of new labels.",
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/<config name>.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest checkpoint.")
    ] = False,
    device: Device = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check config and data, and show the plan only.")
    ] = False,
) -> None:
    """Train a classifier, then report on its test split."""
    # Each of several processes runs all of this; the first one writes and prints.
    started = time.monotonic()
    with process_group() as group, ExitStack() as held:
        from encoder_cls.bulk.output_checks import check_run_folder
        from encoder_cls.config.loading import check_sources, load_config
        from encoder_cls.encoder.distributed import device_of_rank, is_restarted
        from encoder_cls.run.run_folder import RunDir

        resume = resume or is_restarted()
        with group.agreeing():
            file = the_config(config_file, config, resumed=run_dir if resume else None)
            settings = load_config(file, overrides or (), from_run=from_run)
            run = RunDir(run_dir or RUNS / settings.name)
            check_run_folder(run, settings.data)
            ended = ""
            if group.leads and not dry_run:
                run.check_trainable(settings, resume=resume)
                if run.is_finished():
                    ended = _finished(run, settings)
                else:  # before everything slow: a second training in the same folder ends at once
                    held.enter_context(run.lock())
            group.check_size(settings.train.gradient_shards)
        if group.decide(ended):
            note(ended)
            return
        if dry_run and not group.leads:
            return

        from encoder_cls.run.checkpoint import fingerprint
        from encoder_cls.training.prepare import prepare
        from encoder_cls.training.train import train

        with nullcontext() if dry_run else group.agreeing():
            torch_device = device_of_rank(device)
            check_sources(
                settings.data, config_file=file, of_run=run.config_file if run.is_run() else None
            )
            note(f"reading {settings.data.train or settings.data.unlabelled}")
            with TerminalReporter() as reporter:
                prepared = prepare(settings, started=started, reporter=reporter)
        if dry_run:  # the long part first, so that a terminal ends with the summary
            print_out(settings.to_yaml())
        for line in described(prepared):
            note(line)
        if dry_run:
            note(f"plan: {prepared.plan}")
        for message in prepared.warnings():
            note(f"warning: {message}")
        if dry_run:
            return
        with group.agreeing():
            facts = fingerprint(settings, prepared.dataset, prepared.tokenizer, device=torch_device)
            group.check_equal(facts | {"config": settings.model_dump(mode="json")})
        reporter = TerminalReporter(run=run.path, num_processes=group.size)
        with stop_signals(group), reporter:
            finished = train(
                prepared, run, device=torch_device, resume=resume, group=group, reporter=reporter
            )
        if finished:
            show_finished(finished, run.path, total_steps=reporter.last_total)


def _finished(run: RunDir, settings: Config) -> str:
    """Record the new places of data of a finished run, if any; returns what there is to say."""
    from encoder_cls.run.scored_texts import record_moved_data

    if record_moved_data(run, settings):
        return f"{run.config_file}: has the new place of the data; this run is finished"
    return f"{run.path}: this run is finished; nothing to do"
