"""The estimator of scikit-learn: `TextClassifier`."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from encoder_cls import Classifier, Columns, Row
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.linear.top_features import NgramWeight
from encoder_cls.metrics.scores import names_shown_after_validation
from encoder_cls.run.run_folder import RunDir
from encoder_cls.sklearn.settings import (
    ARGUMENTS,
    SETTINGS_PREFIX,
    check_settings,
    class_weights,
    key_named,
)
from encoder_cls.sklearn.targets import as_targets, check_comparable
from encoder_cls.sklearn.text_rows import (
    as_rows,
    json_lines,
    rows_in_memory,
)
from encoder_cls.system.added_columns import added_name
from encoder_cls.system.json_values import label_name
from encoder_cls.system.reporter import Reporter, WarningReporter, warn_caller
from encoder_cls.system.row_text import columns_of_row
from encoder_cls.system.settings import own_settings
from encoder_cls.system.terminal_reporter import TerminalReporter

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config
    from encoder_cls.evaluation.report import Report

PREFIX = "encoder-cls-"


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A text classifier: a Transformer encoder and a linear model, both trained from scratch.

    Args:
        epochs: the maximum number of passes over the texts; "auto" chooses fewer passes for more
            text.
        learning_rate: the peak learning rate.
        time_budget: the maximum number of minutes for `fit`; None sets no limit.
        class_weight: the weights of the classes in the loss: a weight by label, 1 for labels that
            are not named. Weights of labels that no text has, such as those that a fold of
            cross-validation lacks, are left out with a warning. "balanced" gives weights with which
            rare classes count as much as frequent ones; None gives equal weights.
        features: the columns beside the text that the model also reads. Then the texts are given as
            the rows of a `DataFrame`, whose column with the text is the setting `data.text_column`,
            by default `text`.
        seed: the seed of all random numbers except for the choice of held-out texts, which has the
            setting `data.split_seed`. Equal seeds give equal models.
        log_dir: a folder for the curves of TensorBoard. Each `fit` makes a new folder in it, such
            as `TextClassifier-1`. None writes no curves.
        verbose: whether to print the progress to standard error.
        settings: further values of the config by dotted key, such as `{"model.d_model": 64}`.
            `configs/example.yaml` explains all keys. `set_params` sets single values.

    Attributes:
        classes_: the sorted labels, or the columns of an indicator matrix. The columns of
            `predict_proba` have this order.
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
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        features: Sequence[str] = (),
        seed: int = 0,
        log_dir: str | Path | None = None,
        verbose: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        # Store the arguments without checks or changes, as `clone` and `set_params` of
        # scikit-learn require it. `fit` checks them.
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.time_budget = time_budget
        self.class_weight = class_weight
        self.features = features
        self.seed = seed
        self.log_dir = log_dir
        self.verbose = verbose
        self.settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments by name.

        With `deep`, each value of `settings` is added, by a name such as
        `settings__model__d_model`.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.settings, Mapping):
            for key, value in self.settings.items():
                params[f"{SETTINGS_PREFIX}{str(key).replace('.', '__')}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set arguments, or single values of `settings`.

        A value of the config has one of the names `d_model`, `model__d_model` and
        `settings__model__d_model`. The shortest form is possible if only one section of the config
        has the key.

        Raises:
            ValueError: a name is neither an argument nor a key of the config.
        """
        arguments = {}
        values = {}
        for name, value in params.items():
            if name in self._get_param_names():
                arguments[name] = value
                continue
            key = key_named(name)
            if key in ARGUMENTS:
                arguments[ARGUMENTS[key]] = value
            else:
                values[key] = value

        super().set_params(**arguments)
        if values:
            # Make a new mapping, since the caller or a clone may share the one that was given.
            self.settings = {**(self.settings or {}), **values}
        return self

    def fit(
        self,
        X: Any,
        y: Sequence[Any],
        sample_weight: Sequence[float] | None = None,
    ) -> Self:
        """Train on texts and their labels.

        Some of the texts are held out to choose the best weights, unless `settings` names a file in
        `data.validation`.

        Args:
            X: the texts; with `features` or several text columns, a `DataFrame`. None and NaN are
                blank texts, which are left out like those of a file (`data.empty_texts`).
            y: the labels, all strings or all integers; None or NaN means a text without a label. If
                texts may have several labels: a list for each text, or an indicator matrix,
                (texts, classes).
            sample_weight: how much each text counts in the loss of both parts. Only ratios matter;
                a text of weight 0 is left out. Held-out texts all count alike.

        Raises:
            TypeError: a text is not a string.
            ValueError: there are too few texts, the numbers of texts and labels differ, or a
                setting is unknown or invalid.
        """
        from encoder_cls.training.from_python import train_texts

        targets = as_targets(y)
        try:
            config = self._config(targets.classes.tolist())
            columns = Columns(config.data.text_column, features=config.data.features)
            texts = as_rows(X, "fit", columns)
            check_consistent_length(texts, targets.labels, sample_weight)
            rows = rows_in_memory(texts, targets, sample_weight)
            with (
                self._reporter() as reporter,
                _run_folder(config.name, self.log_dir) as folder,
            ):
                run = RunDir(folder)
                classifier = train_texts(
                    config,
                    rows,
                    run,
                    with_tensorboard=self.log_dir is not None,
                    reporter=reporter,
                )
                files = _contents(run.metrics_file, run.held_out_predictions)
        except (ConfigError, DataError) as error:
            # scikit-learn expects a `ValueError` for invalid arguments of an estimator.
            raise ValueError(str(error)) from None

        if classifier.thresholds and targets.form == "one":
            raise ValueError(
                f"{config.data.validation}: has texts with several labels, but the texts of fit "
                "have one label each"
            )

        classes = targets.classes
        if targets.form != "matrix":
            # The classifier lacks a class whose texts are all blank.
            known_names = set(classifier.label_names)
            is_known = [label_name(label) in known_names for label in classes]
            classes = classes[is_known]

        self.classes_ = classes
        self.classifier_ = classifier
        self._form = targets.form
        self._values = config.model_dump(mode="json")
        self._files = files
        self._rows = rows
        return self

    def predict(self, X: Any) -> Any:
        """The most probable label of each text, (texts,).

        With several labels, a list or a row of an indicator matrix for each text, as given to
        `fit`.
        """
        probabilities = self._probabilities(X, "predict")
        if self._form == "one":
            return self.classes_[probabilities.argmax(axis=1)]

        # A class without a text gets a threshold that no probability reaches.
        classifier = self.classifier_
        known_thresholds = dict(zip(classifier.label_names, classifier.thresholds, strict=True))
        thresholds = [known_thresholds.get(label_name(label), 2.0) for label in self.classes_]

        has_label = probabilities >= thresholds
        if self._form == "matrix":
            return has_label.astype(int)
        return [self.classes_[row].tolist() for row in has_label]

    def score(
        self,
        X: Any,
        y: Sequence[Any],
        sample_weight: Sequence[float] | None = None,
    ) -> float:
        """The share of texts whose predicted labels are exactly the correct labels.

        Equal values are equal labels, such as 1, 1.0 and True; texts whose label is None or NaN do
        not count. The columns of a `DataFrame` may be in any order. `sample_weight` has the weight
        of each text in the mean.

        Raises:
            ValueError: no text has a label, or the labels are of another type than those of `fit`.
        """
        predictions = self.predict(X)
        given = as_targets(y, self.classes_)
        predicted = as_targets(predictions, self.classes_)
        check_consistent_length(predicted.labels, given.labels, sample_weight)
        check_comparable(given.classes, self.classes_)

        is_labelled = np.array([labels is not None for labels in given.labels], dtype=bool)
        if not is_labelled.any():
            raise ValueError("no text to score has a label")

        pairs = zip(given.labels, predicted.labels, strict=True)
        is_correct = np.array([labels == prediction for labels, prediction in pairs])
        weights = None
        if sample_weight is not None:
            weights = np.asarray(sample_weight)[is_labelled]
        return float(np.average(is_correct[is_labelled], weights=weights))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, (texts, classes), in the order of `classes_`."""
        return self._probabilities(X, "predict_proba")

    def _probabilities(self, X: Any, method: str) -> NDArray[np.float64]:
        check_is_fitted(self, "classifier_")
        classifier = self.classifier_
        texts = as_rows(X, method, classifier.columns)
        logits = classifier.logits(classifier.tokenize(texts))
        probabilities = classifier.task.probabilities(logits)

        # Reorder the columns, because `classes_` is sorted by value and the classes of the
        # classifier are in another order. A class of `classes_` that the classifier lacks gets the
        # probability 0: its column is -1, a column of zeros that is added at the end.
        column_of = {name: column for column, name in enumerate(classifier.label_names)}
        columns = [column_of.get(label_name(label), -1) for label in self.classes_]
        with_zeros = np.pad(probabilities, ((0, 0), (0, 1)))
        return with_zeros[:, columns]

    def top_features(self, label: Any, *, top_k: int = 20) -> list[NgramWeight]:
        """The words and pairs of words that speak most for a class, by the linear model.

        They are at most `top_k`, the largest `weight` first. After pickling, an estimator has no
        texts in which pairs are looked up, and lists words.

        Raises:
            ValueError: the label is not one of `classes_`, or there is no linear model.
        """
        check_is_fitted(self, "classifier_")
        texts = [Row(row.text) for row in self._rows]
        try:
            return self.classifier_.top_features(label_name(label), texts=texts, top_k=top_k)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def save(self, path: str | Path) -> None:
        """Write a run folder for the command line, with the model, the config and the texts.

        After pickling, an estimator has no texts: `eval` then needs `--data`.

        Raises:
            FileExistsError: the folder is not empty.
        """
        from encoder_cls.classifier.model_folder import save_classifier
        from encoder_cls.config.schema import Config

        check_is_fitted(self, "classifier_")
        run = RunDir(Path(path))
        if run.path.exists() and any(run.path.iterdir()):
            raise FileExistsError(f"{path}: is not empty")
        run.path.mkdir(parents=True, exist_ok=True)

        config = Config.model_validate(self._values)
        text_files, data = self._text_files(run.path, config)
        for name, content in {**self._files, **text_files}.items():
            (run.path / name).write_bytes(content)

        save_classifier(self.classifier_, run.model, dtypes=self.classifier_.dtypes)
        run.record_sources(config.model_copy(update={"data": config.data.model_copy(update=data)}))
        run.model_card.write_text(
            f"# {config.name}\n\nSaved by `encoder_cls.sklearn.TextClassifier`.\n"
        )

    def _text_files(self, folder: Path, config: Config) -> tuple[dict[str, bytes], dict[str, Any]]:
        texts_file = folder / "texts.jsonl"
        files = {}
        columns = self.classifier_.columns
        label_column = added_name("label", columns.named, PREFIX)
        weight_column = added_name("weight", columns.named, PREFIX)
        data: dict[str, Any] = {
            "train": str(texts_file),
            "text_column": columns.text,
            "features": columns.features,
            "label_column": label_column,
            "label_names": self.classifier_.label_names,
        }

        labelled = [row for row in self._rows if row.label is not None]
        if labelled:
            records = []
            for row in labelled:
                record: dict[str, Any] = dict(columns_of_row(row.text, columns.text))
                record[label_column] = row.label
                if row.weight is not None:
                    record[weight_column] = row.weight
                    data["weight_column"] = weight_column
                records.append(record)
            files[texts_file.name] = json_lines(records)

        unlabelled = [row for row in self._rows if row.label is None]
        if unlabelled and config.data.unlabelled is None:
            unlabelled_file = folder / "unlabelled.jsonl"
            files[unlabelled_file.name] = json_lines(
                columns_of_row(row.text, columns.text) for row in unlabelled
            )
            data["unlabelled"] = str(unlabelled_file)
        return files, data

    @own_settings()
    def report(self) -> Report:
        """Score the classifier on the held-out texts, as `encoder-cls eval` does.

        Raises:
            ValueError: the estimator was loaded from a pickle, which has no texts.
        """
        from encoder_cls.classifier.model_folder import load_classifier
        from encoder_cls.data.load_dataset import load_data
        from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
        from encoder_cls.run.loaded_run import LoadedRun, report_of_run

        check_is_fitted(self, "classifier_")
        if not self._rows:
            raise ValueError(
                "this estimator was loaded from a pickle, which has no texts; call report() before "
                "pickling, or save the estimator and use encoder-cls eval --data"
            )

        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            run = RunDir(Path(folder) / "run")
            self.save(run.path)
            config = run.load_config()
            dataset = load_data(config)
            classifier = load_classifier(run.path, engine="torch")
            validation_predictions = ValidationPredictions.of_run(
                run.held_out_predictions, classifier, dataset.validation
            )
            loaded = LoadedRun(
                classifier=classifier,
                config=config,
                dataset=dataset,
                validation_predictions=validation_predictions,
            )
            return report_of_run(loaded)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the texts when the estimator is pickled."""
        state: dict[str, Any] = super().__getstate__()
        if "_rows" in state:
            return state | {"_rows": []}
        return state

    def __copy__(self) -> Self:
        """Keep the texts, which a pickle leaves out."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Keep the texts, which a pickle leaves out."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that this estimator takes texts, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def _reporter(self) -> AbstractContextManager[Reporter]:
        if self.verbose:
            return _VerboseReporter(score_names=names_shown_after_validation())
        return nullcontext(WarningReporter(warn_caller))

    def _config(self, labels: Sequence[Any] = ()) -> Config:
        from encoder_cls.config.loading import config_of

        settings = {} if self.settings is None else self.settings
        check_settings(settings)

        values = {"name": type(self).__name__, "data.train": "texts", **settings}
        for key, argument in ARGUMENTS.items():
            values[key] = getattr(self, argument)
        values["train.class_weights"] = class_weights(self.class_weight, labels)
        return config_of(values, source="TextClassifier")


@contextmanager
def _run_folder(name: str, log_dir: str | Path | None) -> Iterator[Path]:
    """A folder to train in: temporary, or a new one in `log_dir`, which keeps logs alone."""
    if log_dir is None:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as temporary_folder:
            yield Path(temporary_folder)
        return

    folder = _new_folder(Path(log_dir), name)
    try:
        yield folder
    finally:
        run = RunDir(folder)
        logs = {run.metrics_file, *run.event_files}
        for path in folder.iterdir():
            if path in logs:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if not logs & set(folder.iterdir()):
            folder.rmdir()


def _new_folder(parent: Path, name: str) -> Path:
    for number in count(1):
        folder = parent / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # Another fit, of this or another process, has this number.
            continue
        except OSError as error:
            raise ConfigError(f"log_dir: {folder}: {error.strerror}") from None
        return folder
    raise AssertionError("numbers never end")


class _VerboseReporter(TerminalReporter):
    """Warns the caller of `fit`, and shows the progress on standard error."""

    def warning(self, message: str) -> None:
        warn_caller(message)


def _contents(*paths: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths if path.exists()}
