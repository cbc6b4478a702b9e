"""The command line: its contract, its exit codes, and what goes to which stream."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer.main
import yaml
from support.programs import COMMAND, assert_failed, hashes, run_process, setting
from support.time_limit import TIME_LIMIT

from encoder_cls.cli import app
from encoder_cls.cli import display as training_display
from encoder_cls.config import load_config
from encoder_cls.system import work
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.encoder import validation as validation_module

pytestmark = pytest.mark.usefixtures("blank_plots")
REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "numpy", "tokenizers", "datasets", "sklearn", "matplotlib", "tensorboard", "pyarrow"}

CONTRACT = {
    "train": {"config_file", "--config", "--set", "--from", "--run-dir", "--resume", "--device", "--dry-run"},
    "tune": {"config_file", "--config", "--set", "--budget", "--run-dir", "--device", "--json"},
    "eval": {"run", "--data", "--against", "--set", "--output", "--report", "--json"},
    "compare": {"runs", "--json"},
    "review": {"run", "--output", "--json"},
    "serve": {"run", "--host", "--port", "--allowed-host"},
    "suggest": {"run", "--input", "--n", "--output", "--text-column", "--set", "--json"},
    "predict": {
        *("texts", "--model", "--input", "--output", "--text-column", "--format"),
        *("--top-k", "--threshold", "--batch-tokens", "--device", "--explain", "--attention", "--engine"),
        *("--keep-columns", "--set", "--bad-rows", "--min-precision", "--coverage"),
        *("--runner", "--workers"),
    },
}


@pytest.fixture
def tiny(trained_run) -> Path:
    """The config of the trained run."""
    return trained_run.path.parent / "tiny.yaml"


# ---------------------------------------------------------------- the contract


def test_commands_and_options_are_those_of_the_contract():
    """An option gained or lost breaks somebody's script or has not been agreed on."""
    root = typer.main.get_command(app)
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in root.commands.items()
    }
    assert options == CONTRACT
    named = [option for parameter in root.params for option in parameter.opts]
    assert named == ["--debug", "--version", "--install-completion", "--show-completion"]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["suggest", "--help"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments):
    """They come at once, because no large library is loaded for them; the same of the module."""
    before = "import atexit, sys; atexit.register(lambda: print('modules:', *sys.modules))"
    shown, _, modules = run_process(*arguments, before=before, check=True).stdout.partition("modules:")
    version = f"encoder-cls {importlib.metadata.version('encoder-cls')}\n"
    assert shown == version if arguments == ["--version"] else "Usage: encoder-cls" in shown
    assert not HEAVY & set(modules.split())
    module = [sys.executable, "-m", "encoder_cls", *arguments]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == shown


@pytest.mark.parametrize("arguments", [[], ["train"], ["predict"]])
def test_help_has_its_short_name(cli, arguments):
    assert cli(*arguments, "-h").out == cli(*arguments, "--help").out != ""


def test_a_shell_completes_commands_and_options():
    """By Typer's own script, which asks the program itself, without a large library."""
    in_bash = ["bash", "-c", '"$@"; exit', "bash", *COMMAND, "--show-completion"]  # it looks which shell has started it
    shown = subprocess.run(in_bash, capture_output=True, text=True, check=True).stdout
    assert "_ENCODER_CLS_COMPLETE=complete_bash" in shown
    for words, found in (("encoder-cls tr", "train"), ("encoder-cls train --re", "--resume")):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_ENCODER_CLS_COMPLETE": "complete_bash"}
        assert run_process(env={**os.environ, **asked}, check=True).stdout.split() == [found]


def test_the_module_is_the_program():
    """Its messages have the program's name, and it ends with the program's codes."""
    module = [sys.executable, "-m", "encoder_cls", "prdeict"]
    ended = subprocess.run(module, capture_output=True, text=True, check=False)
    assert (ended.returncode, "(see encoder-cls --help)" in ended.stderr) == (2, True)
    assert "__main__" not in ended.stderr


