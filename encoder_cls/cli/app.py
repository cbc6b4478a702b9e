"""The command line: parse, call one function, print.

Results go to standard output, all else to standard error. Nothing heavy is imported before a command
needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from encoder_cls.cli.streams import is_output_closed, mend_streams, note, print_out
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_cls.cli.predict_lines import Format, Input
    from encoder_cls.data.dataset import Split
    from encoder_cls.training.events import Event, Stepped, Validated
    from encoder_cls.training.setup import Preparation

PROGRAM = "encoder-cls"  # its name, however it is started, and that of the package
app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train a Transformer-encoder text classifier from scratch on your own labelled text.",
    epilog="Start with: encoder-cls train (bundled example data, one to three minutes on 2 cores)",
)

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
RUNS = Path("runs")
FORMATS = ("text", "jsonl", "tsv", "csv", "html")
TEXT_ENDINGS = ("txt", "log", "out")  # of files in which lines of text are expected
SECONDS_BETWEEN_LINES = 30
# Of a validation, in words.
SCORES = {"loss": "loss", "accuracy": "accuracy", "macro_f1": "macro-F1", "linear_part": "linear model's part"}
OUT_OF_MEMORY = re.compile("OutOfMemoryError|can't allocate memory|could not create a primitive")  # torch, oneDNN


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print_out(f"{PROGRAM} {importlib.metadata.version(PROGRAM)}\n")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback has printed it
        bool, typer.Option("--version", help="Show the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603 - one switch of the process, read where it ends
    _debug = debug


_debug = False


@app.command("train")
def train_command(
    config: Annotated[
        Path | None, typer.Option(help="The config file. Default: the bundled example.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override one value: section.key=value. Repeatable.", show_default=False),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/<config name>.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    device: Device = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check config and data, show what would be trained, train nothing.")
    ] = False,
) -> None:
    """Train a classifier, then report on its test split."""
    from encoder_cls.cli.outputs import check_run_folder
    from encoder_cls.config import load_config
    from encoder_cls.tracking.run_dir import RunFolder

    if resume and config is None and run_dir is not None:
        if not RunFolder(run_dir).is_run():
            raise ConfigError(f"{run_dir}: no run to go on with; name another --run-dir, or a --config to begin with")
        config = RunFolder(run_dir).config_file
    settings = load_config(config, overrides or ())
    run = RunFolder(run_dir or RUNS / settings.name)
    check_run_folder(run, settings.data)
    if not dry_run:
        run.check_trainable(settings, resume=resume)
        if run.is_finished():
            _note(f"{run.path}: this run is finished; nothing to do")
            return

    # The lock comes before all that takes time: a second training in the same folder ends at once.
    with nullcontext() if dry_run else run.held():
        from encoder_cls.data.checks import doubts
        from encoder_cls.system.device import resolve_device
        from encoder_cls.training.setup import prepare
        from encoder_cls.training.trainer import train

        torch_device = resolve_device(device)
        _note(f"reading {settings.data.train}")
        preparation = prepare(settings)
        for line in _described(preparation):
            _note(line)
        for line in doubts(preparation.dataset):
            _note(f"warning: {line}")
        if dry_run:
            print_out(settings.to_yaml())
            return
        with _stop_signals() as stop_signal:
            events = train(preparation, run, device=torch_device, resume=resume, stop_signal=stop_signal)
            _show_training(events, run.path)


@app.command("eval")
def eval_command(
    run: Annotated[Path, typer.Argument(help="A run or model folder.", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled file to score. Default: the run's test split, else its validation split.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the report as JSON to this file.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a trained classifier, per class and against a linear model."""
    from encoder_cls.cli.outputs import check_outputs

    if data == "":
        raise ConfigError("--data: names no file")
    check_outputs([output] if output else [], sources=[data] if data else [], model=run, is_printing=True)
    if output is None:
        _warn_if_closed()

    from encoder_cls.cli.evaluate_run import evaluate_run
    from encoder_cls.evaluation.report import report_text
    from encoder_cls.system.files import to_json, write_output

    report = evaluate_run(run, data=data, warn=_note)
    if output:
        write_output(output, to_json(report.to_dict()))
    print_out((to_json(report.to_dict()).decode() if as_json else report_text(report)) + "\n")


