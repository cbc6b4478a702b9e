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

from encoder_cls.config import Config
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError, StoppedError
from encoder_cls.evaluation.metrics import compute_metrics
from encoder_cls.inference.calibration import Logits, fit_scales
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.linear import fit_linear
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.inference.torch_engine import compute_logits
from encoder_cls.system import disk_arrays as columns
from encoder_cls.system.files import sha256
from encoder_cls.text.ngram_features import CHAR_NAMES
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training import disk_space, interruptible, objectives
from encoder_cls.training import recipe as recipe_module
from encoder_cls.training import trainer as train_module
from encoder_cls.training.checkpoint import load_newest
from encoder_cls.training.events import Event, Finished, Noted, StageStarted, Started, Stepped, Validated
from encoder_cls.training.objectives import MaskedLMObjective, ValidationResult
from encoder_cls.training.setup import TrainingSetup, prepare
from encoder_cls.training.train_step import accumulate_gradients
from encoder_cls.training.trainer import TIMED_STEPS, train

pytestmark = pytest.mark.usefixtures("blank_plots")
CPU = torch.device("cpu")
COLOURS = ["red", "green", "blue"]
SHAPE = {
    **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 16},
    **{"char_ngram_buckets": 64, "bigram_buckets": 64},
}


@pytest.fixture(autouse=True)
def _asked_in_steps_alone(monkeypatch):
    """Not every few milliseconds of a wait: tests count how often the stop signal is asked."""
    monkeypatch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 600)


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


def make_config(
    folder: Path,
    *,
    texts: int = 60,
    linear: bool = False,
    pretrain: dict[str, object] | None = None,
    **train_values: object,
) -> Config:
    return Config.model_validate(
        {
            "name": "test",
            "data": {"train": str(write_data(folder, texts=texts)), "validation_fraction": 0.2},
            "model": SHAPE | {"linear": linear},
            "pretrain": pretrain or {"epochs": 0},
            "train": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "log_every": 2, "patience": None}
            | train_values,
        }
    )


def run_all(config: Config, folder: Path, **options: object) -> list[Event]:
    return list(train(prepare(config), RunDir(folder), device=CPU, **options))  # type: ignore[arg-type]


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
    config = make_config(tmp_path, texts=300, epochs=6, monitor="accuracy")
    events = run_all(config, tmp_path / "run")
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Stepped) for event in events) == events[0].total_steps == 6 * 30
    assert events[-1].report.metrics.accuracy == 1
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.epoch for event in validations] == list(range(1, 7))
    best = max(validations, key=lambda event: (event.result.metrics.accuracy, -event.result.metrics.loss))
    assert events[-1].best_step == best.step
    assert load_classifier(tmp_path / "run").predict(["w3 blue w1"])[0].label == "blue"
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "model", "checkpoints", "metrics.jsonl", "eval", "tensorboard"
    }  # fmt: skip
    assert not [path for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".pkl", ".bin"}]
    assert RunDir(folder).load_config() == config


