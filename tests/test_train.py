"""Training: it learns, it resumes bit for bit, and whatever only watches it changes nothing."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_cls import columns
from encoder_cls import lessons as lessons_module
from encoder_cls import linear as linear_module
from encoder_cls import train as train_module
from encoder_cls.calibration import fit_temperature
from encoder_cls.checkpoint import load_newest
from encoder_cls.classifier import compute_logits, load_classifier
from encoder_cls.config import Config
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError, StoppedError
from encoder_cls.events import Event, Finished, StageStarted, Started, Stepped, Validated
from encoder_cls.preparation import prepare
from encoder_cls.run_folder import RunFolder
from encoder_cls.storage import sha256
from encoder_cls.train import train

CPU = torch.device("cpu")
COLOURS = ["red", "green", "blue"]
SHAPE = {
    **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 16},
    **{"char_ngram_buckets": 64, "bigram_buckets": 64},
}


@pytest.fixture(autouse=True)
def _asked_in_steps_alone(monkeypatch):
    """Not every few milliseconds of a wait: tests count how often the stop signal is asked."""
    monkeypatch.setattr(train_module, "SECONDS_BETWEEN_LOOKS", 600)


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


NO_PRETRAINING = {"epochs": 0}
LABELS_ALONE = {"teachers": 0, "linear": False}
DISTILLED = {"teachers": 2, "linear": True, "epochs": 2}


def make_config(
    folder: Path,
    *,
    texts: int = 60,
    pretrain: dict[str, object] = NO_PRETRAINING,
    distillation: dict[str, object] = LABELS_ALONE,
    **train_values: object,
) -> Config:
    return Config.model_validate(
        {
            "name": "test",
            "data": {"train": str(write_data(folder, texts=texts)), "validation_fraction": 0.2},
            "model": SHAPE,
            "pretrain": pretrain,
            "distillation": distillation,
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
    ) + model_hash(folder)


def model_hash(folder: Path) -> str:
    return sha256((folder / "model" / "model.safetensors").read_bytes())


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
    best = max(validations, key=lambda event: (event.verdict.metrics.accuracy, -event.verdict.metrics.loss))
    assert events[-1].best_step == best.step
    assert load_classifier(tmp_path / "run").predict(["w3 blue w1"])[0].label == "blue"
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "model", "checkpoints", "metrics.jsonl", "eval", "tensorboard"
    }  # fmt: skip
    assert not [path for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".pkl", ".bin"}]
    assert RunFolder(folder).load_config() == config


def test_a_model_learns_from_teachers(tmp_path):
    """Teachers come first, each its own classifier; the model learns from them, and only the model is kept."""
    config = make_config(tmp_path, texts=300, distillation=DISTILLED | {"epochs": 4}, epochs=6)
    run = RunFolder(tmp_path / "run")
    stages, scores = [], []
    for event in train(prepare(config), run, device=CPU):
        if isinstance(event, StageStarted):
            stages.append((event.stage.name, event.step))
            if event.teachers:
                assert sorted(path.name for path in run.stages.iterdir()) == ["teacher-1", "teacher-2"]
                assert load_classifier(run.stage("teacher 2")).predict(["w3 blue w1"])[0].label == "blue"
                assert event.teachers.validation_accuracy == 1
        if isinstance(event, Validated):
            scores.append((event.stage.name, event.epoch))
    assert stages == [("teacher 1", 0), ("teacher 2", 4 * 30), ("model", 8 * 30)]
    epochs = {"teacher 1": 4, "teacher 2": 4, "model": 6}
    assert scores == [(name, epoch) for name, many in epochs.items() for epoch in range(1, many + 1)]
    assert event.report.metrics.accuracy == 1
    assert not run.stages.exists()
    assert load_classifier(run.path).predict(["w3 blue w1"])[0].label == "blue"
    rows = metric_rows(run.path)
    assert list(dict.fromkeys(row["split"] for row in rows)) == [
        "data", "teacher-1/train", "teacher-1/validation", "teacher-2/train", "teacher-2/validation", "train",
        "validation", "best_validation"
    ]  # fmt: skip
    assert [row["step"] for row in rows if row["split"] == "validation"] == [30 * n for n in range(9, 15)]


@pytest.mark.parametrize("epochs", [3, 10, 27])
def test_pictures_are_of_validations_all_along_the_way(tmp_path, epochs):
    """Ten at most, evenly spaced, the last among them; they say what the numbers say."""
    config = make_config(tmp_path, texts=60, distillation=DISTILLED | {"teachers": 1}, epochs=epochs)
    run_all(config, tmp_path / "run")
    rows = [row for row in metric_rows(tmp_path / "run") if row["split"].endswith("validation")]
    assert not any("confusion_matrix" in row for row in rows if row["split"] == "teacher-1/validation")
    drawn = [row for row in rows if row["split"] == "validation" and "confusion_matrix" in row]
    assert len(drawn) == min(epochs, 10)
    gaps = np.diff([0, *(row["epoch"] for row in drawn)])
    assert gaps.max() - gaps.min() <= 1
    assert drawn[-1]["epoch"] == epochs
    for row in drawn:
        assert np.trace(row["confusion_matrix"]) / np.sum(row["confusion_matrix"]) == pytest.approx(row["accuracy"])
        assert sum(row["calibration"]["texts"]) == np.sum(row["confusion_matrix"])


@pytest.mark.parametrize(
    ("distillation", "names"),
    [({"teachers": 0, "linear": True}, ["model"]), ({"teachers": 1, "linear": False}, ["teacher 1", "model"])],
    ids=["linear alone", "encoder alone"],
)
def test_one_teacher_is_enough(tmp_path, distillation, names):
    """A linear model alone, or an encoder alone, teaches the model all that there is to learn."""
    events = run_all(make_config(tmp_path, texts=300, distillation=distillation, epochs=6), tmp_path / "run")
    started = [event for event in events if isinstance(event, StageStarted)]
    assert [event.stage.name for event in started] == names
    assert started[-1].teachers.linear_part == distillation["linear"]
    assert events[-1].report.metrics.accuracy == 1


def test_probabilities_are_calibrated_on_the_validation_texts(tmp_path):
    """The best weights are kept with the temperature under which they explain the validation labels best."""
    preparation = prepare(make_config(tmp_path))
    list(train(preparation, RunFolder(tmp_path / "run"), device=CPU))
    classifier = load_classifier(tmp_path / "run")
    logits = compute_logits(classifier.model, preparation.validation_texts, batch_tokens=8192)
    assert classifier.temperature == fit_temperature(logits, preparation.dataset.validation.labels) != 1


def test_class_weights_count_in_what_is_learnt_from_teachers(tmp_path):
    """Where a teacher that knows of no weights is in doubt, the model prefers the heavier class."""
    texts = [line.partition(",")[0].split()[0] for line in write_data(tmp_path, texts=60).read_text().splitlines()[1:]]
    rows = [f"{text},{COLOURS[i % 3]}" for i, text in enumerate(texts)]  # words that tell nothing
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    shares = []
    for name, weights in (("even", {}), ("red", {"red": 9.0})):
        # One validation, at the end: which weights are best is chance here.
        values = {"distillation": {"teachers": 0, "linear": True}, "class_weights": weights, "validate_every": 1000}
        run_all(make_config(tmp_path, **values), tmp_path / name)
        predictions = load_classifier(tmp_path / name).predict(texts)
        shares.append(np.mean([prediction.label == "red" for prediction in predictions]))
    assert shares[0] < 0.7
    assert shares[1] > 0.9, shares


def result(folder: Path) -> tuple[str, list[dict[str, object]]]:
    """All that a run ends with and that must not depend on where it was interrupted."""
    assert not (folder / "teachers").exists()
    return weights_hash(folder), metric_rows(folder)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The result of an uninterrupted run, which is made once for each config."""
    known = {}

    def run(**values):
        if repr(values) not in known:
            folder = tmp_path_factory.mktemp("straight")
            run_all(make_config(folder, **values), folder / "run")
            known[repr(values)] = result(folder / "run")
        return known[repr(values)]

    return run


