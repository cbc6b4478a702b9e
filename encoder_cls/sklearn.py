"""The classifier as an estimator of scikit-learn.

>>> from encoder_cls.sklearn import TextClassifier
>>> model = TextClassifier(settings={"model.d_model": 64}).fit(texts, labels)
>>> model.predict(["where is my parcel?"])
array(['track_order'], dtype='<U16')
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from encoder_cls.system.display import kind, listed
from encoder_cls.system.json_values import is_missing, json_text
from encoder_cls.system.reporter import Reporter, WarningReporter, warn_caller
from encoder_cls.system.settings import own_settings

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.evaluation.report import Report

# The keys of a config that are arguments of the estimator.
ARGUMENTS = {
    "seed": "seed",
    "train.epochs": "epochs",
    "train.learning_rate": "learning_rate",
    "train.time_budget": "time_budget",
}
# The keys of `data` that `fit` replaces by its arguments.
REPLACED_KEYS = (
    "train",
    "test",
    "label_names",
    "label_separator",
    "group_column",
    "corrections",
)
# The most repetitions of a text of mean weight.
MAX_REPEATS = 4
# The name of the files that `fit` writes, before a dash and random characters.
PREFIX = "encoder-cls-"

# How the labels of a multi-label text may be given.
_COLLECTIONS = (list, tuple, set, frozenset)

_Form = Literal["one", "lists", "matrix"]
"""How labels are given: one for each text, a list for each text, or an indicator matrix."""


class _Targets(NamedTuple):
    """The labels given to `fit` or `score`, as values of their own type.

    Attributes:
        labels: of each text; None where its label is missing.
        classes: all labels, sorted; of an indicator matrix: its columns.
        form: how the labels were given.
    """

    labels: list[frozenset[Any] | None]
    classes: NDArray[Any]
    form: _Form


class _Row(NamedTuple):
    """A text to learn from, with the names of its labels."""

    number: int
    text: str
    label: str | list[str] | None


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A Transformer encoder and a linear model, trained from scratch.

    Args:
        epochs: the most passes over the texts; `auto`: fewer for more text.
        learning_rate: the peak learning rate.
        time_budget: the most minutes that fitting may take; None: no limit.
        seed: of everything random except what is held out (`data.split_seed`); equal seeds give
            equal models.
        verbose: whether to print progress to standard error.
        settings: further values of a config by dotted key, as `--set` takes them:
            `{"model.d_model": 64}`; `configs/example.yaml` explains all of them.

    Attributes:
        classes_: the sorted labels (of an indicator matrix: its columns), which is the order of
            the columns of `predict_proba`.
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
        """Train on the texts X and their labels y.

        Some of the texts are held out to choose the best weights, unless `settings` names a file in
        `data.validation`.

        Args:
            X: the texts.
            y: the labels, all strings or all integers; None or NaN marks texts without a label. If
                texts may have several labels, a list for each text, or an indicator matrix,
                (texts, classes).
            sample_weight: a text of weight 2 counts as two texts.

        Raises:
            TypeError: a text is not a string.
            ValueError: there are too few texts, or not as many as labels; or a setting is unknown
                or invalid.
        """
        from encoder_cls.run.run_folder import RunDir
        from encoder_cls.training.from_python import train_texts

        texts = _as_texts(X, "fit")
        targets = _as_targets(y)
        check_consistent_length(texts, targets.labels, sample_weight)
        rows = _rows(texts, targets)
        if sample_weight is not None:
            rows = _repeated(rows, sample_weight)

        try:
            config = self._config()
            with (
                self._reporter(repeats_texts=sample_weight is not None) as reporter,
                tempfile.TemporaryDirectory(prefix=PREFIX) as folder,
            ):
                run = RunDir(Path(folder))
                classifier = train_texts(config, rows, run, reporter=reporter)
                files = _contents(run.metrics_file, run.held_out_predictions)
        except (ConfigError, DataError) as error:
            # What scikit-learn expects of an estimator.
            raise ValueError(str(error)) from None

        if classifier.thresholds and targets.form == "one":
            raise ValueError(
                f"{config.data.validation}: has texts with several labels, and those of fit have "
                "one"
            )

        classes = targets.classes
        if targets.form != "matrix":
            # A class whose texts are all blank is not one of the classifier.
            is_known = [_name(label) in classifier.label_names for label in classes]
            classes = classes[is_known]

        self.classes_ = classes
        self.classifier_ = classifier
        self._form = targets.form
        self._values = config.model_dump(mode="json")
        self._files = files
        self._rows = rows
        return self

    def predict(self, X: Sequence[str]) -> Any:
        """The most probable label of each text, (texts,).

        If texts may have several labels, all of them, as lists or a matrix as given to `fit`.
        """
        probabilities = self._probabilities(X, "predict")
        if self._form == "one":
            return self.classes_[probabilities.argmax(axis=1)]

        # No probability reaches the threshold of a label without a text.
        classifier = self.classifier_
        known_thresholds = dict(zip(classifier.label_names, classifier.thresholds, strict=True))
        thresholds = [known_thresholds.get(_name(label), 2.0) for label in self.classes_]

        has_label = probabilities >= thresholds
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

        Labels are equal if their values are: 1, 1.0 and True are. Texts whose label is None or NaN
        do not count. The columns of a `DataFrame` may be in any order.

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
        is_right = np.array([labels == prediction for labels, prediction in pairs])
        weights = None
        if sample_weight is not None:
            weights = np.asarray(sample_weight)[is_labelled]
        return float(np.average(is_right[is_labelled], weights=weights))

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:
        """The probability of each class, (texts, classes), in the order of `classes_`."""
        return self._probabilities(X, "predict_proba")

    def _probabilities(self, X: Sequence[str], method: str) -> NDArray[np.float64]:
        check_is_fitted(self, "classifier_")
        probabilities = self.classifier_.predict_proba(_as_texts(X, method))

        # `classes_` are in the order of NumPy, and may include labels without a text, with a
        # probability of 0: those are in one more column, the last one.
        column_of = {name: column for column, name in enumerate(self.classifier_.label_names)}
        columns = [column_of.get(_name(label), -1) for label in self.classes_]
        with_zeros = np.pad(probabilities, ((0, 0), (0, 1)))
        return with_zeros[:, columns]

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

        config = Config.model_validate(self._values)
        files = dict(self._files)
        texts_file = run.path / "texts.jsonl"
        data = {"train": str(texts_file), "text_column": ("text",), "label_column": "label"}

        labelled = [row for row in self._rows if row.label is not None]
        if labelled:
            files[texts_file.name] = _json_lines(
                {"text": row.text, "label": row.label} for row in labelled
            )
        unlabelled = [row for row in self._rows if row.label is None]
        if unlabelled and config.data.unlabelled is None:
            unlabelled_file = run.path / "unlabelled.jsonl"
            files[unlabelled_file.name] = _json_lines({"text": row.text} for row in unlabelled)
            data["unlabelled"] = str(unlabelled_file)

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
        from encoder_cls.data.load_dataset import load_all_data
        from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
        from encoder_cls.run.run_folder import RunDir
        from encoder_cls.run.run_report import LoadedRun, report_of_run

        check_is_fitted(self, "classifier_")
        if not self._rows:
            raise ValueError(
                "a pickle holds no texts: report before it is pickled, or save it and use eval "
                "--data"
            )

        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            run = RunDir(Path(folder) / "run")
            self.save(run.path)
            config = run.load_config()
            dataset = load_all_data(config)
            classifier = load_classifier(run.path, engine="torch")
            own = ValidationPredictions.of_run(
                run.held_out_predictions, classifier, dataset.validation
            )
            loaded = LoadedRun(
                folder=run,
                classifier=classifier,
                config=config,
                dataset=dataset,
                validation_predictions=own,
            )
            return report_of_run(loaded)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but the texts."""
        state: dict[str, Any] = super().__getstate__()
        if "_rows" in state:
            return state | {"_rows": []}
        return state

    def __sklearn_tags__(self) -> Any:
        """Declare that this estimator takes texts, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def _reporter(self, *, repeats_texts: bool) -> AbstractContextManager[Reporter]:
        """Warns the caller of `fit`, and shows progress if wanted.

        With `repeats_texts`, it keeps quiet about the repeated texts that weights make.
        """

        def warn(message: str) -> None:
            if not (repeats_texts and "an earlier text with the same label" in message):
                warn_caller(message)

        if self.verbose:
            return _VerboseReporter(warn)
        return nullcontext(WarningReporter(warn))

    def _config(self) -> Config:
        """The config of a training; a `ConfigError` if a setting is unknown or invalid."""
        from encoder_cls.config.loading import config_of

        settings = {} if self.settings is None else self.settings
        _check_settings(settings)

        values = {"name": type(self).__name__, "data.train": "texts", **settings}
        for key, argument in ARGUMENTS.items():
            values[key] = getattr(self, argument)
        return config_of(values, source="TextClassifier")


def _check_settings(settings: Any) -> None:
    """Refuse settings that are not by dotted key, or that are arguments of the estimator."""
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings: a mapping such as {{'model.d_model': 64}} is expected, not {kind(settings)}"
        )

    for key in settings:
        if key in ARGUMENTS:
            raise ConfigError(f"settings: {key!r}: give it as TextClassifier({ARGUMENTS[key]}=...)")

        section, dot, name = str(key).partition(".")
        if section == "data" and name in REPLACED_KEYS:
            raise ConfigError(f"settings: {key!r}: the texts and labels of fit take its place")
        if not isinstance(key, str) or not dot:
            raise ConfigError(
                f"settings: {key!r}: not a key; write it as section.key, such as model.d_model"
            )


class _VerboseReporter(TerminalReporter):
    """Passes warnings on, and shows progress on standard error."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__()
        self._warn = warn

    def warning(self, message: str) -> None:
        """Warn the caller of `fit`."""
        self._warn(message)


