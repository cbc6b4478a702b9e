"""Evaluate a classifier on labelled texts.

Every report sets the classifier beside a linear model on TF-IDF that was trained on the same texts, so that
a person sees whether it earns its keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.split import Split
from encoder_cls.evaluation.labels import LabelCheck, check_labels, check_several_labels
from encoder_cls.evaluation.metrics import answers, answers_of, compute_metrics, compute_multi_label_metrics
from encoder_cls.evaluation.report import (
    AnyReport,
    MultiLabelReport,
    Report,
    WrongExample,
    WrongLabel,
    suggest_threshold,
)
from encoder_cls.evaluation.scores import keep_promises, parts_alone, score_multi_label_parts, score_parts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.task import MULTI_LABEL, Logits, sigmoid, softmax
from encoder_cls.text.tokens import TokenizedTexts

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
        worst_errors=_worst_multi_label_errors(classifier, split, label_names, logits, answers, tokenized, label_check),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=label_check.doubtful,
        label_check_note=label_check.note,
    )


def _worst_multi_label_errors(
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


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    reference: dict[str, Any] | None,
    batch_tokens: int | None = None,
) -> tuple[AnyReport, Logits]:
    """Score a classifier on a split.

    Args:
        classifier: the classifier.
        split: the examples; labels are indices into the classifier's class names, then into those it has not seen.
        name: what to call the split in the report.
        reference: what `linear_reference` says of the split; multi-label `multi_label_reference`.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.

    Returns:
        The report and the logits, (texts, classes), from which it was made.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    logits = classifier.combined(of_parts)
    if classifier.task is MULTI_LABEL:
        return multi_label_report(classifier, split, tokenized, of_parts, name=name, reference=reference), logits
    kept = None
    if classifier.promises and name != "validation":  # on which they were made
        kept = keep_promises(classifier.promises, softmax(logits), split.labels)
    parts, comparison = score_parts(logits, of_parts, split.labels)
    confidence, correct = answers(logits, split.labels)
    threshold = suggest_threshold(confidence, correct)
    label_names = (*classifier.label_names, *split.unseen_names)
    label_check = check_labels(softmax(logits), split.labels)
    report = Report(
        split=name,
        label_names=label_names,
        metrics=compute_metrics(logits, split.labels, label_names),
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture_shares,
        linear_reference=reference,
        suggested_threshold=threshold,
        answered_fraction=float((confidence >= (threshold or 0)).mean()),
        worst_errors=_worst_errors(classifier, split, label_names, logits, tokenized, label_check),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=label_check.doubtful,
        label_check_note=label_check.note,
        kept_promises=kept,
    )
    return report, logits


def _worst_errors(
    classifier: Classifier,
    split: Split,
    names: Sequence[str],
    logits: Logits,
    tokenized: TokenizedTexts,
    label_check: LabelCheck,
) -> list[WrongExample]:
    """The most confident mistakes, with what their words did as long as there is time for it."""
    probabilities = softmax(logits)
    predictions = logits.argmax(axis=1)
    wrong = np.flatnonzero(predictions != split.labels)
    worst = wrong[np.argsort(-probabilities[wrong, predictions[wrong]], kind="stable")][:WORST_ERRORS]
    # A text is read once for each of its words.
    is_explained = np.cumsum(tokenized.lengths[worst] ** 2) < MOST_EXPLAINED_TOKENS
    return [
        WrongExample(
            text=split.texts[i],
            where=split.where[i],
            label=names[split.labels[i]],
            prediction=names[predictions[i]],
            probability=float(probabilities[i, predictions[i]]),
            likely_mislabelled=None if label_check.doubtful is None else int(i) in label_check.doubtful,
            words=explain(classifier, [split.texts[i]], tokenized.take_one(i), [predictions[i]])[0]
            if explained
            else (),
        )
        for i, explained in zip(worst, is_explained, strict=True)
    ]
