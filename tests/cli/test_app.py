"""The command line: its exit codes, its messages, and what goes to which stream."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
import yaml
from support.programs import (
    COMMAND,
    TIME_LIMIT,
    assert_failed,
    hashes,
    run_process,
    setting,
    succeed,
)
from support.signals import signal_in_step
from support.small_runs import WITHOUT_TECHNIQUES

from encoder_cls.classifier import validation_result
from encoder_cls.cli import app, run_summary
from encoder_cls.config.loading import load_config
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import terminal_reporter

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")
REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = {
    "torch",
    "numpy",
    "tokenizers",
    "datasets",
    "sklearn",
    "matplotlib",
    "tensorboard",
    "pyarrow",
}


# What the first prediction for a text does not need, and takes some milliseconds to import.
NOT_FOR_PREDICTING = {
    "torch",
    "pyarrow",
    "concurrent.futures",
    "logging",
    "xml.parsers.expat",
    "encoder_cls.classifier.occlusion",
}
# What `train` does not need before its first line.
NOT_FOR_THE_FIRST_LINE = HEAVY - {"numpy"}
# Lets `train` end when it has printed its first line.
ENDS_BEFORE_TRAINING = """
from encoder_cls.cli import train
train._prepare_and_train = lambda *_arguments, **_options: None
"""
# What commands import that train no encoder, and what none of them needs before its work.
MODULES_OF_COMMANDS = {
    "eval": "encoder_cls.run.evaluate",
    "review": "encoder_cls.run.review",
    "compare": "encoder_cls.run.compare",
    "init": "encoder_cls.training.expected_time",
    "label": "encoder_cls.extras.label.server, encoder_cls.extras.label.model_loop",
}
NOT_BEFORE_THE_WORK = {"torch", "sklearn", "matplotlib", "tensorboard", "datasets"}
# Lets a program print the modules that it has imported when it ends.
PRINT_MODULES = "import atexit, sys; atexit.register(lambda: print('modules:', *sys.modules))"


@pytest.fixture
def tiny(trained_run) -> Path:
    """The config of the trained run."""
    return trained_run.path.parent / "tiny.yaml"


@pytest.mark.parametrize("arguments", [["train", "--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments):
    """They appear at once, because no large library is loaded for them."""
    ended = run_process(*arguments, before=PRINT_MODULES, check=True)
    shown, _, modules = ended.stdout.partition("modules:")

    if arguments == ["--version"]:
        assert shown == f"encoder-cls {importlib.metadata.version('encoder-cls')}\n"
    else:
        assert "Usage: encoder-cls" in shown
    assert not HEAVY & set(modules.split())


def test_a_prediction_imports_only_what_it_needs(trained_run):
    command = ["predict", "--model", trained_run.path, "rain and snow today"]

    ended = run_process(*command, before=PRINT_MODULES, check=True)

    _, _, modules = ended.stdout.partition("modules:")
    assert not NOT_FOR_PREDICTING & set(modules.split())


def test_the_first_line_of_a_training_needs_nothing_heavy():
    """It appears before PyTorch is loaded, which takes more than a second."""
    before = f"{PRINT_MODULES}\n{ENDS_BEFORE_TRAINING}"

    ended = run_process("train", before=before, check=True)

    assert ended.stderr.endswith("reading example:train\n")
    _, _, modules = ended.stdout.partition("modules:")
    assert not NOT_FOR_THE_FIRST_LINE & set(modules.split())


def test_commands_that_train_no_encoder_import_no_torch():
    """PyTorch takes more than a second to load; what they fit or draw is loaded when it is used."""
    before = "\n".join(f"import {modules}" for modules in MODULES_OF_COMMANDS.values())

    ended = run_process("--version", before=f"{PRINT_MODULES}\n{before}", check=True)

    _, _, modules = ended.stdout.partition("modules:")
    assert not NOT_BEFORE_THE_WORK & set(modules.split())


def test_only_the_options_of_the_command_that_is_run_are_looked_through(
    cli, trained_run, monkeypatch
):
    looked_through = []
    get_command = typer.main.get_command_from_info

    def noting(command_info, **options):
        looked_through.append(command_info.name)
        return get_command(command_info, **options)

    monkeypatch.setattr(typer.main, "get_command_from_info", noting)

    succeed(cli, "predict", "--model", trained_run.path, "rain and snow today")
    assert looked_through == ["predict"]

    # An unknown command is compared with the names of all commands.
    outcome = cli("predikt", "rain")
    assert outcome.code == 2
    assert "predict" in outcome.err


def test_training_prints_a_summary_to_stdout_and_all_else_to_stderr(cli, tiny, monkeypatch):
    """The summary can be redirected by itself; a log file gets plain lines, no progress bar."""
    monkeypatch.setattr(terminal_reporter, "SECONDS_BETWEEN_LINES", -1)
    monkeypatch.setattr(terminal_reporter, "SECONDS_BEFORE_FIRST_LINE", 0.0)

    outcome = succeed(cli, "train", tiny, "--set", "train.epochs=2")

    assert outcome.out.startswith("test: 15 examples\n")
    assert "TF-IDF baseline" in outcome.out
    assert len(outcome.out.splitlines()) <= 12
    for line in outcome.out.splitlines():
        assert line == "" or line.startswith(("  ", "test:"))

    notes = [
        "reading ",
        "tokenizing ",
        "time: about ",
        "training in runs/tiny",
        "step     10 of 12: loss",
        "model        epoch   1.0",
        "fitting the TF-IDF baseline",
        "next: encoder-cls predict",
        "encoder-cls eval runs/tiny",
    ]
    for note in notes:
        assert note in outcome.err
        assert note not in outcome.out
    assert "\r" not in outcome.err
    assert "stopped at step" not in outcome.err
    assert RunDir(Path("runs/tiny")).is_finished()


def test_a_training_can_print_its_main_figures_as_one_line_of_json(cli, tiny):
    """All other lines go to standard error; a run that is finished prints the same line again."""
    command = ["train", tiny, "--set", "model.encoder=false", "--json"]

    outcome = succeed(cli, *command)

    report = json.loads(Path("runs/tiny/eval/report.json").read_text("utf-8"))
    (line,) = outcome.out.splitlines()
    figures = json.loads(line)
    assert figures["run"] == "runs/tiny"
    for key in ("split", "num_examples", "accuracy", "accuracy_interval", "macro_f1", "ece"):
        assert figures[key] == report[key], key
    assert figures["linear_reference"] == report["linear_reference"]
    assert figures["model_bytes"] > 0
    assert "test: 15 examples\n" in outcome.err
    assert "next: encoder-cls predict" in outcome.err

    again = succeed(cli, *command, "--resume")
    assert json.loads(again.out) == figures

    assert_failed(cli(*command, "--dry-run"), 2, "--json: a dry run has no report")


def test_the_newest_run_predicts_unless_another_is_named(cli, run_copy):
    outcome = cli("predict", "snow and rain")
    assert outcome.out.startswith("weather ")
    assert "model: runs/tiny" in outcome.err

    outcome = cli("predict", "snow and rain", "--model", run_copy.path)
    assert outcome.out.startswith("weather ")
    assert "model:" not in outcome.err


def test_the_next_commands_are_quoted_for_a_shell(capsys):
    run_summary.note_next_commands(Path("my runs/$new"))

    commands = []
    for line in capsys.readouterr().err.splitlines():
        command, _, _ = line.partition("    (")
        commands.append(shlex.split(command.removeprefix("next:")))
    assert commands == [
        ["encoder-cls", "predict", "--model", "my runs/$new", "--explain", "some text"],
        ["encoder-cls", "eval", "my runs/$new"],
        ["tensorboard", "--logdir", "my runs"],
    ]


@pytest.mark.usefixtures("encoder_joins")
def test_training_notes_each_stage_and_each_validation(cli, tiny, monkeypatch):
    """The best validations so far have a star."""
    linear_accuracies = [0.0, 0.0, 0.125]  # of passes, of naive Bayes and as planned
    epoch_accuracies = [0.25, 0.5, 0.125, 0.75, 0.375, 0.375]
    report_accuracy = 0.375
    accuracies = iter([*linear_accuracies, *epoch_accuracies, report_accuracy])
    real_metrics = validation_result.compute_metrics

    def compute_metrics(*arguments):
        return replace(real_metrics(*arguments), accuracy=next(accuracies))

    monkeypatch.setattr(validation_result, "compute_metrics", compute_metrics)
    values = ["pretrain.epochs=1", "train.epochs=9", "train.monitor=accuracy", "train.patience=2"]

    notes = succeed(cli, "train", tiny, *setting(*values)).err

    assert "parameters, beside it a linear model\n" in notes
    passes = "1 epoch of masked-LM pretraining, 9 epochs of training on labels"
    assert f"steps: 60 in all; {passes}\n" in notes

    def has_line(pattern: str) -> bool:
        return re.search(f"^{pattern}$", notes, re.MULTILINE) is not None

    assert has_line(r"linear model: validation .*accuracy 0\.1250.*  \*")
    assert has_line(r"pretraining  epoch   1\.0  step      6: .*loss \d\.\d{4}  \*")

    validations = re.findall(
        r"^model .*accuracy (\d\.\d{4}).*linear weight [01]\.\d{4}(  \*)?$", notes, re.MULTILINE
    )
    assert validations == [
        ("0.2500", "  *"),
        ("0.5000", "  *"),
        ("0.1250", ""),
        ("0.7500", "  *"),
        ("0.3750", ""),
        ("0.3750", ""),
    ]
    assert "validation accuracy: linear model 0.1250, with the encoder 0.7500\n" in notes
    assert has_line(r".*stopped at step \d+ of 60 \(train\.patience\).*")
    assert has_line(r".*best weights from step 30; [\d.]+ MB")
    stages = r"reading .*, linear model .*, pretraining .*, encoder .*, report .*"
    assert has_line(rf".*trained in \d+ (s|min) \({stages}\).*")


def test_a_finished_run_is_not_changed(cli, run_copy):
    """A second training into its folder is refused; resuming it does nothing."""
    before = hashes(run_copy.path)
    refused = cli("train", "--config", run_copy.config_file, "--run-dir", run_copy.path)
    assert_failed(refused, 2, "--resume")

    outcome = succeed(cli, "train", "--run-dir", run_copy.path, "--resume")
    assert outcome.out == ""
    assert "finished" in outcome.err
    assert hashes(run_copy.path) == before


def test_the_config_may_be_named_without_an_option(cli, tiny):
    """`train FILE` is `train --config FILE`; both together are refused."""
    outcome = succeed(cli, "train", tiny, "--dry-run")
    assert outcome.out == cli("train", "--config", tiny, "--dry-run").out

    assert_failed(cli("train", tiny, "--config", tiny), 2, "two config files; name one")
    assert_failed(cli("train", "nowhere.yaml"), 2, "nowhere.yaml: cannot read the config")


def test_a_dry_run_prints_the_config_and_writes_nothing(cli, tiny, tmp_path, monkeypatch):
    """Sizes and steps come last, where a terminal shows them."""
    # One stream for both, which keeps their order.
    monkeypatch.setattr(sys, "stdout", sys.stderr)

    outcome = succeed(cli, "train", tiny, "--set", "train.epochs=3", "--dry-run")

    assert list(tmp_path.iterdir()) == []
    parts = re.fullmatch(r"reading .*?\n(name: tiny\n.*\n)(data: .*)", outcome.err, re.DOTALL)
    config, plan = parts.groups()
    assert "parameters" in plan
    assert plan.splitlines()[3] == "steps: 18 in all; 3 epochs of training on labels"

    Path("again.yaml").write_text(config, encoding="utf-8")
    assert load_config(Path("again.yaml")) == load_config(tiny, ["train.epochs=3"])
    assert yaml.safe_load(config)["train"]["epochs"] == 3


def test_a_diverging_training_names_the_step(cli, tiny):
    """The message says how to mend it, also where a validation is the first to notice."""
    values = setting("train.learning_rate=1e38", "train.validate_every=1")
    outcome = cli("train", tiny, *values)
    remedy = "train again with a lower train.learning_rate and another --run-dir"
    assert_failed(outcome, 4, "diverged at step ", remedy)


def test_a_terminated_training_leaves_a_checkpoint_and_resumes(cli, tiny):
    """SIGTERM ends with code 143 after a checkpoint, and --resume brings the run to its end."""
    values = setting(
        "train.epochs=3",
        "train.patience=null",
        "train.validate_every=15",
        *WITHOUT_TECHNIQUES,
    )
    arguments = ["train", str(tiny), "--run-dir", "runs/stopped", *values]

    # This is before the first validation and its checkpoint.
    with signal_in_step(signal.SIGTERM, 10):
        stopped = cli(*arguments)
    assert stopped.code == 143
    assert stopped.out == ""
    assert "Traceback" not in stopped.err

    run = RunDir(Path("runs/stopped"))
    step = int(re.search(r"stopped at step (\d+).*--resume", stopped.err)[1])
    assert 10 <= step < 15
    assert (run.checkpoints / f"step-{step}").is_dir()
    assert "runs/stopped/model holds the best model so far" in stopped.err

    prediction = cli("predict", "snow and rain")
    assert "model: runs/stopped (the newest run, which is not finished;" in prediction.err
    scored = cli("eval", "runs/stopped")
    assert "runs/stopped is not finished: this is its best model so far\n" in scored.err
    assert scored.out.startswith("test: 15 examples\n")

    resumed = succeed(cli, *arguments, "--resume")
    assert f"continuing after step {step}\n" in resumed.err
    assert run.is_finished()


DATA_FILES = {
    "ragged.csv": "text,label\nrain,a\nsnow,b,c\n",
    "texts/a/1.txt": "rain",
    "texts/b/1.txt": "soup",
}


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--config", "missing.yaml"], 2, ["missing.yaml", "No such file"]),
        (["--run-dir", "typo", "--resume"], 2, ["typo: no run to resume"]),
        (
            ["--set", "data.train=texts", "--run-dir", "texts/run"],
            2,
            ["texts/run: the files of the run would be read"],
        ),
        (["--set", "train.class_weights={x: 2}"], 2, ["'x'", "there are"]),
        (["--set", "train.epochz=3"], 2, ["train.epochz", "did you mean epochs?"]),
        (["--device", "cuda:99"], 2, ["--device cuda:99"]),
        (["--set", "data.train=missing.csv"], 3, ["missing.csv", "no such file"]),
        (["--set", "data.train=ragged.csv"], 3, ["ragged.csv:3"]),
    ],
)
def test_train_refuses_in_one_or_two_lines_and_writes_nothing(cli, arguments, code, named):
    """The message names what to correct, and the code says whether it is config or data."""
    for name, content in DATA_FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
    assert_failed(cli("train", *arguments), code, *named)
    assert not Path("runs").exists()


PREDICT = ["predict", "--model", "RUN", "--input", "mine.csv"]


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["predict", "rain", "--keep-columns"], 2, ["--keep-columns works only with files"]),
        (["predict", "rain", "--set", "data.encoding=utf-16"], 2, ["--set works only with files"]),
        (["predict", "--runner", "dask"], 2, ["--runner dask: unknown; known are local, ray"]),
        (["predict", "--runner", "ray"], 2, ["needs --input and --output"]),
        (
            [*PREDICT, "--output", "o", "--runner", "ray", "--explain"],
            2,
            ["--runner ray: takes only --input"],
        ),
        (
            [*PREDICT, "--keep-columns"],
            2,
            ["text has no columns; choose --format csv, tsv, xlsx, jsonl or parquet"],
        ),
        ([*PREDICT, "--format", "parquet"], 2, ["cannot be printed; name a file with --output"]),
        ([*PREDICT, "--output", "/dev/stdout", "--format", "parquet"], 2, ["cannot be printed"]),
        ([*PREDICT, "--bad-rows", "ignore"], 2, ["--bad-rows", "not one of 'error', 'skip'"]),
        (
            [*PREDICT, "--set", "data.encoding=latin-99"],
            2,
            ["--set data.encoding: 'latin-99' is not an encoding"],
        ),
        (
            [*PREDICT, "--set", "data.delimiter=;;"],
            2,
            ["--set data.delimiter: ';;' is not a field separator"],
        ),
        (
            [*PREDICT, "--set", "train.epochs=3"],
            2,
            ["only data.delimiter, data.encoding and data.sheet can be set here"],
        ),
        ([*PREDICT, "--attention", "mine.csv"], 2, ["is a file that is"]),
        (["predict", "rain"], 2, ["no run with a model", "--model"]),
        (["predict", "rain", "--model", "nowhere"], 2, ["nowhere: no such folder"]),
        (["predict", "--input", "-", "--text-column", "body"], 2, ["--text-column"]),
        (
            ["eval", "RUN", "--data", "mine.csv", "--output", "mine.csv"],
            2,
            ["is a file that is read"],
        ),
        (["predict", "rain", "--input", "texts.txt"], 2, ["not both"]),
        (["predict", "rain", "--model", "RUN", "--device", "tpu"], 2, ["--device tpu"]),
        (["predict", "--model", "RUN", "--input", "missing.txt"], 3, ["missing.txt"]),
        (["eval", "RUN", "--data", "missing.csv"], 3, ["missing.csv"]),
        (["eval", "RUN", "--report", ""], 2, ["--report", "is empty"]),
        (["eval", "RUN", "--output", "RUN/model/new.json"], 2, ["new.json: is a part of"]),
        (
            ["predict", "x", "--model", "RUN", "--output", "RUN/model/x.csv"],
            2,
            ["x.csv: is a part of"],
        ),
        (["prdeict", "x"], 2, ["prdeict"]),
    ],
)
def test_eval_and_predict_refuse_in_one_or_two_lines(cli, trained_run, arguments, code, named):
    """The message names what to correct, with the code of its kind; existing files stay."""
    Path("mine.csv").write_text("text,label\nrain,weather\n", "utf-8")
    arguments = [argument.replace("RUN", str(trained_run.path)) for argument in arguments]
    before = hashes(trained_run.path)
    assert_failed(cli(*arguments), code, *named)
    assert hashes(trained_run.path) == before
    assert Path("mine.csv").read_text("utf-8") == "text,label\nrain,weather\n"


def test_every_option_and_argument_refuses_an_empty_value():
    """An empty path would be the current folder; a text may be empty."""
    for command in typer.main.get_command(app.app).commands.values():
        arguments = [part for part in command.params if part.param_type_name == "argument"]
        options = [part for part in command.params if part.param_type_name == "option"]
        for option in options:
            if not option.is_flag:
                words = [*("x" for _ in arguments), option.opts[0], ""]
                with pytest.raises(typer.BadParameter):
                    command.make_context(command.name, words)

        if command.name == "predict":
            assert command.make_context(command.name, [""]).params["texts"] == [""]
        elif arguments:
            with pytest.raises(typer.BadParameter):
                command.make_context(command.name, [""])


def test_predict_without_texts_asks_for_some_on_a_terminal(cli, monkeypatch):
    """Without texts it reads a pipe, but does not wait in silence for a person to type."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert_failed(cli("predict"), 2, "give texts", "--input")


