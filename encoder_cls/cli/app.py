"""The command line: results go to standard output, all else to standard error.

Nothing heavy is imported before a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from encoder_cls.cli.labels import review_command, suggest_command
from encoder_cls.cli.predict import predict_command, serve_command
from encoder_cls.cli.runs import compare_command, eval_command
from encoder_cls.cli.train import train_command
from encoder_cls.cli.tune import tune_command
from encoder_cls.errors import EncoderClsError, StoppedError
from encoder_cls.system.display import shortened, shown
from encoder_cls.system.terminal import end_at_sigterm_as_process_1, note, open_streams, print_out

PROGRAM = "encoder-cls"  # however it is started; also the distribution with everything
# What torch and oneDNN say when memory is short.
OUT_OF_MEMORY = re.compile("OutOfMemoryError|can't allocate memory|could not create a primitive")
# Characters of an unexpected error's message, which may list all that a library knows.
LONGEST_REASON = 400
app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="Train a Transformer-encoder text classifier from scratch on your own labelled text.",
    epilog="Start with: encoder-cls train (bundled example data), "
    "then encoder-cls train --set data.train=FILE",
)
app.command("train")(train_command)
app.command("tune")(tune_command)
app.command("eval")(eval_command)
app.command("compare")(compare_command)
app.command("predict")(predict_command)
app.command("review")(review_command)
app.command("suggest")(suggest_command)
app.command("serve")(serve_command)

_debug = False


def _print_version(is_wanted: bool) -> None:
    """Print the version of the installed distribution, with its name if it differs from the program's."""
    if is_wanted:
        from encoder_cls import __version__
        from encoder_cls.system.machine import installed_version

        distribution, version = installed_version() or (PROGRAM, __version__)
        suffix = "" if distribution == PROGRAM else f" ({distribution})"
        print_out(f"{PROGRAM} {version}{suffix}\n")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, and log decisions.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback has printed it
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603 - one switch of the process, read where it ends
    _debug = debug
    if debug:
        import logging

        logging.basicConfig(format="debug: %(message)s")
        logging.getLogger("encoder_cls").setLevel(logging.DEBUG)


def main() -> NoReturn:
    """Run the command line; every failure ends with one or two lines and an exit code."""
    end_at_sigterm_as_process_1()
    # OpenMP's threads spin before they sleep. Spinning wastes the core if another program wants it; waking up takes
    # longer than most waits if none does. Hence fewer turns than the default of 300,000: docs/experiments/speed.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "6000")
    # Linux clears memory page by page on first use, and large tensors come and go in every step. With pages of 2 MiB
    # in place of 4 KiB, a step on long texts takes up to a fifth less time. Torch reads this with its first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Short of memory, torch switches to another algorithm, with other last digits; the program ends instead.
    warnings.filterwarnings("error", message="mkldnn_.* failed, switching to")
    open_streams()
    try:
        code = typer.main.get_command(app)(prog_name=PROGRAM, standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        if _debug:
            traceback.print_exc()
        message, code = ("", 130) if _is_interrupted(error) else _explained(error)
        if message:
            note(message if isinstance(error, StoppedError) else f"error: {message}", is_error=True)
    try:
        print_out("")  # flushes what a library has printed
    except EncoderClsError as error:
        note(f"error: {error}")
        code = code or 1
    sys.exit(code)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error, since some libraries raise another one."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt)
        or _is_interrupted(error.__cause__ or error.__context__)
    )


def _explained(error: BaseException) -> tuple[str, int]:
    """The message of an error for the user, and the exit code."""
    if isinstance(error, EncoderClsError):
        return str(error), error.exit_code
    usage: Any = error
    if hasattr(usage, "format_message"):  # Typer's versions share no class of its errors
        message = usage.format_message()
        path = usage.ctx.command_path if getattr(usage, "ctx", None) else PROGRAM
        if path.endswith("predict") and message.startswith("No such option"):
            return f"{message}; before a text that starts with a dash, write --", usage.exit_code
        return message and f"{message} (see {path} --help)", usage.exit_code
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        reason = next(iter(str(error).splitlines()), "no more is available")
        return (
            f"out of memory: {reason} (a smaller train.batch_tokens, --batch-tokens or model needs less)",
            1,
        )
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
    reason = shortened(" ".join(str(error).split()), limit=LONGEST_REASON)
    hint = "encoder-cls --debug COMMAND shows where"
    variables = _variables_in(str(error))
    if variables:
        hint = f"perhaps by the environment: {', '.join(variables)}; {hint}"
    return f"unexpected {type(error).__name__}: {reason} ({hint})", 1


def _variables_in(message: str) -> list[str]:
    """The environment variables that an error names or quotes: libraries read theirs without a word on which it is."""
    return [
        f"{name}={shown(value, limit=40)}"
        for name, value in os.environ.items()
        if value and (re.search(rf"\b{re.escape(name)}\b", message) or repr(value) in message)
    ]
