"""The report of an evaluation: a classifier scored on the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.metrics import Metrics, compute_metrics
from encoder_cls.evaluation.mistakes import Answered, Mistake, MultiLabelAnswers, doubtful_rows
from encoder_cls.evaluation.scores import (
    COMBINED,
    BaseAnswers,
    Comparison,
    PairedComparison,
    PartScores,
    parts_alone,
    score_parts,
)
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.guarantees import Guarantees
from encoder_cls.inference.task import MULTI_LABEL, SINGLE_LABEL, Logits, Task
from encoder_cls.text.token_arrays import TokenizedTexts

WANTED_ACCURACY = 0.95  # of the answers above the suggested threshold
FEWEST_ANSWERS, FEWEST_ANSWERED = 20, 0.05  # above it, and the fraction of all texts that these are
# The guarantees that a report measures; where they cannot be given, the highest that can be.
PRECISION, COVERAGE = 0.95, 0.9
MOST_EXPLAINED_TOKENS = 400_000  # read to explain mistakes: some seconds


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that an evaluation measured, of either task; sections that do not apply are None.

    Attributes:
        split: `test`, `validation` or a file.
        label_names: the classes, then the labels that never occur in the training data.
        parts: the scores of the classifier, `combined`, and of its parts `linear` and `encoder` alone.
        mixture_shares: see `Classifier`.
        truncated_fraction: of the texts, those that are longer than the encoder, else the linear part, reads.
        unknown_fraction: of the tokens, those that training never showed.
        doubtful_labels: the indices of the texts whose labels seem to be wrong.
        cascade: the `gate`, and the `skipped_fraction` of the texts that skip the encoder.
        guarantees: not of the texts that they come from.
        linear_reference: the scores of the TF-IDF baseline as in JSON.
        num_refitted: how many texts held out for validation the linear classifier has learned from in the end.
        class_weights_note: that class weights would help.
    """

    split: str
    task: Task
    label_names: tuple[str, ...]
    metrics: Metrics
    parts: Mapping[str, PartScores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    worst_errors: list[Mistake]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...]
    cascade: Mapping[str, float] | None = None
    threshold: Threshold | None = None
    guarantees: MeasuredGuarantees | None = None
    linear_reference: Mapping[str, Any] | None = None
    num_refitted: int = 0
    class_weights_note: str = ""
    against: PairedComparison | None = None
    base_answers: BaseAnswers | None = None

    @property
    def scores(self) -> PartScores:
        """The scores of the classifier as it answers."""
        return self.parts[COMBINED]

    def _repr_html_(self) -> str:
        """The report in a notebook: what the terminal has, tables of classes folded."""
        from encoder_cls.evaluation.sections import detail_sections, size_note, summary_sections
        from encoder_cls.inference.html_pages import escaped

        parts = [f"<p><b>{escaped(self.split)}</b>: {escaped(size_note(self))}</p>"]
        for title, lines in summary_sections(self):
            parts.append(f"<h4>{escaped(title)}</h4><p>{'<br>'.join(map(escaped, lines))}</p>")
        for title, lines in detail_sections(self):
            if lines:
                table = escaped("\n".join(lines))
                parts.append(f"<details><summary>{escaped(title)}</summary><pre>{table}</pre></details>")
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the metrics are at the top level."""
        intervals = {key: it for key, it in self.scores.to_dict().items() if key.endswith("_interval")}
        return {
            "split": self.split,
            **({"task": self.task.name} if self.task is MULTI_LABEL else {}),
            **asdict(self.metrics),
            **intervals,
            "parts": {name: scores.to_dict() for name, scores in self.parts.items()},
            "comparison": asdict(self.comparison) if self.comparison else None,
            "mixture_shares": self.mixture_shares,
            "cascade": self.cascade,
            "linear_reference": self.linear_reference,
            "suggested_threshold": self.threshold and self.threshold.value,
            "answered_fraction": self.threshold and self.threshold.answered_fraction,
            "label_names": list(self.label_names),
            "num_refitted": self.num_refitted,
            "truncated_fraction": self.truncated_fraction,
            "unknown_fraction": self.unknown_fraction,
            "doubtful_labels": len(self.doubtful_labels),
            "promises": asdict(self.guarantees) if self.guarantees else None,
            "worst_errors": [error.to_dict() for error in self.worst_errors],
            "class_weights_note": self.class_weights_note,
            **({"against": self.against.to_dict()} if self.against else {}),
            **({"former": self.base_answers.to_dict()} if self.base_answers else {}),
        }


def evaluate(
    classifier: Classifier, split: Split, *, name: str, batch_tokens: int | None = None
) -> tuple[Report, Answered]:
    """Score a classifier on a split; also returns the answers that the report is made from.

    Labels are indices into the classifier's class names, then into those it has not seen.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    answered = (MultiLabelAnswers if classifier.task is MULTI_LABEL else Answered)(
        name=name,
        split=split,
        logits=classifier.combined(of_parts),
        label_names=(*classifier.label_names, *split.unseen_names),
        thresholds=tuple(classifier.thresholds),
    )
    parts, comparison = score_parts(_part_answers(classifier, answered, of_parts), answered.labels)
    guarantees = threshold = cascade = None
    if classifier.task is SINGLE_LABEL:
        is_right = answered.answers == answered.labels
        threshold = suggest_threshold(answered.probabilities.max(axis=1), is_right)
        if classifier.guarantees and name != "validation":  # that they were measured on
            guarantees = measure_guarantees(classifier.guarantees, answered.probabilities, split.labels)
    if classifier.gate is not None:
        skipped = float(classifier.skip_encoder(of_parts["linear"]).mean())
        cascade = {"gate": classifier.gate, "skipped_fraction": skipped}
    doubtful = doubtful_rows(answered.probabilities, split.labels)
    report = Report(
        split=name,
        task=classifier.task,
        label_names=answered.label_names,
        metrics=compute_metrics(answered.logits, answered.labels, answered.label_names, answered.thresholds),
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture_shares,
        worst_errors=_worst_mistakes(classifier, answered, tokenized, frozenset(doubtful)),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=doubtful,
        threshold=threshold,
        guarantees=guarantees,
        cascade=cascade,
    )
    return report, answered


