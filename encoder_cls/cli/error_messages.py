"""What the command line says of an error, and the exit code with which it ends."""

from __future__ import annotations

import os
import re
from typing import Any

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import shortened, shown

# The name of the program, however it is started; also the distribution with everything.
PROGRAM = "encoder-cls"

# What torch and oneDNN say when memory is short.
_OUT_OF_MEMORY = re.compile("OutOfMemoryError|can't allocate memory|could not create a primitive")
# Characters of an unexpected error's message, which may list all that a library knows.
_LONGEST_REASON = 400
# Characters of the value of an environment variable.
_LONGEST_VALUE = 40


def message_and_exit_code(error: BaseException) -> tuple[str, int]:
    """The message of an error for the user, possibly empty, and the exit code."""
    if isinstance(error, EncoderClsError):
        return str(error), error.exit_code

    # Typer's versions share no class of its errors.
    if hasattr(error, "format_message"):
        return _usage_message(error)

    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        return _out_of_memory_message(error), 1

    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{error.filename}: {error.strerror}", 1
        return error.strerror, 1

    return _unexpected_message(error), 1


def is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error, since some libraries raise another one."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _usage_message(error: Any) -> tuple[str, int]:
    """The message and the exit code of an error of Typer: arguments that do not fit a command."""
    message: str = error.format_message()
    exit_code: int = error.exit_code
    if not message:
        return message, exit_code

    context = getattr(error, "ctx", None)
    command = context.command_path if context else PROGRAM
    if command.endswith("predict") and message.startswith("No such option"):
        return f"{message}; before a text that starts with a dash, write --", exit_code
    return f"{message} (see {command} --help)", exit_code


def _out_of_memory_message(error: BaseException) -> str:
    reason = "no more is available"
    if str(error):
        reason = str(error).splitlines()[0]

    hint = "a smaller train.batch_tokens, --batch-tokens or model needs less"
    return f"out of memory: {reason} ({hint})"


def _unexpected_message(error: BaseException) -> str:
    """The message of an error that no part of the program foresaw."""
    reason = shortened(" ".join(str(error).split()), limit=_LONGEST_REASON)
    hint = "encoder-cls --debug COMMAND shows where"

    variables = _environment_variables_in(str(error))
    if variables:
        hint = f"perhaps by the environment: {', '.join(variables)}; {hint}"
    return f"unexpected {type(error).__name__}: {reason} ({hint})"


def _environment_variables_in(message: str) -> list[str]:
    """The environment variables, with their values, that an error names or quotes.

    Libraries read their variables without saying in an error that the value came from one.
    """
    variables = []
    for name, value in os.environ.items():
        if not value:
            continue
        is_named = re.search(rf"\b{re.escape(name)}\b", message) is not None
        if is_named or repr(value) in message:
            variables.append(f"{name}={shown(value, limit=_LONGEST_VALUE)}")
    return variables
