"""How much work the fit of a linear model did, so that a resumed run can repeat it."""

from __future__ import annotations

from typing import NamedTuple


class StreamWork(NamedTuple):
    """How much work a fit has done. The same work on equal texts gives an equal model.

    Attributes:
        chunks_counted: the number of chunks of texts whose features were counted. The fit learns
            from these chunks only.
        chunks_learned: the number of chunks learned from, in all passes together.
    """

    chunks_counted: int
    chunks_learned: int


class LinearWork(NamedTuple):
    """How much work the fit of a linear model did. Equal work on equal data gives an equal model.

    Attributes:
        effort: the key of an `Effort`.
        stream: the work of a fit to a stream; None for other fits.
        num_unread: the number of training texts that there was no time to learn from.
    """

    effort: str
    stream: StreamWork | None = None
    num_unread: int = 0
