"""How the data of a run was read, and what will be trained on what, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from encoder_cls.system.display import counted

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.data.split import Split
    from encoder_cls.training.setup import TrainingSetup


def described(setup: TrainingSetup) -> Iterator[str]:
    """How the data was read, and what will be trained on what, in a few lines."""
    yield from setup.dataset.notes
    dataset, config, statistics = setup.dataset, setup.config, setup.data_statistics
    if dataset.has_names_alone:
        yield from _described_by_names(setup)
        return
    test = f", {len(dataset.test):,} test" if dataset.test else ""
    more = f", {len(dataset.unlabelled.texts):,} unlabelled" if dataset.unlabelled.texts else ""
    yield (
        f"data: {len(dataset.train):,} training, {len(dataset.validation):,} validation{test}{more} texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')}, "
        f"of {_sizes(dataset.train, dataset.label_names)} training texts"
    )
    if dataset.is_multi_label:
        yield _several_labels(dataset)
    if dataset.corrected:
        changed = counted(len(dataset.corrected), "label")
        yield f"corrections: {changed} of {config.data.corrections} in place of those of the data"
    yield from _groups(dataset, config.data.group_column)
    if not config.model.encoder:
        yield f"tokens: vocabulary {setup.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}"
        yield "model: a linear model alone, without steps of training (model.encoder=false)"
        return
    yield (
        f"tokens: vocabulary {setup.vocab_size:,}, unknown in validation {statistics['unknown_fraction']:.1%}, "
        f"texts longer than the encoder reads {statistics['truncated_fraction']:.1%}, padding "
        f"{statistics['padding_fraction']:.1%}"
    )
    shape = f"{counted(config.model.num_layers, 'layer')} of width {config.model.d_model}"
    recipe = setup.recipe
    beside = ", beside it a linear model" if recipe.linear else ""
    beside += " (from a stream: there is much text)" if recipe.linear and recipe.linear.is_streamed else ""
    if config.model.linear and not recipe.linear:
        beside = ", no linear model beside it (too much text for so many classes)"
    yield f"model: {shape}, {setup.num_parameters:,} parameters{beside}"
    lengths = {"masked-LM pretraining": recipe.pretraining, "training on labels": recipe.training}
    passes = [f"{it.epochs} epoch{'s' * (it.epochs > 1)} of {what}" for what, it in lengths.items() if it]
    yield f"steps: {setup.total_steps:,} in all; {', '.join(passes)}"


def _described_by_names(setup: TrainingSetup) -> Iterator[str]:
    """The same where no text has a label."""
    dataset = setup.dataset
    held_out = {"validation": len(dataset.validation), "test": len(dataset.test or ())}
    others = "".join(f", {count:,} {name}" for name, count in held_out.items() if count)
    yield (
        f"data: no labelled text to learn from{others}, {len(dataset.unlabelled.texts):,} unlabelled texts, "
        f"{counted(len(dataset.label_names), 'class', 'classes')} by their names (data.label_names)"
    )
    yield f"tokens: vocabulary {setup.vocab_size:,}"
    yield "model: a linear model alone, learned from what the names of the classes say"


def _several_labels(dataset: Dataset) -> str:
    """That texts may have several labels, and how many they have."""
    labels = dataset.train.labels.sum(axis=1)
    why = f"{dataset.several}: labels in a list" if dataset.several else "data.label_separator"
    return (
        f"multi-label ({why}): {labels.mean():.2f} labels a text, several {(labels > 1).mean():.1%}, none "
        f"{(labels == 0).mean():.1%}"
    )


def _groups(dataset: Dataset, column: str | None) -> Iterator[str]:
    """How many groups each split has, where a column names them."""
    import numpy as np

    from encoder_cls.data.holdout import NO_GROUP
    from encoder_cls.system.display import shown

    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    groups = {name: split.groups for name, split in splits.items() if split is not None and split.groups is not None}
    if not groups:
        return
    counts = ", ".join(f"{len(np.unique(it[it != NO_GROUP])):,} {name}" for name, it in groups.items())
    alone = sum(int((it == NO_GROUP).sum()) for it in groups.values())
    without = f"; {counted(alone, 'text')} without one (each alone)" if alone else ""
    yield f"groups by {shown(column or '')}: {counts}{without}"


def _sizes(split: Split, label_names: Sequence[str]) -> str:
    """How many texts the smallest class has, and the largest."""
    from encoder_cls.system.display import shown

    sizes = sorted(zip(split.class_counts(len(label_names)).tolist(), label_names, strict=True))
    return " to ".join(f"{size:,} ({shown(name, limit=30)})" for size, name in (sizes[0], sizes[-1]))