# Texts and rows


def _as_texts(texts: Any, method: str) -> list[str]:
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"texts are expected, not a table of shape {texts.shape}; choose the column with the "
            "texts"
        )
    return list(checked_texts(texts, method))


def _rows(texts: Sequence[str], targets: _Targets) -> list[_Row]:
    """The texts with the names of their labels."""
    rows = []
    for number, (text, labels) in enumerate(zip(texts, targets.labels, strict=True)):
        rows.append(_Row(number, text, _label_names(labels, targets.form)))
    return rows


def _label_names(labels: frozenset[Any] | None, form: _Form) -> str | list[str] | None:
    """The name of the label, or the sorted names of the labels, that the classifier learns."""
    if labels is None:
        return None
    names = sorted(_name(label) for label in labels)
    if form == "one":
        return names[0]
    return names


def _repeated(rows: Sequence[_Row], weights: Sequence[float]) -> list[_Row]:
    """Each row as often as its weight says."""
    repeated = []
    for row, num_repeats in zip(rows, _repeats(weights), strict=True):
        repeated += [row] * num_repeats
    return repeated


def _repeats(weights: Sequence[float]) -> NDArray[np.int64]:
    """The repetitions of each text.

    They are the weights if all are whole numbers and not too large, or else in proportion to them,
    to a quarter of the mean weight.
    """
    given = np.asarray(weights, dtype=np.float64)
    is_valid = given.ndim == 1 and np.isfinite(given).all() and (given >= 0).all() and given.any()
    if not is_valid:
        raise ValueError(
            "sample_weight: one number for each text is expected, from 0 on, and not all of them 0"
        )

    is_whole = (given == given.round()).all()
    scaled = given
    if not is_whole or given.mean() > MAX_REPEATS:
        scaled = given * (MAX_REPEATS / given.mean())

    # Sums are rounded, not single texts, so that the total is right.
    totals = np.floor(np.cumsum(scaled) + 0.5)
    return np.diff(totals, prepend=0).astype(np.int64)


