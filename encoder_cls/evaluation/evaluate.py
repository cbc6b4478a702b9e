"""Evaluate a classifier on labelled texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.answers import ANSWERS, Answered, Mistake
from encoder_cls.evaluation.guarantees import measure_guarantees
from encoder_cls.evaluation.labels import doubtful_rows
from encoder_cls.evaluation.metrics import compute_metrics
from encoder_cls.evaluation.report import Report, suggest_threshold
from encoder_cls.evaluation.scores import COMBINED, parts_alone, score_parts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.task import SINGLE_LABEL, Logits
from encoder_cls.text.tokens import TokenizedTexts

MOST_EXPLAINED_TOKENS = 400_000  # read to explain mistakes: some seconds


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    reference: Mapping[str, Any] | None,
    batch_tokens: int | None = None,
) -> tuple[Report, Answered]:
    """Score a classifier on a split.

    Args:
        classifier: the classifier.
        split: labels are indices into the classifier's class names, then into those it has not seen.
        name: of the split in the report.
        reference: the scores of the TF-IDF baseline on the split.
        batch_tokens: the most tokens in a batch; None: what the device is fast with.

    Returns:
        The report and the answers that it is made from.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens)
    answered = ANSWERS[classifier.task.name](
        name=name,
        split=split,
        logits=classifier.combined(of_parts),
        label_names=(*classifier.label_names, *split.unseen_names),
        thresholds=tuple(classifier.thresholds),
    )
    is_single = classifier.task is SINGLE_LABEL
    parts, comparison = score_parts(_part_answers(classifier, answered, of_parts), answered.labels)
    guarantees = threshold = None
    if is_single:
        is_right = answered.answers == answered.labels
        threshold = suggest_threshold(answered.probabilities.max(axis=1), is_right)
    if is_single and classifier.guarantees and name != "validation":  # that they were measured on
        guarantees = measure_guarantees(classifier.guarantees, answered.probabilities, split.labels)
    doubtful = doubtful_rows(answered.probabilities, split.labels)
    report = Report(
        split=name,
        task=classifier.task,
        label_names=answered.label_names,
        metrics=compute_metrics(answered.logits, answered.labels, answered.label_names, answered.thresholds),
        parts=parts,
        comparison=comparison,
        mixture_shares=classifier.mixture_shares,
        linear_reference=reference,
        worst_errors=_worst_mistakes(classifier, answered, tokenized, frozenset(doubtful)),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
        doubtful_labels=doubtful,
        threshold=threshold,
        guarantees=guarantees,
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
    found = []
    for (row, number), explained in zip(worst, is_explained, strict=True):
        text = [answered.split.texts[row]] if explained else []
        words = explain(classifier, text, tokenized[row : row + 1], [number] * len(text))
        mistake = answered.mistake(row, number)
        found.append(replace(mistake, likely_mislabelled=row in doubtful, words=words[0] if words else ()))
    return found