LABELLED, TAUGHT = {"distillation": LABELS_ALONE}, {"distillation": DISTILLED}
PRETRAINED = {"pretrain": {"epochs": 2}, "distillation": DISTILLED | {"teachers": 1}}


@pytest.mark.parametrize(
    ("values", "stops", "stopped_in"),
    [
        # The stage, the step and the last validated step of the last checkpoint.
        pytest.param(LABELLED, [1], (0, 1, 0), id="after a step"),
        pytest.param(LABELLED, [7], (0, 5, 4), id="between validations"),
        pytest.param(LABELLED, [5, 2, 3], (0, 7, 6), id="now and then"),
        pytest.param(LABELLED, [3, 1, 1, 1, 1], (0, 5, 4), id="many times"),
        pytest.param(TAUGHT, [2], (0, 2, 0), id="in a teacher's validation"),
        pytest.param(TAUGHT, [9], (1, 6, 6), id="before the second teacher"),
        pytest.param(TAUGHT, [11], (1, 8, 6), id="in the second teacher's validation"),
        pytest.param(TAUGHT, [18], (2, 12, 12), id="while teachers are assembled"),
        pytest.param(TAUGHT, [20], (2, 12, 12), id="before the model's first step"),
        pytest.param(TAUGHT, [24], (2, 15, 14), id="between the model's validations"),
        pytest.param(TAUGHT, [33], (2, 21, 20), id="in the last validation"),
        pytest.param(TAUGHT, [34], (2, 21, 21), id="in the report"),
        pytest.param(TAUGHT, [5, 6, 10, 3, 7], (2, 17, 16), id="in every stage"),
        pytest.param(PRETRAINED, [1], (0, 1, 0), id="in pretraining"),
        pytest.param(PRETRAINED, [2], (0, 2, 0), id="in a validation of pretraining"),
        pytest.param(PRETRAINED, [9], (1, 6, 6), id="after pretraining"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, straight, values, stops, stopped_in):
    """Stopped at any moment of any stage and resumed: the same weights, moments and metrics."""
    values = values | {"accumulation_steps": 2, "validate_every": 2}
    config = make_config(tmp_path, **values)
    for steps in stops:
        with pytest.raises(StoppedError) as stopped:
            run_all(config, tmp_path / "broken", resume=True, stop_signal=stop_after(steps))
        assert stopped.value.exit_code == 143
    state = load_newest(tmp_path / "broken" / "checkpoints")[0].state
    assert (state.stage, state.step, state.validated_step) == stopped_in
    run_all(config, tmp_path / "broken", resume=True)
    assert result(tmp_path / "broken") == straight(**values)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        pytest.param(LABELLED, ("model", Stepped, 1), id="before any checkpoint"),
        pytest.param(LABELLED, ("model", Validated, 6), id="after a validation"),
        pytest.param(LABELLED, ("model", Stepped, 11), id="after a step"),
        pytest.param(TAUGHT, ("teacher 1", Stepped, 5), id="in a teacher"),
        pytest.param(TAUGHT, ("teacher 1", Validated, 12), id="after a teacher's last validation"),
        pytest.param(TAUGHT, ("teacher 2", StageStarted, 12), id="at a teacher's start"),
        pytest.param(TAUGHT, ("teacher 2", Stepped, 13), id="after a teacher's first step"),
        pytest.param(TAUGHT, ("teacher 2", Validated, 24), id="before teachers are assembled"),
        pytest.param(TAUGHT, ("model", StageStarted, 24), id="at the model's start"),
        pytest.param(TAUGHT, ("model", Stepped, 33), id="in the model"),
        pytest.param(TAUGHT, ("model", Validated, 42), id="before the report"),
        pytest.param(PRETRAINED, ("pretraining", Stepped, 5), id="in pretraining"),
        pytest.param(PRETRAINED, ("pretraining", Validated, 12), id="after the last validation of pretraining"),
        pytest.param(PRETRAINED, ("teacher 1", StageStarted, 12), id="after pretraining"),
    ],
)
def test_a_run_that_vanished_resumes_from_its_last_checkpoint(tmp_path, straight, values, last):
    """Ended without warning between checkpoints, a run is taken up at the last one, and ends the same."""
    values = values | {"checkpoint_every": 2}
    config = make_config(tmp_path, **values)
    stage = None
    for event in train(prepare(config), RunFolder(tmp_path / "broken"), device=CPU):
        stage = event.stage.name if isinstance(event, StageStarted) else stage
        if (stage, type(event), event.step) == last:
            break
    run_all(config, tmp_path / "broken", resume=True)
    assert result(tmp_path / "broken") == straight(**values)


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
    assert "damaged" in events[1].message
    assert events[0].step > 0
    assert weights_hash(tmp_path / "broken") == weights_hash(tmp_path / "straight")


