"""What is said of an audit: lines for the terminal, and values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from encoder_cls.extras.audit.audit import Audit, Found
from encoder_cls.system.display import counted, listed, printable

# What one and several words of a kind are called.
KINDS = {
    "rare_words": ("rare word", "rare words"),
    "numbers": ("number", "numbers"),
    "words_of_addresses": ("word of addresses", "words of addresses"),
    "words_of_handles": ("word of handles", "words of handles"),
}
# The most examples of a kind in the terminal and in JSON.
MOST_SHOWN = 5
MOST_LISTED = 100


def terminal_text(audit: Audit) -> str:
    """All that was found, file by file."""
    return "\n".join(_lines(audit)) + "\n"


def _lines(audit: Audit) -> Iterator[str]:
    if audit.num_texts is None:
        yield printable(f"The texts of the training cannot be read: {audit.why_no_texts}.")
        yield (
            "Rare words, and words that only addresses or handles have, cannot be told. Shown is "
            "what looks like a number, an address or a handle."
        )
    else:
        texts = counted(audit.num_texts, "text")
        yield f"Rare words are in fewer than {audit.min_texts} of {texts}."

    yield printable(f"{audit.model}, which is shared, pushed and exported:")
    yield from _lines_of_files(audit.model_files)
    yield f"  always kept: {_examples(audit.class_names, 'class', 'classes')}"
    for column, values in audit.columns.items():
        yield printable(
            f"  always kept: of the column {column}, {_examples(values, 'value', 'values')}"
        )
    for column, edges in audit.edges.items():
        points = _examples(edges, "point between values", "points between values")
        yield printable(f"  always kept: of the column {column}, {points}")
    if audit.data_path:
        yield printable(f"  always kept: where the data was, {audit.data_path}")

    if audit.run:
        yield printable(f"The rest of {audit.run}, with whole texts and paths of data:")
        yield from _lines_of_files(audit.run_files)
    if audit.cache:
        yield printable(
            f"Not searched: {audit.cache} (data.cache), which has all texts and is not shared."
        )


def _lines_of_files(files: Mapping[str, Found]) -> Iterator[str]:
    for name, found in files.items():
        for kind, words in found.items():
            yield printable(f"  {name}: {_examples(words, *KINDS[kind])}")
    empty = [name for name, found in files.items() if not found]
    if empty:
        yield f"  none in {counted(len(empty), 'other file')}"


def _examples(words: Sequence[str], one: str, many: str) -> str:
    examples = f" ({listed(words, most=MOST_SHOWN)})" if words else ""
    return counted(len(words), one, many) + examples


def to_dict(audit: Audit) -> dict[str, Any]:
    """The values for JSON."""
    return {
        "model": str(audit.model),
        "run": str(audit.run) if audit.run else None,
        "num_texts": audit.num_texts,
        "why_no_texts": audit.why_no_texts or None,
        "min_texts": audit.min_texts,
        "readable": audit.is_readable,
        "model_files": _counts(audit.model_files),
        "run_files": _counts(audit.run_files),
        "class_names": list(audit.class_names),
        "columns": audit.columns,
        "edges": audit.edges,
        "data_path": audit.data_path,
        "cache": str(audit.cache) if audit.cache else None,
    }


def _counts(files: Mapping[str, Found]) -> dict[str, Any]:
    return {
        name: {
            kind: {"count": len(words), "examples": words[:MOST_LISTED]}
            for kind, words in found.items()
        }
        for name, found in files.items()
    }