def test_pretraining_comes_before_the_labels(tmp_path):
    """It is a stage of its own with validations of its own, and nothing but the model is kept."""
    config = make_config(tmp_path, texts=300, linear=True, pretrain={"epochs": 4}, epochs=6)
    run = RunDir(tmp_path / "run")
    stages, scores = [], []
    for event in train(prepare(config), run, device=CPU):
        if isinstance(event, StageStarted):
            stages.append((event.stage.name, event.step, event.total_steps))
        if isinstance(event, Validated):
            scores.append((event.stage.name, event.epoch))
    assert stages == [("pretraining", 0, 10 * 30), ("model", 4 * 30, 10 * 30)]
    epochs = {"pretraining": 4, "model": 6}
    assert scores == [(name, epoch) for name, many in epochs.items() for epoch in range(1, many + 1)]
    assert event.report.metrics.accuracy == 1
    assert not run.stages.exists()
    assert load_classifier(run.path).predict(["w3 blue w1"])[0].label == "blue"
    rows = metric_rows(run.path)
    assert list(dict.fromkeys(row["split"] for row in rows)) == [
        "data", "pretraining/train", "pretraining/validation", "train", "validation", "best_validation"
    ]  # fmt: skip
    assert [row["step"] for row in rows if row["split"] == "validation"] == [30 * n for n in range(5, 11)]
    losses = [row["loss"] for row in rows if row["split"] == "pretraining/validation"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("epochs", [3, 10, 27])
def test_plots_are_of_validations_all_along_the_way(tmp_path, epochs):
    """Ten at most, evenly spaced, the last among them; they say what the numbers say."""
    config = make_config(tmp_path, texts=60, linear=True, pretrain={"epochs": 2}, epochs=epochs)
    run_all(config, tmp_path / "run")
    rows = [row for row in metric_rows(tmp_path / "run") if row["split"].endswith("validation")]
    assert not any("confusion_matrix" in row for row in rows if row["split"] == "pretraining/validation")
    drawn = [row for row in rows if row["split"] == "validation" and "confusion_matrix" in row]
    assert len(drawn) == min(epochs, 10)
    gaps = np.diff([0, *(row["epoch"] for row in drawn)])
    assert gaps.max() - gaps.min() <= 1
    assert drawn[-1]["epoch"] == epochs
    for row in drawn:
        assert np.trace(row["confusion_matrix"]) / np.sum(row["confusion_matrix"]) == pytest.approx(row["accuracy"])
        assert sum(row["calibration"]["texts"]) == np.sum(row["confusion_matrix"])


def parts_of(setup: TrainingSetup, classifier: Classifier) -> list[Logits]:
    """The scores of the validation texts, of each part of a classifier."""
    texts = setup.validation_texts
    encoder = compute_logits(classifier.model, texts, batch_tokens=8192)
    return [encoder, classifier.linear.scores(texts)] if classifier.linear else [encoder]


@pytest.mark.parametrize("linear", [False, True])
def test_probabilities_are_calibrated_on_the_validation_texts(tmp_path, linear):
    """The best weights are kept with the scales under which all parts together explain the validation labels best."""
    setup = prepare(make_config(tmp_path, linear=linear))
    list(train(setup, RunDir(tmp_path / "run"), device=CPU))
    classifier = load_classifier(tmp_path / "run")
    labels = setup.dataset.validation.labels
    assert classifier.scales == fit_scales(parts_of(setup, classifier), labels)[0]
    assert len(classifier.scales) == 1 + linear
    assert 1 not in classifier.scales


def test_scales_are_those_of_the_best_weights(tmp_path, monkeypatch):
    """Not those of the last ones, where the best were found earlier."""
    losses = iter([2.0, 1.0, 3.0])
    real = objectives.compute_metrics
    monkeypatch.setattr(objectives, "compute_metrics", lambda *args: replace(real(*args), loss=next(losses)))
    setup = prepare(make_config(tmp_path, linear=True, monitor="loss"))
    events = list(train(setup, RunDir(tmp_path / "run"), device=CPU))
    classifier = load_classifier(tmp_path / "run")
    labels = setup.dataset.validation.labels
    _, best, last = [event.result.scales for event in events if isinstance(event, Validated)]
    assert classifier.scales == best == fit_scales(parts_of(setup, classifier), labels)[0] != last


@pytest.mark.parametrize("spelling", [True, False], ids=["with spelling", "without spelling"])
def test_the_linear_classifier_is_that_of_the_labelled_texts(tmp_path, monkeypatch, spelling):
    """Of no others, with the weights of the classes, and looking at what the recipe says."""
    (tmp_path / "more.txt").write_text("w1 red violet\n" * 20)
    monkeypatch.setattr(recipe_module, "MOST_LINEAR_DETAIL", 10**6 if spelling else 10)
    config = make_config(tmp_path, linear=True, epochs=1, class_weights={"red": 3.0, "blue": 0.5})
    data = config.data.model_copy(update={"unlabelled": str(tmp_path / "more.txt")})
    setup = prepare(config.model_copy(update={"data": data}))
    list(train(setup, RunDir(tmp_path / "run"), device=CPU))
    found = load_classifier(tmp_path / "run").linear
    train_split = setup.dataset.train
    expected, unweighted = (
        fit_linear(
            setup.train_texts,
            train_split.labels,
            class_weights=np.array([weights.get(name, 1) for name in setup.dataset.label_names], np.float32),
            reach=setup.recipe.linear.reach,
            words_only=not spelling,
        )
        for weights in ({"red": 3.0, "blue": 0.5}, {})
    )
    texts = setup.validation_texts
    assert np.array_equal(found.scores(texts), expected.scores(texts))
    assert np.array_equal(found.names, expected.names)
    assert (found.names >= CHAR_NAMES).any() == spelling
    assert not np.array_equal(found.scores(texts), unweighted.scores(texts))


def test_a_validation_is_of_the_encoder_and_the_linear_classifier_together(tmp_path):
    """Where the encoder has learnt nothing yet, the sum of both still is right, and the row says why."""
    setup = prepare(make_config(tmp_path, linear=True, learning_rate=1e-9, epochs=1, monitor="loss"))
    events = list(train(setup, RunDir(tmp_path / "run"), device=CPU))
    classifier = load_classifier(tmp_path / "run")
    dataset, texts = setup.dataset, setup.validation_texts
    labels, scores = dataset.validation.labels, parts_of(setup, classifier)
    encoder, linear = ((score.argmax(axis=1) == labels).mean() for score in scores)
    assert encoder < 0.7 < linear
    metrics = compute_metrics(classifier.logits(texts, batch_tokens=8192), labels, dataset.label_names)
    (row,) = (row for row in metric_rows(tmp_path / "run") if row["split"] == "validation")
    assert {name: row[name] for name in metrics.scalars()} == metrics.scalars()
    assert metrics.accuracy > 0.7
    assert row["linear_accuracy"] == linear
    assert row["linear_part"] == fit_scales(scores, labels)[1][1] > 0.5
    assert events[-1].report.metrics == metrics


@pytest.mark.parametrize(
    ("linear", "most_text"), [(False, 10**6), (True, 10)], ids=["none is wanted", "there is too much text for it"]
)
def test_without_a_linear_classifier_the_encoder_is_all_there_is(tmp_path, monkeypatch, linear, most_text):
    """None is fitted, and no row tells of one."""
    monkeypatch.setattr(recipe_module, "MOST_LINEAR_TEXT", most_text)
    monkeypatch.setattr(train_module, "fit_linear", None)
    run_all(make_config(tmp_path, linear=linear), tmp_path / "run")
    classifier = load_classifier(tmp_path / "run")
    assert classifier.linear is None
    assert len(classifier.scales) == 1
    rows = metric_rows(tmp_path / "run")
    assert not [key for row in rows for key in row if key.startswith("linear")]


@pytest.mark.parametrize("linear", [False, True])
def test_a_heavier_class_is_preferred_in_doubt(tmp_path, linear):
    """By the encoder and by the linear classifier: where words tell nothing, all texts are of that class, or none."""
    texts = [f"w{i // 3 % 20}" for i in range(180)]  # each word is as often in each class
    rows = [f"{text},{COLOURS[i % 3]}" for i, text in enumerate(texts)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    shares = []
    for weight in (0.1, 10.0):
        # One validation, at the end: which weights are best is chance here.
        config = make_config(tmp_path, linear=linear, class_weights={"red": weight}, validate_every=1000)
        run_all(config, tmp_path / str(weight))
        classifier = load_classifier(tmp_path / str(weight))
        shares.append(np.mean([prediction.label == "red" for prediction in classifier.predict(texts)]))
        if classifier.linear:
            answers = classifier.linear.scores(classifier.tokenize(texts)).argmax(axis=1)
            shares.append(np.mean(answers == classifier.label_names.index("red")))
    lighter, heavier = shares[: 1 + linear], shares[1 + linear :]
    assert max(lighter) < 0.1, shares
    assert min(heavier) > 0.9, shares


def result(folder: Path) -> tuple[str, list[dict[str, object]]]:
    """All that a run ends with and that must not depend on where it was interrupted."""
    assert not RunDir(folder).stages.exists()
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


LABELLED, WITH_LINEAR, PRETRAINED = {}, {"linear": True}, {"linear": True, "pretrain": {"epochs": 2}}


@pytest.mark.parametrize(
    ("values", "stops", "stopped_in"),
    [
        # The stage, the step and the last validated step of the last checkpoint.
        pytest.param(LABELLED, [1], (0, 1, 0), id="after a step"),
        pytest.param(LABELLED, [7], (0, 5, 4), id="between validations"),
        pytest.param(LABELLED, [5, 2, 3], (0, 7, 6), id="now and then"),
        pytest.param(LABELLED, [3, 1, 1, 1, 1], (0, 5, 4), id="many times"),
        pytest.param(WITH_LINEAR, [1], (0, 1, 0), id="after a step beside a linear classifier"),
        pytest.param(WITH_LINEAR, [13], (0, 9, 8), id="in the last validation beside a linear classifier"),
        pytest.param(WITH_LINEAR, [14], (0, 9, 9), id="in the report on both"),
        pytest.param(PRETRAINED, [1], (0, 1, 0), id="in pretraining"),
        pytest.param(PRETRAINED, [2], (0, 2, 0), id="in a validation of pretraining"),
        pytest.param(PRETRAINED, [9], (1, 6, 6), id="after pretraining"),
        pytest.param(PRETRAINED, [11], (1, 8, 6), id="in the model's validation"),
        pytest.param(PRETRAINED, [16], (1, 11, 10), id="between the model's validations"),
        pytest.param(PRETRAINED, [22], (1, 15, 14), id="in the last validation"),
        pytest.param(PRETRAINED, [23], (1, 15, 15), id="in the report"),
        pytest.param(PRETRAINED, [5, 6, 2, 3], (1, 11, 10), id="in every stage"),
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
        pytest.param(WITH_LINEAR, ("model", StageStarted, 0), id="after the linear classifier was fitted"),
        pytest.param(WITH_LINEAR, ("model", Stepped, 11), id="after a step beside a linear classifier"),
        pytest.param(WITH_LINEAR, ("model", Validated, 18), id="before the report on both"),
        pytest.param(PRETRAINED, ("pretraining", Stepped, 5), id="in pretraining"),
        pytest.param(PRETRAINED, ("pretraining", Validated, 12), id="after the last validation of pretraining"),
        pytest.param(PRETRAINED, ("model", StageStarted, 12), id="after pretraining"),
        pytest.param(PRETRAINED, ("model", Stepped, 13), id="after the model's first step"),
        pytest.param(PRETRAINED, ("model", Validated, 24), id="after the model's validation"),
        pytest.param(PRETRAINED, ("model", Validated, 30), id="before the report"),
    ],
)
def test_a_run_that_vanished_resumes_from_its_last_checkpoint(tmp_path, straight, values, last):
    """Ended without warning between checkpoints, a run is taken up at the last one, and ends the same."""
    values = values | {"checkpoint_every": 2}
    config = make_config(tmp_path, **values)
    stage = None
    for event in train(prepare(config), RunDir(tmp_path / "broken"), device=CPU):
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
    config = make_config(tmp_path, **PRETRAINED)
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
            prepare(config), RunDir(tmp_path / name), device=CPU, stop_signal=lambda: None
        )
        objective = training._new_objective(None)
        batches = [objective._collate(part) for part in np.split(np.arange(20), cuts)]
        loss = accumulate_gradients(training.model, batches, precision=torch.float32)
        gradients.append([loss, *(p.grad.to_dense() for p in training.model.parameters())])
        training.metric_log.__exit__(None, None, None)
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-6)
    for one, many in zip(gradients[0][1:], gradients[1][1:], strict=True):
        torch.testing.assert_close(one, many, atol=1e-6, rtol=1e-4)


