"""The classifier as an estimator of scikit-learn.

>>> from encoder_cls.sklearn import TextClassifier
>>> model = TextClassifier(settings={"model.d_model": 64}).fit(texts, labels)
>>> model.predict(["where is my parcel?"])
array(['track_order'], dtype='<U16')
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from encoder_cls import Classifier
from encoder_cls.classifier.classifier import checked_texts
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.system.display import is_missing, json_text, kind, listed
from encoder_cls.system.reporter import WarningReporter, warn_caller
from encoder_cls.system.settings import own_settings

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.evaluation.report import Report

# Keys of a config that are arguments of the estimator.
ARGUMENTS = {
    "seed": "seed",
    **{f"train.{it}": it for it in ("epochs", "learning_rate", "time_budget")},
}
# Keys of `data` that `fit` replaces by its arguments.
NOT_SETTINGS = ("train", "test", "label_names", "label_separator", "group_column", "corrections")
MOST_REPEATS = 4  # of a text of mean weight
_SEVERAL = (list, tuple, set, frozenset)  # how the labels of a multi-label text may be given
_Row = tuple[int, str, str | list[str] | None]  # its number, its text, its label or labels


class _Targets(NamedTuple):
    """The labels given to `fit` or `score`, as values of their own type."""

    labels: list[frozenset[Any] | None]  # of each text; None where its label is missing
    classes: NDArray[Any]  # all of them, sorted; of an indicator matrix: its columns
    form: Literal["one", "lists", "matrix"]


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A Transformer encoder and a linear classifier, trained from scratch.

    Args:
        epochs: the most passes over the texts; `auto`: fewer for more text.
        learning_rate: the peak learning rate.
        time_budget: the most minutes that fitting may take; None: no limit.
        seed: of everything random except what is held out (`data.split_seed`); equal seeds give equal models.
        verbose: whether to print progress to standard error.
        settings: further values of a config by dotted key, as `--set` takes them: `{"model.d_model": 64}`;
            `configs/example.yaml` explains all of them.

    Attributes:
        classes_: the sorted labels (of an indicator matrix: its columns); the order of the columns of `predict_proba`.
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
        verbose: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        # Unchecked and unchanged, for `clone` and `set_params`.
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.time_budget = time_budget
        self.seed = seed
        self.verbose = verbose
        self.settings = settings

    def fit(
        self,
        X: Sequence[str],
        y: Sequence[Any],
        sample_weight: Sequence[float] | None = None,
    ) -> Self:
        """Train on the texts X and their labels y, all strings or all integers; None or NaN marks unlabelled texts.

        Multi-label, labels are lists, or an indicator matrix, (texts, classes). A text of weight 2 counts as two texts.
        Some of the texts are held out to choose the best weights, unless `settings` names a file in `data.validation`.

        Raises:
            TypeError: a text is not a string.
            ValueError: too few texts, or not as many as labels; or an unknown or invalid setting, which is named.
        """
        from encoder_cls.run.run_folder import RunDir
        from encoder_cls.training.from_python import train_texts

        texts = _as_texts(X, "fit")
        targets = _as_targets(y)
        form = targets.form
        check_consistent_length(texts, targets.labels, sample_weight)

        rows: list[_Row] = [
            (number, text, _label_names(labels, form))
            for number, (text, labels) in enumerate(zip(texts, targets.labels, strict=True))
        ]
        if sample_weight is not None:
            rows = [
                row
                for row, times in zip(rows, _repeats(sample_weight), strict=True)
                for _ in range(times)
            ]
        try:
            config = self._config()
            warn = partial(_warn, repeats_texts=sample_weight is not None)
            showing = _VerboseReporter(warn) if self.verbose else nullcontext(WarningReporter(warn))
            with (
                showing as reporter,
                tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder,
            ):
                run = RunDir(Path(folder))
                classifier = train_texts(config, rows, run, reporter=reporter)
                kept = (run.metrics_file, run.held_out_answers)
                files = {path.name: path.read_bytes() for path in kept if path.exists()}
        except (ConfigError, DataError) as error:  # what scikit-learn expects of an estimator
            raise ValueError(str(error)) from None
        if classifier.thresholds and form == "one":
            raise ValueError(
                f"{config.data.validation}: has texts with several labels, and those of fit have one"
            )

        classes = targets.classes
        if form != "matrix":
            # A class whose texts are all blank is not one of the classifier.
            classes = classes[[_name(label) in classifier.label_names for label in classes]]

        self.classes_ = classes
        self.classifier_ = classifier
        self._form = form
        self._values = config.model_dump(mode="json")
        self._files = files
        self._rows = rows
        return self

    def predict(self, X: Sequence[str]) -> Any:
        """The most probable label of each text, (texts,); multi-label, lists or a matrix, as given to `fit`."""
        probabilities = self._probabilities(X, "predict")
        if self._form == "one":
            return self.classes_[probabilities.argmax(axis=1)]
        thresholds = dict(
            zip(self.classifier_.label_names, self.classifier_.thresholds, strict=True)
        )
        has_label = probabilities >= [thresholds.get(_name(label), 2.0) for label in self.classes_]
        if self._form == "matrix":
            return has_label.astype(int)
        return [self.classes_[row].tolist() for row in has_label]

    def score(
        self,
        X: Sequence[str],
        y: Sequence[Any],
        sample_weight: Sequence[float] | None = None,
    ) -> float:
        """The fraction of texts with the right label, or with exactly the right labels.

        Labels are equal if their values are: 1, 1.0 and True are. Texts whose label is None or NaN do not count. The
        columns of a `DataFrame` may be in any order.

        Raises:
            ValueError: no text has a label, or the labels cannot be compared with those of `fit`.
        """
        predictions = self.predict(X)
        given = _as_targets(y, self.classes_)
        predicted = _as_targets(predictions, self.classes_)
        check_consistent_length(predicted.labels, given.labels, sample_weight)
        _check_comparable(given.classes, self.classes_)

        is_labelled = np.array([labels is not None for labels in given.labels], dtype=bool)
        if not is_labelled.any():
            raise ValueError("no text to score has a label")

        pairs = zip(given.labels, predicted.labels, strict=True)
        is_right = np.array([labels == answer for labels, answer in pairs])
        weights = None if sample_weight is None else np.asarray(sample_weight)[is_labelled]
        return float(np.average(is_right[is_labelled], weights=weights))

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:
        """The probability of each class for each text, (texts, classes), in the order of `classes_`."""
        return self._probabilities(X, "predict_proba")

    def _probabilities(self, X: Sequence[str], method: str) -> NDArray[np.float64]:
        check_is_fitted(self, "classifier_")
        probabilities = self.classifier_.predict_proba(_as_texts(X, method))
        # `classes_` are in the order of NumPy, and may include labels without a text, with a probability of 0.
        columns = {name: column for column, name in enumerate(self.classifier_.label_names)}
        padded = np.pad(probabilities, ((0, 0), (0, 1)))
        return padded[:, [columns.get(_name(label), -1) for label in self.classes_]]

    def save(self, path: str | Path) -> None:
        """Write a run folder for the commands: the model, the config, and the training texts.

        An estimator that was pickled has no texts: then `eval` needs other texts (`--data`).

        Raises:
            FileExistsError: the folder is not empty.
        """
        from encoder_cls.classifier.model_folder import save_classifier
        from encoder_cls.config.schema import Config
        from encoder_cls.run.run_folder import RunDir

        check_is_fitted(self, "classifier_")
        run = RunDir(Path(path))
        if run.path.exists() and any(run.path.iterdir()):
            raise FileExistsError(f"{path}: is not empty")
        run.path.mkdir(parents=True, exist_ok=True)
        config, texts = Config.model_validate(self._values), run.path / "texts.jsonl"
        data = {"train": str(texts), "text_column": ("text",), "label_column": "label"}
        labelled = [
            {"text": text, "label": label} for _, text, label in self._rows if label is not None
        ]
        files = {**self._files, **({texts.name: _lines(labelled)} if labelled else {})}
        unlabelled = [{"text": text} for _, text, label in self._rows if label is None]
        if unlabelled and config.data.unlabelled is None:
            files["unlabelled.jsonl"] = _lines(unlabelled)
            data["unlabelled"] = str(run.path / "unlabelled.jsonl")
        for name, content in files.items():
            (run.path / name).write_bytes(content)
        save_classifier(self.classifier_, run.model, dtypes=self.classifier_.dtypes)
        run.record_sources(config.model_copy(update={"data": config.data.model_copy(update=data)}))
        run.model_card.write_text(
            f"# {config.name}\n\nSaved by `encoder_cls.sklearn.TextClassifier`.\n"
        )

    @own_settings()
    def report(self) -> Report:
        """Score the texts that were held out, as `encoder-cls eval` does."""
        from encoder_cls.classifier.model_folder import load_classifier
        from encoder_cls.data.load import load_all_data
        from encoder_cls.evaluation.held_out_answers import OwnAnswers
        from encoder_cls.run.run_folder import RunDir
        from encoder_cls.run.run_report import LoadedRun, report_of_run

        check_is_fitted(self, "classifier_")
        if not self._rows:
            raise ValueError(
                "a pickle holds no texts: report before it is pickled, or save it and use eval --data"
            )
        with tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
            run = RunDir(Path(folder) / "run")
            self.save(run.path)
            config = run.load_config()
            dataset = load_all_data(config)
            classifier = load_classifier(run.path, engine="torch")
            own = OwnAnswers.of_run(run.held_out_answers, classifier, dataset.validation)
            loaded = LoadedRun(
                folder=run,
                classifier=classifier,
                config=config,
                dataset=dataset,
                own_answers=own,
            )
            return report_of_run(loaded)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but the texts."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_rows": []} if "_rows" in state else state

    def __sklearn_tags__(self) -> Any:
        """Declare that this estimator takes texts, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def _config(self) -> Config:
        from encoder_cls.config.loading import config_of

        settings = {} if self.settings is None else self.settings
        if not isinstance(settings, Mapping):
            raise ConfigError(
                f"settings: expected is a mapping such as {{'model.d_model': 64}}, not {kind(settings)}"
            )
        for key in settings:
            if key in ARGUMENTS:
                raise ConfigError(
                    f"settings: {key!r}: give it as TextClassifier({ARGUMENTS[key]}=...)"
                )
            section, dot, name = str(key).partition(".")
            if section == "data" and name in NOT_SETTINGS:
                raise ConfigError(f"settings: {key!r}: the texts and labels of fit take its place")
            if not isinstance(key, str) or not dot:
                raise ConfigError(
                    f"settings: {key!r}: not a key; write it as section.key, such as model.d_model"
                )
        values = {"name": type(self).__name__, "data.train": "texts", **settings}
        values |= {key: getattr(self, argument) for key, argument in ARGUMENTS.items()}
        return config_of(values, source="TextClassifier")