def _contents(*paths: Path) -> dict[str, bytes]:
    """The contents of those files that exist, by name."""
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def _json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{json_text(row)}\n" for row in rows).encode()


# Labels


def _as_targets(labels: Any, known_classes: NDArray[Any] | None = None) -> _Targets:
    """Read labels of any form.

    `known_classes` name the columns of an indicator matrix that has no names.

    Raises:
        ValueError: labels are missing altogether, of several types, or of another shape.
    """
    if labels is None:
        # In the words that scikit-learn looks for.
        raise ValueError(
            "TextClassifier requires y to be passed, but the target y is None: each text needs a "
            "label"
        )

    matrix = labels.toarray() if hasattr(labels, "toarray") else labels
    num_dimensions = getattr(matrix, "ndim", 1)
    if num_dimensions == 2 and matrix.shape[1] > 1:
        return _targets_of_matrix(matrix, known_classes)
    if num_dimensions == 1 and any(isinstance(label, _COLLECTIONS) for label in labels):
        return _targets_of_lists(labels)
    return _targets_of_column(labels)


def _targets_of_column(labels: Any) -> _Targets:
    """One label for each text, or None."""
    # As objects: NumPy would make strings of strings and integers together.
    column = column_or_1d(np.asarray(labels, dtype=object), warn=True)
    labelled = [number for number, label in enumerate(column) if not is_missing(label)]
    values = _checked(labelled, column[labelled])

    sets: list[frozenset[Any] | None] = [None] * len(column)
    for number, value in zip(labelled, values.tolist(), strict=True):
        sets[number] = frozenset([value])
    return _Targets(sets, np.unique(values), "one")


