"""The classifier as a Python object: probabilities and vectors as arrays, many threads, copies, types."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from support.programs import TIME_LIMIT

from encoder_cls.classifier.model_folder import load_classifier

TEXTS = ["rain and snow today", "", "a big soup with zzz", "ball " * 40]
METHODS = pytest.mark.parametrize("method", ["predict", "predict_proba", "embed", "explain"])


def test_probabilities_are_an_array_in_the_order_of_the_classes(classifier):
    found = classifier.predict_proba(TEXTS)
    assert (found.dtype, found.shape) == (np.float64, (4, 3))
    assert found.tolist() == [list(it.probabilities.values()) for it in classifier.predict(TEXTS)]
    assert [*classifier.predict(TEXTS)[0].probabilities] == list(classifier.label_names)


def test_words_are_explained_for_the_answer_or_for_a_label(classifier):
    """As `predict --explain` has it; of two labels the words do not speak for both, and a blank text has none."""
    answers = [
        prediction.label or classifier.label_names[0] for prediction in classifier.predict(TEXTS)
    ]
    found = classifier.explain(TEXTS)
    assert found == classifier.explain(TEXTS, labels=answers)
    assert [word.word for word in found[0]] == ["rain", "and", "snow", "today"]
    assert max(word.weight for word in found[0]) > 0
    assert found[1] == []
    assert classifier.explain(TEXTS[:1], labels=["sport"]) != found[:1]
    with pytest.raises(ValueError, match="no label of the classifier: 'spord'"):
        classifier.explain(TEXTS[:1], labels=["spord"])


def test_both_engines_give_the_same_probabilities_and_vectors(trained_run, monkeypatch):
    """Within 1e-5, also where the processor is fast at bfloat16, which is for training alone."""
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
        (["good", None], r"texts\[1\] is nothing, not a text"),
        (["good", 7], r"texts\[1\] is int '7', not a text"),
        (["good", b"rain"], r"texts\[1\] is bytes.*, not a text"),
        ([float("nan")], r"texts\[0\] is float 'nan', not a text"),
        ([["good"]], r"texts\[0\] is list .*, not a text"),
    ],
    ids=str,
)
def test_what_is_no_list_of_texts_is_refused(classifier, method, texts, message):
    with pytest.raises(TypeError, match=f"^{message.format(method=method)}$"):
        getattr(classifier, method)(texts)


@pytest.mark.parametrize("engine", ["numpy", "torch", "auto"])
def test_threads_that_predict_at_once_get_the_same_answers(trained_run, engine):
    """One classifier, eight threads with texts of their own: each has, bit for bit, what it would have alone."""
    classifier = load_classifier(trained_run.path, engine=engine)
    of_each = [
        [f"{text} {['ball', 'snow', 'soup'][number % 3]} {number}" for text in TEXTS]
        for number in range(8)
    ]
    expected = [
        (classifier.predict_proba(texts).tolist(), classifier.embed(texts).tolist())
        for texts in of_each
    ]
    together = Barrier(len(of_each))

    def answers(texts: list[str]) -> list[object]:
        together.wait(TIME_LIMIT)
        return [
            (classifier.predict_proba(texts).tolist(), classifier.embed(texts).tolist())
            for _ in range(10)
        ]

    with ThreadPoolExecutor(len(of_each)) as pool:
        for found, alone in zip(pool.map(answers, of_each), expected, strict=True):
            assert found == [alone] * 10


def test_a_classifier_is_shown_on_a_line(classifier):
    assert repr(classifier) == (
        f"<Classifier: encoder and linear, 3 classes ('küche', 'sport', 'weather'), sha256 {classifier.sha256[:12]}>"
    )
    assert repr(classifier.predict(["rain"])[0]).startswith(
        "Prediction(label='weather', probability=0."
    )


def test_the_library_logs_what_it_does(trained_run, caplog):
    with caplog.at_level("INFO", logger="encoder_cls"):
        loaded = load_classifier(trained_run.path)
    assert caplog.record_tuples == [("encoder_cls", 20, f"loaded {trained_run.path}: {loaded!r}")]


def test_nothing_is_printed_unasked():
    """A warning of a library without handlers would be printed by Python; and who logs nothing loads no `logging`."""
    code = (
        "import sys\nfrom encoder_cls.system.log import log\nlog('warning', 'unheard')\n"
        "assert 'logging' not in sys.modules\nimport logging\nlog('warning', 'unheard')\n"
        "logging.basicConfig(format='%(name)s %(message)s')\nlog('warning', 'heard')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "encoder_cls heard\n")
