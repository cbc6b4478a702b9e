"""The cascade: where the linear part is sure, it predicts alone, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from encoder_cls.classifier import gate as gate_module
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.gate import GATES, fit_gate
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.classifier.prediction_json import prediction_json
from encoder_cls.data.dataset import Split
from encoder_cls.encoder.engine_choice import new_encoder
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.metrics.logits import sigmoid, softmax
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL

TEXTS = [
    "rain and snow today",
    "soup",
    "team with bread and frost",
    "",
    "zzz",
    "the ball and the pan",
    "goal goal goal",
]


@pytest.fixture
def cascade(trained_run) -> Classifier:
    """A classifier, not shared, whose linear part is sure of some of the texts."""
    classifier = load_classifier(trained_run.path, device="cpu", engine="numpy")
    linear = classifier.linear.logits(classifier.tokenize(TEXTS))
    # The gate is exactly the confidence of a text, which skips the encoder.
    classifier.gate = float(np.median(softmax(linear).max(axis=1)))
    return classifier


def texts_asked(classifier: Classifier) -> list[int]:
    """A list that gets the number of texts of each later call of the encoder."""
    asked = []
    compute = classifier.encoder.logits

    def logits(texts, **options):
        asked.append(len(texts))
        return compute(texts, **options)

    classifier.encoder.logits = logits
    return asked


def test_a_sure_linear_part_predicts_alone_and_the_encoder_is_not_run(cascade):
    texts = cascade.tokenize(TEXTS)
    linear = cascade.linear.logits(texts)
    skips = softmax(linear).max(axis=1) >= cascade.gate
    assert skips.sum() == 4

    asked = texts_asked(cascade)
    logits = cascade.logits(texts)

    assert asked == [3]
    np.testing.assert_array_equal(logits[skips], linear[skips])
    np.testing.assert_allclose(cascade.combined(cascade.part_logits(texts)), logits, rtol=1e-5)


def test_other_texts_are_predicted_as_without_a_gate(cascade):
    texts = cascade.tokenize(TEXTS)
    skips = cascade.skip_encoder(cascade.linear.logits(texts))

    logits = cascade.logits(texts)
    cascade.gate = None
    expected = cascade.logits(texts)

    np.testing.assert_allclose(logits[~skips], expected[~skips], rtol=1e-5)
    assert np.abs(logits - expected)[skips].max() > 0.01


def test_at_a_gate_of_zero_the_encoder_is_never_asked(cascade):
    texts = cascade.tokenize(TEXTS)
    cascade.gate = 0.0
    asked = texts_asked(cascade)

    logits = cascade.logits(texts)

    np.testing.assert_array_equal(logits, cascade.linear.logits(texts))
    assert not asked


def test_predictions_name_the_parts_that_made_them(cascade):
    texts = cascade.tokenize(TEXTS)
    skips = cascade.skip_encoder(cascade.linear.logits(texts))

    predictions = cascade.predict(TEXTS)

    for prediction, is_skipped in zip(predictions, skips, strict=True):
        if is_skipped:
            assert prediction.answered_by == "linear"
        else:
            assert prediction.answered_by == "both"
    assert list(prediction_json(predictions[0], top_k=1))[-1] == "answered_by"

    probabilities = [list(prediction.probabilities.values()) for prediction in predictions]
    assert probabilities == softmax(cascade.logits(texts)).tolist()


def test_without_a_gate_no_parts_are_named(cascade):
    cascade.gate = None

    (prediction,) = cascade.predict(["soup"])

    assert prediction.answered_by is None


def test_engines_and_batches_agree_bit_for_bit_on_which_part_predicts(cascade):
    """Where the linear part predicts alone, its predictions are the same bits, too."""
    together = cascade.predict(TEXTS)
    alone = [cascade.predict([text])[0] for text in TEXTS]
    cascade.encoder = new_encoder(
        cascade.encoder.architecture,
        cascade.encoder.named_weights(),
        engine="torch",
        device="cpu",
    )
    by_torch = cascade.predict(TEXTS[::-1])[::-1]

    for prediction, other, third in zip(together, alone, by_torch, strict=True):
        assert other.answered_by == prediction.answered_by
        assert third.answered_by == prediction.answered_by
        if prediction.answered_by == "linear":
            assert other == prediction
            assert third == prediction


def test_an_explanation_is_by_the_parts_of_the_whole_text(cascade):
    """Without a word, the linear part would be less sure, but no weight jumps between parts."""
    label = cascade.label_names[:1]
    for text, prediction in zip(TEXTS, cascade.predict(TEXTS), strict=True):
        gate = None
        if prediction.answered_by == "linear":
            gate = 0.0
        expected = replace(cascade, gate=gate).explain([text], labels=label)

        assert cascade.explain([text], labels=label) == expected


def test_a_report_scores_the_cascade_and_each_part_alone(cascade):
    labels = np.array([2, 0, 1, 0, 0, 1, 1])
    split = Split(texts=TEXTS, labels=labels, where=[""] * len(TEXTS))

    with_gate = evaluate_split(cascade, split, name="test")
    expected = cascade.logits(cascade.tokenize(TEXTS))
    np.testing.assert_allclose(with_gate.predictions.logits, expected, rtol=1e-5)
    assert with_gate.cascade == {"gate": cascade.gate, "skipped_fraction": 4 / 7}

    cascade.gate = None
    without_gate = evaluate_split(cascade, split, name="test")
    assert without_gate.parts["linear"] == with_gate.parts["linear"]
    assert without_gate.parts["encoder"] == with_gate.parts["encoder"]
    assert without_gate.cascade is None


def test_the_gate_is_kept_with_the_model(cascade, tmp_path):
    save_classifier(cascade, tmp_path)

    loaded = load_classifier(tmp_path, engine="numpy")

    assert loaded.gate == cascade.gate
    assert loaded.predict(TEXTS) == cascade.predict(TEXTS)


@pytest.mark.parametrize("gate", [1.5, "sure"])
def test_a_gate_that_is_no_probability_is_refused(cascade, tmp_path, gate):
    cascade.gate = gate
    save_classifier(cascade, tmp_path)

    with pytest.raises(EncoderClsError, match="damaged"):
        load_classifier(tmp_path)


def test_confidence_of_several_labels_is_that_of_the_least_sure():
    logits = np.array([[3.0, -2.0], [0.1, 4.0]], dtype=np.float32)

    confidence = MULTI_LABEL.confidence(sigmoid(logits))

    assert confidence == pytest.approx(sigmoid(np.array([2.0, 0.1])))


def test_confidence_of_one_label_is_that_of_the_most_probable():
    probabilities = np.array([[0.2, 0.8], [0.6, 0.4]])

    assert SINGLE_LABEL.confidence(probabilities).tolist() == [0.8, 0.6]


def gate_of(
    encoder: list[float],
    linear: list[float],
    shares: list[float],
    *,
    texts: tuple[int, ...] = (100, 100, 100),
    parts: tuple[str, ...] = ("encoder", "linear"),
) -> float | None:
    """The gate of a classifier of two classes, fitted on groups of equal texts.

    Args:
        encoder: its log odds of the second class, for each group.
        linear: the same of the linear model.
        shares: the share of each group that has the second label.
        texts: the number of texts in each group.
        parts: of the classifier.
    """
    texts = texts[: len(shares)]
    labels = []
    for count, share in zip(texts, shares, strict=True):
        labels.append(np.arange(count) < count * share)

    part_logits = {}
    for part, log_odds in (("encoder", encoder), ("linear", linear)):
        rows = [[0.0, value] for value in log_odds]
        part_logits[part] = np.repeat(rows, texts, axis=0).astype(np.float32)

    # The parts themselves are not run.
    classifier = Classifier(None, object(), ("a", "b"), max_seq_len=8)
    for part in parts:
        setattr(classifier, part, object())
    all_labels = np.concatenate(labels).astype(np.int64)
    return fit_gate(classifier, part_logits, all_labels, RowGroups.single(len(all_labels)))


def test_every_text_may_skip_where_the_encoder_changes_nothing():
    assert gate_of([0, 0, 0], [3, 1, -2], [1, 1, 0]) == GATES[0]


def test_texts_whose_prediction_the_encoder_changes_may_not_skip():
    """Their probability is .73, sigmoid(1); it does not matter whether the encoder is right."""
    assert gate_of([0, -3, 0], [3, 1, -2], [1, 0, 0]) == 0.75
    assert gate_of([0, -3, 0], [3, 1, -2], [1, 1, 0]) == 0.75


def test_no_gate_where_the_linear_part_is_surely_wrong():
    assert gate_of([-30, 0], [9, 9], [0, 1]) is None


def test_no_gate_where_the_linear_part_is_alone():
    assert gate_of([0], [1], [1], parts=("linear",), texts=(300,)) is None


def test_no_gate_where_too_few_texts_show_it():
    assert gate_of([0], [3], [1], texts=(199,)) is None
    assert gate_of([0], [3], [1], texts=(200,)) == GATES[0]


@pytest.mark.parametrize(
    ("encoder", "linear", "shares", "texts", "gate"),
    [
        # The loss: .87 is calibrated for all of them together, but the encoder knows which texts
        # are .99 and which .75.
        pytest.param([2.7, -0.8], [1.9, 1.9], [0.99, 0.75], (100, 100), 0.9, id="loss"),
        # The accuracy, by one text of 400: probabilities of .62 are too low as they are.
        pytest.param([5, 0, 0], [-0.5, 0.5, 4], [1, 1, 1], (1, 200, 199), 0.65, id="accuracy"),
        # The calibration error: .9 and .895 are too low, the latter more so.
        pytest.param([0.054, 0], [2.143, 0.5], [1, 1], (200, 200), 0.9, id="calibration"),
    ],
)
def test_no_measure_may_get_worse(encoder, linear, shares, texts, gate):
    """Each gate is where the texts by which one measure alone gets worse no longer skip."""
    assert gate_of(encoder, linear, shares, texts=texts) == gate


@pytest.mark.usefixtures("encoder_joins")
def test_a_run_chooses_a_gate_on_request(cli, trained_run, blank_plots, monkeypatch):
    # A few texts can show that no more than all predictions change.
    monkeypatch.setattr(gate_module, "MAX_CHANGED", 1)
    options = ("--set", "train.epochs=1", "--set", "model.cascade=true", "--run-dir", "on")

    outcome = cli("train", trained_run.path.parent / "tiny.yaml", *options)

    assert "the linear model alone classifies" in outcome.err + outcome.out
    assert load_classifier("on").gate in GATES
    assert load_classifier(trained_run.path).gate is None

    with_gate = cli("predict", "--model", "on", "--format", "jsonl", "rain and snow")
    assert json.loads(with_gate.out)["answered_by"] in {"linear", "both"}

    without_gate = cli("predict", "--model", trained_run.path, "--format", "jsonl", "rain")
    assert "answered_by" not in json.loads(without_gate.out)