def _as_texts(texts: Any, method: str) -> list[str]:
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"texts are expected, not a table of shape {texts.shape}; choose the column with the texts"
        )
    return list(checked_texts(texts, method))


def _as_targets(labels: Any, known: NDArray[Any] | None = None) -> _Targets:
    """Read labels of any form; `known` are the classes of the columns of an indicator matrix without names.

    Raises:
        ValueError: labels are missing altogether, of several types, or of another shape.
    """
    if labels is None:  # in the words that scikit-learn looks for
        raise ValueError(
            "TextClassifier requires y to be passed, but the target y is None: each text needs a label"
        )
    matrix = labels.toarray() if hasattr(labels, "toarray") else labels
    dimensions = getattr(matrix, "ndim", 1)
    if dimensions == 2 and matrix.shape[1] > 1:
        return _of_matrix(matrix, known)
    if dimensions == 1 and any(isinstance(label, _SEVERAL) for label in labels):
        return _of_lists(labels)

    # As objects: NumPy would make strings of strings and integers together.
    column = column_or_1d(np.asarray(labels, dtype=object), warn=True)
    labelled = [number for number, label in enumerate(column) if not is_missing(label)]
    values = _checked(labelled, column[labelled])

    sets: list[frozenset[Any] | None] = [None] * len(column)
    for number, value in zip(labelled, values.tolist(), strict=True):
        sets[number] = frozenset([value])
    return _Targets(sets, np.unique(values), "one")