def commands_in(text: str) -> list[list[str]]:
    """The arguments of each `encoder-cls` in the sh blocks of a Markdown text, pipes and lists taken apart."""
    found, words = [], []
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if not re.fullmatch(r"[|&;<>()]+", word):
                words.append(word)
                continue
            if words[:1] == ["encoder-cls"]:
                found.append(words[1:])
            words = []
    return found


def test_every_command_of_the_readme_parses():
    """What the README tells people to type is accepted by the parser, and the configs it names exist."""
    commands = commands_in((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert commands
    root = typer.main.get_command(app)
    for name, *arguments in commands:
        given = root.commands[name].make_context(name, arguments).params
        config = given.get("config_file") or given.get("config")
        assert config is None or Path(config).parts[0] != "configs" or (REPOSITORY / config).is_file()


# ---------------------------------------------------------------- train


def test_training_prints_a_summary_to_stdout_and_all_else_to_stderr(cli, tiny, monkeypatch):
    """The summary can be redirected by itself, and a log file gets plain lines and no progress bar."""
    monkeypatch.setattr(training_display, "SECONDS_BETWEEN_LINES", -1)
    monkeypatch.setattr(work, "FIRST_LINE", 0.0)
    outcome = cli("train", tiny, "--set", "train.epochs=2")
    assert outcome.code == 0
    assert outcome.out.startswith("test: 15 examples\n")
    assert "TF-IDF baseline" in outcome.out
    assert len(outcome.out.splitlines()) <= 12
    assert all(line.startswith(("  ", "test:")) for line in outcome.out.splitlines() if line)
    for part in (
        "reading ",
        "tokenizing ",
        "training in runs/tiny",
        "fitting the TF-IDF baseline",
        "model        epoch   1.0",
        "step     10 of 12: loss",
        "next: encoder-cls predict",
        "encoder-cls eval runs/tiny",
        "tensorboard --logdir runs",
    ):
        assert part in outcome.err
        assert part not in outcome.out
    assert "\r" not in outcome.out + outcome.err
    assert RunDir(Path("runs/tiny")).is_finished()
    answer = cli("predict", "snow and rain")
    assert answer.out.startswith("weather ")
    assert "model: runs/tiny" in answer.err
    assert "model:" not in cli("predict", "snow and rain", "--model", "runs/tiny").err
    assert "stopped at step" not in outcome.err


def test_the_next_commands_are_such_as_a_shell_takes(capsys):
    training_display.note_what_is_next(Path("my runs/$new"), has_report=True)
    commands = [line.partition("    (")[0].removeprefix("next:") for line in capsys.readouterr().err.splitlines()]
    assert [shlex.split(command)[1:] for command in commands] == [
        ["predict", "--model", "my runs/$new", "--explain", "some text"],
        ["eval", "my runs/$new"],
        ["tensorboard", "--logdir", "my runs"][1:],
    ]


def test_a_run_among_its_own_data_is_refused(cli):
    """Else the next reading of the data would find what the run wrote."""
    for name in ("data/a/1.txt", "data/b/1.txt"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("rain")
    for dry_run in ([], ["--dry-run"]):
        outcome = cli("train", "--set", "data.train=data", "--run-dir", "data/run", *dry_run)
        assert_failed(outcome, 2, "data/run: the files of the run would be read as data", "--run-dir")
    assert sorted(path.name for path in Path("data").iterdir()) == ["a", "b"]


def test_training_goes_on_where_nobody_reads_how_it_goes(cli, tiny, monkeypatch):
    """A log that is full, or closed by its reader, is not worth a training."""
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        outcome = cli("train", tiny, "--set", "train.epochs=1")
    assert outcome.code == 0
    assert outcome.out.startswith("test: 15 examples\n")
    assert RunDir(Path("runs/tiny")).is_finished()


def test_training_tells_when_it_stops_early(cli, tiny):
    values = ["train.epochs=9", "train.patience=1", "train.learning_rate=1e-9", "train.warmup_fraction=0"]
    outcome = cli("train", tiny, *setting(*values), "--run-dir", "runs/early")
    assert outcome.code == 0
    assert re.search(r"stopped at step \d+ of 54 \(train\.patience\)", outcome.err)


def test_training_tells_of_each_stage_and_of_each_validation(cli, tiny, monkeypatch):
    """What is learned is told before, each stage by its name; of the validations the best so far have a star."""
    accuracies = iter([0.0, 0.125, 0.25, 0.5, 0.125, 0.75, 0.375])  # first of two linear classifiers
    real = validation_module.compute_metrics
    monkeypatch.setattr(
        validation_module, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(accuracies))
    )
    chosen = ["pretrain.epochs=1", "train.epochs=4", "train.monitor=accuracy"]
    outcome = cli("train", tiny, *setting(*chosen))
    assert outcome.code == 0
    assert "parameters, beside it a linear model\n" in outcome.err
    assert "steps: 30 in all; 1 epoch of masked-LM pretraining, 4 epochs of training on labels\n" in outcome.err
    told = re.findall(r"^model .*accuracy (\d\.\d{4}).*linear weight [01]\.\d{4}(  \*)?$", outcome.err, re.MULTILINE)
    assert told == [("0.2500", "  *"), ("0.5000", "  *"), ("0.1250", ""), ("0.7500", "  *")]
    assert re.search(
        r"^pretraining  epoch   1\.0  step      6: validation loss \d\.\d{4}  \*$", outcome.err, re.MULTILINE
    )
    assert re.search(r"^linear model: validation .*accuracy 0\.1250.*  \*$", outcome.err, re.MULTILINE)
    assert "validation accuracy: linear model 0.1250, with the encoder 0.7500\n" in outcome.err
    assert re.search(r"best weights from step 30; [\d.]+ MB$", outcome.err, re.MULTILINE)


def test_training_without_a_linear_model_says_nothing_of_one(cli, tiny):
    outcome = cli("train", tiny, *setting("model.linear=false", "train.epochs=1"))
    assert outcome.code == 0
    assert "linear" not in outcome.err
    assert re.search(r"^model .*accuracy \d\.\d{4}", outcome.err, re.MULTILINE)


def test_a_second_training_into_the_same_folder_is_refused(cli, run_copy):
    before = hashes(run_copy.path)
    assert_failed(cli("train", "--config", run_copy.config_file, "--run-dir", run_copy.path), 2, "--resume")
    assert hashes(run_copy.path) == before


def test_resuming_a_finished_run_changes_nothing(cli, run_copy):
    before = hashes(run_copy.path)
    outcome = cli("train", "--run-dir", run_copy.path, "--resume")
    assert (outcome.code, outcome.out) == (0, "")
    assert "finished" in outcome.err
    assert hashes(run_copy.path) == before


def test_the_config_may_be_named_without_an_option(cli, tiny):
    """`train FILE` is `train --config FILE`; both are too many, whatever they name."""
    outcome = cli("train", tiny, "--dry-run")
    assert (outcome.code, outcome.out) == (0, cli("train", "--config", tiny, "--dry-run").out)
    assert_failed(cli("train", tiny, "--config", tiny), 2, "two config files; name one")
    assert_failed(cli("train", "nowhere.yaml"), 2, "nowhere.yaml: cannot read the config")


def test_a_dry_run_ends_with_what_was_found():
    """On a terminal the config comes before it, so that nothing has to be scrolled back to."""
    ended = subprocess.run(
        [*COMMAND, "train", "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    lines = ended.stdout.splitlines()
    assert re.match(r"data: 3,182 training, 330 validation, 396 test texts, 11 classes, ", lines[-5])
    assert lines[-2].startswith("steps: ")
    assert lines.index("name: example") < len(lines) - 5


def test_a_dry_run_prints_the_config_and_writes_nothing(cli, tiny, tmp_path):
    """What it prints is a config that means the same; sizes and steps are told beside it."""
    outcome = cli("train", tiny, "--set", "train.epochs=3", "--dry-run")
    assert outcome.code == 0
    assert not list(tmp_path.iterdir())
    assert "parameters" in outcome.err
    assert "steps: 18 in all; 3 epochs of training on labels\n" in outcome.err
    Path("again.yaml").write_text(outcome.out, encoding="utf-8")
    assert load_config(Path("again.yaml")) == load_config(tiny, ["train.epochs=3"])
    assert yaml.safe_load(outcome.out)["train"]["epochs"] == 3


@pytest.mark.parametrize(
    "values", [["train.learning_rate=1e30"], ["train.learning_rate=1e38", "train.validate_every=1"]]
)
def test_a_diverging_training_names_the_step(cli, tiny, values):
    """Numbers that are not finite end the training with code 4, step and remedy, wherever they show first."""
    outcome = cli("train", tiny, *setting(*values))
    assert_failed(outcome, 4, "diverged at step ", "lower train.learning_rate, and train in another --run-dir")


def test_a_terminated_training_leaves_a_checkpoint_and_resumes(cli, tiny):
    """SIGTERM ends with code 143 after a checkpoint, and --resume brings the run to its end."""
    values = setting("train.epochs=30", "train.patience=null", "train.validate_every=60", "train.log_every=20")
    arguments = ["train", str(tiny), "--run-dir", "runs/stopped", *values]
    code = "from encoder_cls.cli import display, main; display.SECONDS_BETWEEN_LINES = -1; main()"
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "step     20 of 180" in line:
                break
        time.sleep(0.01)  # into the midst of a step, before the first validation and its checkpoint
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 143
    assert out == ""
    assert "--resume" in err
    assert "Traceback" not in err
    run = RunDir(Path("runs/stopped"))
    step = int(re.search(r"stopped at step (\d+)", err)[1])
    assert (run.checkpoints / f"step-{step}").is_dir()
    assert 20 <= step < 180
    assert "runs/stopped/model holds the best model so far" in err
    assert "model: runs/stopped (the newest run, which is not finished;" in cli("predict", "snow and rain").err
    scored = cli("eval", "runs/stopped")
    assert "runs/stopped is not finished: this is its best model so far\n" in scored.err
    assert scored.out.startswith("test: 15 examples\n")
    resumed = cli(*arguments, "--resume")
    assert resumed.code == 0
    assert f"going on after step {step}\n" in resumed.err
    assert run.is_finished()


class SignallingStream(io.RawIOBase):
    """A stream that sends a signal to this process while it writes that the training begins; keeps what it writes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.content = number, b""

    def writable(self):
        return True

    def write(self, content):
        begins = b"training in" in bytes(content) and b"training in" not in self.content
        self.content += bytes(content)
        if begins:
            signal.raise_signal(self.number)
        return len(content)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_each_signal_has_its_exit_code(cli, tiny, monkeypatch, number, code):
    """Before the first step and in the middle of a line, too; the handlers of before are put back."""
    before, stream = signal.getsignal(number), SignallingStream(number)
    with io.TextIOWrapper(io.BufferedWriter(stream), line_buffering=True) as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        outcome = cli("train", tiny)
    assert (outcome.code, outcome.out) == (code, "")
    last = stream.content.decode().splitlines()[-1]
    assert last.startswith("stopped at step 0; a checkpoint is written, --resume")
    assert signal.getsignal(number) is before
    assert Path("runs/tiny/checkpoints/step-0").is_dir()


# ---------------------------------------------------------------- failures

DATA_FILES = {
    "ragged.csv": "text,label\nrain,a\nsnow,b,c\n",
    "one_class.csv": "text,label\nrain,a\nsnow,a\n",
    "no_label.csv": "text,kind\nrain,a\n",
    "half_surrogate.jsonl": '{"text": "rain", "label": "a"}\n{"text": "snow", "label": "\\ud800"}\n' * 2,
}


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--config", "missing.yaml"], 2, ["missing.yaml", "No such file"]),
        (["--run-dir", "typo", "--resume"], 2, ["typo: no run to go on with"]),
        (["--set", "train.class_weights={x: 2}"], 2, ["'x'", "there are"]),
        (["--set", "train.epochz=3"], 2, ["train.epochz", "did you mean epochs?"]),
        (["--set", "train.epochs=many"], 2, ["train.epochs", "'many'"]),
        (["--set", "train.epochs"], 2, ["section.key=value"]),
        (["--set", "model.num_heads=3"], 2, ["num_heads 3"]),
        (["--device", "tpu"], 2, ["--device tpu"]),
        (["--device", "cuda:99"], 2, ["--device cuda:99"]),
        (["--set", "data.train=missing.csv"], 3, ["missing.csv", "no such file"]),
        (["--set", "data.train=ragged.csv"], 3, ["ragged.csv:3"]),
        (["--set", "data.train=one_class.csv"], 3, ["one_class.csv", "two classes"]),
        (["--set", "data.train=no_label.csv"], 3, ["no_label.csv", "'label'", "'kind'"]),
        (["--set", "data.train=half_surrogate.jsonl"], 3, ["half_surrogate.jsonl:2"]),
    ],
)
def test_train_refuses_in_one_or_two_lines_and_writes_nothing(cli, arguments, code, named):
    """What the user can mend is named, with the code for config or for data, before anything is on disk."""
    for name, content in DATA_FILES.items():
        Path(name).write_text(content, encoding="utf-8")
    assert_failed(cli("train", *arguments), code, *named)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["predict", "rain"], 2, ["no run with a model", "--model"]),
        (["predict", "rain", "--model", "nowhere"], 2, ["nowhere: no such folder"]),
        (["predict", "rain", "--model", "."], 2, ["no model"]),
        (["predict", "rain", "--format", "xml"], 2, ["--format xml"]),
        (["predict", "rain", "--text-column", "body"], 2, ["--text-column"]),
        (["predict", "--input", "-", "--text-column", "body"], 2, ["--text-column"]),
        (["predict", "--model", "RUN", "--input", "mine.csv", "--output", "./mine.csv"], 2, ["is a file that is"]),
        (["predict", "--model", "RUN", "--input", "mine.csv", "--attention", "mine.csv"], 2, ["is a file that is"]),
        (["eval", "RUN", "--data", "mine.csv", "--output", "mine.csv"], 2, ["is a file that is read"]),
        (["predict", "rain", "--input", "texts.txt"], 2, ["not both"]),
        (["predict", "rain", "--model", "RUN", "--device", "tpu"], 2, ["--device tpu"]),
        (["predict", "--model", "RUN", "--input", "missing.txt"], 3, ["missing.txt"]),
        (["eval", "nowhere"], 2, ["nowhere"]),
        (["eval", "RUN", "--data", "missing.csv"], 3, ["missing.csv"]),
        (["eval", "RUN", "--device", "tpu"], 2, ["--device", "eval --help"]),
        (["eval", "RUN", "--data", ""], 2, ["--data: names no file"]),
        (["eval", "RUN", "--output", "RUN/model/new.json"], 2, ["new.json: is a part of"]),
        (["predict", "x", "--model", "RUN", "--output", "RUN/model/x.csv"], 2, ["x.csv: is a part of"]),
        (["predict", "x", "--model", "RUN", "--output", "a.html", "--attention", "./a.html"], 2, ["two files"]),
        (["predict", "--input", ""], 2, ["--input: names no file"]),
        (["predict", "--top-k", "0", "x"], 2, ["--top-k"]),
        (["prdeict", "x"], 2, ["prdeict"]),
    ],
)
def test_eval_and_predict_refuse_in_one_or_two_lines(cli, trained_run, arguments, code, named):
    """What the user can mend is named, with the code of its kind; what was there is still there."""
    Path("mine.csv").write_text("text,label\nrain,weather\n", "utf-8")
    Path("a link.csv").symlink_to("nowhere.csv")
    arguments = [argument.replace("RUN", str(trained_run.path)) for argument in arguments]
    before = hashes(trained_run.path)
    assert_failed(cli(*arguments), code, *named)
    assert hashes(trained_run.path) == before
    assert Path("mine.csv").read_text("utf-8") == "text,label\nrain,weather\n"


def test_a_folder_that_cannot_be_read_is_bad_data(cli, trained_run, monkeypatch):
    """Also where it is only looked into for the file that is to be written."""
    Path("answers.jsonl").write_text("{}")

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    outcome = cli("predict", "--model", trained_run.path, "--input", ".", "--output", "answers.jsonl")
    assert_failed(outcome, 3, ".: cannot be read: Permission denied")


@pytest.mark.parametrize("command", [["eval", "runs/tiny"], ["predict", "rain"]])
def test_a_damaged_model_is_a_failure_at_run_time(cli, run_copy, command):
    """One flipped bit in the weights ends in code 1 and the folder's name."""
    weights = run_copy.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert_failed(cli(*command), 1, "runs/tiny/model", "damaged")


def test_predict_without_texts_asks_for_some_on_a_terminal(cli, monkeypatch):
    """Without texts it reads a pipe, but does not wait in silence for a person to type."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert_failed(cli("predict"), 2, "give texts", "--input")


def test_the_file_of_standard_input_is_not_written_over(cli, trained_run, monkeypatch):
    """Not replaced by the answers, and not appended to while it is read."""
    Path("texts.txt").write_text("rain\n")
    with Path("texts.txt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = cli("predict", "--model", trained_run.path, "--output", "texts.txt")
    assert_failed(outcome, 2, "texts.txt: is a file that is read")
    assert Path("texts.txt").read_text() == "rain\n"


def test_a_closed_standard_input_is_no_input(cli, trained_run, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    for arguments in ([], ["--input", "-"]):
        assert_failed(cli("predict", *arguments), 2, "standard input is closed", "--input FILE")
    assert cli("predict", "rain", "--model", trained_run.path).code == 0


@pytest.mark.parametrize(
    ("stream", "code", "expected"),
    [
        (os.devnull, 0, "warning: standard output is closed, results go nowhere; --output"),
        ("/dev/full", 1, "error: standard output: cannot write: No space left on device\n"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "eval"])
def test_results_that_go_nowhere_are_told_of(cli, run_copy, monkeypatch, command, stream, code, expected):
    """A full disk is an error; where the stream was closed, the exit code says that all went well."""
    with Path(stream).open("w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        outcome = cli(command, *(["rain", "--model"] if command == "predict" else []), run_copy.path)
    lines = [line for line in outcome.err.splitlines(keepends=True) if not line.startswith("wrote ")]
    assert (outcome.code, len(lines)) == (code, 1)
    assert lines[0].startswith(expected)


def test_texts_are_utf_8_where_the_environment_knows_only_ascii(cli, trained_run):
    found = cli("predict", "k\udcc3\udcbcche \udcff", "--model", trained_run.path).out
    assert found.endswith("'küche \N{REPLACEMENT CHARACTER}'  (2 unknown words)\n")


def test_a_refusal_of_the_system_is_no_surprise(cli, trained_run):
    """Such as of a name that is too long: the name and the reason, as of any error that can be mended."""
    outcome = cli("predict", "rain", "--model", trained_run.path, "--input", "x" * 300)
    assert outcome.code == 2
    outcome = cli("predict", "--model", trained_run.path, "--input", "x" * 300)
    assert_failed(outcome, 1, "x" * 300 + ": File name too long")


def test_debug_shows_the_traceback_and_keeps_the_exit_code():
    ended = run_process("--debug", "train", "--config", "missing.yaml")
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, True)


@pytest.mark.parametrize(("lines", "read"), [(5000, 1), (3, 0)])
def test_predict_into_head_ends_quietly(trained_run, lines, read):
    """A reader that has seen enough is no error, whether the output is more than a buffer or less."""
    Path("texts.txt").write_text("snow and rain today\n" * lines, encoding="utf-8")
    arguments = ["predict", "--model", str(trained_run.path), "--input", "texts.txt", "--format", "jsonl"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        answers = [json.loads(process.stdout.readline()) for _ in range(read)]
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(timeout=TIME_LIMIT)
    assert all(answer["label"] == "weather" for answer in answers)
    assert (code, errors) == (0, b"")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "a link"])
def test_standard_output_by_its_name_is_standard_output(cli, trained_run, monkeypatch, name):
    """Each result comes at once, and it is quiet where its reader ends: nothing is written as a file at the end."""
    monkeypatch.setattr("encoder_cls.system.files.write_output", lambda *_: pytest.fail("written as a file"))
    Path("a link").symlink_to("/proc/self/fd/1")
    outcome = cli("predict", "rain", "--model", trained_run.path, "--output", name, "--format", "jsonl")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["label"] == "weather"


class PanicException(BaseException):
    """As PyO3 raises it for a panic in Rust."""


def switch_to_slower_products() -> None:
    warnings.warn("mkldnn_matmul failed, switching to baddbmm:could not create a primitive", stacklevel=2)


def interrupt() -> None:
    try:
        raise KeyboardInterrupt  # noqa: TRY301 - as it would come
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error


def raising(error: BaseException):
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        (raising(MemoryError()), 1, r"error: out of memory: .*train\.batch_tokens.*\n"),
        (raising(RuntimeError("[a.cpp:1] can't allocate memory: x")), 1, r"error: out of memory: .*batch_tokens.*\n"),
        (
            raising(torch.OutOfMemoryError("CUDA out of memory. x.\nGPU 0 has")),
            1,
            r"error: out of memory: CUDA out.*\n",
        ),
        # Torch only warns of it; but the last digits would depend on how much memory there was.
        (switch_to_slower_products, 1, r"error: out of memory: mkldnn_matmul failed.*train\.batch_tokens.*\n"),
        (raising(PanicException("out of bounds")), 1, r"error: unexpected PanicException: out of bounds .*--debug.*\n"),
        (raising(ZeroDivisionError("by 0")), 1, r"error: unexpected ZeroDivisionError: by 0 .*--debug.*\n"),
        (interrupt, 130, ""),
    ],
    ids=["memory", "allocator", "cuda", "mkldnn", "panic", "fault", "interrupt"],
)
def test_any_error_is_one_line(cli, trained_run, monkeypatch, fail, code, message):
    """With its exit code; Ctrl-C is no error, even if a library has made another one of it."""
    monkeypatch.setattr("encoder_cls.inference.classifier.Classifier.predict_tokenized", lambda *_, **__: fail())
    outcome = cli("predict", "--model", trained_run.path, "rain")
    assert outcome.code == code
    assert re.fullmatch(message, outcome.err)


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(), reason="this system has no huge pages to give"
)
def test_large_tensors_are_in_huge_pages():
    """Else the system spends up to a fifth of the time of long texts on clearing small pages."""
    code = """
from encoder_cls.cli import main
try:
    main()
except SystemExit:
    import torch
    held = torch.ones(1 << 24)
    print(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")))
"""
    outcome = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert int(outcome.stdout.split()[-2]) >= 1 << 15, "KiB, of a tensor of 64 MiB"


@pytest.mark.parametrize(("given", "kept"), [(None, "6000"), ("9", "9")])
def test_threads_wait_in_a_short_loop_unless_told_otherwise(monkeypatch, given, kept):
    """OpenMP reads this as torch is loaded; with its own default two trainings at once take each other's time."""
    at_exit = "import atexit, os; atexit.register(lambda: print(os.environ['GOMP_SPINCOUNT']))"
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if given:
        monkeypatch.setenv("GOMP_SPINCOUNT", given)
    assert run_process("--help", before=at_exit, check=True).stdout.split()[-1] == kept