def _part_answers(classifier: Classifier, answered: Answered, of_parts: Mapping[str, Logits]) -> dict[str, Any]:
    """The answers of the classifier and of each part alone, in the order in which reports name them."""
    if answered.thresholds:  # which are of calibrated logits
        shares = classifier.mixture_shares or dict.fromkeys(of_parts, 1.0)
        of_parts = parts_alone(of_parts, classifier.mixture_weights, [shares[part] for part in of_parts])
    alone = {part: answered.answers_of(of_parts[part]) for part in ("linear", "encoder") if part in of_parts}
    return {COMBINED: answered.answers, **alone}


def _worst_mistakes(
    classifier: Classifier, answered: Answered, tokenized: TokenizedTexts, doubtful: frozenset[int]
) -> list[Mistake]:
    """The most confident mistakes, explained as long as there is time for it."""
    worst = answered.worst_mistakes()
    # A text is read once for each of its words.
    lengths = tokenized.lengths[np.array([row for row, _ in worst], dtype=np.int64)]
    is_explained = np.cumsum(lengths**2) < MOST_EXPLAINED_TOKENS
    mistakes = []
    for (row, number), explained in zip(worst, is_explained, strict=True):
        text = [answered.split.texts[row]] if explained else []
        words = explain(classifier, text, tokenized[row : row + 1], [number] * len(text))
        mistakes.append(
            Mistake(
                text=answered.split.texts[row],
                where=answered.split.where[row],
                labelled=answered.names(answered.labels[row]),
                answer=answered.label_names[number],
                probability=float(answered.probabilities[row, number]),
                of_task=answered.comparison(row, number),
                likely_mislabelled=row in doubtful,
                words=words[0] if words else (),
            )
        )
    return mistakes


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold above which answers are right `WANTED_ACCURACY` of the time."""

    value: float | None  # the lowest such probability; 0 where all answers together are, None where too few are
    answered_fraction: float


def suggest_threshold(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> Threshold:
    """Find the lowest probability, in thousandths, from which `WANTED_ACCURACY` of the answers are right.

    Not more exactly, since it is shown: a number rounded afterwards would hold by chance only. None where fewer than
    `FEWEST_ANSWERS`, or fewer than `FEWEST_ANSWERED` of all texts, would be answered.
    """
    steps = np.arange(1000) / 1000
    num_answered, num_right = answers_from(steps, confidence, correct)
    are_right = num_right / np.maximum(1, num_answered) >= WANTED_ACCURACY
    fitting = np.flatnonzero(are_right & (num_answered >= max(FEWEST_ANSWERS, FEWEST_ANSWERED * len(correct))))
    value = float(steps[fitting[0]]) if len(fitting) else None
    return Threshold(value=value, answered_fraction=float((confidence >= (value or 0)).mean()))


def answers_from(
    thresholds: NDArray[np.float64], confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of texts that are answered from each threshold up, and of those answered right, (thresholds,)."""
    answered, right = (len(it) - np.searchsorted(np.sort(it), thresholds) for it in (confidence, confidence[correct]))
    return answered, right


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """A guaranteed precision and coverage, and those of other texts."""

    promised_precision: float  # 0 where none can be guaranteed
    threshold: float | None  # the probability from which texts are answered
    precision: float | None  # of these answers
    answered_fraction: float
    promised_coverage: float  # the fraction of the texts whose label is to be in their set of classes
    coverage: float | None
    mean_set_size: float | None

    def sentences(self) -> Iterator[str]:
        """The guarantees by option of `predict`."""
        if not self.promised_precision:
            yield "no precision can be guaranteed (--min-precision): there are too few held-out texts"
            return
        got = "no text is answered" if self.precision is None else (
            f"got {self.precision:.3f}, answers {self.answered_fraction:.0%}")  # fmt: skip
        is_lower = ", the highest that can be" if self.promised_precision < PRECISION else ""
        yield f"--min-precision {self.promised_precision:g}: guaranteed {self.promised_precision:g}{is_lower}, {got}"
        if self.coverage is not None:
            yield (
                f"--coverage {self.promised_coverage:g}: guaranteed {self.promised_coverage:g}, got "
                f"{self.coverage:.3f}, {self.mean_set_size:.1f} classes in a set"
            )