def test_watching_changes_nothing(tmp_path):
    """Other intervals for logs and checkpoints give the same weights."""
    run_all(make_config(tmp_path), tmp_path / "a")
    run_all(make_config(tmp_path, log_every=5, checkpoint_every=1, keep_checkpoints=1), tmp_path / "b")
    assert model_hash(tmp_path / "a") == model_hash(tmp_path / "b")


def test_where_the_data_is_kept_changes_nothing(tmp_path, monkeypatch):
    """Texts, places and tokens from memory, and all of them from files: the same weights, numbers and report."""
    config = make_config(tmp_path, distillation=DISTILLED)
    run_all(config, tmp_path / "memory")
    monkeypatch.setattr(columns, "MOST_PENDING", 0)
    run_all(config, tmp_path / "files")
    one, other = (tmp_path / name for name in ("memory", "files"))
    assert weights_hash(one) == weights_hash(other)
    assert metric_rows(one) == metric_rows(other)
    for name in ("report.json", "predictions.jsonl"):
        assert (one / "eval" / name).read_bytes() == (other / "eval" / name).read_bytes()


def test_seeds_differ_and_repeat(tmp_path):
    """The same seed gives the same weights, another seed others."""
    hashes = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_all(make_config(tmp_path).model_copy(update={"seed": seed}), tmp_path / name)
        hashes.append(model_hash(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]


def test_accumulated_gradients_equal_one_large_batch(tmp_path, monkeypatch):
    """Many small batches of unequal sizes and weights give the gradient of all their texts at once."""
    weights = {"red": 3.0, "blue": 0.5}
    config = make_config(tmp_path, word_dropout=0, class_weights=weights, precision="float32")
    config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0, "head_dropout": 0})})
    gradients = []
    for name, cuts in (("one", []), ("many", [3, 4])):
        (tmp_path / name).mkdir()
        training = train_module._Training(
            prepare(config), RunFolder(tmp_path / name), device=CPU, stop_signal=lambda: None
        )
        lessons = training._lessons(None)
        loss = training._accumulate_gradients([lessons._lesson(part) for part in np.split(np.arange(20), cuts)])
        gradients.append([loss, *(p.grad.to_dense() for p in training.model.parameters())])
        training.dashboard.__exit__(None, None, None)
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-6)
    for one, many in zip(gradients[0][1:], gradients[1][1:], strict=True):
        torch.testing.assert_close(one, many, atol=1e-6, rtol=1e-4)