def test_a_closed_standard_input_is_no_input(cli, trained_run, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)

    for options in ([], ["--input", "-"]):
        refused = cli("predict", *options)
        assert_failed(refused, 2, "standard input is closed", "--input FILE")

    succeed(cli, "predict", "rain", "--model", trained_run.path)


@pytest.mark.parametrize(
    ("stream", "code", "expected"),
    [
        (os.devnull, 0, "warning: standard output is closed, so results are lost; name a file"),
        ("/dev/full", 1, "error: standard output: cannot write: No space left on device\n"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "eval"])
def test_results_that_go_nowhere_are_reported(
    cli, run_copy, monkeypatch, command, stream, code, expected
):
    """A full disk is an error; a stream that was closed from the start is not."""
    arguments = [command, run_copy.path]
    if command == "predict":
        arguments = [command, "rain", "--model", run_copy.path]
    with Path(stream).open("w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        outcome = cli(*arguments)
    assert outcome.code == code

    (message,) = [
        line for line in outcome.err.splitlines(keepends=True) if not line.startswith("wrote ")
    ]
    assert message.startswith(expected)


def test_texts_are_utf_8_where_the_environment_knows_only_ascii(cli, trained_run):
    found = cli("predict", "k\udcc3\udcbcche \udcff", "--model", trained_run.path).out
    assert found.endswith("'küche \N{REPLACEMENT CHARACTER}'  (2 unknown words)\n")


def test_an_error_of_the_system_names_the_file_and_the_reason(cli, trained_run):
    outcome = cli("predict", "--model", trained_run.path, "--input", "x" * 300)
    assert_failed(outcome, 1, "x" * 300 + ": File name too long")


def test_debug_shows_the_traceback_and_keeps_the_exit_code(cli, caplog):
    # At the end, caplog restores the level.
    caplog.set_level("INFO", logger="encoder_cls")
    outcome = cli("--debug", "train", "--config", "missing.yaml")
    assert outcome.code == 2
    assert "Traceback" in outcome.err


@pytest.mark.parametrize(
    ("num_texts", "num_read"), [(5000, 1), pytest.param(*(3, 0), marks=pytest.mark.slow)]
)
def test_predict_into_head_ends_quietly(trained_run, num_texts, num_read):
    """It is no error that the reader of the output has seen enough."""
    Path("texts.txt").write_text("snow and rain today\n" * num_texts, encoding="utf-8")
    command = [*COMMAND, "predict", "--model", str(trained_run.path)]
    command += ["--input", "texts.txt", "--format", "jsonl"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(num_read):
            prediction = json.loads(process.stdout.readline())
            assert prediction["label"] == "weather"
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(timeout=TIME_LIMIT)

    assert code == 0
    assert errors == b""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "a link"])
def test_standard_output_by_its_name_is_standard_output(cli, trained_run, monkeypatch, name):
    """Results come at once; nothing is written as a file at the end."""

    def fail(*_arguments):
        pytest.fail("written as a file")

    monkeypatch.setattr("encoder_cls.bulk.predict.output_file", fail)
    Path("a link").symlink_to("/proc/self/fd/1")

    options = ["--model", trained_run.path, "--output", name, "--format", "jsonl"]
    outcome = succeed(cli, "predict", "rain", *options)

    assert outcome.err == ""
    assert json.loads(outcome.out)["label"] == "weather"


class PanicException(BaseException):
    """What PyO3 raises for a panic in Rust."""


def interrupted() -> Exception:
    """An error that a library has raised because of Ctrl-C."""
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), 1, r"error: out of memory: .*train\.batch_tokens.*\n"),
        (
            RuntimeError("[a.cpp:1] can't allocate memory: x"),
            1,
            r"error: out of memory: .*batch_tokens.*\n",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. x.\nGPU 0 has"),
            1,
            r"error: out of memory: CUDA out.*train\.cuda_graphs=false.*\n",
        ),
        # Torch only warns of it; but the last digits would depend on how much memory there was.
        (
            UserWarning("mkldnn_x failed:could not create a primitive"),
            1,
            r"error: out of memory: .*\n",
        ),
        (
            PanicException("out of bounds"),
            1,
            r"error: unexpected PanicException: out of bounds .*--debug.*\n",
        ),
        (interrupted(), 130, ""),
    ],
    ids=["memory", "allocator", "cuda", "mkldnn", "panic", "interrupt"],
)
def test_any_error_is_one_line(cli, trained_run, monkeypatch, error, code, message):
    """Ctrl-C is no error, even if a library raises one because of it."""

    def fail(*_arguments, **_options):
        if isinstance(error, Warning):
            return warnings.warn(error, stacklevel=2)
        raise error

    monkeypatch.setattr("encoder_cls.classifier.classifier.Classifier.predict_tokenized", fail)

    outcome = cli("predict", "--model", trained_run.path, "rain")

    assert outcome.code == code
    assert re.fullmatch(message, outcome.err)


