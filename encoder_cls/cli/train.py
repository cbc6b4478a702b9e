"""`encoder-cls train`: a config in, a finished run out, followed on a terminal or in a log."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from encoder_cls.cli.options import RUNS, Device
from encoder_cls.cli.streams import be_quiet, note, print_out
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import counted
from encoder_cls.system.installed import check_training_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_cls.config import Config, DataConfig
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.data.split import Split
    from encoder_cls.tracking.run_dir import RunDir
    from encoder_cls.training.events import Event, Finished, LinearFitted, Stepped, Validated
    from encoder_cls.training.process_group import ProcessGroup
    from encoder_cls.training.setup import TrainingSetup

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


def train_command(
    config_file: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="The config file. Default: the bundled example.", show_default=False),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The same, as an option.", show_default=False)] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override one value: section.key=value. Repeatable.", show_default=False),
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A finished run to go on from, with its data and --config's, new labels too.",
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
    # This function is long since Typer takes its parameters for the options.
    check_training_installed()

    from encoder_cls.training.process_group import is_restarted, joined_process_group

    if config and config_file:
        raise ConfigError(f"{config_file} and --config {config}: two config files; name one")
    request = _Request(
        config=config or config_file,
        overrides=overrides or (),
        from_run=from_run,
        run_dir=run_dir,
        resume=resume or is_restarted(),
        device=device,
        dry_run=dry_run,
    )
    with joined_process_group() as group:
        if group.leads:
            _train(request, group)
            return
        be_quiet()
        with _ending_quietly():
            _train(request, group)


class _Request(NamedTuple):
    """What the command line asks for."""

    config: Path | None
    overrides: Sequence[str]
    from_run: Path | None
    run_dir: Path | None
    resume: bool
    device: str
    dry_run: bool


def _train(request: _Request, group: ProcessGroup) -> None:
    """Train as one of the processes of a group; the first one writes and prints."""
    with ExitStack() as held:
        with group.agreeing():
            settings, run = _settings(request)
            is_finished = group.leads and not request.dry_run and _is_finished(run, settings, resume=request.resume)
            if group.leads and not request.dry_run and not is_finished:
                # Before all that takes time: a second training in the same folder ends at once.
                held.enter_context(run.lock())
            group.check_size(settings.train.gradient_shards)
        if is_finished:
            note(f"{run.path}: this run is finished; nothing to do")
            return
        if not group.begins(is_for_all=not request.dry_run):
            return

        from encoder_cls.system.device import resolve_device
        from encoder_cls.training.follower import check_equal, follow
        from encoder_cls.training.prepare import prepare, setup_warnings
        from encoder_cls.training.process_group import device_of_rank
        from encoder_cls.training.trainer import train

        with nullcontext() if request.dry_run else group.agreeing():
            torch_device = device_of_rank(resolve_device(request.device))
            _check_data_is_there(settings.data, run, request.config)
            note(f"reading {settings.data.train or settings.data.unlabelled}")
            setup = prepare(settings)
        if request.dry_run:  # first, so that a terminal ends with what was found
            print_out(settings.to_yaml())
        for line in _described(setup):
            note(line)
        for line in setup_warnings(setup):
            note(f"warning: {line}")
        if request.dry_run:
            return
        with group.agreeing():
            check_equal(setup, group, device=torch_device)
        with stop_signals(group) as stop_signal:
            if not group.leads:
                follow(setup, group, device=torch_device)
                return
            events = train(setup, run, device=torch_device, resume=request.resume, stop_signal=stop_signal, group=group)
            _show_training(events, run.path, num_processes=group.size)


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """End with 1 and no word where another process has ended: the first one tells it, or torchrun, if it was that.

    Raises:
        Exit: it has.
    """
    from encoder_cls.training.process_group import LostProcessError

    try:
        yield
    except LostProcessError:
        raise typer.Exit(1) from None


def _settings(request: _Request) -> tuple[Config, RunDir]:
    """The config, and the folder of the run.

    Raises:
        ConfigError: they cannot be had, or the folder is where the data is.
    """
    from encoder_cls.cli.outputs import check_run_folder
    from encoder_cls.config import load_config
    from encoder_cls.tracking.run_dir import RunDir

    config = request.config
    if request.resume and config is None and request.run_dir is not None:
        config = _config_of(request.run_dir)
    if request.from_run and config is None:
        raise ConfigError(f"--from {request.from_run}: --config is to name the new data")
    settings = load_config(config, request.overrides, from_run=request.from_run)
    run = RunDir(request.run_dir or RUNS / settings.name)
    check_run_folder(run, settings.data)
    return settings, run


def _is_finished(run: RunDir, settings: Config, *, resume: bool) -> bool:
    """Whether nothing is to be done in a run's folder.

    Raises:
        ConfigError: training there would overwrite something.
    """
    run.check_trainable(settings, resume=resume)
    return run.is_finished()


def _check_data_is_there(data: DataConfig, run: RunDir, config_file: Path | None) -> None:
    """Make sure that the files which the config names are there.

    Raises:
        DataError: one is not; the message has where it was looked for, and how another place is named.
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


def _config_of(run_dir: Path) -> Path:
    """The config that a run was started with.

    Raises:
        ConfigError: there is no run.
    """
    from encoder_cls.tracking.run_dir import RunDir

    if not RunDir(run_dir).is_run():
        raise ConfigError(f"{run_dir}: no run to go on with; name another --run-dir, or a --config to begin with")
    return RunDir(run_dir).config_file


