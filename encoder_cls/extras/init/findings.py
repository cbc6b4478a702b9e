"""Say in lines what was found in a source of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from encoder_cls import Dataset, data_warnings
from encoder_cls.extras.init.column_roles import (
    LabelColumn,
    TextColumn,
    reason_for_label,
    reason_for_text,
)
from encoder_cls.extras.init.feature_columns import FeatureColumns
from encoder_cls.extras.init.inspect_data import Inspection, SplitRows, Table
from encoder_cls.system.display import counted, listed, printable, shortened, shown
from encoder_cls.system.encodings import UTF8

# The number of classes that are listed with their sizes.
MAX_CLASSES = 30
# The number of characters of a class's name that the list shows.
MAX_NAME = 40
MAX_COLUMNS = 12
# The names of separators that cannot be seen.
_SEPARATOR_NAMES = {"\t": "tab"}


def finding_lines(inspection: Inspection) -> Iterator[str]:
    """Say how the data is written, what it has, and what to look at.

    Lines with something to correct begin with `warning:`.
    """
    yield _source_line(inspection)
    if inspection.table and inspection.table.has_header:
        yield from _column_lines(inspection.table, inspection.settings.get("features", ()))
    yield from _notes(inspection)
    for role, split in inspection.splits.items():
        yield from _row_lines(role, split, inspection)
    if inspection.several:
        yield inspection.several

    dataset = inspection.dataset
    if dataset:
        yield _class_line(inspection, dataset)
        # The lines above have named the rows that are left out, so do not warn of them again.
        for warning in data_warnings(replace(dataset, sources=())):
            yield f"warning: {warning}"


def _source_line(inspection: Inspection) -> str:
    parts = []
    sizes = {role: split.num_rows for role, split in inspection.splits.items()}
    form = inspection.form
    for role, source in form.splits.items():
        size = f" ({counted(sizes[role], 'row')})" if role in sizes else ""
        parts.append(f"{role} {source}{size}" if len(form.splits) > 1 else source)
    line = ", ".join(parts)
    if len(form.splits) == 1 and sizes:
        line += f": {counted(sizes['train'], 'row')}"

    if form.has_class_folders:
        line += ", a folder of texts for each class"
    if form.reading.delimiter:
        separator = _SEPARATOR_NAMES.get(form.reading.delimiter, repr(form.reading.delimiter))
        line += f", fields separated by {separator}"
    if form.reading.encoding != UTF8:
        line += f", encoding {form.reading.encoding}"

    sheet = inspection.table.reading.options.sheet if inspection.table else None
    if sheet:
        others = [other for other in form.sheets if other != sheet]
        line += f", sheet {shown(sheet)}"
        if others:
            line += f" (not {listed(others)})"
    if form.others:
        line += f"; not used: {listed([path.name for path in form.others])}"
    return line


def _column_lines(table: Table, features: Sequence[str]) -> Iterator[str]:
    used: list[str] = []
    if table.text:
        used.append(table.text.name)
        yield f"text: {_text(table.text)}"
    if table.label:
        used.append(table.label.name)
        yield f"label: {_label(table.label)}"
    if table.group:
        yield (
            f"group: rows with the same {shown(table.group)} may belong together; if so, set "
            f"data.group_column={table.group}"
        )
    yield from _feature_lines(table.features, features)
    used += features
    others = [name for name in table.names if name not in used]
    if others:
        yield f"columns that are not used: {listed(others, most=MAX_COLUMNS)}"


def _feature_lines(found: FeatureColumns, chosen: Sequence[str]) -> Iterator[str]:
    if found.names and not chosen:
        names = listed(found.names, most=MAX_COLUMNS)
        yield f"features: {names} could be read beside the text; if so, set data.features"
    for name, doubt in found.doubts.items():
        mark = "warning: data.features" if name in chosen else "no feature"
        yield f"{mark}: column {shown(name)}: {doubt}"


def _text(text: TextColumn) -> str:
    line = f"column {shown(text.name)}: {reason_for_text(text)}"
    if text.others:
        line += f"; {listed(text.others)} could be read, too"
    return line


def _label(label: LabelColumn) -> str:
    line = f"column {shown(label.name)}: {reason_for_label(label)}"
    if label.others:
        line += f"; else {listed(label.others)}"
    return line


def _notes(inspection: Inspection) -> Iterator[str]:
    if inspection.dataset:
        yield from inspection.dataset.notes
        return
    for split in inspection.splits.values():
        yield from split.reading.notes.messages


def _row_lines(role: str, split: SplitRows, inspection: Inspection) -> Iterator[str]:
    for warning in split.reading.notes.warnings(role):
        yield f"warning: {warning}"

    if split.without_label and "label_separator" not in inspection.settings:
        consequence = "which are left out"
        if role == "train" and "label_names" in inspection.settings:
            consequence = "from which the model learns the language alone"
        places = ", ".join(split.first_without_label)
        if split.without_label > len(split.first_without_label):
            places += ", …"
        yield (
            f"warning: rows of {role} without a label, {consequence}: {split.without_label:,} "
            f"({places})"
        )


def _class_line(inspection: Inspection, dataset: Dataset) -> str:
    num_classes = len(dataset.label_names)
    counts = dataset.train.class_counts(num_classes) + dataset.validation.class_counts(num_classes)
    count_of = dict(zip(dataset.label_names, counts.tolist(), strict=True))

    sizes = []
    for name in sorted(count_of, key=lambda name: (-count_of[name], name)):
        sizes.append(f"{printable(shortened(name, limit=MAX_NAME))} {count_of[name]:,}")
    line = f"{counted(num_classes, 'class', 'classes')}{_difference(inspection, num_classes)}"
    return f"{line}: {', '.join(_first_and_last(sizes))}"


def _difference(inspection: Inspection, num_classes: int) -> str:
    label = inspection.table.label if inspection.table else None
    if label is None or "label_separator" in inspection.settings:
        return ""

    num_read = len({name.strip() for name in inspection.splits["train"].labels})
    num_left_out = label.num_labels - num_read
    num_folded = num_read - num_classes
    reasons = []
    if num_folded > 0:
        differ = "differs" if num_folded == 1 else "differ"
        reasons.append(f"{num_folded:,} {differ} from another one in capitals or spaces alone")
    if num_left_out > 0:
        are = "is" if num_left_out == 1 else "are"
        reasons.append(f"{num_left_out:,} {are} only in rows that are left out")
    if not reasons:
        return ""
    return f" (of {label.num_labels:,} different values, {', and '.join(reasons)})"


def _first_and_last(sizes: Sequence[str]) -> Sequence[str]:
    if len(sizes) <= MAX_CLASSES:
        return sizes
    return [*sizes[: MAX_CLASSES - 1], "…", sizes[-1]]
