"""Labelled examples in, `Metrics` and a `Report` out.

Every report sets the classifier beside a linear model on TF-IDF that was trained on the same texts, so that
a person sees whether it earns its keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from encoder_cls.data.split import Split
from encoder_cls.evaluation.kept_promises import keep_promises
from encoder_cls.evaluation.label_check import LabelCheck, check_labels
from encoder_cls.evaluation.metrics import answers, compute_metrics
from encoder_cls.evaluation.multi_label_evaluate import multi_label_report
from encoder_cls.evaluation.parts import score_parts
from encoder_cls.evaluation.report import AnyReport, Report, WrongExample, suggest_threshold
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.inference.tasks import MULTI_LABEL
from encoder_cls.text.token_arrays import TokenizedTexts

WORST_ERRORS = 20  # kept in a report
MOST_EXPLAINED_TOKENS = 400_000  # read to explain them: some seconds


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    reference: dict[str, Any] | None,
    batch_tokens: int | None = None,
    after_batch: Callable[[], None] | None = None,
) -> tuple[AnyReport, Logits]:
    """Score a classifier on a split.

    Args:
        classifier: the classifier.
        split: the examples; labels are indices into the classifier's class names, then into those it has not seen.
        name: what to call the split in the report.
        reference: what `linear_reference` says of the split; multi-label `multi_label_reference`.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        after_batch: called after each batch; what it raises ends the work.

    Returns:
        The report and the logits, (texts, classes), from which it was made.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens, after_batch=after_batch)
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