@contextmanager
def stop_signals(group: ProcessGroup) -> Iterator[Callable[[], int | None]]:
    """Turn the first SIGINT or SIGTERM into an answer for the training loop; a second one ends at once.

    Of several processes the first is told of each other's; and as torchrun, too, sends them what a terminal has sent,
    a second one changes nothing there.
    """
    received: list[int] = []

    def receive(number: int, _frame: Any) -> None:
        if received and group.size == 1:
            os._exit(128 + number)
        received.append(number)
        if not group.leads:
            group.ask_to_stop(number)
        if len(received) > 1 or not group.leads:
            return
        with suppress(OSError):  # not through sys.stderr, which may be writing a line at this very moment
            os.write(2, b"\nstopping after this step" + b"; once more to stop at once" * (group.size == 1) + b"\n")

    former = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else group.asked_to_stop()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _described(setup: TrainingSetup) -> Iterator[str]:
    """How the data was read, and what will be trained on what, in a few lines."""
    yield from setup.dataset.notes
    dataset, config, statistics = setup.dataset, setup.config, setup.data_statistics
    if dataset.has_names_alone:
        yield from _described_by_names(setup)
        return
    test = f", {len(dataset.test):,} test" if dataset.test else ""
    more = f", {len(dataset.unlabelled.texts):,} unlabelled" if dataset.unlabelled.texts else ""
    yield (
        f"data: {len(dataset.train):,} training, {len(dataset.validation):,} validation{test}{more} texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')}, "
        f"of {_sizes(dataset.train, dataset.label_names)} training texts"
    )
    if dataset.is_multi_label:
        yield _several_labels(dataset)
    if dataset.corrected:
        changed = counted(len(dataset.corrected), "label")
        yield f"corrections: {changed} of {config.data.corrections} in place of those of the data"
    yield from _groups(dataset, config.data.group_column)
    if not config.model.encoder:
        yield f"tokens: vocabulary {setup.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}"
        yield "model: a linear model alone, without steps of training (model.encoder=false)"
        return
    yield (
        f"tokens: vocabulary {setup.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}, "
        f"texts longer than the encoder reads {statistics['truncated_fraction']:.1%}, padding "
        f"{statistics['padding_fraction']:.1%}"
    )
    shape = f"{counted(config.model.num_layers, 'layer')} of width {config.model.d_model}"
    recipe = setup.recipe
    beside = ", beside it a linear model" if recipe.linear else ""
    beside += " (from a stream: there is much text)" if recipe.linear and recipe.linear.is_streamed else ""
    if config.model.linear and not recipe.linear:
        beside = ", no linear model beside it (too much text for so many classes)"
    yield f"model: {shape}, {setup.num_parameters:,} parameters{beside}"
    lengths = {"masked-LM pretraining": recipe.pretraining, "training on labels": recipe.training}
    passes = [f"{it.epochs} epoch{'s' * (it.epochs > 1)} of {what}" for what, it in lengths.items() if it]
    yield f"steps: {setup.total_steps:,} in all; {', '.join(passes)}"


def _described_by_names(setup: TrainingSetup) -> Iterator[str]:
    """The same where no text has a label."""
    dataset = setup.dataset
    held_out = {"validation": len(dataset.validation), "test": len(dataset.test or ())}
    others = "".join(f", {count:,} {name}" for name, count in held_out.items() if count)
    yield (
        f"data: no labelled text to learn from{others}, {len(dataset.unlabelled.texts):,} unlabelled texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')} by their names (data.label_names)"
    )
    yield f"tokens: vocabulary {setup.vocab_size:,}"
    yield "model: a linear model alone, learned from what the names of the classes say"


def _several_labels(dataset: Dataset) -> str:
    """That texts may have several labels, and how many they have."""
    labels = dataset.train.labels.sum(axis=1)
    why = f"{dataset.several}: labels in a list" if dataset.several else "data.label_separator"
    return (
        f"multi-label ({why}): {labels.mean():.2f} labels a text, several {(labels > 1).mean():.1%}, none "
        f"{(labels == 0).mean():.1%}"
    )


def _groups(dataset: Dataset, column: str | None) -> Iterator[str]:
    """How many groups each split has, where a column names them."""
    import numpy as np

    from encoder_cls.data.holdout import NO_GROUP
    from encoder_cls.system.display import shown

    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    groups = {name: split.groups for name, split in splits.items() if split is not None and split.groups is not None}
    if not groups:
        return
    counts = ", ".join(f"{len(np.unique(it[it != NO_GROUP])):,} {name}" for name, it in groups.items())
    alone = sum(int((it == NO_GROUP).sum()) for it in groups.values())
    without = f"; {counted(alone, 'text')} without one (each alone)" if alone else ""
    yield f"groups by {shown(column or '')}: {counts}{without}"


def _sizes(split: Split, label_names: Sequence[str]) -> str:
    """How many texts the smallest class has, and the largest."""
    from encoder_cls.system.display import shown

    sizes = sorted(zip(split.class_counts(len(label_names)).tolist(), label_names, strict=True))
    return " to ".join(f"{size:,} ({shown(name, limit=30)})" for size, name in (sizes[0], sizes[-1]))


def _step_and_epoch(stage: str, event: Stepped | Validated) -> str:
    return f"{stage:11}  epoch {event.epoch:5.1f}  step {event.step:6d}"


def _show_training(events: Iterator[Event], run: Path, *, num_processes: int = 1) -> None:
    """Follow a training: a progress bar on a terminal, a plain line now and then elsewhere."""
    from tqdm import tqdm

    from encoder_cls.training.events import Finished, LinearFitted, Noted, StageStarted, Started, Stepped, Validated

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
        tell = note if bar.disable else partial(bar.write, file=sys.stderr)
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
    note(f"\ntrained in {event.seconds:.0f} s{early}{best}; {size:.{1 if size < 10 else 0}f} MB")
    _note_what_is_next(run, has_report=event.report is not None)


def _note_what_is_next(run: Path, *, has_report: bool) -> None:
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
