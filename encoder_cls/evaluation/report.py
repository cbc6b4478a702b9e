"""The report of an evaluation: a classifier scored on the labelled texts of a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explain import explain
from encoder_cls.classifier.guarantees import Guarantees, counts_from
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.comparisons import (
    COMBINED,
    BaseAnswers,
    Comparison,
    PairedComparison,
    Scores,
    score_parts,
)
from encoder_cls.evaluation.held_out_answers import OwnAnswers
from encoder_cls.evaluation.mistakes import Answered, Mistake, doubtful_rows
from encoder_cls.metrics.classification import Metrics, compute_metrics, parts_alone
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.text.tokens import TokenizedTexts

WANTED_ACCURACY = 0.95  # of the answers above the suggested threshold
FEWEST_ANSWERS, FEWEST_ANSWERED = 20, 0.05  # above it, and their fraction of all texts
PRECISION, COVERAGE = 0.95, 0.9  # guarantees that a report measures, or the highest possible ones
MOST_EXPLAINED_TOKENS = 400_000  # read to explain mistakes: some seconds


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of an evaluation, single-label or multi-label; what does not apply is None.

    Attributes:
        answered: the answers that the report is made from, with their texts.
        parts: the scores of the classifier, `combined`, and of its parts `linear` and `encoder` alone.
        truncated_fraction: the fraction of texts longer than the encoder, else the linear part, reads.
        unknown_fraction: the fraction of tokens that never occur in training.
        doubtful_labels: the indices of the texts whose labels seem to be wrong.
        cascade: the `gate`, and the `skipped_fraction` of the texts that skip the encoder.
        answered_fraction: the fraction of texts answered above the suggested threshold.
        guarantees: None on the texts that they were made from.
        linear_reference: the scores of the TF-IDF baseline.
        num_refitted: the number of texts held out for validation that the final linear classifier has learned from.
        class_weights_note: a sentence if class weights would help.
    """

    answered: Answered = field(repr=False, compare=False)
    metrics: Metrics
    parts: Mapping[str, Scores]
    comparison: Comparison | None
    mixture_shares: Mapping[str, float] | None
    worst_errors: list[Mistake]
    truncated_fraction: float
    unknown_fraction: float
    doubtful_labels: tuple[int, ...]
    cascade: Mapping[str, float] | None = None
    suggested_threshold: float | None = None
    answered_fraction: float | None = None
    guarantees: MeasuredGuarantees | None = None
    linear_reference: Mapping[str, Any] | None = None
    num_refitted: int = 0
    class_weights_note: str = ""
    against: PairedComparison | None = None
    base_answers: BaseAnswers | None = None

    @property
    def split(self) -> str:
        """`test`, `validation` or a file."""
        return self.answered.name

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classes, then the labels that never occur in the training data."""
        return self.answered.label_names

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.answered.split.is_multi_label

    @property
    def scores(self) -> Scores:
        """The scores of the classifier as it answers."""
        return self.parts[COMBINED]

    def _repr_html_(self) -> str:
        """The report in a notebook: as in a terminal, with the tables folded."""
        from encoder_cls.classifier.html_pages import escaped
        from encoder_cls.evaluation.report_text import detail_sections, full_text

        page = f'<pre style="white-space: pre-wrap">{escaped(full_text(self, with_tables=False))}</pre>'
        for title, lines in detail_sections(self).items():
            table = escaped("\n".join(lines))
            page += f"\n<details><summary>{escaped(title)}</summary><pre>{table}</pre></details>"
        return page

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the metrics are at the top level."""
        intervals = {key: it for key, it in self.scores.items() if key.endswith("_interval")}
        return {
            "split": self.split,
            **({"task": MULTI_LABEL.name} if self.is_multi_label else {}),
            **asdict(self.metrics),
            **intervals,
            "parts": self.parts,
            "comparison": asdict(self.comparison) if self.comparison else None,
            "mixture_shares": self.mixture_shares,
            "cascade": self.cascade,
            "linear_reference": self.linear_reference,
            "suggested_threshold": self.suggested_threshold,
            "answered_fraction": self.answered_fraction,
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
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    batch_tokens: int | None = None,
    own: OwnAnswers | None = None,
) -> Report:
    """Score a classifier on a split, whose labels are indices into the class names, then into its unseen names.

    `own` are the earlier answers of the classifier's run to its own validation texts.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    if own:
        of_parts = own.in_place_of(of_parts, split)
    answered = Answered(
        name=name,
        split=split,
        logits=classifier.combined(of_parts),
        label_names=(*classifier.label_names, *split.unseen_names),
        thresholds=tuple(classifier.thresholds),
    )
    cascade = guarantees = threshold = answered_fraction = None
    if classifier.gate is not None:
        skipped = float(classifier.skip_encoder(of_parts["linear"]).mean())
        cascade = {"gate": classifier.gate, "skipped_fraction": skipped}
    if answered.thresholds:  # which are of calibrated logits
        shares = classifier.mixture_shares or dict.fromkeys(of_parts, 1.0)
        of_parts = parts_alone(
            of_parts, classifier.mixture_weights, [shares[part] for part in of_parts]
        )
    else:
        is_right = answered.answers == answered.labels
        threshold, answered_fraction = suggest_threshold(
            answered.probabilities.max(axis=1), is_right
        )
        if classifier.guarantees and name != "validation":  # which they come from
            guarantees = measure_guarantees(
                classifier.guarantees, answered.probabilities, split.labels
            )
    answers = {COMBINED: answered.answers}
    answers |= {
        part: answered.answers_of(of_parts[part])
        for part in ("linear", "encoder")
        if part in of_parts
    }
    parts, comparison = score_parts(answers, answered.labels)
    doubtful = doubtful_rows(answered.probabilities, split.labels)
    return Report(
        answered=answered,
        metrics=compute_metrics(
            answered.logits, answered.labels, answered.label_names, answered.thresholds
        ),
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture_shares,
        worst_errors=_worst_mistakes(classifier, answered, tokenized, frozenset(doubtful)),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=doubtful,
        cascade=cascade,
        suggested_threshold=threshold,
        answered_fraction=answered_fraction,
        guarantees=guarantees,
    )


def _worst_mistakes(
    classifier: Classifier, answered: Answered, tokenized: TokenizedTexts, doubtful: frozenset[int]
) -> list[Mistake]:
    """The most confident mistakes, the first of them explained."""
    worst = answered.worst_mistakes()
    rows = np.array([row for row, _ in worst], dtype=np.int64)
    # A text is read once for each of its words.
    num_explained = int((np.cumsum(tokenized.lengths[rows] ** 2) < MOST_EXPLAINED_TOKENS).sum())
    texts = [answered.split.texts[row] for row, _ in worst]
    answers = [answered.label_names[number] for _, number in worst]
    explained = tokenized.take(rows[:num_explained])
    words = explain(classifier, texts[:num_explained], explained, answers[:num_explained])
    return [
        Mistake(
            text=text,
            where=answered.split.where[row],
            labelled=answered.names(answered.labels[row]),
            answer=answer,
            probability=float(answered.probabilities[row, number]),
            of_task=answered.comparison(row, number),
            likely_mislabelled=row in doubtful,
            words=of_text or (),
        )
        for (row, number), text, answer, of_text in zip_longest(worst, texts, answers, words)
    ]


def suggest_threshold(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_]
) -> tuple[float | None, float]:
    """The lowest probability from which `WANTED_ACCURACY` of the answers are right, and their fraction of all.

    It is in thousandths, as shown: rounded afterwards, it might no longer hold. It is None, and the fraction 1, where
    fewer than `FEWEST_ANSWERS`, or than `FEWEST_ANSWERED` of all texts, would be answered.
    """
    steps = np.arange(1000) / 1000
    num_answered, num_right = (counts_from(steps, it) for it in (confidence, confidence[correct]))
    are_right = num_right / np.maximum(1, num_answered) >= WANTED_ACCURACY
    fitting = np.flatnonzero(
        are_right & (num_answered >= max(FEWEST_ANSWERS, FEWEST_ANSWERED * len(correct)))
    )
    value = float(steps[fitting[0]]) if len(fitting) else None
    return value, float((confidence >= (value or 0)).mean())


@dataclass(frozen=True, kw_only=True)
class MeasuredGuarantees:
    """A guaranteed precision and coverage, and those measured on other texts."""

    promised_precision: float  # 0 where none can be guaranteed
    threshold: float | None  # the probability from which texts are answered
    precision: float | None  # of these answers
    answered_fraction: float
    promised_coverage: float  # the fraction of texts whose set of classes has their label
    coverage: float | None
    mean_set_size: float | None

    def sentences(self) -> Iterator[str]:
        """One sentence for each option of `predict`."""
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
    """Measure guarantees on texts other than those that they come from; labels beyond the classes are mistakes."""
    precision, coverage = (
        min(PRECISION, guarantees.highest_precision),
        min(COVERAGE, guarantees.highest_coverage),
    )
    threshold = guarantees.precision_threshold(precision)
    confidence, answers = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_answered = confidence >= (np.inf if threshold is None else threshold)
    set_threshold = guarantees.coverage_threshold(coverage)
    # The answer is always in the set.
    sets = (probabilities >= (set_threshold or 0)) | (
        np.arange(probabilities.shape[1]) == answers[:, None]
    )
    has_label = np.arange(probabilities.shape[1]) == labels[:, None]
    return MeasuredGuarantees(
        promised_precision=precision,
        threshold=threshold,
        precision=float((answers == labels)[is_answered].mean()) if is_answered.any() else None,
        answered_fraction=float(is_answered.mean()),
        promised_coverage=coverage,
        coverage=None if set_threshold is None else float((sets & has_label).any(axis=1).mean()),
        mean_set_size=None if set_threshold is None else float(sets.sum(axis=1).mean()),
    )
