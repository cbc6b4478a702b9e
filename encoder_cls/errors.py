"""Every failure that a user can mend, each with the exit code that the command line ends with."""

from __future__ import annotations


class EncoderClsError(Exception):
    """A failure with a message for the user: what is wrong, where, and how to mend it."""

    exit_code = 1


class ConfigError(EncoderClsError):
    """The command line or the config asks for something that cannot be."""

    exit_code = 2


class DataError(EncoderClsError):
    """The labelled text is missing, malformed or not enough to train on."""

    exit_code = 3


class DivergedError(EncoderClsError):
    """The loss or the gradient stopped being a finite number."""

    exit_code = 4


class StoppedError(EncoderClsError):
    """A signal asked training to stop; a checkpoint has been written."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
