"""A case: what is promised, how often it is tried, and how one try goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from samples import Workspace

Try = Callable[[Workspace, random.Random, int], None]
"""One try: a place to work in, a source of chance that depends on the number of the try alone, that number.

It returns if the promise held and raises `AssertionError` if not; `Skipped` if it cannot be tried here.
"""


class Skipped(Exception):  # noqa: N818 - no error
    """This machine lacks what a case needs; the message says what."""


@dataclass(frozen=True)
class Case:
    """A promise and its proof.

    Attributes:
        promise: what holds, in one sentence.
        count: how many tries make the full case, or a function that finds out.
        attempt: one try.
    """

    promise: str
    count: int | Callable[[Workspace], int]
    attempt: Try
