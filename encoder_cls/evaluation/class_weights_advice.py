"""Advise `train.class_weights=balanced` where classes are skewed and it would surely help."""

from __future__ import annotations

import numpy as np

from encoder_cls.data.dataset import Split
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.class_weights import balanced_weights
from encoder_cls.linear_training.cost import COUNTING_WORK
from encoder_cls.linear_training.features import LinearOptions
from encoder_cls.linear_training.model_selection import out_of_fold_logits
from encoder_cls.metrics.intervals import macro_f1_interval
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import SINGLE_LABEL
from encoder_cls.text.tokens import TokenizedTexts, drawn_rows

# The minimum ratio of the sizes of the largest and the smallest class for which the test is made.
# With a lower ratio, balanced weights are nearly equal.
MIN_SKEW = 3.0

# The maximum number of texts in the test, and of the work of their tokens, to be counted and to be
# learned by each classifier, so that it takes some seconds: five to eight with 2 to 77 classes, and
# with texts of 20 or 190 words.
MAX_TEXTS = 4000
MAX_WORK = 1_000_000

# The C of the models that are compared.
COMPARED_C = 1.0


def class_weights_note(train: Split, texts: TokenizedTexts, linear: LinearModel) -> str:
    """Say how much balanced weights would improve macro-F1 and accuracy; empty if not surely.

    Models with the kinds of features of `linear` are cross-validated; it is sure if the 95%
    interval of the difference of macro-F1 lies above zero.
    """
    sizes = np.bincount(train.labels)
    if sizes.max() < MIN_SKEW * sizes.min():
        return ""

    # Draw some of the texts. Fewer texts than classes would show nothing.
    lengths = texts.lengths_within(linear.max_tokens)
    work_of_token = COUNTING_WORK + SINGLE_LABEL.num_one_vs_rest(len(sizes))
    rows = np.sort(drawn_rows(lengths, int(MAX_WORK / work_of_token))[:MAX_TEXTS])
    if len(rows) < len(sizes):
        return ""
    train = train.subset(rows)
    texts = texts.take(rows)

    # Predict these texts out of fold, with equal and with balanced weights.
    equal_weights = np.ones(len(sizes), dtype=np.float32)
    options = [
        LinearOptions.like(linear, equal_weights),
        LinearOptions.like(linear, balanced_weights(sizes)),
    ]
    logits = out_of_fold_logits(
        texts, train.labels, options, split_groups=train.split_groups, svm_c=COMPARED_C
    )
    plain = logits[0].argmax(axis=1)
    balanced = logits[1].argmax(axis=1)

    gain = macro_f1_interval(train.labels, balanced, RowGroups(train.split_groups), plain)
    if gain is None or gain[0] <= 0:
        return ""

    macro_f1 = _change(
        ClassCounts.of(plain, train.labels).macro_f1,
        ClassCounts.of(balanced, train.labels).macro_f1,
    )
    accuracy = _change((plain == train.labels).mean(), (balanced == train.labels).mean())
    return (
        f"classes are skewed ({sizes.min():,} to {sizes.max():,} texts), and "
        f"--set train.class_weights=balanced may help the rare ones: macro-F1 {macro_f1}, "
        f"accuracy {accuracy} (linear model, cross-validation)"
    )


def _change(before: float, after: float) -> str:
    return f"{before:.1%} -> {after:.1%}"