@app.command("predict")
def predict_command(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to classify.", show_default=False)] = None,
    model: Annotated[
        Path | None, typer.Option(help="A run or model folder. Default: the newest finished run.", show_default=False)
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Texts: a file (.txt, .ft one a line; .csv, .tsv, .jsonl, .parquet: by column), - for standard input.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", show_default=False)] = None,
    text_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--text-column",
            help="The column with the texts. Repeatable. Default: as in training.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, jsonl, tsv, csv or html. Default: by the ending of --output, else text.",
            metavar="FORMAT",
            show_default=False,
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Withhold the label where its probability is lower.")
    ] = 0.0,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most tokens in a batch. Default: what the device is fast with.", show_default=False
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show which words spoke for the class, and which against it.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(help="Write a page of the first texts' attention maps to this file.", show_default=False),
    ] = None,
    device: Device = "auto",
) -> None:
    """Classify texts: given here, in a file, or on standard input; one result a line."""
    chosen_format = _format(output_format, output)
    source = _source(texts, input_file, text_columns)

    from encoder_cls.cli.outputs import check_outputs
    from encoder_cls.system.files import stream_named
    from encoder_cls.tracking.run_dir import newest_finished

    if output and stream_named(output) == 1:
        output = None  # results come as they are known, and their reader may have seen enough
    folder = model or newest_finished(RUNS).path
    outputs = [path for path in (output, attention) if path]
    check_outputs(outputs, sources=[source] if source else [], model=folder, is_printing=output is None)
    if not model:
        _note(f"model: {folder} (the newest finished run; --model names another)")
    if output is None:
        _warn_if_closed()

    from encoder_cls.cli.predict_lines import (
        Input,
        attention_html,
        check_inputs,
        columns_of,
        has_ids,
        predict_lines,
        read_inputs,
    )
    from encoder_cls.inference.classifier import load_classifier
    from encoder_cls.system.files import write_output

    classifier = load_classifier(folder, device=device)
    chunks: Iterator[list[Input]]
    with_id: bool | None = None
    if source is None:
        chunks = iter([[Input(_as_utf8(text)) for text in texts or ()]])
    else:
        columns = text_columns or columns_of(folder)
        if output:  # which is written in the end, or not at all
            check_inputs(source, text_columns=columns)
        if chosen_format in {"tsv", "csv"}:
            with_id = has_ids(source, text_columns=columns)
        chunks = read_inputs(source, text_columns=columns)
    if attention:
        first = next(chunks, [])
        write_output(attention, attention_html(classifier, first).encode("utf-8", "replace"))
        chunks = chain([first] if first else [], chunks)
    lines = predict_lines(
        classifier,
        chunks,
        output_format=chosen_format,
        top_k=top_k,
        threshold=threshold,
        batch_tokens=batch_tokens,
        explained=explained,
        coloured=output is None and sys.stdout.isatty(),
        with_id=with_id,
        warn=_note,
    )
    _write_lines(lines, output)


def main() -> NoReturn:
    """Run the command line; every failure ends in one or two lines and its exit code."""
    # OpenMP's threads wait for each other in a busy loop, and asleep after so many turns of it. Where another program
    # wants a core too, the loop wastes most of the time of both; where none does, to be woken takes longer than most
    # waits. So less than the default, 300,000 turns, and not too little: docs/experiments.md has what was measured.
    os.environ.setdefault("GOMP_SPINCOUNT", "6000")
    # Linux clears each page of memory, 4 KiB, when it is touched first, and large tensors come and go in every step.
    # In pages of 2 MiB a step on long texts takes up to a fifth less time. Torch looks at this with its first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Short of memory, torch would warn and take another way, whose last digits differ. To end is better: what is
    # then done again with enough memory is exact.
    warnings.filterwarnings("error", message="mkldnn_.* failed, switching to")
    mend_streams()
    try:
        code = typer.main.get_command(app).main(prog_name=PROGRAM, standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        if _debug:
            traceback.print_exc()
        message, code = _explained(error) if not _is_interrupted(error) else ("", 130)
        if message:
            _note(message if isinstance(error, StoppedError) else f"error: {message}")
    try:
        print_out("")  # what a library has printed may still wait
    except EncoderClsError as error:
        _note(f"error: {error}")
        code = code or 1
    sys.exit(code)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is at the bottom of an error: some libraries make another one of it."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or _is_interrupted(error.__cause__ or error.__context__)
    )


