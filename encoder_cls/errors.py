"""Failures that a user can correct, with the exit codes of the command line."""

from __future__ import annotations


class EncoderClsError(Exception):
    """A failure with a message for the user: what is wrong, where, and how to correct it."""

    exit_code = 1


class ConfigError(EncoderClsError):
    """The command line or the config asks for something impossible."""

    exit_code = 2


class DataError(EncoderClsError):
    """The labelled text is missing, malformed or too little to train on.

    Attributes:
        where: the source, or the row of it, as `file:line`.
        what: what is wrong there; may be empty.
        hint: how to correct it; may be empty.
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
    """A table has no column of the name that is needed."""

    def __init__(self, where: object, column: str, what: str, hint: str = "") -> None:
        super().__init__(where, what, hint)
        self.column = column


class NoRowsError(DataError):
    """A source has no row with a text."""


class NothingNewError(DataError):
    """The new data of a run that continues another one has no new text to learn from."""

    exit_code = 6


class EncodingError(DataError):
    """A text file is not written in the encoding that it is read in."""


class DivergedError(EncoderClsError):
    """The loss, the gradient, a weight or a logit is no longer a finite number.

    Nothing of it has been written.
    """

    exit_code = 4

    def __init__(self, step: int, found: str) -> None:
        # Not "and resume": a run continues with the learning rate that it was started with.
        super().__init__(
            f"training diverged at step {step}: {found}; what was written before is good; lower "
            "train.learning_rate, and train in another --run-dir"
        )


class StoppedError(EncoderClsError):
    """A signal asked training to stop; a checkpoint has been written."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number
