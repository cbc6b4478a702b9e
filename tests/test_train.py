"""Training: it learns, it resumes bit for bit, and whatever only watches it changes nothing."""

from __future__ import annotations

import json
import math
import signal
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_cls import train as train_module
from encoder_cls.classifier import hash_tensors, load_classifier
from encoder_cls.config import Config
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError, StoppedError
from encoder_cls.preparation import prepare
from encoder_cls.run_folder import RunFolder
from encoder_cls.train import Event, Finished, Started, Stepped, Validated, train

CPU = torch.device("cpu")
COLOURS = ["red", "green", "blue"]


def write_data(folder: Path, *, texts: int) -> Path:
    """Texts whose class is the colour they name, of different lengths."""
    random = np.random.default_rng(0)
    path = folder / "train.csv"
    if not path.exists():
        words = [f"w{i}" for i in range(20)]
        rows = [
            f"{' '.join(random.choice(words, random.integers(1, 9)))} {COLOURS[i % 3]} end,{COLOURS[i % 3]}"
            for i in range(texts)
        ]
        path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def make_config(folder: Path, *, texts: int = 60, **train_values: object) -> Config:
    return Config.model_validate(
        {
            "name": "test",
            "data": {"train": str(write_data(folder, texts=texts)), "validation_fraction": 0.2},
            "model": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 16},
            "train": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "log_every": 2, "patience": None}
            | train_values,
        }
    )


def run_all(config: Config, folder: Path, **options: object) -> list[Event]:
    return list(train(prepare(config), RunFolder(folder), device=CPU, **options))  # type: ignore[arg-type]


def stop_after(steps: int):
    """A stop signal that comes with the answer number `steps`."""
    answers = iter([None] * steps)
    return lambda: next(answers, signal.SIGTERM)


def weights_hash(folder: Path) -> str:
    """Of the newest checkpoint's weights and moments, and of the best model's weights."""
    newest = max((folder / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    return " ".join(
        json.loads((newest / "manifest.json").read_text())["files"][name]["sha256"]
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    ) + hash_tensors(load_classifier(folder).model.state_dict())


def metric_rows(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in {"tokens_per_s", "time"}} for row in rows]


def test_it_learns_and_reports(tmp_path):
    """A task that a word decides is learnt; the events and the folder tell the same story."""
    config = make_config(tmp_path, texts=300, epochs=6)
    events = run_all(config, tmp_path / "run")
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Stepped) for event in events) == events[0].total_steps == 6 * 30
    assert events[-1].report.metrics.accuracy == 1
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.epoch for event in validations] == list(range(1, 7))
    best = max(validations, key=lambda event: (event.metrics.accuracy, -event.metrics.loss))
    assert events[-1].best_step == best.step
    assert load_classifier(tmp_path / "run").predict(["w3 blue w1"])[0].label == "blue"
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "model", "checkpoints", "metrics.jsonl", "eval", "tensorboard"
    }  # fmt: skip
    assert not [path for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".pkl", ".bin"}]
    assert RunFolder(folder).load_config() == config


@pytest.mark.parametrize("stops", [[1], [7], [5, 2, 3], [3, 1, 1, 1, 1]])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stops):
    """Stopped at any moment, in a step or in a validation, and resumed: the same weights, moments and metrics."""
    config = make_config(tmp_path, accumulation_steps=2, validate_every=2)
    run_all(config, tmp_path / "straight")
    for steps in stops:
        with pytest.raises(StoppedError) as stopped:
            run_all(config, tmp_path / "broken", resume=True, stop_signal=stop_after(steps))
        assert stopped.value.exit_code == 143
    run_all(config, tmp_path / "broken", resume=True)
    assert weights_hash(tmp_path / "broken") == weights_hash(tmp_path / "straight")
    assert metric_rows(tmp_path / "broken") == metric_rows(tmp_path / "straight")


