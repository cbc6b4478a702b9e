"""Examples with several labels each in, their `MultiLabelReport` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.split import Split
from encoder_cls.evaluation.label_check import LabelCheck, check_several_labels
from encoder_cls.evaluation.multi_label_metrics import answers_of, compute_multi_label_metrics
from encoder_cls.evaluation.multi_label_parts import parts_alone, score_multi_label_parts
from encoder_cls.evaluation.multi_label_report import MultiLabelReport, WrongLabel
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.logits import Logits, sigmoid
from encoder_cls.text.token_arrays import TokenizedTexts

WORST_ERRORS = 20  # kept in a report
MOST_EXPLAINED_TOKENS = 400_000  # read to explain them: some seconds


def multi_label_report(
    classifier: Classifier,
    split: Split,
    tokenized: TokenizedTexts,
    of_parts: Mapping[str, Logits],
    *,
    name: str,
    reference: dict[str, Any] | None,
) -> MultiLabelReport:
    """What the logits of a classifier's parts are worth on a split.

    Args:
        classifier: the classifier.
        split: the examples.
        tokenized: their texts.
        of_parts: the logits, by part.
        name: what to call the split.
        reference: what `multi_label_reference` says of it.
    """
    logits, thresholds = classifier.combined(of_parts), classifier.thresholds
    label_names = (*classifier.label_names, *split.unseen_names)
    labels = np.pad(split.labels, ((0, 0), (0, len(label_names) - split.labels.shape[1])))
    shares = classifier.mixture_shares or dict.fromkeys(of_parts, 1.0)
    alone = parts_alone(of_parts, classifier.mixture_weights, [shares[part] for part in of_parts])
    parts, comparison = score_multi_label_parts(logits, alone, labels, thresholds)
    label_check = check_several_labels(sigmoid(logits), split.labels)
    answers = answers_of(logits, thresholds, num_labels=len(label_names))
    return MultiLabelReport(
        split=name,
        label_names=label_names,
        metrics=compute_multi_label_metrics(logits, labels, label_names, thresholds),
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture_shares,
        linear_reference=reference,
        worst_errors=_worst_errors(classifier, split, label_names, logits, answers, tokenized, label_check),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=label_check.doubtful,
        label_check_note=label_check.note,
    )


def _worst_errors(
    classifier: Classifier,
    split: Split,
    names: Sequence[str],
    logits: Logits,
    answers: NDArray[np.bool_],
    tokenized: TokenizedTexts,
    label_check: LabelCheck,
) -> list[WrongLabel]:
    """The most confident mistakes, with what the words did as long as there is time for it."""
    known = split.labels[:, : logits.shape[1]] > 0
    probabilities = sigmoid(logits)
    rows, labels = _surest(answers[:, : logits.shape[1]] != known, known, probabilities)
    # A text is read once for each of its words.
    is_explained = np.cumsum(tokenized.lengths[rows] ** 2) < MOST_EXPLAINED_TOKENS
    return [
        WrongLabel(
            text=split.texts[row],
            where=split.where[row],
            labels=tuple(names[it] for it in np.flatnonzero(split.labels[row]).tolist()),
            predictions=tuple(names[it] for it in np.flatnonzero(answers[row]).tolist()),
            label=names[label],
            is_missed=bool(known[row, label]),
            probability=float(probabilities[row, label]),
            likely_mislabelled=None if label_check.doubtful is None else row in label_check.doubtful,
            words=explain(classifier, [split.texts[row]], tokenized.take_one(row), [label])[0] if explained else (),
        )
        for row, label, explained in zip(rows, labels, is_explained, strict=True)
    ]


def _surest(
    is_wrong: NDArray[np.bool_], is_missed: NDArray[np.bool_], probabilities: NDArray[np.float64]
) -> tuple[list[int], list[int]]:
    """The texts and the labels of the most confident mistakes, the surest first; all arrays are (texts, labels).

    Half of them are labels that were missed, as long as there are so many of both: of most labels a classifier is
    nearly sure that a text has them not, and these would fill the list.
    """
    confidence = np.where(is_wrong, np.abs(is_missed - probabilities), -1.0).ravel()
    order = np.argsort(-confidence, kind="stable")[: int(is_wrong.sum())]
    of_missed = is_missed.ravel()[order]
    rank_of_kind = np.where(of_missed, np.cumsum(of_missed), np.cumsum(~of_missed))
    chosen = order[np.sort(np.argsort(rank_of_kind, kind="stable")[:WORST_ERRORS])]
    rows, labels = np.unravel_index(chosen, is_wrong.shape)
    return rows.tolist(), labels.tolist()