def test_both_optimizers_follow_the_learning_rate(tmp_path):
    """Tables are learnt at the same rate as all else, from the first step of the warm-up on."""
    config = make_config(tmp_path, warmup_fraction=0.5)
    (tmp_path / "run").mkdir()
    training = train_module._Training(prepare(config), RunDir(tmp_path / "run"), device=CPU, stop_signal=stop_after(0))
    objective = training._new_objective(None)
    for step in (1, 2):
        training._step(objective)
        rates = {group["lr"] for optimizer in training.optimizers for group in optimizer.param_groups}
        assert rates == {0.01 * step / 9}
    training.metric_log.__exit__(None, None, None)


def test_memory_is_released_every_few_steps(tmp_path, monkeypatch):
    """In all stages, by the count of all steps."""
    released = []
    monkeypatch.setattr(train_module, "release_memory", lambda: released.append(steps))
    monkeypatch.setattr(train_module, "STEPS_BETWEEN_RELEASES", 10)
    steps = 0
    for event in train(prepare(make_config(tmp_path, pretrain={"epochs": 2})), RunDir(tmp_path / "run"), device=CPU):
        steps += isinstance(event, Stepped)
    # A step is told of before what follows it.
    assert released == list(range(10, steps + 1, 10)) and len(released) > 2