def _targets_of_matrix(matrix: Any, known_classes: NDArray[Any] | None) -> _Targets:
    """The labels of an indicator matrix, (texts, classes); a `DataFrame` names its columns."""
    indicator = np.asarray(matrix)
    if not np.isin(indicator, (0, 1)).all():
        raise ValueError("labels of two dimensions are an indicator matrix, of 0 and 1")

    classes = np.asarray(getattr(matrix, "columns", np.arange(indicator.shape[1])))
    if known_classes is not None and set(classes.tolist()) != set(known_classes.tolist()):
        _check_columns(classes, known_classes)
        classes = known_classes

    sets: list[frozenset[Any] | None] = [frozenset(classes[row > 0].tolist()) for row in indicator]
    return _Targets(sets, classes, "matrix")


def _check_columns(classes: NDArray[Any], known_classes: NDArray[Any]) -> None:
    """Refuse other columns than those of `fit`; only columns with names can be other ones."""
    both_have_names = _has_names(classes) and _has_names(known_classes)
    if len(classes) != len(known_classes) or both_have_names:
        given = listed([str(name) for name in classes])
        known = listed([str(name) for name in known_classes])
        raise ValueError(f"the labels have the columns {given}, and those of fit have {known}")


def _has_names(columns: NDArray[Any]) -> bool:
    """Whether columns have names, not only positions."""
    return not np.array_equal(columns, np.arange(len(columns)))


def _targets_of_lists(texts_labels: Any) -> _Targets:
    """The labels of texts that have a list each."""
    numbers = []
    all_labels = []
    for number, labels in enumerate(texts_labels):
        if not isinstance(labels, _COLLECTIONS):
            what = f"labels[{number}] is {kind(labels)}; a text without a label has an empty list"
            raise ValueError(what)  # noqa: TRY004 - as of any faulty label
        for label in labels:
            numbers.append(number)
            all_labels.append(label)

    classes = np.zeros(0)
    if all_labels:
        classes = np.unique(_checked(numbers, all_labels))
    return _Targets([frozenset(labels) for labels in texts_labels], classes, "lists")


def _checked(numbers: Iterable[int], labels: Any) -> NDArray[Any]:
    """Labels of texts with these numbers as an array, (labels,).

    Raises:
        ValueError: they are neither all texts nor all integers, or one is empty.
    """
    values = list(np.asarray(labels, dtype=object).reshape(-1))
    for number, label in zip(numbers, values, strict=True):
        has_type = isinstance(label, str) if isinstance(values[0], str) else _is_integer(label)
        if not has_type:
            raise ValueError(
                f"labels[{number}] is {kind(label)}; labels are all texts, or all integers"
            )
        if isinstance(label, str) and not label.strip():
            raise ValueError(f"labels[{number}] is empty; None means no label")
    return np.asarray(values)


def _is_integer(label: Any) -> bool:
    """Whether a label is a whole number, possibly one that NaN beside it made a float."""
    if isinstance(label, float):
        return label.is_integer()
    return isinstance(label, int | np.integer | np.bool_)


def _name(label: Any) -> str:
    """The name of a class: of a whole number its digits, also where it is a float."""
    if isinstance(label, float | np.floating):
        return str(int(label))
    return str(label)


def _check_comparable(given: NDArray[Any], known: NDArray[Any]) -> None:
    """Refuse to compare texts with numbers: no prediction would be correct."""
    if len(given) and isinstance(given[0], str) != isinstance(known[0], str):
        raise ValueError(
            f"the labels to score, such as {given.tolist()[0]!r}, are of another type than those "
            f"of fit, such as {known.tolist()[0]!r}"
        )
