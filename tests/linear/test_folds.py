"""Folds of cross-validation: each text is in one, with all of its group, and the linear classifier uses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoder_cls.config.loading import config_of
from encoder_cls.linear.calibration import FOLDS, first_held_out, folds
from encoder_cls.training.linear import fit_linear_classifier
from encoder_cls.training.prepare import prepare


@pytest.mark.parametrize("num_groups", [2, 6, 50, 900])
def test_folds_keep_groups_together(num_groups):
    """Each text is in one fold; folds are of about one size where groups are small."""
    groups = np.random.default_rng(0).integers(1, num_groups + 1, size=1000)
    found = folds(groups)
    assert sorted(np.concatenate(found).tolist()) == list(range(1000))
    members = [set(groups[fold].tolist()) for fold in found]
    assert sum(map(len, members)) == len(set(groups.tolist()))
    assert len(found) == min(FOLDS, num_groups)
    if num_groups >= 50:
        assert all(150 <= len(fold) <= 250 for fold in found)


def test_what_is_held_out_once_are_whole_groups():
    """As many texts as fit; those alone in the order given; large groups are learned from."""
    random = np.random.default_rng(0)
    order, groups = random.permutation(1000), random.integers(1, 300, size=1000)
    assert np.array_equal(
        np.flatnonzero(first_held_out(order, np.arange(1000), 50)), np.sort(order[:50])
    )
    groups[:400] = 0
    is_held_out = first_held_out(order, groups, 50)
    assert not set(groups[is_held_out]) & set(groups[~is_held_out])
    assert 45 <= is_held_out.sum() <= 50
    assert first_held_out(order, np.repeat([1, 2], 500), 50).sum() == 50


@pytest.mark.parametrize("few_labels", [False, True])
def test_the_linear_classifier_is_not_sure_of_what_is_repeated(few_labels):
    """Labels are drawn by lot, each text occurs five times: across groups, or equal texts, nothing can be learned."""
    random = np.random.default_rng(0)
    texts = [" ".join(map(str, random.integers(0, 30, size=6))) for _ in range(60)]
    rows = [(number, text, "xy"[random.integers(2)]) for number, text in enumerate(texts)] * 5
    for file, ends in (
        ("equal.csv", [" X", "  x"]),
        ("other.csv", [f" end{row}" for row in range(len(rows))]),
    ):
        lines = (
            f"{text}{ends[i % len(ends)]},{label},{number}"
            for i, (number, text, label) in enumerate(rows)
        )
        Path(file).write_text("\n".join(["text,label,customer", *lines]))
    values = {"name": "a", "model.encoder": False, "train.label_names_as_texts": few_labels}
    sure = []
    for file, column in (("other.csv", None), ("other.csv", "customer"), ("equal.csv", None)):
        data = {"data.train": file, "data.validation": file, "data.group_column": column}
        setup = prepare(config_of(values | data, source="test"))
        assert (setup.plan.linear_fit == "few_labels") == few_labels
        classifier = fit_linear_classifier(setup).classifier.linear
        sure.append(np.abs(np.diff(classifier.logits(setup.train_texts), axis=1)).mean())
    assert sure[0] > 3 * max(sure[1:])