def test_patience_ends_the_run(tmp_path, monkeypatch):
    """After `patience` validations without a better score, the run ends and the best weights are its model."""
    metrics = iter([0.5, 0.7, 0.6, 0.6, 0.9])
    real = objectives.compute_metrics
    monkeypatch.setattr(objectives, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(metrics)))
    events = run_all(make_config(tmp_path, epochs=9, patience=2, monitor="accuracy"), tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.is_best for event in validations] == [True, True, False, False]
    assert events[-1].best_step == validations[1].step


@pytest.mark.parametrize(("warmup", "last"), [(0.0, 2), (0.5, 5)])
def test_patience_waits_for_the_learning_rate_to_rise(tmp_path, monkeypatch, warmup, last):
    """Worse validations on the way up say nothing; those after it count as ever."""
    metrics = iter([0.5, *[0.4] * 8])
    real = objectives.compute_metrics
    monkeypatch.setattr(objectives, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(metrics)))
    config = make_config(tmp_path, epochs=8, patience=1, monitor="accuracy", warmup_fraction=warmup)
    assert sum(isinstance(event, Validated) for event in run_all(config, tmp_path / "run")) == last


def script_pretraining(monkeypatch, losses: list[float]) -> None:
    """Let the validations of pretraining find out these losses."""
    verdicts = iter([ValidationResult({"loss": loss}, (-loss, -loss)) for loss in losses])
    monkeypatch.setattr(MaskedLMObjective, "validate", lambda *_: next(verdicts))


