"""Load the labelled texts of a file, a folder or the Hub, and note what to know of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.data_warnings import split_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_split
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.reading import Notes, Reading
from encoder_cls.errors import DataError
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.system.lazy_sequences import ConcatenatedTexts
from encoder_cls.system.reporter import Reporter


def load_labelled(
    source: str,
    classifier: Classifier,
    data_config: DataConfig,
    dataset: Dataset | None,
    *,
    reporter: Reporter,
) -> Split:
    """Load labelled texts, to score a classifier on them.

    `dataset` is the data of its run, if known.
    """
    reading = Reading(data_config.reading_options)
    try:
        split = load_split(
            source,
            data_config,
            classifier.label_names,
            labels_are=dataset.labels_are if dataset else None,
            is_multi_label=classifier.is_multi_label,
            reading=reading,
        )
    except DataError as error:
        # Suggest a label separator if the error is in a row of a multi-label file. Other errors,
        # such as a missing column, are errors of the whole source.
        is_in_row = error.where != source
        file_format = format_of(Path(source))
        needs_separator = file_format is not None and file_format.needs_label_separator
        has_no_separator = classifier.is_multi_label and data_config.label_separator is None
        if not (is_in_row and needs_separator and has_no_separator):
            raise
        raise DataError(
            f"{error}; if a cell may have several labels or none, name their separator: "
            "--set data.label_separator='|'"
        ) from None

    report_notes(source, split, [reading.notes], classifier, reporter=reporter)
    return split


def report_notes(
    name: str,
    split: Split,
    notes_of_sources: Iterable[Notes],
    classifier: Classifier,
    *,
    reporter: Reporter,
) -> None:
    """Report notes and warnings about the texts of `name`."""
    warnings: list[str] = []
    for notes in notes_of_sources:
        for message in notes.messages:
            reporter.note(message)
        warnings += notes.warnings(name)

    warnings += split_warnings(name, split, classifier.label_names)
    for warning in warnings:
        reporter.warning(str(warning))


def learned_texts(
    dataset: Dataset, validation_predictions: ValidationPredictions | None
) -> Iterable[str]:
    """The labelled texts that a run has learned from, with those that have held-out predictions."""
    if validation_predictions is None:
        return dataset.train.texts
    return ConcatenatedTexts(dataset.train.texts, dataset.known_validation.texts)
