"""Check the texts that a program passes to the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from encoder_cls.system.display import kind


def checked_texts(texts: Iterable[object], function: str) -> Iterator[str]:
    """Yield the texts, after checking that each is a string; messages name the public function.

    Raises:
        TypeError: `texts` is a single text or a table, or one of its items is not a string.
    """
    check_are_several(texts, function)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}] is {kind(text)}, not a text")
        yield text


def check_are_several(texts: object, function: str) -> None:
    """Raise a `TypeError` if `texts` is a single text or a table.

    Python would go through the letters of a text, and through the names of a table's columns.
    """
    if isinstance(texts, str):
        raise TypeError(
            f"{function} takes several texts; put a single one in a list: {function}([text])"
        )
    if isinstance(texts, Mapping) or is_table(texts):
        raise TypeError(f"{function} takes texts, not a table; choose the column with the texts")


def is_table(texts: object) -> bool:
    """Whether an array or a frame has another number of dimensions than one."""
    return len(getattr(texts, "shape", ("rows",))) != 1
