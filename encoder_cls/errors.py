"""Errors that a user can correct, with the exit codes of the command line."""

from __future__ import annotations


class EncoderClsError(Exception):
    """An error whose message says what is wrong, where, and how to correct it.

    Attributes:
        exit_code: the exit code of a command that ends with this error.
    """

    exit_code = 1


class ConfigError(EncoderClsError):
    """An option of the command line or a value in the config is not possible."""

    exit_code = 2


class DataError(EncoderClsError):
    """Data is missing, malformed or too little to train on.

    Attributes:
        where: the source of the data, or a row of it as `file:line`.
        what: what is wrong there; empty if `where` is the whole message.
        hint: how to correct it; empty if there is no hint.
    """

    exit_code = 3

    def __init__(self, where: object, what: str = "", hint: str = "") -> None:
        self.where = str(where)
        self.what = what
        self.hint = hint

        message = self.where
        if what:
            message += f": {what}"
        if hint:
            message += f"; {hint}"
        super().__init__(message)


class MissingColumnError(DataError):
    """A table lacks a column that is needed.

    Attributes:
        column: the name of the column.
    """

    def __init__(self, where: object, column: str, what: str, hint: str = "") -> None:
        super().__init__(where, what, hint)
        self.column = column


class NoRowsError(DataError):
    """A source of data has no row with a text."""


class NothingNewError(DataError):
    """The new data of a run that continues another run has no new text to learn from."""

    exit_code = 6


class EncodingError(DataError):
    """A text file is not written in the encoding in which it is read."""


class WorseError(EncoderClsError):
    """A model is worse than the one it is compared with (`eval --against --fail-if-worse`)."""

    exit_code = 5


class DriftedError(EncoderClsError):
    """Texts differ from those that a model was measured on (`drift --fail-if-drifted`)."""

    exit_code = 7


class ReadableError(EncoderClsError):
    """A model has rare words, numbers, addresses or handles of its training texts (`audit`)."""

    exit_code = 8


class DivergedError(EncoderClsError):
    """The loss, the gradient, a weight or a logit is no longer a finite number.

    Files that were written before are not affected.

    Args:
        step: the step at which this was found.
        reason: which number is not finite.
    """

    exit_code = 4

    def __init__(self, step: int, reason: str) -> None:
        # Do not suggest --resume, because a resumed run keeps its learning rate.
        super().__init__(
            f"training diverged at step {step}: {reason}; earlier checkpoints are not damaged; "
            "train again with a lower train.learning_rate and another --run-dir"
        )


class StoppedError(EncoderClsError):
    """A signal has stopped a training or a server.

    Attributes:
        signal_number: the number of the signal.
        exit_code: 128 plus the number of the signal, as shells report it.
    """

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number
