"""Folds of cross-validation: each text is in one, with all of its group, and the linear classifier uses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoder_cls.config import config_of
from encoder_cls.data.holdout import NO_GROUP
from encoder_cls.training.folds import FOLDS, all_folds, folds
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.prepare import prepare


@pytest.mark.parametrize("num_groups", [2, 6, 50, 900])
def test_folds_keep_groups_together(num_groups):
    """Each text is in one fold; folds are of about one size where groups are small."""
    groups = np.random.default_rng(0).integers(1, num_groups + 1, size=1000)
    found = all_folds(1000, groups)
    assert sorted(np.concatenate(found).tolist()) == list(range(1000))
    members = [set(groups[fold].tolist()) for fold in found]
    assert sum(map(len, members)) == len(set(groups.tolist()))
    assert len(found) == min(FOLDS, num_groups)
    if num_groups >= 50:
        assert all(150 <= len(fold) <= 250 for fold in found)


def test_folds_without_groups_are_those_there_were():
    """One group of all, or each text alone: as without groups at all, the former since nothing can be held out."""
    plain = folds(100)
    expected = np.array_split(np.random.default_rng(0).permutation(100), FOLDS)
    assert [fold.tolist() for fold in plain] == [fold.tolist() for fold in expected]
    assert [fold.tolist() for fold in folds(100, np.full(100, 5))] == [fold.tolist() for fold in plain]
    assert len(folds(100, np.full(100, NO_GROUP))) == FOLDS
    nearly_all = np.append(np.full(99, 5), 6)
    assert sorted(map(len, folds(100, nearly_all))) == [1, 99]


@pytest.mark.parametrize("few_labels", [False, True])
def test_the_linear_classifier_is_not_sure_of_what_its_groups_repeat(few_labels):
    """Labels here are drawn by lot, but each text is there five times: across groups nothing can be learned."""
    random = np.random.default_rng(0)
    rows = [
        f"{text},{'xy'[random.integers(2)]},{number}\n" * 5
        for number, text in enumerate(" ".join(map(str, random.integers(0, 30, size=6))) for _ in range(60))
    ]
    Path("a.csv").write_text("text,label,customer\n" + "".join(rows))
    values = {"name": "a", "data.train": "a.csv", "data.validation": "a.csv", "model.encoder": False}
    values |= {"train.label_names_as_texts": few_labels}
    surest = []
    for column in (None, "customer"):
        setup = prepare(config_of(values | {"data.group_column": column}, source="test"))
        assert setup.has_few_labels == few_labels
        classifier = fit_linear_classifier(setup, setup.recipe.linear).classifier
        surest.append(np.abs(np.diff(classifier.logits(setup.train_texts), axis=1)).mean())
    assert surest[0] > 3 * surest[1]
