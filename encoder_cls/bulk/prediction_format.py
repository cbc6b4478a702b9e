"""What a format of predictions does; `prediction_loop` has the list of all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from encoder_cls.bulk.predicted_text import PredictedText


class Output(Protocol):
    """The destination of predictions: an open file or standard output."""

    def write(self, content: bytes, /) -> object:
        """Write bytes at the end."""


class PredictionFormat(ABC):
    """A format of predictions.

    It can be pickled: each process that classifies chunks gets a copy to encode its predictions.
    """

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> Any:
        """Encode the predictions for a chunk, in the process that has classified the chunk."""

    @abstractmethod
    def writing_to(self, output: Output) -> AbstractContextManager[Callable[[Any], object]]:
        """Begin to write an output, which is complete at the end of the block.

        The context manager yields a function that writes an encoded chunk, as `encode` returns it.
        """

    def warnings(self) -> Iterator[str]:
        """Warnings about what was written, once the output is complete."""
        yield from ()


class RowFormat(PredictionFormat):
    """A format in which each prediction is encoded by itself, so that predictions can be sorted."""

    @abstractmethod
    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode each prediction for a chunk, in the process that has classified the chunk."""

    @abstractmethod
    def writing_to(
        self, output: Output
    ) -> AbstractContextManager[Callable[[Sequence[bytes]], object]]:
        """Begin to write an output; the function in the block writes encoded predictions."""


class LineFormat(RowFormat):
    """A format with a line for each prediction; the header is None if there is none."""

    header: str | None = None

    @abstractmethod
    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """The line of each prediction, without line ends."""

    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode the predictions for a chunk as lines of UTF-8."""
        return [f"{line}\n".encode() for line in self.lines(predicted_texts)]

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write the header, and yield the function that writes encoded lines."""
        if self.header is not None:
            output.write(f"{self.header}\n".encode())

        def write(lines: Sequence[bytes]) -> None:
            output.write(b"".join(lines))

        yield write
