"""Changed answers since the base run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.labels import BYTE_ORDER_MARK, csv_line, file_and_line
from encoder_cls.evaluation.notes import name_text
from encoder_cls.evaluation.scores import PairedComparison, compare_answers, comparison_lines
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.display import counted, printable

MOST_NAMED = 5  # classes in a sentence
COLUMNS = ("file", "line", "text", "label", "before", "now")


@dataclass(frozen=True, kw_only=True)
class ChangedAnswer:
    """A text of the former run's test (else validation) split whose answer is another now."""

    where: str
    text: str
    label: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class FormerAnswers:
    """What a classifier answers on the texts that its former run was tested on, beside what that answered.

    Attributes:
        split: the name of their split.
        num_texts: how many there are.
        comparison: the former run as the other classifier.
        changed: the answers that are others.
        lost_recall: of classes that are found less often, how often before and how often now, the worst first.
    """

    split: str
    num_texts: int
    comparison: PairedComparison
    changed: tuple[ChangedAnswer, ...]
    lost_recall: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; the changed answers themselves are in a file of their own."""
        return {
            "split": self.split,
            "texts": self.num_texts,
            "changed": len(self.changed),
            "lost_recall": self.lost_recall,
            **{key: value for key, value in self.comparison.to_dict().items() if "macro_f1" not in key},
        }

    def sentences(self) -> Iterator[str]:
        """What has changed, as sentences."""
        run = printable(self.comparison.run)
        right = sum(answer.now == answer.label for answer in self.changed)
        wrong = sum(answer.before == answer.label for answer in self.changed)
        neither = len(self.changed) - right - wrong
        yield (
            f"of {counted(self.num_texts, 'text')} of the {self.split} split of {run}, {len(self.changed):,} are "
            f"answered otherwise: {right:,} are right now, {wrong:,} are wrong now, {neither:,} are wrong as before"
        )
        # Not macro-F1: an answer that the former run could not give makes one more class of it.
        yield comparison_lines(self.comparison, name=run)[0]
        if self.lost_recall:
            worst = [
                f"{name_text(name)} {before:.3f} to {now:.3f}"
                for name, (before, now) in list(self.lost_recall.items())[:MOST_NAMED]
            ]
            more = ", …" if len(self.lost_recall) > MOST_NAMED else ""
            yield f"recall fell: {', '.join(worst)}{more}"


def compare_with_former(classifier: Classifier, former: Classifier, dataset: Dataset, *, run: str) -> FormerAnswers:
    """Answer the texts that the former run was tested on with both classifiers.

    Args:
        classifier: knows all classes of the other.
        former: the classifier of the former run.
        dataset: that run's.
        run: its folder, as it was named.
    """
    split_name, split = dataset.reported
    names = (
        *classifier.label_names,
        *dict.fromkeys(name for name in split.unseen_names if name not in classifier.label_names),
    )
    numbers = {name: number for number, name in enumerate(names)}
    of_split = np.array([numbers[name] for name in (*dataset.label_names, *split.unseen_names)], dtype=np.int64)
    of_former = np.array([numbers[name] for name in former.label_names], dtype=np.int64)
    labels = of_split[split.labels]
    now = classifier.combined(classifier.part_logits(classifier.tokenize(split.texts))).argmax(axis=1)
    before = of_former[former.combined(former.part_logits(former.tokenize(split.texts))).argmax(axis=1)]
    changed = tuple(
        ChangedAnswer(
            where=split.where[row],
            text=split.texts[row],
            label=names[labels[row]],
            before=names[before[row]],
            now=names[now[row]],
        )
        for row in np.flatnonzero(before != now).tolist()
    )
    recalls = {}
    for number, name in enumerate(names):
        is_class = labels == number
        if is_class.any():
            recalls[name] = float((before[is_class] == number).mean()), float((now[is_class] == number).mean())
    lost = sorted((now - before, name) for name, (before, now) in recalls.items() if now < before)
    return FormerAnswers(
        split=split_name,
        num_texts=len(split),
        comparison=compare_answers(labels, now, before, run=run),
        changed=changed,
        lost_recall={name: recalls[name] for _, name in lost},
    )


def changed_table(changed: tuple[ChangedAnswer, ...]) -> Iterator[bytes]:
    """CSV with `COLUMNS`."""
    yield BYTE_ORDER_MARK.encode() + csv_line(COLUMNS)
    for answer in changed:
        file, line = file_and_line(answer.where)
        yield csv_line([file, line, answer.text, answer.label, answer.before, answer.now])
