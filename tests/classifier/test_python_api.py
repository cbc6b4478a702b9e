"""The classifier as a Python object: arrays of probabilities and vectors, threads, the log."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
from support.programs import TIME_LIMIT

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError

TEXTS = ["rain and snow today", "", "a big soup with zzz", "ball " * 40]
METHODS = pytest.mark.parametrize("method", ["predict", "predict_proba", "embed", "explain"])


def test_probabilities_are_an_array_in_the_order_of_the_classes(classifier):
    found = classifier.predict_proba(TEXTS)

    assert found.dtype == np.float64
    assert found.shape == (4, 3)
    for row, prediction in zip(found.tolist(), classifier.predict(TEXTS), strict=True):
        assert list(prediction.probabilities) == list(classifier.label_names)
        assert list(prediction.probabilities.values()) == row


def test_words_are_explained_for_the_prediction(classifier):
    """A blank text has no label, and no words."""
    labels = []
    for prediction in classifier.predict(TEXTS):
        labels.append(prediction.label or classifier.label_names[0])

    explanations = classifier.explain(TEXTS)

    assert explanations == classifier.explain(TEXTS, labels=labels)
    first, blank, *_ = explanations
    assert [word.word for word in first] == ["rain", "and", "snow", "today"]
    assert max(word.weight for word in first) > 0
    assert blank == []


def test_words_have_other_weights_for_another_label(classifier):
    (for_prediction,) = classifier.explain(["rain and snow today"])
    (for_sport,) = classifier.explain(["rain and snow today"], labels=["sport"])

    assert for_sport != for_prediction


def test_an_unknown_label_is_not_explained(classifier):
    with pytest.raises(ValueError, match="no label of the classifier: 'spord'"):
        classifier.explain(TEXTS[:1], labels=["spord"])


def test_words_of_a_class_are_those_of_its_training_texts(classifier):
    ngrams = classifier.top_features("weather", texts=["rain and snow"], top_k=5)

    assert len(ngrams) == 5
    assert ngrams[0].weight >= ngrams[-1].weight > 0
    assert {"rain", "snow"} & {ngram.ngram for ngram in ngrams}


@pytest.mark.parametrize(
    ("label", "options", "error", "message"),
    [
        ("wether", {}, ValueError, "no label of the classifier: 'wether'"),
        ("weather", {"top_k": 0}, ValueError, "top_k: 0 is below 1"),
        ("weather", {"texts": "rain"}, TypeError, r"put a single one in a list"),
    ],
)
def test_words_of_a_class_need_a_known_label(classifier, label, options, error, message):
    with pytest.raises(error, match=message):
        classifier.top_features(label, **options)


def test_without_a_linear_model_no_words_have_weights(classifier):
    encoder_alone = replace(classifier, linear=None)

    with pytest.raises(ConfigError, match="the model has no linear model"):
        encoder_alone.top_features("weather")


def test_both_engines_give_the_same_probabilities_and_vectors(trained_run, monkeypatch):
    """They differ by 1e-5 at most, also on processors that are fast at bfloat16.

    That is for training alone.
    """
    by_numpy = load_classifier(trained_run.path, engine="numpy")
    by_torch = load_classifier(trained_run.path, engine="torch")
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: True, raising=False)

    np.testing.assert_allclose(
        by_torch.predict_proba(TEXTS), by_numpy.predict_proba(TEXTS), atol=1e-5
    )
    np.testing.assert_allclose(by_torch.embed(TEXTS), by_numpy.embed(TEXTS), atol=1e-5)


@METHODS
def test_no_texts_give_nothing(classifier, method):
    found = getattr(classifier, method)([])

    assert len(found) == 0
    assert getattr(found, "shape", None) in {None, (0, 3), (0, 16)}


@METHODS
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            "good film",
            r"{method} takes several texts; put a single one in a list: {method}\(\[text\]\)",
        ),
        ({"text": "good film"}, r"{method} takes several rows; .*: {method}\(\[row\]\)"),
        (np.array([["good", "film"]]), "{method} takes texts, not a table; choose the column .*"),
        (["good", None], r"texts\[1\] is nothing, not a text"),
        (["good", 7], r"texts\[1\] is int '7', not a text"),
        (["good", b"rain"], r"texts\[1\] is bytes.*, not a text"),
        ([float("nan")], r"texts\[0\] is float 'nan', not a text"),
        ([["good"]], r"texts\[0\] is list .*, not a text"),
    ],
    ids=str,
)
def test_what_is_no_list_of_texts_is_refused(classifier, method, texts, message):
    expected = message.format(method=method)
    with pytest.raises(TypeError, match=f"^{expected}$"):
        getattr(classifier, method)(texts)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_threads_that_predict_at_once_get_the_same_predictions(trained_run, engine):
    """Eight threads with texts of their own get, bit for bit, what each would get alone."""
    classifier = load_classifier(trained_run.path, engine=engine)
    words = ["ball", "snow", "soup"]
    texts_of_threads = []
    for number in range(8):
        ending = f"{words[number % 3]} {number}"
        texts_of_threads.append([f"{text} {ending}" for text in TEXTS])

    def predictions(texts: list[str]) -> tuple[object, object]:
        return classifier.predict_proba(texts).tolist(), classifier.embed(texts).tolist()

    expected = [predictions(texts) for texts in texts_of_threads]
    start_together = Barrier(len(texts_of_threads))

    def predictions_often(texts: list[str]) -> list[object]:
        start_together.wait(TIME_LIMIT)
        return [predictions(texts) for _ in range(5)]

    with ThreadPoolExecutor(len(texts_of_threads)) as pool:
        found = list(pool.map(predictions_often, texts_of_threads))

    assert found == [[alone] * 5 for alone in expected]


def test_a_classifier_is_shown_on_a_line(classifier):
    names = "'küche', 'sport', 'weather'"
    sha256 = classifier.sha256[:12]
    assert repr(classifier) == (
        f"<Classifier: encoder and linear, 3 classes ({names}), sha256 {sha256}>"
    )


def test_a_prediction_is_shown_with_its_fields(classifier):
    (prediction,) = classifier.predict(["rain"])
    assert repr(prediction).startswith("Prediction(label='weather', probability=0.")


def test_the_library_logs_what_it_does(trained_run, caplog):
    with caplog.at_level("INFO", logger="encoder_cls"):
        loaded = load_classifier(trained_run.path)
    assert caplog.record_tuples == [("encoder_cls", 20, f"loaded {trained_run.path}: {loaded!r}")]


LOGGING = """
import sys
from encoder_cls.system.log import log

log("warning", "unheard")
assert "logging" not in sys.modules

import logging

log("warning", "unheard")
logging.basicConfig(format="%(name)s %(message)s")
log("warning", "heard")
"""


def test_nothing_is_printed_unasked():
    """Python would print the warning of a library without handlers."""
    program = [sys.executable, "-c", LOGGING]

    ended = subprocess.run(program, capture_output=True, text=True, check=True)

    assert ended.stdout == ""
    assert ended.stderr == "encoder_cls heard\n"