def test_both_optimizers_follow_the_learning_rate(tmp_path):
    """Tables are learnt at the same rate as all else, from the first step of the warm-up on."""
    config = make_config(tmp_path, warmup_fraction=0.5)
    (tmp_path / "run").mkdir()
    training = train_module._Training(
        prepare(config), RunFolder(tmp_path / "run"), device=CPU, stop_signal=stop_after(0)
    )
    lessons = training._lessons(None)
    for step in (1, 2):
        training._step(lessons)
        rates = {group["lr"] for optimizer in training.optimizers for group in optimizer.param_groups}
        assert rates == {0.01 * step / 9}
    training.dashboard.__exit__(None, None, None)


def test_patience_ends_the_run(tmp_path, monkeypatch):
    """After `patience` validations without a better score, the run ends and the best weights are its model."""
    metrics = iter([0.5, 0.7, 0.6, 0.6, 0.9])
    real = lessons_module.compute_metrics
    monkeypatch.setattr(lessons_module, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(metrics)))
    events = run_all(make_config(tmp_path, epochs=9, patience=2), tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.is_best for event in validations] == [True, True, False, False]
    assert events[-1].best_step == validations[1].step


def test_only_those_who_learn_from_labels_can_run_out_of_patience(tmp_path, monkeypatch):
    """A teacher stops after `patience` worse validations; the model, whose texts are new each time, goes on."""
    accuracies = {"teacher 1": [0.5, 0.7, 0.6, 0.6], "model": [0.5, 0.4, 0.4, 0.4, 0.6]}
    metrics = iter(accuracies["teacher 1"] + accuracies["model"])
    real = lessons_module.compute_metrics
    monkeypatch.setattr(lessons_module, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(metrics)))
    distillation = {"teachers": 1, "linear": False, "epochs": 9}
    config = make_config(tmp_path, distillation=distillation, epochs=5, patience=2, monitor="accuracy")
    events = run_all(config, tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    for name, expected in accuracies.items():
        assert [event.verdict.metrics.accuracy for event in validations if event.stage.name == name] == expected
    assert [event.is_best for event in validations[4:]] == [True, False, False, False, True]
    assert events[-1].best_step == validations[-1].step
    teacher, model = (event for event in events if isinstance(event, StageStarted))
    assert teacher.total_steps > model.total_steps == validations[-1].step


@pytest.mark.parametrize(
    ("monitor", "best"), [("accuracy", 0), ("macro_f1", 1), ("loss", 2)], ids=["accuracy", "macro_f1", "loss"]
)
def test_the_chosen_metric_decides_what_is_best(tmp_path, monkeypatch, monitor, best):
    """Of three validations, each is best by another metric."""
    scores = iter([(0.9, 0.1, 3.0), (0.1, 0.9, 2.0), (0.2, 0.2, 1.0)])
    real = lessons_module.compute_metrics

    def scripted(*args):
        accuracy, macro_f1, loss = next(scores)
        return replace(real(*args), accuracy=accuracy, macro_f1=macro_f1, loss=loss)

    monkeypatch.setattr(lessons_module, "compute_metrics", scripted)
    events = run_all(make_config(tmp_path, monitor=monitor), tmp_path / "run")
    steps = [event.step for event in events if isinstance(event, Validated)]
    assert events[-1].best_step == steps[best]


def test_a_model_that_is_taught_is_best_where_it_is_nearest_to_its_teachers(tmp_path, monkeypatch):
    """By default, whatever the labels say; a teacher itself goes by accuracy."""
    divergences = iter([0.4, 0.1, 0.3])
    monkeypatch.setattr(lessons_module.Teachers, "divergence", lambda *_: next(divergences))
    accuracies = iter([0.5, 0.7, 0.6, 0.1, 0.2, 0.9])
    real = lessons_module.compute_metrics
    monkeypatch.setattr(
        lessons_module, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(accuracies))
    )
    distillation = {"teachers": 1, "linear": False, "epochs": 3}
    events = run_all(make_config(tmp_path, distillation=distillation, epochs=3), tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.is_best for event in validations] == [True, True, False, True, True, False]
    assert events[-1].best_step == validations[4].step
    rows = metric_rows(tmp_path / "run")
    assert [row["divergence"] for row in rows if "divergence" in row] == [0.4, 0.1, 0.3]


