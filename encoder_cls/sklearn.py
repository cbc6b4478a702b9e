"""The classifier as an estimator of scikit-learn.

>>> from encoder_cls.sklearn import TextClassifier
>>> model = TextClassifier(settings={"model.d_model": 64}).fit(texts, labels)
>>> model.predict(["where is my parcel?"])
array(['track_order'], dtype='<U16')
"""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from encoder_cls import Classifier, load_classifier
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import kind
from encoder_cls.system.installed import log

if TYPE_CHECKING:
    from encoder_cls.config import Config
    from encoder_cls.data.rows import Row

# The arguments of the estimator as keys of a config.
KEYS = {key.rpartition(".")[2]: key for key in ("train.epochs", "train.learning_rate", "train.time_budget", "seed")}
# Given to `fit`, without effect there, or changing the names of the labels.
NOT_SETTINGS = {
    *("data.train", "data.test", "data.label_names", "data.label_separator", "data.group_column", "data.corrections")
}
# Random numbers of training come from the one generator that torch has for a process: two fits at once would share it.
_ONE_FIT = threading.Lock()


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A Transformer encoder and a linear classifier, trained from scratch.

    Args:
        epochs: the most passes over the texts; `auto`: the fewer the more text there is.
        learning_rate: the peak learning rate.
        time_budget: the most minutes that fitting may take; None: no limit.
        seed: of everything random except what is held out (`data.split_seed`); equal seeds give equal models.
        settings: further values of a config by dotted key, as `--set` takes them: `{"model.d_model": 64}`;
            `configs/example.yaml` explains all of them.

    Attributes:
        classes_: the sorted labels; the order of the columns of `predict_proba`.
        classifier_: the trained `Classifier`.
    """

    classes_: NDArray[Any]
    classifier_: Classifier

    def __init__(
        self,
        *,
        epochs: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        time_budget: float | None = None,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        # As they are, unchecked: `clone` compares, and `set_params` changes them.
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.time_budget = time_budget
        self.seed = seed
        self.settings = settings

    def fit(self, texts: Sequence[str], labels: Sequence[Any]) -> Self:
        """Train on texts and their labels, which are all strings or all integers.

        A part of the texts is held out to choose the best weights by, unless `settings` names a file in
        `data.validation`.

        Raises:
            TypeError: a text is not a string.
            ValueError: there are too few texts, or not as many as labels; or a setting, which the message names, is
                unknown or out of range.
        """
        listed, given = _as_texts(texts), _as_labels(labels)
        check_consistent_length(listed, given)
        classes = np.unique(given)
        try:
            classifier = _train(self._config(), _rows(listed, map(str, given)))
        except (ConfigError, DataError) as error:  # what scikit-learn expects of an estimator
            raise ValueError(str(error)) from None
        occurs = [str(label) in classifier.label_names for label in classes]  # not one whose texts are all blank
        self.classes_, self.classifier_ = classes[occurs], classifier
        return self

    def predict(self, texts: Sequence[str]) -> NDArray[Any]:
        """The most probable label of each text, (texts,)."""
        probabilities = self.predict_proba(texts)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The probability of each class for each text, (texts, classes), in the order of `classes_`."""
        check_is_fitted(self, "classifier_")
        probabilities = self.classifier_.predict_proba(_as_texts(texts))
        # The classifier has its classes in the order of their numbers or of the alphabet, scikit-learn as NumPy sorts.
        columns = {name: column for column, name in enumerate(self.classifier_.label_names)}
        return probabilities[:, [columns[str(label)] for label in self.classes_]]

    def __sklearn_tags__(self) -> Any:
        """Declare that this estimator takes texts, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def _config(self) -> Config:
        from encoder_cls.config import config_of

        settings = {} if self.settings is None else self.settings
        if not isinstance(settings, Mapping):
            raise ConfigError(f"settings: expected is a mapping such as {{'model.d_model': 64}}, not {kind(settings)}")
        arguments = {key: argument for argument, key in KEYS.items()}
        for key in settings:
            if key in arguments:
                raise ConfigError(f"settings: {key!r}: give it as TextClassifier({arguments[key]}=...)")
            if key in NOT_SETTINGS:
                raise ConfigError(f"settings: {key!r}: the texts and labels of fit take its place")
            if not isinstance(key, str) or "." not in key:
                raise ConfigError(f"settings: {key!r}: not a key; write it as section.key, such as model.d_model")
        values = {"name": type(self).__name__, "data.train": "texts", **settings}
        values |= {key: getattr(self, argument) for argument, key in KEYS.items()}
        return config_of(values, source="TextClassifier")


def _train(config: Config, rows: Iterable[Row]) -> Classifier:
    """Train in a temporary folder; what the command line would warn of becomes warnings of Python."""
    import torch

    from encoder_cls.system.machine import resolve_device
    from encoder_cls.tracking.run_dir import RunDir
    from encoder_cls.training.events import Noted, Validated
    from encoder_cls.training.prepare import prepare
    from encoder_cls.training.run import train
    from encoder_cls.training.shrink import compact

    device = resolve_device("auto")
    # The caller's random numbers go on as if nothing had happened.
    forked = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with _ONE_FIT, forked, tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
        setup, run = prepare(config, train_rows=rows), RunDir(Path(folder))
        if setup.dataset.is_multi_label:
            raise DataError(f"{config.data.validation}: has texts with several labels, and those of fit have one")
        for message in setup.warnings():
            _warn(message)
        for event in train(setup, run, device=device, with_report=False):
            if isinstance(event, Noted):
                _warn(event.message)
            elif isinstance(event, Validated):
                scores = ", ".join(f"{name} {value:.4f}" for name, value in event.result.scores.items())
                best = ", the best so far" if event.is_best else ""
                log("info", f"{event.stage}, epoch {event.epoch:.1f}, step {event.step}: {scores}{best}")
        labels = setup.dataset.selection.labels
        compact(run.model, setup.validation_texts, labels, device=str(device))
        return load_classifier(run.model)


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)  # of the caller of `fit`


def _as_texts(texts: Any) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("several texts are expected; put a single one in a list")
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(f"texts are expected, not a table of shape {texts.shape}; choose the column with the texts")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}] is {kind(text)}, not a text")
    return listed


def _as_labels(labels: Any) -> NDArray[Any]:
    if labels is None:  # in the words that scikit-learn looks for
        raise ValueError("TextClassifier requires y to be passed, but the target y is None: each text needs a label")
    # As objects: NumPy would make strings of strings and integers together.
    listed = column_or_1d(np.asarray(labels, dtype=object), warn=True)
    for number, label in enumerate(listed):
        is_number = isinstance(label, int | np.integer | np.bool_) or (isinstance(label, float) and label.is_integer())
        if not (isinstance(label, str) if isinstance(listed[0], str) else is_number):
            raise ValueError(f"labels[{number}] is {kind(label)}; labels are all texts, or all integers")
    return np.asarray(labels).reshape(-1)


def _rows(texts: Sequence[str], names: Iterable[str]) -> Iterator[Row]:
    """Rows as if they were read from a file."""
    from encoder_cls.data.rows import Row, SourceLocation

    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        yield Row(text, name, None, SourceLocation(f"texts[{number}]"))
