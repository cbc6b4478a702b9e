"""Texts are held out with all of their group, and the linear model uses these folds."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.config.loading import config_of
from encoder_cls.linear_training.folds import FOLDS, first_held_out, split_into_folds
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare


@pytest.mark.parametrize("num_groups", [2, 6, 50, 900])
def test_folds_keep_groups_together(num_groups):
    groups = np.random.default_rng(0).integers(1, num_groups + 1, size=1000)

    folds = split_into_folds(groups)

    assert sorted(np.concatenate(folds)) == list(range(1000))
    num_groups_in_folds = [len(set(groups[fold])) for fold in folds]
    assert sum(num_groups_in_folds) == len(set(groups))


@pytest.mark.parametrize("num_groups", [50, 900])
def test_folds_of_small_groups_are_of_about_one_size(num_groups):
    groups = np.random.default_rng(0).integers(1, num_groups + 1, size=1000)

    sizes = [len(fold) for fold in split_into_folds(groups)]

    assert len(sizes) == FOLDS
    assert min(sizes) >= 150
    assert max(sizes) <= 250


def test_two_groups_make_two_folds():
    groups = np.random.default_rng(0).integers(1, 3, size=1000)

    assert len(split_into_folds(groups)) == 2


def test_texts_named_first_are_the_first_fold():
    first = np.array([7, 3, 900])

    folds = split_into_folds(np.arange(1000), first=first)

    assert folds[0].tolist() == [7, 3, 900]
    assert len(folds) == 1 + FOLDS
    assert sorted(np.concatenate(folds)) == list(range(1000))


def test_folds_end_when_enough_texts_are_held_out():
    folds = split_into_folds(np.arange(1000), enough=250)

    assert [len(fold) for fold in folds] == [200, 200]


def test_texts_are_held_out_in_the_order_given():
    order = np.random.default_rng(0).permutation(1000)

    is_held_out = first_held_out(order, np.arange(1000), 50)

    assert sorted(order[:50]) == np.flatnonzero(is_held_out).tolist()


def test_whole_groups_are_held_out_and_large_ones_are_learned_from():
    random = np.random.default_rng(0)
    order = random.permutation(1000)
    groups = random.integers(1, 300, size=1000)
    groups[:400] = 0

    is_held_out = first_held_out(order, groups, 50)

    assert set(groups[is_held_out]).isdisjoint(groups[~is_held_out])
    assert 45 <= is_held_out.sum() <= 50


def test_where_all_groups_are_large_texts_are_held_out():
    order = np.random.default_rng(0).permutation(1000)

    is_held_out = first_held_out(order, np.repeat([1, 2], 500), 50)

    assert is_held_out.sum() == 50


def write_repeated_texts(path: Path, endings: list[str]) -> None:
    """Sixty texts of one customer each, five times with different endings; labels are chance.

    A second file, whose name begins with `validation-`, has the same texts with one more word.
    """
    random = np.random.default_rng(0)
    texts = []
    for _ in range(60):
        words = random.integers(0, 30, size=6)
        texts.append(" ".join(str(word) for word in words))
    labels = random.choice(["x", "y"], size=60)

    next_endings = itertools.cycle(endings)
    lines = ["text,label,customer"]
    validation = ["text,label,customer"]
    for _ in range(5):
        for customer in range(60):
            ending = next(next_endings)
            lines.append(f"{texts[customer]}{ending},{labels[customer]},{customer}")
            validation.append(f"{texts[customer]}{ending} v,{labels[customer]},{customer}")
    path.write_text("\n".join(lines))
    path.with_name(f"validation-{path.name}").write_text("\n".join(validation))


@pytest.mark.parametrize("few_labels", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_linear_classifier_is_not_sure_of_what_is_repeated(few_labels):
    """Across groups, or equal texts, nothing can be learned from labels that are chance."""
    write_repeated_texts(Path("equal.csv"), [" X", "  x"])
    write_repeated_texts(Path("other.csv"), [f" end{row}" for row in range(300)])

    def mean_difference(file: str, group_column: str | None = None) -> float:
        """The mean difference of the logits of both classes."""
        config = config_of(
            {
                "name": "a",
                "model.encoder": False,
                "train.label_names_as_texts": few_labels,
                "data.train": file,
                "data.validation": f"validation-{file}",
                "data.group_column": group_column,
            },
            source="test",
        )
        prepared = prepare(config)
        assert (prepared.plan.linear_fit == "few_labels") == few_labels

        linear = fit_linear_classifier(prepared).classifier.linear
        logits = linear.logits(prepared.train_texts)
        return np.abs(np.diff(logits, axis=1)).mean()

    without_groups = mean_difference("other.csv")

    assert without_groups > 3 * mean_difference("other.csv", "customer")
    assert without_groups > 3 * mean_difference("equal.csv")