@pytest.mark.parametrize("events", [3, 8, 15])
def test_a_run_that_vanished_resumes_from_its_last_checkpoint(tmp_path, events):
    """Ended without warning between checkpoints, a run is taken up at the last one, and ends the same."""
    config = make_config(tmp_path, checkpoint_every=2)
    run_all(config, tmp_path / "straight")
    list(islice(train(prepare(config), RunFolder(tmp_path / "broken"), device=CPU), events))
    run_all(config, tmp_path / "broken", resume=True)
    assert weights_hash(tmp_path / "broken") == weights_hash(tmp_path / "straight")
    assert metric_rows(tmp_path / "broken") == metric_rows(tmp_path / "straight")


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    """Resume goes on from the newest whole checkpoint and says so."""
    config = make_config(tmp_path)
    run_all(config, tmp_path / "straight")
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "broken", stop_signal=stop_after(15))
    newest, _ = sorted((tmp_path / "broken" / "checkpoints").iterdir(), key=lambda path: -int(path.name[5:]))
    content = bytearray((newest / "optimizer.safetensors").read_bytes())
    content[-3] ^= 1
    (newest / "optimizer.safetensors").write_bytes(content)
    events = run_all(config, tmp_path / "broken", resume=True)
    assert "damaged" in events[0].notes[0]
    assert events[0].step > 0
    assert weights_hash(tmp_path / "broken") == weights_hash(tmp_path / "straight")


def test_watching_changes_nothing(tmp_path):
    """Other intervals for logs and checkpoints give the same weights."""
    run_all(make_config(tmp_path), tmp_path / "a")
    run_all(make_config(tmp_path, log_every=5, checkpoint_every=1, keep_checkpoints=1), tmp_path / "b")
    one, other = (load_classifier(tmp_path / name).model.state_dict() for name in "ab")
    assert hash_tensors(one) == hash_tensors(other)


def test_seeds_differ_and_repeat(tmp_path):
    """The same seed gives the same weights, another seed others."""
    hashes = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_all(make_config(tmp_path).model_copy(update={"seed": seed}), tmp_path / name)
        hashes.append(hash_tensors(load_classifier(tmp_path / name).model.state_dict()))
    assert hashes[0] == hashes[1] != hashes[2]


def test_accumulated_gradients_equal_one_large_batch(tmp_path, monkeypatch):
    """Many small batches of unequal sizes and weights give the gradient of all their texts at once."""
    weights = {"red": 3.0, "blue": 0.5}
    config = make_config(tmp_path, word_dropout=0, class_weights=weights, precision="float32")
    config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0, "head_dropout": 0})})
    gradients = []
    for name, cuts in (("one", []), ("many", [3, 4])):
        training = train_module._Training(
            prepare(config), RunFolder(tmp_path / name), device=CPU, stop_signal=lambda: None
        )
        loss = training._accumulate_gradients(np.split(np.arange(20), cuts))
        gradients.append([loss, *(p.grad.clone() for p in training.model.parameters())])
        training.dashboard.__exit__(None, None, None)
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-6)
    for one, many in zip(gradients[0][1:], gradients[1][1:], strict=True):
        torch.testing.assert_close(one, many, atol=1e-6, rtol=1e-4)


def test_patience_ends_the_run(tmp_path, monkeypatch):
    """After `patience` validations without a better score, the run ends and the best weights are its model."""
    metrics = iter([0.5, 0.7, 0.6, 0.6, 0.9])
    real = train_module.compute_metrics

    def scripted(*args):
        from dataclasses import replace

        return replace(real(*args), accuracy=next(metrics))

    monkeypatch.setattr(train_module, "compute_metrics", scripted)
    events = run_all(make_config(tmp_path, epochs=9, patience=2), tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.is_best for event in validations] == [True, True, False, False]
    assert events[-1].best_step == validations[1].step


@pytest.mark.parametrize(
    ("monitor", "best"), [("accuracy", 0), ("macro_f1", 1), ("loss", 2)], ids=["accuracy", "macro_f1", "loss"]
)
def test_the_chosen_metric_decides_what_is_best(tmp_path, monkeypatch, monitor, best):
    """Of three validations, each is best by another metric."""
    from dataclasses import replace

    scores = iter([(0.9, 0.1, 3.0), (0.1, 0.9, 2.0), (0.2, 0.2, 1.0)])
    real = train_module.compute_metrics

    def scripted(*args):
        accuracy, macro_f1, loss = next(scores)
        return replace(real(*args), accuracy=accuracy, macro_f1=macro_f1, loss=loss)

    monkeypatch.setattr(train_module, "compute_metrics", scripted)
    events = run_all(make_config(tmp_path, monitor=monitor), tmp_path / "run")
    steps = [event.step for event in events if isinstance(event, Validated)]
    assert events[-1].best_step == steps[best]


