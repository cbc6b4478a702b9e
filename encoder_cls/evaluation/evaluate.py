"""Labelled examples in, `Metrics` and a `Report` out.

Every report sets the classifier beside a linear model on TF-IDF that was trained on the same texts, so that
a person sees whether it earns its keep.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.metrics import answers, compute_metrics
from encoder_cls.evaluation.parts import score_parts
from encoder_cls.evaluation.report import Report, WrongExample, suggest_threshold
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.explain import explain
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.text.token_arrays import TokenizedTexts

WORST_ERRORS = 20  # kept in a report
MOST_EXPLAINED_TOKENS = 400_000  # read to explain them: some seconds


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    reference: dict[str, float] | None,
    batch_tokens: int | None = None,
    after_batch: Callable[[], None] | None = None,
) -> tuple[Report, Logits]:
    """Score a classifier on a split.

    Args:
        classifier: the classifier.
        split: the examples; labels are indices into the classifier's class names, then into those it has not seen.
        name: what to call the split in the report.
        reference: what `linear_reference` says of the split.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        after_batch: called after each batch; what it raises ends the work.

    Returns:
        The report and the logits, (texts, classes), from which it was made.
    """
    tokenized = classifier.tokenize(split.texts)
    of_parts = classifier.part_logits(tokenized, batch_tokens=batch_tokens, after_batch=after_batch)
    logits = classifier.combined(of_parts)
    parts, comparison = score_parts(logits, of_parts, split.labels)
    confidence, correct = answers(logits, split.labels)
    threshold = suggest_threshold(confidence, correct)
    label_names = (*classifier.label_names, *split.unseen_names)
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
        worst_errors=_worst_errors(classifier, split, label_names, logits, tokenized),
        truncated_fraction=float(classifier.truncated(tokenized).mean()),
        unknown_fraction=tokenized.unknown_fraction,
    )
    return report, logits


def _worst_errors(
    classifier: Classifier, split: Split, names: Sequence[str], logits: Logits, tokenized: TokenizedTexts
) -> list[WrongExample]:
    """The most confident mistakes, with what their words did as long as there is time for it."""
    probabilities = softmax(logits)
    predictions = logits.argmax(axis=1)
    wrong = np.flatnonzero(predictions != split.labels)
    worst = wrong[np.argsort(-probabilities[wrong, predictions[wrong]], kind="stable")][:WORST_ERRORS]
    # A text is read once for each of its words.
    is_explained = np.cumsum(tokenized.lengths[worst] ** 2) < MOST_EXPLAINED_TOKENS
    mislabelled = _likely_mislabelled(probabilities, split.labels)
    return [
        WrongExample(
            text=split.texts[i],
            where=split.where[i],
            label=names[split.labels[i]],
            prediction=names[predictions[i]],
            probability=float(probabilities[i, predictions[i]]),
            likely_mislabelled=None if mislabelled is None else bool(mislabelled[i]),
            words=explain(classifier, [split.texts[i]], tokenized.take_one(i), [predictions[i]])[0]
            if explained
            else (),
        )
        for i, explained in zip(worst, is_explained, strict=True)
    ]


def _likely_mislabelled(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Which labels cleanlab takes for wrong; none where it is not installed, or cannot tell.

    Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021), https://arxiv.org/abs/1911.00068.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return None
    is_known = labels < probabilities.shape[1]  # of a label without a probability it can say nothing
    occurring = np.unique(labels[is_known])  # it needs each class to occur
    if len(occurring) < 2:
        return None
    given = probabilities[np.ix_(is_known, occurring)]
    given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-12)
    is_mislabelled = np.zeros(len(labels), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes of few texts, which it leaves alone
        is_mislabelled[is_known] = find_label_issues(np.searchsorted(occurring, labels[is_known]), given, n_jobs=1)
    return is_mislabelled
