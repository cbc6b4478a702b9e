"""What a program has set for all of its code changes no training and no prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch
from support.tiny_encoder import SHAPE_SETTINGS

from encoder_cls import load_classifier
from encoder_cls.sklearn import TextClassifier
from encoder_cls.system.settings import own_settings

TEXTS = [f"{words} {number}" for number in range(12) for words in ("red rose", "green grass")]
LABELS = ["red", "green"] * 12
TINY = {**SHAPE_SETTINGS, "train.precision": "float32"}


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def meta_by_default() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def warnings_as_errors() -> Iterator[None]:
    """All but those that `fit` itself gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


@contextmanager
def rounded_products() -> Iterator[None]:
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": float64_by_default,
    "a default device": meta_by_default,
    "a device of a block": lambda: torch.device("meta"),
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "rounded products": rounded_products,
    "NumPy's errors": lambda: np.errstate(all="raise"),
    "warnings": warnings_as_errors,
}


def trained_and_predicted() -> np.ndarray:
    """The probabilities of an estimator that is trained here."""
    model = TextClassifier(epochs=2, settings=TINY)
    return model.fit(TEXTS, LABELS).predict_proba(TEXTS[:5])


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    torch.set_num_threads(1)
    with warnings.catch_warnings(action="ignore"):
        return trained_and_predicted()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["float64", "a default device", "no gradients", "autocast"])
def test_a_training_does_not_depend_on_settings_of_the_caller(expected, name):
    with SETTINGS[name]():
        np.testing.assert_array_equal(trained_and_predicted(), expected)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("name", SETTINGS)
def test_predictions_do_not_depend_on_settings_of_the_caller(trained_run, name, engine):
    """Of a classifier that is loaded under these settings; nor do its vectors and explanations."""
    texts = ["rain and snow", "", "the ball " * 40]
    usual = load_classifier(trained_run.path, engine=engine)
    with SETTINGS[name]():
        classifier = load_classifier(trained_run.path, engine=engine)
        probabilities = classifier.predict_proba(texts)
        vectors = classifier.embed(texts)
        explained = classifier.explain(texts)
        predicted = classifier.predict(texts)
    np.testing.assert_array_equal(probabilities, usual.predict_proba(texts))
    np.testing.assert_array_equal(vectors, usual.embed(texts))
    assert explained == usual.explain(texts)
    assert predicted == usual.predict(texts)


def test_settings_of_the_caller_are_restored():
    """After the last of several blocks, also after an error."""
    with float64_by_default(), torch.no_grad(), np.errstate(over="raise"):
        with pytest.raises(ZeroDivisionError), own_settings(), own_settings():
            assert torch.get_default_dtype() == torch.float32
            assert torch.is_grad_enabled()
            _ = 1 / 0
        assert torch.get_default_dtype() == torch.float64
        assert not torch.is_grad_enabled()
        assert np.geterr()["over"] == "raise"