def test_only_what_learns_from_labels_can_run_out_of_patience(tmp_path, monkeypatch):
    """The model stops after `patience` worse validations; pretraining, whose words are new each time, goes on."""
    losses, accuracies = [0.5, 0.6, 0.7, 0.6, 0.4], [0.5, 0.7, 0.6, 0.6]
    metrics = iter(accuracies)
    real = objectives.compute_metrics
    monkeypatch.setattr(objectives, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(metrics)))
    script_pretraining(monkeypatch, losses)
    config = make_config(tmp_path, pretrain={"epochs": 5}, epochs=9, patience=2, monitor="accuracy")
    events = run_all(config, tmp_path / "run")
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.stage.name for event in validations] == ["pretraining"] * 5 + ["model"] * 4
    assert [event.result.scores["loss"] for event in validations[:5]] == losses
    assert [event.result.metrics.accuracy for event in validations[5:]] == accuracies
    assert [event.is_best for event in validations[:5]] == [True, False, False, False, True]
    assert [event.is_best for event in validations[5:]] == [True, True, False, False]
    assert events[-1].best_step == validations[6].step


@pytest.mark.parametrize(
    ("monitor", "best"), [("accuracy", 0), ("macro_f1", 1), ("loss", 2)], ids=["accuracy", "macro_f1", "loss"]
)
def test_the_chosen_metric_decides_what_is_best(tmp_path, monkeypatch, monitor, best):
    """Of three validations, each is best by another metric."""
    scores = iter([(0.9, 0.1, 3.0), (0.1, 0.9, 2.0), (0.2, 0.2, 1.0)])
    real = objectives.compute_metrics

    def scripted(*args):
        accuracy, macro_f1, loss = next(scores)
        return replace(real(*args), accuracy=accuracy, macro_f1=macro_f1, loss=loss)

    monkeypatch.setattr(objectives, "compute_metrics", scripted)
    events = run_all(make_config(tmp_path, monitor=monitor), tmp_path / "run")
    steps = [event.step for event in events if isinstance(event, Validated)]
    assert events[-1].best_step == steps[best]