def test_the_teachers_are_asked_in_a_last_validation_that_a_signal_cut_short(tmp_path, monkeypatch):
    """Every step is done, and still the model's nearness to its teachers has to be known."""
    config = make_config(tmp_path, distillation=DISTILLED)
    run_all(config, tmp_path / "straight")
    last = metric_rows(tmp_path / "straight")[-1]["step"]
    asked = [None]
    real = train_module._Training._validate

    def interrupted(training, lessons):
        if training.state.step == last:
            asked[0] = signal.SIGTERM
        return real(training, lessons)

    with monkeypatch.context() as patch:
        patch.setattr(train_module._Training, "_validate", interrupted)
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", stop_signal=lambda: asked[0])
    run_all(config, tmp_path / "stopped", resume=True)
    assert weights_hash(tmp_path / "stopped") == weights_hash(tmp_path / "straight")


def test_each_stage_starts_from_the_one_it_builds_on(tmp_path):
    """A teacher's first weights are those best in pretraining; the model's are those of the first teacher."""
    run = RunFolder(tmp_path / "run")
    compared = []
    for event in train(prepare(make_config(tmp_path, **PRETRAINED)), run, device=CPU):
        if isinstance(event, StageStarted) and event.stage.learns_from != "words":
            first = load_newest(run.checkpoints)[0].model
            former = load_classifier(run.stage(event.stage.starts_from)).model.state_dict()
            assert all(torch.equal(first[name], former[name]) for name in first)
            compared.append((event.stage.starts_from, event.stage.name))
    assert compared == [("pretraining", "teacher 1"), ("teacher 1", "model")]


