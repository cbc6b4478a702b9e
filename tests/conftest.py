"""What several test files need: a tiny trained run, its classifier, and the command line inside the process."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# One thread, before any library counts the cores: workers share them. Streams are buffered as on a user's machine.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("PYTHONUNBUFFERED", None)
# Workers, and the programs that tests start, compile the package once, not each anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
import torch
from hypothesis import HealthCheck, settings
from support.blank_plots import PLOTS, blank_plot
from support.joining import encoders_joining
from support.programs import TIME_LIMIT
from support.tiny_run import CONFIG, FILLERS, TOPICS

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.cli.app import main
from encoder_cls.config.loading import load_config
from encoder_cls.evaluation import figures
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import stop
from encoder_cls.training import final_model, progress
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

# On a busy machine examples are drawn slowly; that says nothing of what is tested.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

MOST_WORKERS = 8  # each takes a gigabyte of memory


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each core where the whole suite is run; none for tests that are chosen, which then begin at once."""
    is_whole = (
        config.args == config.getini("testpaths")
        and not config.option.keyword
        and not config.option.lf
    )
    return min(os.cpu_count() or 1, MOST_WORKERS) if is_whole else 0


@pytest.fixture
def encoder_joins() -> Iterator[None]:
    """The encoder of a run with both parts joins the linear model, whatever the validation texts show."""
    with encoders_joining():
        yield


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, and a folder of its own as the current one, for each test."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    # Tests count how often a stop is asked for: in steps alone, not while something is fitted.
    monkeypatch.setattr(stop, "SECONDS_BETWEEN_LOOKS", TIME_LIMIT)


@pytest.fixture
def blank_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots stay blank: to draw them takes most of the time of a tiny run, and their own tests draw them."""
    for name in PLOTS:
        monkeypatch.setattr(figures, name, blank_plot)


@pytest.fixture
def bare_trainings(monkeypatch: pytest.MonkeyPatch, blank_plots: None) -> None:
    """Trainings without drawings, with a checkpoint at each validation, whose weights are saved as they are (float32)."""
    monkeypatch.setattr(final_model, "compact", lambda *_arguments, **_options: {})
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run of encoder and linear model; the data files and `tiny.yaml` are beside it.

    Not to be changed: see `run_copy`.
    """
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    for seed, (split, texts) in enumerate({"train": 24, "validation": 4, "test": 5}.items()):
        _write_split(folder / f"{split}.csv", texts_per_class=texts, seed=seed)
    config_file = folder / "tiny.yaml"
    config_file.write_text(CONFIG.format(folder=folder), encoding="utf-8")
    run = RunDir(folder / "tiny")
    with encoders_joining():
        train(prepare(load_config(config_file)), run, device=torch.device("cpu"))
    return run


@pytest.fixture
def run_copy(trained_run: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the trained run, in `runs/` of the test's own folder, to damage."""
    return RunDir(shutil.copytree(trained_run.path, tmp_path / "runs" / "tiny"))


@pytest.fixture(scope="session")
def classifier(trained_run: RunDir) -> Classifier:
    """The classifier of the trained run."""
    return load_classifier(trained_run.path, device="cpu")


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs `encoder-cls` with these arguments in this process."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["encoder-cls", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Outcome(int(ended.value.code or 0), *capfd.readouterr())

    return run


def _write_split(path: Path, *, texts_per_class: int, seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        f"{' '.join([*draw.sample(words, 3), *draw.sample(FILLERS, 2)])},{label}\n"
        for _ in range(texts_per_class)
        for label, words in TOPICS.items()
    ]
    path.write_text("text,label\n" + "".join(rows), encoding="utf-8")
