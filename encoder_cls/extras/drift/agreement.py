"""How often two models agree on texts without labels, and where they differ."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls import Prediction, load_classifier, predicted_rows
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import aligned, counted, listed, printable, shortened
from encoder_cls.system.lazy_sequences import in_chunks
from encoder_cls.system.row_text import readable

# The most disagreements that are kept, the most confident first; the terminal shows fewer of them.
MOST_KEPT = 100
MOST_SHOWN = 10
# The most pairs of different labels that are shown.
MOST_PAIRS = 20
# The number of texts that the other model predicts together.
TEXTS_AT_ONCE = 4096

Labels = tuple[str, ...]


class Disagreement(NamedTuple):
    """A text with different predictions; `confidence` is the lower one of their probabilities."""

    confidence: float
    where: str
    text: str
    labels: Labels
    other_labels: Labels


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How often two models predict the same labels.

    Attributes:
        pairs: of different labels, by the model and the other.
        by_labels: texts that get labels of the first model, and how many get the same from the
            other.
        only_one: classes that only one model has.
        disagreements: the most confident ones first.
    """

    run: str
    other_run: str
    source: str
    num_texts: int
    num_agreed: int
    pairs: Counter[tuple[Labels, Labels]]
    by_labels: dict[Labels, tuple[int, int]]
    only_one: tuple[str, ...]
    disagreements: list[Disagreement]

    @property
    def share(self) -> float:
        """The share of the texts on which both agree."""
        return self.num_agreed / self.num_texts


def find_agreement(run: Path, other_run: Path, source: str) -> Agreement:
    """Predict the texts of files by two models, and compare the labels.

    Raises:
        ConfigError: only one of the models is multi-label.
        DataError: the source is missing or malformed, or has no text with a word.
    """
    classifier, other = load_classifier(run), load_classifier(other_run)
    if classifier.is_multi_label is not other.is_multi_label:
        raise ConfigError(
            f"--against {other_run}: one of the two models predicts a label per text, and the "
            "other any number of labels; compare two models of the same kind"
        )

    texts: Counter[Labels] = Counter()
    agreed: Counter[Labels] = Counter()
    pairs: Counter[tuple[Labels, Labels]] = Counter()
    most_confident: list[Disagreement] = []
    for chunk in in_chunks(predicted_rows(classifier, source), TEXTS_AT_ONCE):
        other_predictions = other.predict([row for row, _ in chunk])
        for (row, prediction), other_prediction in zip(chunk, other_predictions, strict=True):
            if prediction.reason == "blank":
                continue
            labels, other_labels = _labels(prediction), _labels(other_prediction)
            texts[labels] += 1
            if labels == other_labels:
                agreed[labels] += 1
                continue

            pairs[labels, other_labels] += 1
            confidence = min(
                prediction.prediction_probability, other_prediction.prediction_probability
            )
            disagreement = Disagreement(
                confidence, str(row.where), readable(row.text), labels, other_labels
            )
            if len(most_confident) < MOST_KEPT:
                heapq.heappush(most_confident, disagreement)
            else:
                heapq.heappushpop(most_confident, disagreement)

    if not texts:
        raise DataError(source, "no text with a word")
    return Agreement(
        run=str(run),
        other_run=str(other_run),
        source=source,
        num_texts=texts.total(),
        num_agreed=agreed.total(),
        pairs=pairs,
        by_labels={labels: (number, agreed[labels]) for labels, number in texts.most_common()},
        only_one=tuple(sorted(set(classifier.label_names) ^ set(other.label_names))),
        disagreements=sorted(most_confident, reverse=True),
    )


def _labels(prediction: Prediction) -> Labels:
    return tuple(sorted(prediction.all_labels))


def in_words(labels: Labels) -> str:
    """The labels of a text, or that it has none."""
    return ", ".join(labels) or "(no label)"


def headline(agreement: Agreement) -> str:
    """How often both agree, in a sentence."""
    return (
        f"{agreement.run} and {agreement.other_run} agree on {agreement.share:.1%} of "
        f"{counted(agreement.num_texts, 'text')} of {agreement.source}; they differ on "
        f"{agreement.num_texts - agreement.num_agreed:,}."
    )


def terminal_text(agreement: Agreement) -> str:
    """The result for a terminal."""
    return "".join(f"{printable(line)}\n" for line in _lines(agreement))


def _lines(agreement: Agreement) -> Iterator[str]:
    yield headline(agreement)
    if agreement.only_one:
        yield f"Classes that only one of them has: {listed(agreement.only_one)}."
    if not agreement.pairs:
        return

    yield ""
    rows = [[f"{agreement.run} / {agreement.other_run}", "texts"]]
    for (labels, other_labels), number in agreement.pairs.most_common(MOST_PAIRS):
        rows.append(
            [f"{printable(in_words(labels))} / {printable(in_words(other_labels))}", f"{number:,}"]
        )
    yield from aligned(rows)

    yield ""
    yield "the most confident disagreements:"
    for disagreement in agreement.disagreements[:MOST_SHOWN]:
        both = f"{in_words(disagreement.labels)} / {in_words(disagreement.other_labels)}"
        text = shortened(" ".join(disagreement.text.split()), limit=80)
        yield f"  {disagreement.confidence:.2f}  {both}  {text}"


def to_dict(agreement: Agreement) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "run": agreement.run,
        "against": agreement.other_run,
        "input": agreement.source,
        "texts": agreement.num_texts,
        "agreement": agreement.share,
        "classes_of_one": list(agreement.only_one),
        "by_labels": [
            {"labels": list(labels), "texts": number, "agreement": agreed / number}
            for labels, (number, agreed) in agreement.by_labels.items()
        ],
        "pairs": [
            {"labels": list(labels), "against_labels": list(other_labels), "texts": number}
            for (labels, other_labels), number in agreement.pairs.most_common()
        ],
        "disagreements": [
            {
                "where": disagreement.where,
                "text": disagreement.text,
                "labels": list(disagreement.labels),
                "against_labels": list(disagreement.other_labels),
                "confidence": disagreement.confidence,
            }
            for disagreement in agreement.disagreements
        ],
    }
