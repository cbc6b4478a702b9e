"""What a format of predictions does; `prediction_loop` has the list of all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from encoder_cls.bulk.predicted_text import PredictedText


class Output(Protocol):
    """An open file or standard output."""

    def write(self, content: bytes, /) -> object:
        """Write bytes at the end."""


class PredictionFormat(ABC):
    """A format, of which each process that classifies gets a pickled copy.

    The first `num_explained` predictions are explained in any case.
    """

    num_explained = 0

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> Any:
        """Encode predictions, in the process that has classified the chunk."""

    @abstractmethod
    def writing_to(self, output: Output) -> AbstractContextManager[Callable[[Any], object]]:
        """Begin an output; the block gets a function that writes what `encode` returns."""

    def warnings(self) -> Iterator[str]:
        """Warn of what was written, once the output is complete."""
        yield from ()


class RowFormat(PredictionFormat):
    """A format of separate rows, which can be sorted."""

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode each prediction for a chunk."""

    @abstractmethod
    def writing_to(
        self, output: Output
    ) -> AbstractContextManager[Callable[[Sequence[bytes]], object]]:
        """See `PredictionFormat`."""


class LineFormat(RowFormat):
    """A format with a line for each prediction; the header is None if there is none."""

    header: str | None = None

    @abstractmethod
    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """The lines of predictions, without line ends."""

    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode lines as UTF-8."""
        return [f"{line}\n".encode() for line in self.lines(predicted_texts)]

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write the header first."""
        if self.header is not None:
            output.write(f"{self.header}\n".encode())

        def write(lines: Sequence[bytes]) -> None:
            output.write(b"".join(lines))

        yield write