def test_divergence_stops_before_the_update(tmp_path, monkeypatch):
    """A loss that is no number ends the run with its step and examples; the last checkpoint stays good."""
    config = make_config(tmp_path)
    real = train_module.functional.cross_entropy
    calls = []

    def poisoned(*args, **kwargs):
        calls.append(1)
        return real(*args, **kwargs) * (math.nan if len(calls) == 9 else 1)

    monkeypatch.setattr(train_module.functional, "cross_entropy", poisoned)
    with pytest.raises(DivergedError, match=r"step 9: loss nan.*train\.csv:\d+") as diverged:
        run_all(config, tmp_path / "run")
    assert diverged.value.exit_code == 4
    monkeypatch.undo()
    run_all(config, tmp_path / "run", resume=True)
    run_all(config, tmp_path / "straight")
    assert weights_hash(tmp_path / "run") == weights_hash(tmp_path / "straight")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("none", [1, 1, 1]), ("balanced", [1.25, 2.5, 0.625]), ({"b": 4.0}, [1, 4, 1])],
    ids=["none", "balanced", "named"],
)
def test_class_weights(tmp_path, choice, expected):
    """Balanced weights are inverse frequencies with the mean 1 over examples; unnamed classes have 1."""
    rows = ["text,label", *(f"x {i},a" for i in range(8)), *(f"y {i},b" for i in range(4)), *(f"z {i},c" for i in range(16))]  # fmt: skip # noqa: E501
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    config = make_config(tmp_path, class_weights=choice)
    config = config.model_copy(update={"data": config.data.model_copy(update={"validation_fraction": 0.25})})
    preparation = prepare(config)
    counts = np.bincount(preparation.dataset.train.labels)
    weights = train_module._class_weights(preparation)
    if choice == "balanced":
        assert (weights.numpy() * counts) == pytest.approx([counts.sum() / 3] * 3)
    else:
        assert weights.tolist() == expected


def test_unknown_class_weight_is_named(tmp_path):
    """A weight for a class that does not occur is a mistake in the config."""
    with pytest.raises(ConfigError, match=r"class_weights: no class is called 'grey'"):
        prepare(make_config(tmp_path, class_weights={"grey": 2.0}))


def test_a_folder_is_never_overwritten(tmp_path):
    """A run, another config's run, foreign files and a plain file are refused; a finished run stays as it is."""
    config, run = make_config(tmp_path, epochs=1), tmp_path / "run"
    run_all(config, run)
    with pytest.raises(ConfigError, match="--resume"):
        run_all(config, run)
    with pytest.raises(ConfigError, match=r"another train\.epochs"):
        run_all(make_config(tmp_path, epochs=2), run, resume=True)
    assert run_all(config, run, resume=True) == []
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="other files"):
        run_all(config, tmp_path / "foreign", resume=True)
    with pytest.raises(ConfigError, match="is a file"):
        run_all(config, tmp_path / "foreign" / "thesis.txt")


def test_one_trainer_a_folder(tmp_path):
    """A second trainer is told which process holds the folder."""
    config = make_config(tmp_path)
    events = train(prepare(config), RunFolder(tmp_path / "run"), device=CPU)
    next(events)
    with pytest.raises(EncoderClsError, match=r"process \d+ is training here"):
        run_all(config, tmp_path / "run", resume=True)
    events.close()
    run_all(config, tmp_path / "run", resume=True)


def test_changed_data_is_not_resumed(tmp_path):
    """Weights of one data set do not go on with another."""
    config = make_config(tmp_path)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    path = tmp_path / "train.csv"
    path.write_text(path.read_text().replace("w3", "w4"))
    with pytest.raises(ConfigError, match="training data has changed"):
        run_all(config, tmp_path / "run", resume=True)


def test_another_thread_count_is_warned_of(tmp_path, monkeypatch):
    """Facts that change the last digits are compared, and named."""
    config = make_config(tmp_path)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    events = run_all(config, tmp_path / "run", resume=True)
    assert "threads changed" in events[0].notes[0]


def test_checkpoints_are_rotated(tmp_path):
    """Only the newest few stay."""
    run_all(make_config(tmp_path, checkpoint_every=1, keep_checkpoints=3), tmp_path / "run")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_precisions_train(tmp_path, precision):
    """Mixed precision keeps float32 weights and learns as well."""
    run_all(make_config(tmp_path, texts=300, precision=precision, epochs=6), tmp_path / "run")
    classifier = load_classifier(tmp_path / "run")
    assert {tensor.dtype for tensor in classifier.model.state_dict().values()} == {torch.float32}
    assert classifier.predict(["red end", "w1 green", "blue"])[1].label == "green"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains(tmp_path):
    """The same loop learns the same task on a GPU."""
    config = make_config(tmp_path, epochs=25)
    events = list(train(prepare(config), RunFolder(tmp_path / "run"), device=torch.device("cuda")))
    assert events[-1].report.metrics.accuracy == 1
