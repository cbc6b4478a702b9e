"""Check the texts that a program passes to the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from encoder_cls.system.display import kind


def checked_texts(texts: Iterable[object], function: str) -> Iterator[str]:
    """Yield the texts, if each is a string; messages name the public function.

    Raises:
        TypeError: `texts` is a single text or a table, or an item is no string.
    """
    check_are_several(texts, function)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}] is {kind(text)}, not a text")
        yield text


def check_are_several(texts: object, function: str) -> None:
    """Raise a `TypeError` for a single text or a table.

    Python would go through its letters, or through the names of its columns.
    """
    if isinstance(texts, str):
        raise TypeError(
            f"{function} takes several texts; put a single one in a list: {function}([text])"
        )
    if isinstance(texts, Mapping) or is_table(texts):
        raise TypeError(f"{function} takes texts, not a table; choose the column with the texts")


def is_table(texts: object) -> bool:
    """Whether an array or a frame has other than one dimension."""
    return len(getattr(texts, "shape", ("rows",))) != 1
