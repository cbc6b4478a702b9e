"""Count the predictions that a person may not expect, such as predictions for blank texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto

from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.system.display import counted


class Unexpected(Enum):
    """The kinds of unexpected predictions, in the order of the summary."""

    TRUNCATED = auto()
    """The text is longer than the classifier reads."""

    WITHHELD = auto()
    """The label, or a label of a multi-label model, is withheld by a threshold."""

    WITHOUT_LABEL = auto()
    """No label of a multi-label model reaches its threshold."""

    NONE = auto()
    """The text belongs to none of the classes."""

    BLANK = auto()
    """The text is blank."""

    UNFAMILIAR = auto()
    """The text is out of distribution."""

    UNKNOWN_WORDS = auto()
    """The text has words that training never saw."""

    LEFT_OUT = auto()
    """The text is so long that not all of its words are explained."""


def count_unexpected(predicted_texts: Iterable[PredictedText]) -> Counter[Unexpected]:
    """Count predictions of each kind; one may be of several."""
    counts: Counter[Unexpected] = Counter()
    for predicted in predicted_texts:
        prediction = predicted.prediction
        if prediction.truncated:
            counts[Unexpected.TRUNCATED] += 1
        if prediction.unknown_words:
            counts[Unexpected.UNKNOWN_WORDS] += 1
        if prediction.unfamiliar:
            counts[Unexpected.UNFAMILIAR] += 1
        if predicted.words and predicted.words.left_out:
            counts[Unexpected.LEFT_OUT] += 1

        if prediction.reason == "none":
            counts[Unexpected.NONE] += 1
        elif prediction.reason is not None:
            counts[Unexpected.BLANK] += 1
        elif predicted.answer.is_withheld:
            counts[Unexpected.WITHHELD] += 1
        elif not predicted.answer.labels:
            counts[Unexpected.WITHOUT_LABEL] += 1
    return counts


def summary_of_unexpected(
    counts: Counter[Unexpected],
    num_texts: int,
    classifier: Classifier,
    options: PredictionOptions,
) -> str | None:
    """A line with the counts, if there are any."""
    # `LEFT_OUT` is not in the summary, because `ChunkClassifier` has already warned of it.
    descriptions = {
        Unexpected.TRUNCATED: f"truncated (longer than {classifier.max_seq_len:,} tokens)",
        Unexpected.WITHHELD: _withheld_in_words(options),
        Unexpected.WITHOUT_LABEL: "without a label",
        Unexpected.NONE: "of none of the classes",
        Unexpected.BLANK: "blank",
        Unexpected.UNFAMILIAR: "unfamiliar (unlike the training texts)",
        Unexpected.UNKNOWN_WORDS: "with unknown words",
    }

    parts = []
    for kind, description in descriptions.items():
        if counts[kind]:
            parts.append(f"{counts[kind]:,} {description}")
    if not parts:
        return None
    return f"of {counted(num_texts, 'text')}: {', '.join(parts)}"


def _withheld_in_words(options: PredictionOptions) -> str:
    withholding = options.withholding
    if options.min_precision is None:
        return f"withheld (--threshold {withholding.threshold or 0:g})"

    option = f"--min-precision {options.min_precision:g}"
    if withholding.label_thresholds is not None:
        return f"with withheld labels ({option})"
    threshold = withholding.threshold or 0
    if withholding.text_threshold is not None:
        option = f"--whole-texts {option}"
        threshold = withholding.text_threshold
    return f"withheld ({option}: probability below {threshold:.3f})"