def measure_guarantees(
    guarantees: Guarantees, probabilities: NDArray[np.float64], labels: NDArray[np.int64]
) -> MeasuredGuarantees:
    """Measure guarantees on other texts than those that they come from; labels beyond the classes are mistakes."""
    precision = PRECISION
    threshold = guarantees.precision_threshold(precision)
    if threshold is None and guarantees.highest_precision < precision:
        precision = guarantees.highest_precision
        threshold = guarantees.precision_threshold(precision)
    confidence, best = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_answered = confidence >= (np.inf if threshold is None else threshold)
    coverage = min(COVERAGE, guarantees.highest_coverage)
    set_threshold = guarantees.coverage_threshold(coverage)
    sets = probabilities >= (np.inf if set_threshold is None else set_threshold)
    sets[np.arange(len(best)), best] = True
    is_known = labels < probabilities.shape[1]
    is_covered = np.zeros(len(labels), dtype=bool)
    is_covered[is_known] = sets[is_known, labels[is_known]]
    return MeasuredGuarantees(
        promised_precision=precision,
        threshold=threshold,
        precision=float((best == labels)[is_answered].mean()) if is_answered.any() else None,
        answered_fraction=float(is_answered.mean()),
        promised_coverage=coverage,
        coverage=None if set_threshold is None else float(is_covered.mean()),
        mean_set_size=None if set_threshold is None else float(sets.sum(axis=1).mean()),
    )
