"""Fixtures of many test files: a tiny run, its classifier, the command line in this process."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from support.blank_plots import PLOTS, blank_plot
from support.browser import Browser
from support.joining import encoders_joining
from support.programs import TIME_LIMIT, TIME_OF_LINE
from support.topics import labelled_texts, write_labelled_texts, write_tiny_config
from support.usual_c import trying_usual_c_alone
from typer.core import TyperCommand
from typer.models import CommandInfo

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.cli.app import main
from encoder_cls.config.loading import load_config
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import stop, terminal
from encoder_cls.training import expected_time, final_model, run_progress
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True, scope="session")
def _quick_commands() -> Iterator[None]:
    """Typer makes the parser of a command once, not for each command that a test runs."""
    make = typer.main.get_command_from_info
    parsers: dict[str, TyperCommand] = {}

    def parser(command_info: CommandInfo, **options: Any) -> TyperCommand:
        name = command_info.name
        if name not in parsers:
            parsers[name] = make(command_info, **options)
        return parsers[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command_from_info", parser)
        yield


@pytest.fixture(autouse=True, scope="session")
def _usual_signals() -> Iterator[None]:
    """No signal is ignored, as it is in a suite that `nohup` or a shell's `&` has started."""
    earlier = {}
    for name, usual in {"SIGHUP": signal.SIG_DFL, "SIGINT": signal.default_int_handler}.items():
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) == signal.SIG_IGN:
            earlier[number] = signal.signal(number, usual)
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


@pytest.fixture
def encoder_joins() -> Iterator[None]:
    """Encoders join the linear model, whatever the validation texts show."""
    with encoders_joining():
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick_disk() -> Iterator[None]:
    """No test waits until its files are on the disk, where only a power cut needs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _usual_priority() -> Iterator[None]:
    """This process keeps its priority, which the model of the label page lowers for itself.

    A process cannot raise its priority again, so all later tests would have to wait for others.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda _increment: 0)
        yield


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has one thread, an empty current folder, and a process that is not quiet."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "_is_quiet", False)
    # Tests count how often a run looks for a signal: at its steps alone, not during long work.
    monkeypatch.setattr(stop, "SECONDS_BETWEEN_LOOKS", TIME_LIMIT)
    # Measuring the speed of the machine would take a tenth of a tiny run.
    monkeypatch.setattr(expected_time, "machine_slowness", lambda: 1.0)


@pytest.fixture
def blank_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots stay blank, since drawing takes most of the time of a tiny run."""
    for name in PLOTS:
        monkeypatch.setattr(matplotlib_figures, name, blank_plot)


@pytest.fixture
def bare_trainings(monkeypatch: pytest.MonkeyPatch, blank_plots: None) -> None:
    """Trainings draw nothing, save a checkpoint at each validation, and keep weights in float32."""
    monkeypatch.setattr(final_model, "compact", lambda *_arguments, **_options: {})
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture
def usual_c() -> Iterator[None]:
    """Linear models have the usual C, since choosing it takes half the time of a tiny run."""
    with trying_usual_c_alone():
        yield


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run of encoder and linear model, for all tests together: see `run_copy`.

    The data files and the config `tiny.yaml` are beside its folder.
    """
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    write_labelled_texts(folder / "train.csv", labelled_texts(24, seed=0))
    write_labelled_texts(folder / "validation.csv", labelled_texts(4, seed=1))
    write_labelled_texts(folder / "test.csv", labelled_texts(5, seed=2))
    config_file = folder / "tiny.yaml"
    write_tiny_config(config_file)

    run = RunDir(folder / "tiny")
    with encoders_joining():
        train(prepare(load_config(config_file)), run, device=torch.device("cpu"))
    return run


@pytest.fixture
def run_copy(trained_run: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the trained run, `runs/tiny`, which a test may change."""
    return RunDir(shutil.copytree(trained_run.path, tmp_path / "runs" / "tiny"))


@pytest.fixture(scope="session")
def classifier(trained_run: RunDir) -> Classifier:
    """The classifier of the trained run."""
    return load_classifier(trained_run.path, device="cpu")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, which starts once for all tests: mark them with `needs_browser`."""
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """A function that runs `encoder-cls` with some arguments in this process.

    What it prints is as on a terminal, without the times that lines of a log file have.
    """

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["encoder-cls", *map(str, arguments)])
        # A process runs one command, so nothing ends the quiet that `--quiet` asks for.
        monkeypatch.setattr(terminal, "_is_quiet", False)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), out, TIME_OF_LINE.sub("", err))

    return run
