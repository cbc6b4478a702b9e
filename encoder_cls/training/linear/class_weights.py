"""Check by cross-validation whether balanced class weights would help."""

from __future__ import annotations

import numpy as np

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.scores import macro_f1_interval, score_answers
from encoder_cls.inference.task import SINGLE_LABEL
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.features import Reading
from encoder_cls.training.linear.svm import out_of_fold_logits
from encoder_cls.training.prepared import balanced_weights

SKEWED = 3.0  # times as many texts has the largest class as the smallest: below that weights are nearly equal
MOST_TEXTS, MOST_WORK = 4000, 30_000  # that are read, and texts times classes: a second or two
PENALTY = 1.0


def class_weights_note(train: Split, texts: TokenizedTexts, *, max_tokens: int, use_char_ngrams: bool) -> str:
    """Say what `train.class_weights=balanced` would bring; nothing where it would not help by more than chance.

    The linear classifier is cross-validated with and without: it helps where the 95% interval of the difference of
    macro-F1, in which each class counts as much, is above zero.
    """
    sizes = np.bincount(train.labels)
    if sizes.max() < SKEWED * sizes.min():
        return ""
    most = min(MOST_TEXTS, MOST_WORK // SINGLE_LABEL.num_one_vs_rest(len(sizes)))
    if len(train) > most:
        rows = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
        train, texts = train.subset(rows), texts.take(rows)
    weights = (np.ones(len(sizes), dtype=np.float32), balanced_weights(sizes))
    readings = [Reading(max_tokens, use_char_ngrams, it) for it in weights]
    logits = out_of_fold_logits(texts, train.labels, readings, together=train.together, penalty=PENALTY)
    plain, balanced = (it.argmax(axis=1) for it in logits)
    if macro_f1_interval(train.labels, balanced, plain)[0] <= 0:
        return ""
    before, after = (score_answers(answers, train.labels) for answers in (plain, balanced))
    return (
        f"classes are skewed ({sizes.min():,} to {sizes.max():,} texts), and --set train.class_weights=balanced may "
        f"help the rare ones: macro-F1 {before.macro_f1:.1%} -> {after.macro_f1:.1%}, accuracy {before.score:.1%} "
        f"-> {after.score:.1%} (linear model, cross-validation)"
    )
