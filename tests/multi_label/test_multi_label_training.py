"""Several labels a text in training: unusual labels, the loss, what is monitored, resuming."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.events import Validated, recorded
from support.programs import assert_failed, succeed
from support.several_labels import json_objects, labelled_texts, trained, write_json_lines
from torch.distributions import Bernoulli, kl_divergence

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of
from encoder_cls.encoder_training.classification_loss import MultiLabelBatch
from encoder_cls.linear_training.class_weights import class_weights
from encoder_cls.run.checkpoint_files import load_newest
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

# A small encoder, trained for a few steps.
ENCODER = {
    "model.d_model": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.max_seq_len": 16,
    "model.char_ngram_buckets": 64,
    "model.bigram_buckets": 64,
    "pretrain.epochs": 0,
    "train.epochs": 2,
    "train.log_every": 1,
}
# Options of trainings of which only the model counts.
BARE = {"device": torch.device("cpu"), "with_report": False, "with_tensorboard": False}


def prepared(source: Path, **settings: object) -> Prepared:
    """A training on a file, with other settings."""
    values = {"name": "a", "data.train": str(source)} | settings
    return prepare(config_of(values, source="test"))


# By kind: the labels of most texts, the labels of the other texts, and the numbers of the others.
UNUSUAL_LABELS = {
    "one class": (["x"], [], range(0, 60, 2)),
    "a label of all": (["all", "x"], ["all"], range(0, 60, 2)),
    "always together": (["x", "y"], [], range(0, 60, 3)),
    "a label once": (["x"], ["x", "once"], [7]),
}


@pytest.mark.parametrize(
    ("labels", "other_labels", "others"), UNUSUAL_LABELS.values(), ids=UNUSUAL_LABELS.keys()
)
def test_unusual_labels_are_learned(tmp_path, labels, other_labels, others):
    """Numbers are finite, and the two kinds of texts are distinguished where they differ in x."""
    texts = []
    for index in range(60):
        labels_of_text = other_labels if index in others else labels
        word = "yes" if "x" in labels_of_text else "no"
        texts.append((f"{word} n{index}", labels_of_text))

    classifier = load_classifier(trained(tmp_path, texts).path)

    yes, no = classifier.predict(["yes", "no"])
    assert "x" in yes.labels
    assert np.isfinite(list(yes.probabilities.values())).all()
    assert np.isfinite(list(no.probabilities.values())).all()
    if "x" not in other_labels:
        assert no.labels == tuple(other_labels)


@pytest.mark.usefixtures("encoder_joins")
def test_an_encoder_learns_several_labels_too(tmp_path):
    """Its loss falls, its weight is fitted, and the saved model predicts what the report says."""
    settings = ENCODER | {"model.encoder": True, "data.validation_fraction": 0.25}

    run = trained(tmp_path, labelled_texts(160, seed=0), **settings)

    logged = read_metrics(run.metrics_file)
    losses = [row["loss"] for row in logged if row["split"] == "train"]
    assert losses[-1] < losses[0]
    validations = [row for row in logged if row["split"] == "validation"]
    assert set(validations[-1]) > {
        "micro_f1",
        "encoder_micro_f1",
        "linear_micro_f1",
        "linear_weight",
        "f1/food",
    }

    report = json.loads((run.eval / "report.json").read_text())
    assert set(report["parts"]) == {"combined", "linear", "encoder"}
    comparison = report["comparison"]
    assert comparison["interval"][0] <= comparison["combined_minus_linear"]

    classifier = load_classifier(run.path, engine="numpy")
    assert classifier.parts == ("encoder", "linear")
    records = json_objects((run.eval / "predictions.jsonl").read_text())
    predictions = classifier.predict([record["text"] for record in records])
    for record, prediction in zip(records, predictions, strict=True):
        assert list(prediction.labels) == record["predictions"]


@pytest.mark.parametrize(
    ("texts", "monitor", "known"),
    [
        ([("one", ["a", "b"]), ("two", ["b"])], "accuracy", "loss, micro_f1, macro_f1"),
        ([("one", "a"), ("two", "b")], "micro_f1", "loss, accuracy, macro_f1"),
    ],
)
def test_a_score_of_the_other_task_cannot_be_monitored(cli, texts, monitor, known):
    write_json_lines(Path("train.jsonl"), texts * 4)
    options = [
        "--set",
        "data.train=train.jsonl",
        "--set",
        "data.validation=train.jsonl",
        "--set",
        f"train.monitor={monitor}",
    ]

    refused = cli("train", "--dry-run", *options)

    assert_failed(refused, 2, f"train.monitor: {monitor} is not a score of data in which", known)


def test_a_dry_run_has_a_line_about_texts_with_several_labels(cli):
    texts = [
        ("one", ["a", "b"]),
        ("two", ["b"]),
        ("three", []),
        ("four", ["a"]),
    ]
    write_json_lines(Path("train.jsonl"), texts)
    write_json_lines(Path("validation.jsonl"), [("five", ["a"])])
    Path("a.yaml").write_text("data: {train: train.jsonl, validation: validation.jsonl}\n")

    outcome = succeed(cli, "train", "a.yaml", "--dry-run")

    reason = "multi-label (train.jsonl:1: labels in a list)"
    assert f"{reason}: 1.00 labels a text, several 25.0%, none 25.0%" in outcome.err
    assert "4 training, 1 validation texts, 2 classes" in outcome.err


def test_weights_of_classes_find_more_of_the_heavier(tmp_path):
    """The weight of a label counts its examples; other labels are as they were."""
    texts = labelled_texts(180, seed=3)
    for index in range(1, len(texts), 9):
        text, _ = texts[index]
        texts[index] = (text, ["rare"])
    source = write_json_lines(tmp_path / "train.jsonl", texts)

    def direction(weight: float) -> NDArray[np.float32]:
        """The weights of the linear model, relative to the largest of each label."""
        settings = {"train.class_weights": {"rare": weight}, "model.encoder": False}
        setup = prepared(source, **settings)
        weights_of_classes = class_weights(setup.config.train.class_weights, setup.dataset)
        assert weights_of_classes.tolist() == [1, weight, 1, 1]

        linear = fit_linear_classifier(setup).classifier.linear
        weights = linear.weights.take(np.arange(len(linear.feature_ids)))
        return weights / np.abs(weights).max(axis=0)

    differences = np.abs(direction(20.0) - direction(1.0))

    assert differences[:, 1].max() > 0.1


@pytest.mark.parametrize("monitor", ["micro_f1", "mean_average_precision"])
def test_a_validation_selects_by_the_score_that_is_monitored(tmp_path, monitor):
    source = write_json_lines(tmp_path / "train.jsonl", labelled_texts(80, seed=0))
    setup = prepared(source, **{"model.encoder": False, "train.monitor": monitor})
    run = RunDir(tmp_path / "run")

    events = recorded(setup, run, **BARE)

    (validated,) = [event for event in events if isinstance(event, Validated)]
    checkpoint, *_ = load_newest(run.checkpoints)
    linear_score = checkpoint.state.linear_score
    assert linear_score.monitored == validated.scores[monitor]
    assert linear_score.loss == validated.scores["loss"]
    assert len(load_classifier(run.path).thresholds) == 3


def test_the_loss_is_binary_cross_entropy_and_the_divergence_of_two_dropout_passes():
    """They are those of Bernoulli distributions; a label's weight counts where a text has it."""
    torch.manual_seed(0)
    # Two texts, each in both passes.
    logits = torch.randn(4, 3)
    targets = torch.tensor([[1.0, 0, 0], [0, 1, 1]]).repeat(2, 1)
    weights = torch.where(targets > 0, torch.tensor([2.0, 1.0, 3.0]), 1.0)
    batch = MultiLabelBatch(inputs=(), targets=targets, weights=weights, rdrop_weight=0.5)

    loss = batch.loss(lambda *_: logits)

    cross_entropies = -Bernoulli(logits=logits).log_prob(targets)
    first = Bernoulli(logits=logits[:2])
    second = Bernoulli(logits=logits[2:])
    divergences = (kl_divergence(first, second) + kl_divergence(second, first)) / 2
    expected = (weights * cross_entropies).sum() + 0.5 * (weights[:2] * divergences).sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert float(batch.normalizer) == 4
