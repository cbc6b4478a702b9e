"""Find classes whose texts the classifier cannot tell apart: they may be one class."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from encoder_cls.metrics.classification import Confusion, Metrics, SingleLabelMetrics
from encoder_cls.metrics.intervals import lower_bound
from encoder_cls.system.display import shown
from encoder_cls.system.json_values import json_text

# More than this share of the texts of the first class surely get the label of the second one.
MIN_SHARE = 0.2
# The probability that a pair of any classes is named by chance.
ERROR = 0.05
# This share, divided by the share of the texts of the second class that get their label: the
# classifier tells the two classes apart if the ratio is not above this one.
TOLD_APART = 0.8
# The share of the texts of all further classes that get the label of the second class, divided by
# that of the first class: the label is a matter of these two classes only if the ratio is not above
# this one. A model that has learned little gives one label to the texts of all classes.
GIVEN_TO_OTHERS = 0.5
MAX_PAIRS = 3


def indistinct_classes(metrics: Metrics, *, independent: float = 1.0) -> list[Confusion]:
    """The pairs of classes that cannot be told apart, those with most texts first.

    Texts of the first class get the second label nearly as often as its own texts, and much more
    often than those of further classes. Without further classes there are no pairs, and none in a
    multi-label task. `independent` is the share of independent texts.
    """
    if not isinstance(metrics, SingleLabelMetrics) or len(metrics.per_class) <= 2:
        return []

    # The more classes there are, the more texts a pair needs: of 1,000 classes, some have three
    # texts that all get one other label by chance.
    confidence = 1 - ERROR / len(metrics.per_class)
    pairs = []
    named: set[str] = set()
    for pair in metrics.most_confused:
        recall = metrics.per_class[pair.prediction].recall
        num_texts = metrics.per_class[pair.label].support
        if recall is None or pair.label in named:
            continue

        share = pair.count / num_texts
        lowest = lower_bound(
            np.array(pair.count * independent),
            np.array(num_texts * independent),
            confidence=confidence,
        )
        is_indistinct = lowest > MIN_SHARE and share > TOLD_APART * recall
        if is_indistinct and _share_of_others(metrics, pair) <= GIVEN_TO_OTHERS * share:
            pairs.append(pair)
            named.update((pair.label, pair.prediction))
    return pairs


def _share_of_others(metrics: SingleLabelMetrics, pair: Confusion) -> float:
    """The share of the texts of further classes that get the second label of a pair.

    Only the most frequent mistakes are counted, so it may be a little too low.
    """
    num_texts = 0
    for label, class_metrics in metrics.per_class.items():
        if label not in (pair.label, pair.prediction):
            num_texts += class_metrics.support
    if num_texts == 0:
        return 0.0

    num_predicted = 0
    for confusion in metrics.most_confused:
        if confusion.prediction == pair.prediction and confusion.label != pair.label:
            num_predicted += confusion.count
    return num_predicted / num_texts


def indistinct_sentences(metrics: Metrics, *, independent: float = 1.0) -> Iterator[str]:
    """Name the classes, each with the setting that joins them."""
    for pair in indistinct_classes(metrics, independent=independent)[:MAX_PAIRS]:
        num_texts = metrics.per_class[pair.label].support
        setting = f"data.label_map={json_text({pair.label: pair.prediction})}"
        yield (
            f"texts of {shown(pair.label)} cannot be told from those of {shown(pair.prediction)} "
            f"({pair.count:,} of {num_texts:,} are taken for it): if both are one class, train "
            f"with --set {shlex.quote(setting)}; else label more of them"
        )