def _of_matrix(matrix: Any, known: NDArray[Any] | None) -> _Targets:
    """The labels of an indicator matrix, (texts, classes), of which a `DataFrame` names the columns."""
    indicator = np.asarray(matrix)
    if not np.isin(indicator, (0, 1)).all():
        raise ValueError("labels of two dimensions are an indicator matrix, of 0 and 1")

    positions = np.arange(indicator.shape[1])
    classes = np.asarray(getattr(matrix, "columns", positions))
    if known is not None and set(classes.tolist()) != set(known.tolist()):
        # Names stand for names only; where one of both has none, columns are in equal order.
        has_names = not np.array_equal(classes, positions)
        has_known_names = not np.array_equal(known, np.arange(len(known)))
        if len(classes) != len(known) or (has_names and has_known_names):
            raise ValueError(
                f"the labels have the columns {listed(list(map(str, classes)))}, and those of fit have "
                f"{listed(list(map(str, known)))}"
            )
        classes = known

    sets: list[frozenset[Any] | None] = [frozenset(classes[row > 0].tolist()) for row in indicator]
    return _Targets(sets, classes, "matrix")


def _of_lists(labels: Any) -> _Targets:
    """The labels of texts that have a list each."""
    for number, of_text in enumerate(labels):
        if not isinstance(of_text, _SEVERAL):
            what = f"labels[{number}] is {kind(of_text)}; a text without a label has an empty list"
            raise ValueError(what)  # noqa: TRY004 - as of any faulty label
    numbers = [number for number, of_text in enumerate(labels) for _ in of_text]
    given = [label for of_text in labels for label in of_text]
    classes = np.unique(_checked(numbers, given)) if given else np.zeros(0)
    return _Targets([frozenset(of_text) for of_text in labels], classes, "lists")