def test_the_linear_classifier_is_there_in_a_last_validation_that_a_signal_cut_short(tmp_path, monkeypatch):
    """Every step is done, and still what both say together has to be known; for the report alone it is not fitted."""
    config = make_config(tmp_path, linear=True, validate_every=1000)
    run_all(config, tmp_path / "straight")
    fitted = []
    real = train_module.fit_linear
    monkeypatch.setattr(train_module, "fit_linear", lambda *args, **options: fitted.append(1) or real(*args, **options))
    for answers, fits in ((18, 1), (0, 2), (1, 3)):
        with pytest.raises(StoppedError, match="step 18"):
            run_all(config, tmp_path / "stopped", resume=True, stop_signal=stop_after(answers))
        assert len(fitted) == fits
    run_all(config, tmp_path / "stopped", resume=True)
    assert len(fitted) == 3
    assert result(tmp_path / "stopped") == result(tmp_path / "straight")


def test_the_model_starts_from_what_was_best_in_pretraining(tmp_path, monkeypatch):
    """Which may not be its last weights; in pretraining there is no linear classifier yet."""
    script_pretraining(monkeypatch, [0.5, 0.4, 0.6])
    run = RunDir(tmp_path / "run")
    best = []
    for event in train(prepare(make_config(tmp_path, linear=True, pretrain={"epochs": 3})), run, device=CPU):
        if isinstance(event, Validated) and event.is_best:
            best.append(load_classifier(run.stage("pretraining")))
        if isinstance(event, StageStarted) and event.stage.name == "model":
            break
    assert event.stage.starts_from == "pretraining"
    first = load_newest(run.checkpoints)[0].model
    for classifier, is_first in zip(best, (False, True), strict=True):
        assert classifier.linear is None
        assert all(torch.equal(first[name], it) for name, it in classifier.model.state_dict().items()) == is_first


def test_unlabelled_texts_are_learnt_from(tmp_path):
    """Their words are known, pretraining passes over them, the model sees labels alone; others are refused."""
    more = tmp_path / "more.txt"
    more.write_text("".join(f"w{i} violet {COLOURS[i % 3]}\n" for i in range(24)))
    config = make_config(tmp_path, linear=True, pretrain={"epochs": 1})
    config = config.model_copy(update={"data": config.data.model_copy(update={"unlabelled": str(more)})})
    setup = prepare(config)
    assert setup.tokenizer.token_to_id("violet")
    steps = {stage.name: stage.steps_per_epoch for stage in setup.stages}
    assert steps == {"pretraining": 9, "model": 6}
    assert (setup.where(47).rpartition("/")[2], setup.where(48)) == ("train.csv:60", f"{more}:1")
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
    started = [(event.stage.name, event.step, event.total_steps) for event in events if isinstance(event, StageStarted)]
    assert started == [("pretraining", 24, 30 + 18), ("model", 30, 30 + 18)]
    assert events[-1].report.metrics.num_examples == 12


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path, monkeypatch):
    """Before the first step, with what is free and what is needed; what a resumed run has already counts."""
    config = make_config(tmp_path)
    run_all(config, tmp_path / "other")
    usage = disk_space.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(EncoderClsError, match=r"run: 0\.0 MB are free, the run needs up to 0\.\d MB"):
        run_all(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
    (tmp_path / "other" / "model" / "README.md").unlink()
    present = sum(path.stat().st_size for path in (tmp_path / "other").rglob("*.safetensors"))
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=present))
    run_all(config, tmp_path / "other", resume=True)


@pytest.mark.parametrize(("linear", "needed"), [(False, "0.2"), (True, "2,000.2")])
def test_the_disk_has_to_hold_the_linear_classifier_twice(tmp_path, monkeypatch, linear, needed):
    """The file in which it is, and the one that replaces it."""
    usage = disk_space.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=0))
    monkeypatch.setattr(disk_space, "bytes_at_most", lambda *_arguments, **_options: 10**9)
    with pytest.raises(EncoderClsError, match=f"the run needs up to {needed} MB"):
        run_all(make_config(tmp_path, linear=linear), tmp_path / "run")