def _explained(error: BaseException) -> tuple[str, int]:
    """What to tell the user of an error, and the exit code."""
    if isinstance(error, EncoderClsError):
        return str(error), error.exit_code
    usage: Any = error
    if hasattr(usage, "format_message"):  # Typer's own errors have no class that all its versions share
        message = usage.format_message()
        path = usage.ctx.command_path if getattr(usage, "ctx", None) else PROGRAM
        return message and f"{message} ({path} --help lists what there is)", usage.exit_code
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        reason = next(iter(str(error).splitlines()), "no more can be had")
        return f"out of memory: {reason} (a smaller train.batch_tokens, --batch-tokens or model needs less)", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1
    return f"unexpected {type(error).__name__}: {error} (encoder-cls --debug COMMAND shows where)", 1


def _format(named: str | None, output: Path | None) -> Format:
    """The format that is named, or that the ending of the output means.

    Raises:
        ConfigError: there is no such format.
    """
    if named is not None:
        if named not in FORMATS:
            raise ConfigError(f"--format {named}: known formats are {', '.join(FORMATS[:-1])} and {FORMATS[-1]}")
        return cast("Format", named)
    ending = output.suffix.lower().removeprefix(".") if output else ""
    if ending in FORMATS:
        return cast("Format", ending)
    if ending and ending not in TEXT_ENDINGS:
        _note(f"warning: {output}: no format is known by this ending, so lines of text are written; --format names one")
    return "text"


def _source(texts: Sequence[str] | None, named: str | None, text_columns: Sequence[str] | None) -> str | None:
    """What texts are read from; none where they are given.

    Raises:
        ConfigError: there are none, or twice as many as can be, or columns of what has none.
    """
    if texts and named is not None:
        raise ConfigError("give texts or --input, not both")
    if named == "":
        raise ConfigError("--input: names no file")
    if text_columns and (texts or named in {None, "-"}):
        raise ConfigError("--text-column is for files: texts given here, and lines of standard input, have no columns")
    if texts:
        return None
    if named in {None, "-"} and sys.stdin is None:
        raise ConfigError("standard input is closed; give texts, or --input FILE")
    if named is None and sys.stdin.isatty():
        raise ConfigError('give texts, such as: encoder-cls predict "some text", or --input FILE')
    return named or "-"


def _as_utf8(text: str) -> str:
    """A text of the command line, also where the environment says that it could only be ASCII."""
    if all(character < "\udc80" or character > "\udcff" for character in text):
        return text
    return os.fsencode(text).decode("utf-8", "replace")


def _warn_if_closed() -> None:
    if is_output_closed():
        _note("warning: standard output is closed, results go nowhere; --output names a file for them")


def _note(message: str) -> None:
    note(message)


def _write_lines(chunks: Iterator[list[str]], output: Path | None) -> None:
    """Print lines as they come, or replace a file with all of them at the end."""
    if output is None:
        for lines in chunks:
            if not print_out("".join(f"{line}\n" for line in lines)):
                return
        return
    from encoder_cls.system.files import write_output

    write_output(output, (f"{line}\n".encode() for lines in chunks for line in lines))


@contextmanager
def _stop_signals() -> Iterator[Callable[[], int | None]]:
    """Turn the first SIGINT or SIGTERM into an answer for the training loop; a second one ends at once."""
    received: list[int] = []

    def receive(number: int, _frame: Any) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        with suppress(OSError):  # not through sys.stderr, which may be writing a line at this very moment
            os.write(2, b"\nstopping after this step; once more to stop at once\n")

    former = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _described(preparation: Preparation) -> Iterator[str]:
    """What will be trained on what, in a few lines."""
    dataset, config, facts = preparation.dataset, preparation.config, preparation.facts
    test = f", {len(dataset.test):,} test" if dataset.test else ""
    more = f", {len(dataset.unlabelled.texts):,} unlabelled" if dataset.unlabelled.texts else ""
    yield (
        f"data: {len(dataset.train):,} training, {len(dataset.validation):,} validation{test}{more} texts, "
        f"{len(dataset.label_names)} classes, of {_sizes(dataset.train, dataset.label_names)} training texts"
    )
    yield (
        f"tokens: vocabulary {preparation.vocab_size:,}, unknown in validation {facts['unknown_fraction']:.1%}, "
        f"texts longer than the encoder reads {facts['truncated_fraction']:.1%}, padding "
        f"{facts['padding_fraction']:.1%}"
    )
    shape = f"{config.model.num_layers} layers of width {config.model.d_model}"
    recipe = preparation.recipe
    beside = ", beside it a linear model" if recipe.linear else ""
    if config.model.linear and not recipe.linear:
        beside = ", no linear model beside it (too much text for so many classes)"
    yield f"model: {shape}, {preparation.num_parameters:,} parameters{beside}"
    lengths = {"guessing hidden words": recipe.pretraining, "learning labels": recipe.length}
    passes = [f"{it.epochs} epoch{'s' * (it.epochs > 1)} of {what}" for what, it in lengths.items() if it]
    yield f"steps: {preparation.total_steps:,} in all; {', '.join(passes)}"


