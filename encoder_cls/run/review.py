"""Find labels that look wrong, with the predictions of models that were not trained on them.

Training texts are predicted by cross-validation of a linear model, test texts by the classifier of
the run, and validation texts with its held-out predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.corrections import added_column
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions, held_out_logits
from encoder_cls.evaluation.label_tables import LabelRow, form_of_data, label_records
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.linear_training.features import LinearOptions
from encoder_cls.linear_training.model_selection import out_of_fold_logits
from encoder_cls.run.reloaded_data import config_with_moved_data, dataset_of_run
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.csv_cells import CsvForm
from encoder_cls.system.excel_table import excel_table
from encoder_cls.system.files import write_output
from encoder_cls.system.label_cells import cell_separator

EXCEL_ENDING = ".xlsx"


class Review(NamedTuple):
    """The labels of a run that may be wrong.

    Attributes:
        rows: texts with a label that is not the prediction, the most doubtful first, and those that
            `data.corrections` has corrected, so that a new file can replace the old one.
        num_contradicted: texts whose label is not the prediction.
        num_estimated_errors: a high estimate of the texts with a wrong label: it was 1.5 to 5 times
            too high (docs/experiments/accuracy.md).
        class_names: of the classifier, then those that occur only in validation or test.
        separator: between several labels in `rows`.
        data: the section of the run's config.
    """

    rows: list[LabelRow]
    num_texts: int
    num_contradicted: int
    num_estimated_errors: int
    is_multi_label: bool
    class_names: Sequence[str]
    separator: str
    data: DataConfig

    def write(self, path: Path) -> None:
        """Write the rows as .csv, .tsv or .xlsx, with all columns of the data.

        Once a person has corrected the labels, it can be `data.corrections`.
        """
        (table,) = label_records(self.rows, data=self.data)
        if path.suffix.lower() == EXCEL_ENDING:
            content = excel_table(
                table.columns,
                table.records,
                title="review",
                probability_column=table.added["score"],
            )
        else:
            content = b"".join(table.to_csv(self.csv_form().for_file(path)))
        write_output(path, content)

    def csv_form(self) -> CsvForm:
        """The form of CSV that a spreadsheet opens as it does the training data."""
        return form_of_data(self.data)

    def added_column(self, name: str) -> str:
        """The name of a column such as `key`, which is added to the data's."""
        return added_column(name, self.data)


def review(path: str | Path, *, moved: Mapping[str, str] | None = None) -> Review:
    """Find labels that models which have not learned from them do not predict.

    `moved` has the new paths of the run's data, by key.

    Raises:
        ConfigError: the path is not a run, or the run has no classifier yet.
        DataError: the data is missing, or has changed since the training.
    """
    classifier = load_classifier(path, engine="torch")
    run = run_of(Path(path))
    if run is None:
        raise ConfigError(
            f"{path}: a model folder without its run has no data to review; name the run"
        )

    config = config_with_moved_data(run, moved)
    dataset = dataset_of_run(run, config, classifier, checks_all_splits=True)
    validation_predictions = ValidationPredictions.of_run(
        run.held_out_predictions, classifier, dataset.validation
    )

    class_names = _all_class_names(classifier, dataset)
    separator = cell_separator(class_names, config.data.label_separator)
    rows: list[LabelRow] = []
    num_texts = 0
    num_contradicted = 0
    num_errors = 0
    for predictions in _predict_splits(dataset, classifier, validation_predictions):
        labels = predictions.split.labels
        is_reviewed = _can_be_reviewed(predictions)
        is_contradicted = is_reviewed & ~predictions.are_right

        # Count the reviewed texts, the labels that a prediction contradicts, and the errors.
        num_texts += int(is_reviewed.sum())
        num_contradicted += int(is_contradicted.sum())
        num_errors += len(
            doubtful_rows(predictions.probabilities[is_reviewed], labels[is_reviewed])
        )

        # List these labels and the corrected ones.
        is_listed = is_contradicted | _are_corrected(predictions.split, dataset)
        for row in predictions.label_rows(np.flatnonzero(is_listed), separator):
            label_in_data = dataset.labels_before_corrections.get(row.where, row.label)
            rows.append(row._replace(label_in_data=label_in_data))

    return Review(
        rows=sorted(rows, key=lambda row: -row.score),
        num_texts=num_texts,
        num_contradicted=num_contradicted,
        num_estimated_errors=num_errors,
        is_multi_label=dataset.is_multi_label,
        class_names=class_names,
        separator=separator,
        data=config.data,
    )


def _all_class_names(classifier: Classifier, dataset: Dataset) -> list[str]:
    names = list(classifier.label_names)
    for split in (dataset.validation, dataset.test):
        if split:
            names += [name for name in split.unseen_names if name not in names]
    return names


def _can_be_reviewed(predictions: SplitPredictions) -> NDArray[np.bool_]:
    """Which texts of a split can be reviewed.

    A training text can be reviewed only if each of its classes has texts in other split groups;
    else all of them are in one fold, whose model does not know the class.
    """
    split = predictions.split
    can_be_reviewed = np.ones(len(split), dtype=bool)
    if predictions.name != "train":
        return can_be_reviewed

    for number in range(len(predictions.label_names)):
        has_class = split.has_class(number)
        if len(np.unique(split.split_groups[has_class])) < 2:
            can_be_reviewed &= ~has_class
    return can_be_reviewed


def _are_corrected(split: Split, dataset: Dataset) -> NDArray[np.bool_]:
    is_corrected = np.zeros(len(split), dtype=bool)
    if dataset.labels_before_corrections:
        is_corrected[:] = [where in dataset.labels_before_corrections for where in split.where]
    return is_corrected


def _predict_splits(
    dataset: Dataset,
    classifier: Classifier,
    validation_predictions: ValidationPredictions | None,
) -> Iterator[SplitPredictions]:
    # Predict the training texts by cross-validation of a linear model with the same features as
    # that of the run. Without one, use words and pairs of words.
    train = dataset.train
    class_weights = np.ones(len(classifier.label_names), dtype=np.float32)
    if classifier.linear:
        options = LinearOptions.like(classifier.linear, class_weights)
    else:
        options = LinearOptions(
            classifier.max_seq_len, char_ngrams=False, class_weights=class_weights
        )
    thresholds = tuple(classifier.thresholds)
    texts = classifier.tokenize(train.texts)
    (out_of_fold,) = out_of_fold_logits(
        texts, train.labels, [options], split_groups=train.split_groups
    )
    yield SplitPredictions(
        name="train",
        split=train,
        logits=out_of_fold,
        label_names=classifier.label_names,
        thresholds=thresholds,
    )

    # Predict the other splits with the classifier of the run.
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split:
            logits = held_out_logits(classifier, split, validation_predictions)
            names = (*classifier.label_names, *split.unseen_names)
            yield SplitPredictions(
                name=name, split=split, logits=logits, label_names=names, thresholds=thresholds
            )