def test_unlabelled_texts_are_learnt_from(tmp_path):
    """Their words are known, all but teachers pass over them, who see labels alone; others are refused."""
    more = tmp_path / "more.txt"
    more.write_text("".join(f"w{i} violet {COLOURS[i % 3]}\n" for i in range(24)))
    config = make_config(tmp_path, pretrain={"epochs": 1}, distillation=DISTILLED | {"teachers": 1})
    config = config.model_copy(update={"data": config.data.model_copy(update={"unlabelled": str(more)})})
    preparation = prepare(config)
    assert preparation.tokenizer.token_to_id("violet")
    steps = {stage.name: stage.steps_per_epoch for stage in preparation.stages}
    assert steps == {"pretraining": 9, "teacher 1": 6, "model": 9}
    assert (preparation.where(47).rpartition("/")[2], preparation.where(48)) == ("train.csv:60", f"{more}:1")
    run_all(config, tmp_path / "straight")
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "stopped", stop_signal=stop_after(5))
    run_all(config, tmp_path / "stopped", resume=True)
    assert result(tmp_path / "stopped") == result(tmp_path / "straight")
    (tmp_path / "straight" / "model" / "README.md").unlink()
    more.write_text("other words\n")
    with pytest.raises(ConfigError, match="unlabelled texts have changed"):
        run_all(config, tmp_path / "straight", resume=True)


def test_pretraining_keeps_to_a_limit_of_time(tmp_path, monkeypatch):
    """Its first steps tell how many there is time for; a run that goes on keeps to that, however fast it is then."""
    seconds = [0.5]
    clock = iter(range(10**9))
    monkeypatch.setattr(train_module.time, "perf_counter", lambda: next(clock) * seconds[0])
    config = make_config(tmp_path, pretrain={"epochs": 10, "time_budget": 0.25}, patience=1, checkpoint_every=1)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(28))
    state = load_newest(tmp_path / "run" / "checkpoints")[0].state
    assert (state.stage, state.stage_steps) == (0, 30)  # 15 s, at half a second a step, of 60 steps
    seconds[0] = 0.001
    events = run_all(config, tmp_path / "run", resume=True)
    validated = [event.step for event in events if isinstance(event, Validated) and event.stage.name == "pretraining"]
    assert validated[-1] == 30
    assert events[-1].report.metrics.num_examples == 12


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch):
    """Before the first step, with what is free and what is needed; what a resumed run has already counts."""
    config = make_config(tmp_path)
    run_all(config, tmp_path / "other")
    usage = train_module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(train_module.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(EncoderClsError, match=r"run: 0\.0 MB are free, the run needs up to 0\.\d MB"):
        run_all(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    (tmp_path / "other" / "model" / "README.md").unlink()
    present = sum(path.stat().st_size for path in (tmp_path / "other").rglob("*.safetensors"))
    monkeypatch.setattr(train_module.shutil, "disk_usage", lambda _: usage._replace(free=present))
    run_all(config, tmp_path / "other", resume=True)


@pytest.mark.parametrize("work", ["linear teacher", "linear reference"])
def test_a_signal_is_heard_while_something_long_is_waited_for(tmp_path, monkeypatch, work):
    """Fitting a linear model takes as long as it takes: it is left behind, and the run resumes exactly."""
    config = make_config(tmp_path, distillation=DISTILLED)
    run_all(config, tmp_path / "straight")
    release = threading.Event()
    asked = [None]
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "SECONDS_BETWEEN_LOOKS", 0.01)
        target = (linear_module, "LinearClassifier") if work == "linear teacher" else (train_module, "linear_reference")

        def never(*_arguments, **_options):
            asked[0] = signal.SIGTERM
            release.wait(60)

        patch.setattr(*target, never)
        began = time.monotonic()
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", stop_signal=lambda: asked[0])
        assert time.monotonic() - began < 30
        release.set()
    run_all(config, tmp_path / "stopped", resume=True)
    assert weights_hash(tmp_path / "stopped") == weights_hash(tmp_path / "straight")


def test_divergence_stops_before_the_update(tmp_path, monkeypatch):
    """A loss that is no number ends the run with its step and examples; the last checkpoint stays good."""
    config = make_config(tmp_path)
    real = lessons_module.functional.cross_entropy
    calls = []

    def poisoned(*args, **kwargs):
        calls.append(1)
        return real(*args, **kwargs) * (math.nan if len(calls) == 9 else 1)

    monkeypatch.setattr(lessons_module.functional, "cross_entropy", poisoned)
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
    weights = preparation.class_weights
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
    assert "threads changed" in events[1].message


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
