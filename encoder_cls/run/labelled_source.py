"""The labelled texts of a file, a folder or the Hub on which a classifier is scored."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.checks import seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load_dataset import load_split, reading_of
from encoder_cls.data.reading.formats import format_of
from encoder_cls.data.reading.options import Notes
from encoder_cls.errors import DataError
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.system.lazy_sequences import ConcatenatedTexts
from encoder_cls.system.reporter import Reporter


def load_labelled(
    source: str,
    classifier: Classifier,
    data_config: DataConfig,
    dataset: Dataset | None,
    learned: Iterable[str] = (),
    *,
    reporter: Reporter,
) -> Split:
    """Load the labelled texts of a source.

    Args:
        source: a file, a folder or a data set of the Hub.
        classifier: the one to score.
        data_config: how the source is read.
        dataset: that of the training, if it is known.
        learned: the texts that the classifier has learned from, to warn of.
        reporter: gets notes and warnings.

    Raises:
        DataError: the source is missing or malformed.
    """
    is_multi_label = classifier.task is MULTI_LABEL
    reading = reading_of(data_config)
    try:
        split = load_split(
            source,
            data_config,
            classifier.label_names,
            labels_are=dataset.labels_are if dataset else None,
            is_multi_label=is_multi_label,
            reading=reading,
        )
    except DataError as error:
        # A missing column is an error of the source, not of a row.
        is_of_row = error.where != source
        file_format = format_of(Path(source))
        needs_separator = file_format is not None and file_format.needs_label_separator
        may_lack_separator = is_multi_label and data_config.label_separator is None
        if not (is_of_row and needs_separator and may_lack_separator):
            raise
        raise DataError(
            f"{error}; where a cell has several labels, or none, name what separates them: "
            "--set data.label_separator='|'"
        ) from None

    report_notes(source, split, [reading.notes], classifier, learned, reporter=reporter)
    return split


def report_notes(
    name: str,
    split: Split,
    notes_of_sources: Iterable[Notes],
    classifier: Classifier,
    learned: Iterable[str] = (),
    *,
    reporter: Reporter,
) -> None:
    """Report notes and warnings of scored texts.

    It is a warning if many of them are among the learned ones.
    """
    warnings: list[str] = []
    for notes in notes_of_sources:
        for message in notes.messages:
            reporter.note(message)
        warnings += notes.warnings(name)

    warnings += split_warnings(name, split, classifier.label_names)
    warnings += seen_warnings(name, split, learned)
    for warning in warnings:
        reporter.warning(str(warning))


def learned_texts(
    dataset: Dataset, validation_predictions: ValidationPredictions | None
) -> Iterable[str]:
    """The labelled texts that a run has learned from.

    Those held out for validation are among them where the run keeps predictions from before it
    learned from them.
    """
    if validation_predictions is None:
        return dataset.train.texts
    return ConcatenatedTexts(dataset.train.texts, dataset.known_validation.texts)
