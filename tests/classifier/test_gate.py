"""The cascade: where the linear part is sure it answers alone, whoever asks, and nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from encoder_cls.classifier import gate as training_cascade
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.gate import GATES, fit_gate
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.data.dataset import Split
from encoder_cls.encoder.engines import new_encoder
from encoder_cls.errors import EncoderClsError
from encoder_cls.evaluation.report import evaluate
from encoder_cls.metrics.logits import MULTI_LABEL, SINGLE_LABEL, sigmoid, softmax

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
    """A classifier, not shared, whose gate is between the texts: the linear part is sure of some of them."""
    classifier = load_classifier(trained_run.path, device="cpu", engine="numpy")
    confidence = softmax(classifier.linear.logits(classifier.tokenize(TEXTS))).max(axis=1)
    classifier.gate = float(np.median(confidence))  # exactly: from it on, no encoder is asked
    return classifier


def asked_of(classifier: Classifier) -> list[int]:
    """The numbers of texts that the encoder is asked about from now on."""
    asked, logits = [], classifier.encoder.logits

    def counting(texts, **options):
        asked.append(len(texts))
        return logits(texts, **options)

    classifier.encoder.logits = counting
    return asked


def test_a_sure_linear_part_answers_alone_and_the_encoder_is_not_asked(cascade):
    """From the gate up; all other texts are answered as without it, and each names its parts."""
    texts = cascade.tokenize(TEXTS)
    linear = cascade.linear.logits(texts)
    skips = softmax(linear).max(axis=1) >= cascade.gate
    assert skips.sum() == 4
    both = cascade.combined(cascade.part_logits(texts))
    asked = asked_of(cascade)
    logits, predictions = cascade.logits(texts), cascade.predict(TEXTS)
    assert asked == [3, 3]
    np.testing.assert_array_equal(logits[skips], linear[skips])
    np.testing.assert_allclose(logits, both, rtol=1e-5)
    assert [it.answered_by for it in predictions] == ["linear" if it else "both" for it in skips]
    assert [list(it.probabilities.values()) for it in predictions] == softmax(logits).tolist()
    assert list(predictions[0].to_json(top_k=1, threshold=0))[-1] == "answered_by"
    cascade.gate = None
    expected = cascade.logits(texts)
    np.testing.assert_allclose(logits[~skips], expected[~skips], rtol=1e-5)
    assert np.abs(logits - expected)[skips].max() > 0.01
    assert cascade.predict(["soup"])[0].answered_by is None
    cascade.gate = 0.0
    asked.clear()
    np.testing.assert_array_equal(cascade.logits(texts), linear)
    assert not asked


def test_engines_and_batches_agree_bit_for_bit_on_who_answers(cascade):
    """Alone, in any company, by NumPy or PyTorch; where the linear part answers, the answers are the same bits."""
    together = cascade.predict(TEXTS)
    alone = [cascade.predict([text])[0] for text in TEXTS]
    weights, architecture = cascade.encoder.named_weights(), cascade.encoder.architecture
    cascade.encoder = new_encoder(architecture, weights, engine="torch", device="cpu")
    by_torch = cascade.predict(TEXTS[::-1])[::-1]
    for one, two, three in zip(together, alone, by_torch, strict=True):
        assert one.answered_by == two.answered_by == three.answered_by
        assert (one == two == three) or one.answered_by == "both"


def test_an_explanation_is_by_the_parts_of_the_whole_text(cascade):
    """Though the linear part would be less sure without a word: no weight is a jump from one part to the other."""
    for text, prediction in zip(TEXTS, cascade.predict(TEXTS), strict=True):
        gate, cascade.gate = cascade.gate, 0.0 if prediction.answered_by == "linear" else 1.1
        expected = cascade.explain([text], labels=cascade.label_names[:1])
        cascade.gate = gate
        assert cascade.explain([text], labels=cascade.label_names[:1]) == expected


def test_a_report_scores_the_cascade_and_each_part_alone(cascade):
    split = Split(texts=TEXTS, labels=np.array([2, 0, 1, 0, 0, 1, 1]), where=[""] * len(TEXTS))
    report = evaluate(cascade, split, name="test")
    np.testing.assert_allclose(
        report.answered.logits, cascade.logits(cascade.tokenize(TEXTS)), rtol=1e-5
    )
    assert report.to_dict()["cascade"] == {"gate": cascade.gate, "skipped_fraction": 4 / 7}
    cascade.gate = None
    other = evaluate(cascade, split, name="test")
    assert (other.parts["linear"], other.parts["encoder"]) == (
        report.parts["linear"],
        report.parts["encoder"],
    )
    assert other.to_dict()["cascade"] is None


def test_the_gate_is_kept_with_the_model(cascade, tmp_path):
    save_classifier(cascade, tmp_path)
    loaded = load_classifier(tmp_path, engine="numpy")
    assert loaded.gate == cascade.gate
    assert loaded.predict(TEXTS) == cascade.predict(TEXTS)
    for gate in (1.5, "sure"):
        cascade.gate = gate
        save_classifier(cascade, tmp_path)
        with pytest.raises(EncoderClsError, match="damaged"):
            load_classifier(tmp_path)


def test_confidence_of_several_labels_is_that_of_the_least_sure():
    logits = np.array([[3.0, -2.0], [0.1, 4.0]], dtype=np.float32)
    assert MULTI_LABEL.confidence(sigmoid(logits)) == pytest.approx(
        [sigmoid(np.array(2.0)), sigmoid(np.array(0.1))]
    )
    assert SINGLE_LABEL.confidence(softmax(logits)).tolist() == softmax(logits).max(axis=1).tolist()


class OfLogits:
    """A classifier of two classes of given logits, of so many texts each."""

    label_names, parts, task, thresholds, gate = (
        ("a", "b"),
        ("encoder", "linear"),
        SINGLE_LABEL,
        (),
        None,
    )
    skip_encoder, combined = Classifier.skip_encoder, Classifier.combined
    mixture_weights = (1.0, 1.0)

    def __init__(
        self, encoder: list[float], linear: list[float], *, texts: tuple[int, ...] = (100, 100, 100)
    ) -> None:
        self.texts = texts
        self.of_parts = {
            name: np.repeat([[0.0, it] for it in of_part], texts[: len(of_part)], axis=0).astype(
                np.float32
            )
            for name, of_part in (("encoder", encoder), ("linear", linear))
        }

    def gate_for(self, shares: list[float]) -> float | None:
        """Such a share of each has the second label."""
        labels = [
            np.arange(texts) < texts * it for texts, it in zip(self.texts, shares, strict=False)
        ]
        fit_gate(self, self.of_parts, np.concatenate(labels).astype(np.int64))
        return self.gate


def test_the_gate_is_the_lowest_at_which_nothing_gets_worse():
    """Every text may skip where the encoder changes nothing; where it turns answers, these texts may not."""
    assert OfLogits([0, 0, 0], [3, 1, -2]).gate_for([1, 1, 0]) == GATES[0]
    # Of probability .73, sigmoid(1), and turned by the encoder.
    assert OfLogits([0, -3, 0], [3, 1, -2]).gate_for([1, 0, 0]) == 0.75
    # Also where it turns them wrongly.
    assert OfLogits([0, -3, 0], [3, 1, -2]).gate_for([1, 1, 0]) == 0.75


def test_no_gate_where_the_linear_part_is_surely_wrong():
    """Nor where it is alone, nor where so few texts show nothing."""
    assert [OfLogits([0], [3], texts=(texts,)).gate_for([1]) for texts in (199, 200)] == [
        None,
        GATES[0],
    ]
    assert OfLogits([-30, 0], [9, 9]).gate_for([0, 1]) is None
    one = OfLogits([0], [1])
    one.parts = ("linear",)
    assert one.gate_for([1]) is None


def test_no_measure_may_get_worse():
    """Each of these gates is where the texts are out of reach by which one measure alone gets worse."""
    # The loss: .87 is calibrated for all of them together, but the encoder knows which are .99 and which .75.
    assert OfLogits([2.7, -0.8], [1.9, 1.9]).gate_for([0.99, 0.75]) == 0.9
    # The accuracy, by one text of 400: probabilities of .62 are too low as it is.
    assert OfLogits([5, 0, 0], [-0.5, 0.5, 4], texts=(1, 200, 199)).gate_for([1, 1, 1]) == 0.65
    # The calibration error: .9 and .895 are too low, the latter more so.
    assert OfLogits([0.054, 0], [2.143, 0.5], texts=(200, 200)).gate_for([1, 1]) == 0.9


@pytest.mark.usefixtures("encoder_joins")
def test_a_run_chooses_a_gate_on_request(cli, trained_run, blank_plots, monkeypatch):
    monkeypatch.setattr(training_cascade, "MOST_CHANGED", 1)  # which a few texts can show
    options = ("--set", "train.epochs=1", "--set", "model.cascade=true", "--run-dir", "on")
    outcome = cli("train", trained_run.path.parent / "tiny.yaml", *options)
    assert "the linear model alone answers" in outcome.err + outcome.out
    assert load_classifier("on").gate in GATES
    assert load_classifier(trained_run.path).gate is None
    (line,) = cli("predict", "--model", "on", "--format", "jsonl", "rain and snow").out.splitlines()
    assert json.loads(line)["answered_by"] in {"linear", "both"}
    (line,) = cli(
        "predict", "--model", trained_run.path, "--format", "jsonl", "rain and snow"
    ).out.splitlines()
    assert "answered_by" not in json.loads(line)
