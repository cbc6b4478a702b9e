"""The message and the exit code for an error that ends a command."""

from __future__ import annotations

import os
import re
from typing import Any

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import shortened

# The name of the program in all messages, also if it is started as `python -m encoder_cls`.
PROGRAM = "encoder-cls"

# The messages of torch and oneDNN for a lack of memory.
_OUT_OF_MEMORY = re.compile("OutOfMemoryError|can't allocate memory|could not create a primitive")
# The maximum number of characters that are shown of the message of an unexpected error.
_LONGEST_REASON = 400


def message_and_exit_code(error: BaseException) -> tuple[str, int]:
    """The message, which may be empty, and the exit code of an error."""
    if isinstance(error, EncoderClsError):
        return str(error), error.exit_code

    # Recognize errors of Typer by this method, because its versions have no common error class.
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
    """Whether Ctrl-C caused an error, perhaps through another one that a library raised."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _usage_message(error: Any) -> tuple[str, int]:
    message: str = error.format_message()
    exit_code: int = error.exit_code
    if not message:
        return message, exit_code

    context = getattr(error, "ctx", None)
    command = context.command_path if context else PROGRAM
    if command.endswith("predict") and message.startswith("No such option"):
        return f"{message}; write -- before a text that starts with a dash", exit_code
    return f"{message} (see {command} --help)", exit_code


def _out_of_memory_message(error: BaseException) -> str:
    reason = "no more is available"
    if str(error):
        reason = str(error).splitlines()[0]

    remedies = ["a smaller train.batch_tokens or --batch-tokens", "a smaller model"]
    if "CUDA" in reason:
        remedies.append("train.cuda_graphs=false")
    return f"out of memory: {reason} (choose {', or '.join(remedies)})"


def _unexpected_message(error: BaseException) -> str:
    reason = shortened(" ".join(str(error).split()), limit=_LONGEST_REASON)
    hint = "encoder-cls --debug COMMAND shows where"

    variables = _environment_variables_in(str(error))
    if variables:
        hint = f"perhaps by the environment: {', '.join(variables)}; {hint}"
    return f"unexpected {type(error).__name__}: {reason} ({hint})"


def _environment_variables_in(message: str) -> list[str]:
    """Environment variables whose name or value appears in an error message."""
    variables = []
    for name, value in os.environ.items():
        if not value:
            continue
        is_named = re.search(rf"\b{re.escape(name)}\b", message) is not None
        if is_named or repr(value) in message:
            variables.append(name)
    return variables
