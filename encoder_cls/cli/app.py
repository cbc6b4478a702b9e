"""The command line: results go to standard output, all else to standard error.

Nothing heavy is imported before a command needs it, so that `--help` appears at once.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated, NoReturn

import typer

from encoder_cls.cli.compare import compare_command
from encoder_cls.cli.error_messages import PROGRAM, is_interrupted, message_and_exit_code
from encoder_cls.cli.eval import eval_command
from encoder_cls.cli.predict import predict_command
from encoder_cls.cli.review import review_command
from encoder_cls.cli.serve import serve_command
from encoder_cls.cli.suggest import suggest_command
from encoder_cls.cli.train import train_command
from encoder_cls.cli.tune import tune_command
from encoder_cls.errors import EncoderClsError, StoppedError
from encoder_cls.system.terminal import end_at_sigterm_as_process_1, note, open_streams, print_out

# The exit code of a program that Ctrl-C has ended.
INTERRUPTED = 130

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

_is_debugging = False


def _print_version(is_wanted: bool) -> None:
    """Print the version of the installed distribution, and its name where it is another one."""
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
    version: Annotated[  # noqa: ARG001 - its callback has printed it
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    global _is_debugging  # noqa: PLW0603 - one switch of the process, read where it ends
    _is_debugging = debug
    if debug:
        import logging

        logging.basicConfig(format="debug: %(message)s")
        logging.getLogger("encoder_cls").setLevel(logging.DEBUG)


def main() -> NoReturn:
    """Run the command line; every failure ends with one or two lines and an exit code."""
    end_at_sigterm_as_process_1()
    _configure_libraries()
    open_streams()

    exit_code = _run_command()

    # Flush what a library has printed.
    try:
        print_out("")
    except EncoderClsError as error:
        note(f"error: {error}")
        exit_code = exit_code or 1
    sys.exit(exit_code)


def _configure_libraries() -> None:
    """Set what OpenMP and torch read when they are first used."""
    # OpenMP's threads spin before they sleep. Spinning wastes the core if another program wants it;
    # waking up takes longer than most waits if none does. Hence fewer turns than the default of
    # 300,000: docs/experiments/speed.md.
    os.environ.setdefault("GOMP_SPINCOUNT", "6000")

    # Linux clears memory page by page on first use, and large tensors come and go in every step.
    # With pages of 2 MiB in place of 4 KiB, a step on long texts takes up to a fifth less time.
    # Torch reads this with its first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

    # Short of memory, torch switches to another algorithm, with other last digits; the program ends
    # instead.
    warnings.filterwarnings("error", message="mkldnn_.* failed, switching to")


def _run_command() -> int:
    """Run the command that is asked for; report a failure, and return the exit code."""
    command = typer.main.get_command(app)
    try:
        return command(prog_name=PROGRAM, standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
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
