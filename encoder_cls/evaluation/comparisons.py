"""Compare two classifiers on the same texts: another run, or the base run that training continued from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.scores import (
    Interval,
    PartScores,
    only_right,
    paired_interval,
    paired_macro_f1_interval,
    score_answers,
)
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.display import counted, printable, shortened

MOST_NAMED = 5  # classes in a sentence


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Another classifier beside the one of a report, on the same texts; intervals are 95%, (low, high).

    Attributes:
        run: the other's folder, as it was named.
        scores: of the other.
        accuracy_difference: the other's accuracy less that of the report's.
        accuracy_difference_interval: from the texts on which one of both is right.
        macro_f1_difference_interval: by a bootstrap of the texts, each drawn with both answers.
        only_this: texts that the report's classifier alone gets right.
        only_other: texts that the other alone gets right.
        p_value: of McNemar's exact test.
    """

    run: str
    scores: PartScores
    accuracy_difference: float
    accuracy_difference_interval: Interval
    macro_f1_difference: float
    macro_f1_difference_interval: Interval
    only_this: int
    only_other: int
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the other's scores are at the top level."""
        values = asdict(self)
        del values["scores"]
        return {"run": values.pop("run"), **self.scores.to_dict(), **values}

    def sentences(self) -> tuple[str, str]:
        """The better classifier by accuracy, and by macro-F1."""
        name = printable(self.run)
        p_value = f"p = {self.p_value:.3f}" if self.p_value >= 0.001 else "p < 0.001"
        alone = f"{self.only_other:,} texts it alone gets right, {self.only_this:,} it alone gets wrong"
        accuracy = _sentence(name, self.accuracy_difference, self.accuracy_difference_interval, "accuracy")
        macro_f1 = _sentence(name, self.macro_f1_difference, self.macro_f1_difference_interval, "macro-F1")
        return f"{accuracy} (McNemar's test: {p_value}; {alone})", macro_f1


def compare_answers(
    labels: NDArray[np.int64], this: NDArray[np.int64], other: NDArray[np.int64], *, run: str
) -> PairedComparison:
    """Compare the answers of two classifiers, all (texts,); `run` names the other.

    McNemar, "Note on the sampling error of the difference between correlated proportions or percentages" (1947),
    https://doi.org/10.1007/BF02295996, with exact probabilities.
    """
    from scipy.stats import binomtest

    only_this, only_other = only_right(this, other, labels)
    scores = score_answers(other, labels)
    return PairedComparison(
        run=run,
        scores=scores,
        accuracy_difference=(only_other - only_this) / len(labels),
        accuracy_difference_interval=paired_interval(only_other, only_this, len(labels)),
        macro_f1_difference=scores.macro_f1 - score_answers(this, labels).macro_f1,
        macro_f1_difference_interval=paired_macro_f1_interval(labels, other, this),
        only_this=only_this,
        only_other=only_other,
        p_value=float(binomtest(only_other, only_this + only_other).pvalue) if only_this + only_other else 1.0,
    )


def numbered_answers(classifier: Classifier, texts: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    """The answer to each text as a number among class names, (texts,); classes without a name there follow them."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys((*names, *classifier.label_names)))}
    logits = classifier.combined(classifier.part_logits(classifier.tokenize(texts)))
    of_classes = np.array([numbers[name] for name in classifier.label_names], dtype=np.int64)
    answers: NDArray[np.int64] = of_classes[logits.argmax(axis=1)]
    return answers


def _sentence(name: str, difference: float, interval: Interval, of: str) -> str:
    low, high = interval
    which = "better"
    if difference < 0:
        difference, low, high, which = -difference, -high, -low, "worse"
    points = f"{100 * difference:.1f} points of {of}, 95% interval {100 * low:.1f} to {100 * high:.1f}"
    if 100 * difference < 0.05:  # as it is shown
        return f"no sure difference: {points}"
    return f"{name} is {which} by {points}" if low > 0 else f"no sure difference: {name} is {which} by {points}"


class ChangedAnswer(NamedTuple):
    """A text of the base run's test (else validation) split with another answer now."""

    where: str
    text: str
    label: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class BaseAnswers:
    """Changes since the base run, on the texts that it was tested on.

    Attributes:
        split: the name of their split.
        comparison: with the base run as the other classifier.
        changed: the answers that differ.
        lost_recall: recall before and now of the classes whose recall fell, the worst first.
    """

    split: str
    num_texts: int
    comparison: PairedComparison
    changed: tuple[ChangedAnswer, ...]
    lost_recall: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the changed answers themselves have a file of their own."""
        return {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
            **{key: value for key, value in self.comparison.to_dict().items() if "macro_f1" not in key},
        }

    def sentences(self) -> Iterator[str]:
        """The changes, as sentences."""
        right = sum(answer.now == answer.label for answer in self.changed)
        wrong = sum(answer.before == answer.label for answer in self.changed)
        yield (
            f"of {counted(self.num_texts, 'text')} of the {self.split} split of {printable(self.comparison.run)}, "
            f"{len(self.changed):,} are answered otherwise: {right:,} are right now, {wrong:,} are wrong now, "
            f"{len(self.changed) - right - wrong:,} are wrong as before"
        )
        # Not macro-F1: an answer that the base run could not give makes one more class of it.
        yield self.comparison.sentences()[0]
        if self.lost_recall:
            worst = [
                f"{printable(shortened(name, limit=80))} {before:.3f} to {now:.3f}"
                for name, (before, now) in list(self.lost_recall.items())[:MOST_NAMED]
            ]
            yield f"recall fell: {', '.join(worst)}{', …' if len(self.lost_recall) > MOST_NAMED else ''}"


def compare_with_base(classifier: Classifier, base: Classifier, dataset: Dataset, *, run: str) -> BaseAnswers:
    """Answer the texts that the base run was tested on with both classifiers; `dataset` is that run's."""
    split_name, split = dataset.reported
    names = tuple(dict.fromkeys((*classifier.label_names, *split.unseen_names)))
    labels = np.array([names.index(name) for name in (*dataset.label_names, *split.unseen_names)])[split.labels]
    now, before = (numbered_answers(it, split.texts, names) for it in (classifier, base))
    changed = tuple(
        ChangedAnswer(split.where[row], split.texts[row], *(names[it[row]] for it in (labels, before, now)))
        for row in np.flatnonzero(before != now).tolist()
    )
    recalls = {}
    for number in np.unique(labels).tolist():
        is_class = labels == number
        recalls[names[number]] = float((before[is_class] == number).mean()), float((now[is_class] == number).mean())
    lost = sorted((now - before, name) for name, (before, now) in recalls.items() if now < before)
    return BaseAnswers(
        split=split_name,
        num_texts=len(split),
        comparison=compare_answers(labels, now, before, run=run),
        changed=changed,
        lost_recall={name: recalls[name] for _, name in lost},
    )