def _sizes(split: Split, label_names: Sequence[str]) -> str:
    """How many texts the smallest class has, and the largest."""
    import numpy as np

    from encoder_cls.system.display import shown

    sizes = sorted(zip(np.bincount(split.labels, minlength=len(label_names)).tolist(), label_names, strict=True))
    return " to ".join(f"{size:,} ({shown(name, limit=30)})" for size, name in (sizes[0], sizes[-1]))


def _place(stage: str, event: Stepped | Validated) -> str:
    return f"{stage:11}  epoch {event.epoch:5.1f}  step {event.step:6d}"


def _show_training(events: Iterator[Event], run: Path) -> None:
    """Follow a training: a progress bar on a terminal, a plain line now and then elsewhere."""
    from tqdm import tqdm

    from encoder_cls.evaluation.report import summary_text
    from encoder_cls.training.events import Finished, Noted, StageStarted, Started, Stepped, Validated

    started = next(events, None)
    if not isinstance(started, Started):
        return  # another process has finished this run in the meantime
    _note(f"training in {run}" + (f", going on after step {started.step}" if started.step else ""))
    on_terminal, last_line = sys.stderr.isatty(), time.monotonic()
    stage, step, total_steps = "", started.step, started.total_steps
    with tqdm(
        total=started.total_steps, initial=started.step, unit="step", disable=not on_terminal, dynamic_ncols=True
    ) as bar:
        # Above the bar; where there is none, standard error may be closed by whoever read it.
        tell = partial(bar.write, file=sys.stderr) if on_terminal else _note
        for event in events:
            match event:
                case Stepped():
                    bar.update()
                    step = event.step
                    if event.values:
                        numbers = f"loss {event.values['loss']:.3f}, {event.values['tokens_per_s']:,.0f} tokens/s"
                        bar.set_postfix_str(numbers)
                        if not on_terminal and time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
                            _note(f"{_place(stage, event)} of {bar.total}: {numbers}")
                            last_line = time.monotonic()
                case Noted():
                    tell(f"warning: {event.message}")
                case StageStarted():
                    stage, total_steps = event.stage.name, event.total_steps
                    bar.set_description(stage)
                    bar.total = total_steps
                    bar.refresh()
                case Validated():
                    if event.is_best:
                        scores = "  ".join(
                            f"{SCORES[name]} {value:.4f}"
                            for name, value in event.verdict.scores.items()
                            if name in SCORES
                        )
                        tell(f"{_place(stage, event)}: validation {scores}")
                    last_line = time.monotonic()
                case Finished():
                    bar.close()
                    print_out(f"{summary_text(event.report)}\n")
                    size = sum(file.stat().st_size for file in (run / "model").iterdir()) / 1e6
                    early = f", stopped at step {step} of {total_steps} (train.patience)" if step < total_steps else ""
                    best = f"best weights from step {event.best_step}"
                    _note(f"\ntrained in {event.seconds:.0f} s{early}; {best}; {size:.0f} MB")
                    _note_what_is_next(run)


def _note_what_is_next(run: Path) -> None:
    """What to do with a run, as commands that a shell takes."""
    name = shlex.quote(str(run))
    _note(f'next: encoder-cls predict --model {name} --explain "some text"')
    _note(f"      encoder-cls eval {name}    (each class; in a browser: {run / 'eval' / 'report.html'})")
    _note(f"      tensorboard --logdir {shlex.quote(str(run.parent))}")
