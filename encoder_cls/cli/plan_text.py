"""The lines that describe a training before it starts: its data, its model and its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from encoder_cls.system.display import counted, duration, shown

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset
    from encoder_cls.training.expected_time import ExpectedTime
    from encoder_cls.training.prepared import Prepared

# The maximum number of characters that are shown of a class name.
LONGEST_NAME = 30
# The usual names of pretraining objectives that have another name in the config.
OBJECTIVES = {"masked_lm": "masked-LM"}


def plan_lines(prepared: Prepared) -> Iterator[str]:
    """Describe the data, the tokens, the model and the steps of a run."""
    dataset = prepared.dataset
    yield from dataset.notes

    yield _class_sizes(dataset)
    if dataset.is_multi_label:
        yield _labels_per_text(dataset)
    if dataset.labels_before_corrections:
        changed = counted(len(dataset.labels_before_corrections), "label")
        # Without corrections of its own, a continued run has those of its base run.
        config = prepared.config
        corrections = config.data.corrections or f"the corrections of {config.from_run}"
        yield f"corrections: {changed} of {corrections} in place of those of the data"
    yield from _group_sizes(dataset, prepared.config.data.group_column)
    yield from _weights(dataset, prepared.config.data.weight_column)

    yield _token_statistics(prepared)
    yield _model(prepared)
    if prepared.plan.has_encoder:
        yield _steps(prepared)


def _split_sizes(dataset: Dataset) -> str:
    sizes = {
        "training": len(dataset.train),
        "validation": len(dataset.validation),
        "test": len(dataset.test or ()),
        "unlabelled": len(dataset.unlabelled.texts),
    }
    return ", ".join(f"{size:,} {name}" for name, size in sizes.items() if size)


def _class_sizes(dataset: Dataset) -> str:
    class_counts = dataset.train.class_counts(len(dataset.label_names)).tolist()
    by_size = sorted(zip(class_counts, dataset.label_names, strict=True))

    smallest = _class_size(*by_size[0])
    largest = _class_size(*by_size[-1])
    classes = counted(len(dataset.label_names), "class", "classes")
    return (
        f"data: {_split_sizes(dataset)} texts, {classes}, of {smallest} to {largest} training texts"
    )


def _class_size(num_texts: int, name: str) -> str:
    return f"{num_texts:,} ({shown(name, limit=LONGEST_NAME)})"


def _labels_per_text(dataset: Dataset) -> str:
    """The numbers of labels per text, and why the task is multi-label."""
    reason = "data.label_separator"
    if dataset.first_multi_label_row:
        reason = f"{dataset.first_multi_label_row}: labels in a list"

    num_labels = dataset.train.labels.sum(axis=1)
    has_several = (num_labels > 1).mean()
    has_none = (num_labels == 0).mean()
    return (
        f"multi-label ({reason}): {num_labels.mean():.2f} labels a text, "
        f"several {has_several:.1%}, none {has_none:.1%}"
    )


def _group_sizes(dataset: Dataset, column: str | None) -> Iterator[str]:
    import numpy as np

    from encoder_cls.data.text_groups import NO_GROUP

    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    sizes = []
    num_alone = 0
    for name, split in splits.items():
        if split and split.groups is not None:
            has_group = split.groups != NO_GROUP
            num_groups = len(np.unique(split.groups[has_group]))
            sizes.append(f"{num_groups:,} {name}")
            num_alone += int((~has_group).sum())

    if not sizes:
        return
    line = f"groups by {shown(column or '')}: {', '.join(sizes)}"
    if num_alone:
        line += f"; {counted(num_alone, 'text')} without one (each alone)"
    yield line


def _weights(dataset: Dataset, column: str | None) -> Iterator[str]:
    weights = dataset.train.weights
    if weights is not None:
        bounds = f"{weights.min():g} to {weights.max():g}, {weights.mean():.3g} on average"
        yield f"weights by {shown(column or '')}: {bounds}"


def _token_statistics(prepared: Prepared) -> str:
    from encoder_cls.training.data_statistics import data_statistics

    statistics = data_statistics(prepared)
    line = (
        f"tokens: vocabulary {prepared.vocab_size:,}, "
        f"unknown in validation {statistics['unknown_fraction']:.1%}"
    )
    if prepared.plan.has_encoder:
        line += (
            f", texts longer than the encoder reads {statistics['truncated_fraction']:.1%}"
            f", padding {statistics['padding_fraction']:.1%}"
        )
    return line


def _model(prepared: Prepared) -> str:
    config = prepared.config.model
    if not prepared.plan.has_encoder:
        reason = "few labels" if config.encoder else "model.encoder=false"
        return f"model: a linear model alone, without steps of training ({reason})"

    from encoder_cls.training.data_statistics import num_parameters

    layers = counted(config.num_layers, "layer")
    parameters = f"{num_parameters(prepared):,} parameters"
    return f"model: {layers} of width {config.d_model}, {parameters}{_linear_model(prepared)}"


def _linear_model(prepared: Prepared) -> str:
    plan = prepared.plan
    if plan.linear_fit:
        line = ", beside it a linear model"
        if plan.linear_fit == "stream":
            line += " (from a stream: there is much text)"
        return line

    if prepared.config.model.linear:
        return ", no linear model beside it (too much text for so many classes)"
    return ""


def _steps(prepared: Prepared) -> str:
    plan = prepared.plan
    passes = []
    if plan.pretraining:
        objective = prepared.config.pretrain.objective
        objective_name = OBJECTIVES.get(objective, objective)
        epochs = counted(plan.pretraining.epochs, "epoch")
        passes.append(f"{epochs} of {objective_name} pretraining")
    if plan.training:
        epochs = counted(plan.training.epochs, "epoch")
        passes.append(f"{epochs} of training on labels")
    return f"steps: {plan.total_steps:,} in all; {', '.join(passes)}"


def time_line(expected: ExpectedTime, *, budget: float | None) -> str:
    """The expected time; the budget is in minutes."""
    line = f"time: {expected}"
    if budget is not None and 60 * budget < expected.total:
        line += f", but no more than {duration(60 * budget)} (train.time_budget)"
    return line