@pytest.mark.parametrize(
    ("work", "steps", "stopped_in"),
    [
        ("fit_linear", None, (0, 0)),
        ("fit_linear", 11, (0, 10)),
        ("linear_reference", None, (0, 18)),
    ],
    ids=["linear classifier", "linear classifier again", "linear reference"],
)
def test_a_signal_is_heard_while_something_long_is_waited_for(tmp_path, monkeypatch, work, steps, stopped_in):
    """Fitting a linear model takes as long as it takes: it is left behind, and the run resumes exactly."""
    config = make_config(tmp_path, **WITH_LINEAR)
    run_all(config, tmp_path / "straight")
    if steps:
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", stop_signal=stop_after(steps))
    release = threading.Event()
    asked = [None]
    with monkeypatch.context() as patch:
        patch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 0.01)

        def never(*_arguments, **_options):
            asked[0] = signal.SIGTERM
            release.wait(60)

        patch.setattr(train_module, work, never)
        began = time.monotonic()
        with pytest.raises(StoppedError):
            run_all(config, tmp_path / "stopped", resume=True, stop_signal=lambda: asked[0])
        assert time.monotonic() - began < 30
        release.set()
    state = load_newest(tmp_path / "stopped" / "checkpoints")[0].state
    assert (state.stage, state.step) == stopped_in
    run_all(config, tmp_path / "stopped", resume=True)
    assert result(tmp_path / "stopped") == result(tmp_path / "straight")


def test_divergence_stops_before_the_update(tmp_path, monkeypatch):
    """A loss that is no number ends the run with its step and examples; the last checkpoint stays good."""
    config = make_config(tmp_path)
    real = objectives.functional.cross_entropy
    calls = []

    def poisoned(*args, **kwargs):
        calls.append(1)
        return real(*args, **kwargs) * (math.nan if len(calls) == 9 else 1)

    monkeypatch.setattr(objectives.functional, "cross_entropy", poisoned)
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
    setup = prepare(config)
    counts = np.bincount(setup.dataset.train.labels)
    weights = setup.class_weights
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
    events = train(prepare(config), RunDir(tmp_path / "run"), device=CPU)
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


def test_changed_validation_texts_and_class_names_are_not_resumed(tmp_path):
    """Scores on other texts do not compare, and a class under another name is another class."""
    config = make_config(tmp_path)
    train_file, validation_file = tmp_path / "train.csv", tmp_path / "validation.csv"
    content = train_file.read_text()
    validation_file.write_text(content)
    data = {"train": str(train_file), "validation": str(validation_file)}
    config = Config.model_validate(config.model_dump() | {"data": data})
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    validation_file.write_text(content.replace("w3", "w4"))
    with pytest.raises(ConfigError, match="validation data has changed"):
        run_all(config, tmp_path / "run", resume=True)
    label = content.splitlines()[1].rpartition(",")[2]
    for path in (train_file, validation_file):
        path.write_text(content.replace(f",{label}\n", f",{label}z\n"))  # in the same place of the alphabet
    with pytest.raises(ConfigError, match="names of the classes have changed"):
        run_all(config, tmp_path / "run", resume=True)
    for path in (train_file, validation_file):
        path.write_text(content)
    run_all(config, tmp_path / "run", resume=True)


def test_another_thread_count_is_warned_of(tmp_path, monkeypatch):
    """Facts that change the last digits are compared, and named."""
    config = make_config(tmp_path)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(3))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    events = run_all(config, tmp_path / "run", resume=True)
    assert "threads changed" in events[1].message


def test_room_is_needed_for_the_checkpoints_that_there_will_be(tmp_path):
    """To keep more than a run writes needs no more room than to keep all it writes."""
    run_all(make_config(tmp_path, keep_checkpoints=2**31 - 1), tmp_path / "run")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) < 20


def test_a_time_budget_may_be_as_large_as_a_number_can_be(tmp_path):
    """More time than there are steps for changes nothing."""
    config = make_config(tmp_path, texts=300, pretrain={"epochs": 2, "time_budget": 1.7e308}, epochs=1)
    stages = [event for event in run_all(config, tmp_path / "run") if isinstance(event, StageStarted)]
    assert stages[0].stage.total_steps > TIMED_STEPS
    assert stages[0].total_steps == stages[1].total_steps


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
    """The same loop learns the same task on a GPU; going on there says that equal bits are not promised."""
    config = make_config(tmp_path, epochs=25)
    run, device = RunDir(tmp_path / "run"), torch.device("cuda")
    events = list(train(prepare(config), run, device=device))
    assert events[-1].report.metrics.accuracy == 1
    run.model_card.unlink()
    events = list(train(prepare(config), run, device=device, resume=True))
    assert any(isinstance(event, Noted) and "on a GPU" in event.message for event in events)
    assert events[-1].report.metrics.accuracy == 1