def _label_names(
    labels: frozenset[Any] | None, form: Literal["one", "lists", "matrix"]
) -> str | list[str] | None:
    """The name of the label, or the sorted names of the labels, that the classifier learns."""
    if labels is None:
        return None
    names = sorted(map(_name, labels))
    return names[0] if form == "one" else names


def _name(label: Any) -> str:
    """The name of a class: the digits of a whole number, also of one that NaN beside it made a float."""
    if isinstance(label, float | np.floating):
        return str(int(label))
    return str(label)


def _check_comparable(given: NDArray[Any], known: NDArray[Any]) -> None:
    """Refuse texts to be compared with numbers, of which none would be right."""
    if len(given) and isinstance(given[0], str) != isinstance(known[0], str):
        raise ValueError(
            f"the labels to score, such as {given.tolist()[0]!r}, are of another type than those of fit, "
            f"such as {known.tolist()[0]!r}"
        )


def _checked(numbers: Iterable[int], labels: Any) -> NDArray[Any]:
    """Labels of texts with these numbers as an array, (labels,), if they are all texts or all integers."""
    listed = list(np.asarray(labels, dtype=object).reshape(-1))
    for number, label in zip(numbers, listed, strict=True):
        is_number = isinstance(label, int | np.integer | np.bool_) or (
            isinstance(label, float) and label.is_integer()
        )
        if not (isinstance(label, str) if isinstance(listed[0], str) else is_number):
            raise ValueError(
                f"labels[{number}] is {kind(label)}; labels are all texts, or all integers"
            )
        if isinstance(label, str) and not label.strip():
            raise ValueError(f"labels[{number}] is empty; None means no label")
    return np.asarray(listed)


def _repeats(weights: Sequence[float]) -> NDArray[np.int64]:
    """The repetitions of each text: its weight if all are whole numbers, else in proportion, to a quarter."""
    given = np.asarray(weights, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise ValueError(
            "sample_weight: expected are numbers from 0 on, one a text, not all of them 0"
        )
    is_whole = (given == given.round()).all() and given.mean() <= MOST_REPEATS
    scaled = given if is_whole else given * (MOST_REPEATS / given.mean())
    return np.diff(np.floor(np.cumsum(scaled) + 0.5), prepend=0).astype(np.int64)


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{json_text(row)}\n" for row in rows).encode()


def _warn(message: str, *, repeats_texts: bool) -> None:
    """Warn the caller of `fit`, but not of the repeated texts that weights make."""
    if not (repeats_texts and "repeat an earlier one" in message):
        warn_caller(message)


class _VerboseReporter(TerminalReporter):
    """Passes warnings on, and shows progress on standard error."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__()
        self._warn = warn

    def warning(self, message: str) -> None:
        """Warn the caller of `fit`."""
        self._warn(message)