PRINT_ENVIRONMENT_AT_EXIT = """
import atexit
import os


def print_environment():
    print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("THP_MEM_ALLOC_ENABLE"))


atexit.register(print_environment)
"""


def test_the_environment_of_libraries_is_set_where_nobody_has_set_it(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "9")
    ended = run_process("--help", before=PRINT_ENVIRONMENT_AT_EXIT)
    assert ended.stdout.split()[-2:] == ["6000", "9"]


@pytest.mark.parametrize(
    "message",
    ["invalid literal for int() with base 10: 'abc'", "not known; try LIBRARY_SIZE=1"],
)
def test_an_error_names_the_environment_variable_that_a_library_could_not_read(
    cli, trained_run, monkeypatch, message
):
    """It does not show the value, which may be a secret."""

    def fail(*_arguments, **_options):
        raise ValueError(message)

    monkeypatch.setenv("LIBRARY_SIZE", "abc")
    monkeypatch.setenv("OTHER_SIZE", "abcd")
    monkeypatch.setattr("encoder_cls.classifier.classifier.Classifier.predict_tokenized", fail)
    outcome = cli("predict", "--model", trained_run.path, "rain")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "unexpected ValueError" in outcome.err
    assert "(perhaps by the environment: LIBRARY_SIZE; encoder-cls --debug" in outcome.err
    assert outcome.err.count("abc") == message.count("abc")
