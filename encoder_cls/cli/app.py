"""The command line. Results go to standard output, and all other lines to standard error.

Large libraries are imported only when a command needs them, so that `--help` appears at once.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from encoder_cls.cli.compare import compare_command
from encoder_cls.cli.error_messages import PROGRAM, is_interrupted, message_and_exit_code
from encoder_cls.cli.eval import eval_command
from encoder_cls.cli.predict import predict_command
from encoder_cls.cli.prune import prune_command
from encoder_cls.cli.serve import serve_command
from encoder_cls.cli.train import train_command
from encoder_cls.errors import EncoderClsError, StoppedError
from encoder_cls.system.annexes import annexes_with
from encoder_cls.system.terminal import (
    be_quiet,
    end_at_sigterm_as_process_1,
    note,
    open_streams,
    print_out,
)

# The argument that may be empty: an empty text has a prediction, too.
TEXTS = "texts"
# The exit code of a program that was stopped by Ctrl-C: 128 plus the number of SIGINT.
INTERRUPTED = 130


class Command(TyperCommand):
    """A command that refuses empty values: as a path, one would be the current folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after checking them as they are written."""
        written, _, _ = self.make_parser(ctx).parse_args(list(args))
        parameters: list[Any] = self.params
        for parameter in parameters:
            value = written.get(parameter.name)
            values = value if isinstance(value, list | tuple) else [value]
            if "" in values and parameter.name != TEXTS:
                raise typer.BadParameter("it is empty", ctx=ctx, param=parameter)
        return super().parse_args(ctx, args)


app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    help="Train a Transformer-encoder text classifier from scratch on your own labelled text.",
    epilog="Start with: encoder-cls train (bundled example data), "
    "then encoder-cls init FILE, which looks through your own data and writes a config for it",
)
# The commands of the core, in the order in which the help lists them; then come those of annexes.
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train_command,
    "eval": eval_command,
    "compare": compare_command,
    "prune": prune_command,
    "predict": predict_command,
    "serve": serve_command,
}
# Annexes have such a table in their module `commands`.
for annex in annexes_with("commands").values():
    COMMANDS |= annex.COMMANDS
for name, command in COMMANDS.items():
    app.command(name, cls=Command)(command)

# Whether `--debug` was given.
_is_debugging = False


def _print_version(is_wanted: bool) -> None:
    """Print the version, with the distribution if it is not `encoder-cls`."""
    if not is_wanted:
        return

    from encoder_cls import __version__
    from encoder_cls.system.libraries import installed_version

    distribution, version = installed_version() or (PROGRAM, __version__)
    line = f"{PROGRAM} {version}"
    if distribution != PROGRAM:
        line += f" ({distribution})"
    print_out(f"{line}\n")
    raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, and log decisions.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", help="No progress and no notes: print results, warnings and errors only."
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001 - the callback prints the version
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    global _is_debugging  # noqa: PLW0603 - `_run_command` reads it when a command has failed
    _is_debugging = debug
    if quiet:
        be_quiet(shows_warnings=True)
    if debug:
        import logging

        logging.basicConfig(format="debug: %(message)s")
        logging.getLogger("encoder_cls").setLevel(logging.DEBUG)


def main() -> NoReturn:
    """Run the command line and exit; a failure is reported in one or two lines."""
    end_at_sigterm_as_process_1()
    _configure_libraries()
    open_streams()

    exit_code = _run_command()

    # Flush what libraries have printed, so that an error is noticed here.
    try:
        print_out("")
    except EncoderClsError as error:
        note(f"error: {error}", is_error=True)
        exit_code = exit_code or 1
    sys.exit(exit_code)


def _configure_libraries() -> None:
    """Set variables that OpenMP and torch read when they are first used."""
    # Let the waiting threads of OpenMP spin for a shorter time than by default (300,000 turns)
    # before they sleep. A thread that spins takes a core from other programs, and a thread that
    # sleeps takes long to wake up. The number was measured: docs/experiments/speed.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "6000")

    # Let torch use pages of 2 MiB instead of 4 KiB. Linux clears each page of new memory, and every
    # step allocates large tensors: with large pages, a step on long texts takes up to a fifth less
    # time. Torch reads this variable when it makes the first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

    # Stop when memory is short. Otherwise torch would warn and continue with another algorithm,
    # whose results differ in the last digits.
    warnings.filterwarnings("error", message="mkldnn_.* failed, switching to")


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """The app with only the command that the arguments name: others take some milliseconds."""
    named = [command for command in app.registered_commands if command.name in arguments[:1]]
    if not named:
        return app

    app_of_command = copy(app)
    app_of_command.registered_commands = named
    return app_of_command


def _run_command() -> int:
    try:
        command = typer.main.get_command(_app_for(sys.argv[1:]))
        return command(prog_name=PROGRAM, standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit:
        raise
    # A panic in Rust (in the tokenizer) is a `BaseException`, not an `Exception`.
    except BaseException as error:
        if _is_debugging:
            traceback.print_exc()
        if is_interrupted(error):
            return INTERRUPTED

        message, exit_code = message_and_exit_code(error)
        if isinstance(error, StoppedError):
            note(message, is_error=True)
        elif message:
            note(f"error: {message}", is_error=True)
        return exit_code
