"""Write a config with a comment for each setting that was found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from encoder_cls import similar_labels
from encoder_cls.extras.init.column_roles import reason_for_label, reason_for_text
from encoder_cls.extras.init.inspect_data import Inspection
from encoder_cls.system.display import counted, listed, printable
from encoder_cls.system.json_values import json_text
from encoder_cls.system.yaml import to_yaml

LINE_WIDTH = 100
INDENT = "  "


def draft_config(inspection: Inspection) -> str:
    """Write a config that trains on the data as it is."""
    settings = inspection.settings
    lines = [
        *_comment(
            f"Drafted from {printable(inspection.source)} by encoder-cls init. All other settings "
            "have their defaults; docs/config.md describes them.",
            indent="",
        ),
        "data:",
    ]
    for role in ("train", "validation", "test"):
        if role in settings:
            if role in inspection.splits:
                lines += _comment(counted(inspection.splits[role].num_rows, "row"))
            lines += _setting(role, settings[role])

    lines += _columns(inspection)
    for key, reason in _REASONS.items():
        if key in settings:
            lines += _comment(reason)
            lines += _setting(key, settings[key])
    lines += _similar(inspection)
    return "\n".join(lines) + "\n"


# Why a setting that is not a source or a column is in the config.
_REASONS = {
    "delimiter": "The character between the fields.",
    "encoding": "The encoding of the file. UTF-8 would be usual.",
    "sheet": "The sheet of the workbook.",
    "label_separator": (
        "Cells of labels list several labels. Without this line, each combination would be a class "
        "of its own."
    ),
    "fold_labels": "Some labels differ only in case or spaces; they are one class.",
    "empty_texts": "More than 1% of the rows have no text. They are left out.",
    "bad_rows": "Some rows have no label or cannot be read. They are left out.",
    "label_names": ("The classes. From rows without a label, the model learns the language alone."),
}


def _columns(inspection: Inspection) -> Iterator[str]:
    table = inspection.table
    settings = inspection.settings
    if table is None:
        return

    if table.text:
        yield from _comment(f"The text: {reason_for_text(table.text)}.")
        if table.text.others:
            both = [table.text.others[0], table.text.name]
            yield from _comment(f"To read two columns: text_column: {json_text(both)}")
    yield from _setting("text_column", settings["text_column"])
    if table.label:
        yield from _comment(f"The class: {reason_for_label(table.label)}.")
        if table.label.others:
            yield from _comment(f"It could also be {listed(table.label.others)}.")
    yield from _setting("label_column", settings["label_column"])
    if "features" in settings:
        yield from _setting("features", settings["features"])
    elif table.features.names:
        yield from _comment(
            "Columns beside the text from which the models may learn, too. Leave out what is not "
            "known when a text comes in; for the others, remove the # of the lines below:"
        )
        yield from _setting("# features", table.features.names)
    if table.group and "group_column" not in settings:
        yield from _comment(
            "If rows with the same value in this column belong together, remove the #, and they "
            "stay on one side of the split:"
        )
        yield from _setting("# group_column", table.group)
    elif "group_column" in settings:
        yield from _setting("group_column", settings["group_column"])


def _similar(inspection: Inspection) -> Iterator[str]:
    dataset = inspection.dataset
    if dataset is None:
        return
    counts = dataset.train.class_counts(len(dataset.label_names)).tolist()
    groups = similar_labels(dict(zip(dataset.label_names, counts, strict=True)))
    if not groups:
        return

    yield from _comment(
        "These labels look like another one. If they are the same, remove the # of the lines below:"
    )
    label_map = {other: group.label for group in groups for other in group.others}
    for line in to_yaml({"label_map": label_map}).splitlines():
        yield f"{INDENT}# {line}"


def _setting(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, tuple):
        value = list(value)
    written = to_yaml({key.removeprefix("# "): value})
    mark = "# " if key.startswith("# ") else ""
    for line in written.splitlines():
        yield f"{INDENT}{mark}{line}"


def _comment(text: str, *, indent: str = INDENT) -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(
        " ".join(text.split()),
        LINE_WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
