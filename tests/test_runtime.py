"""What only predicts needs no library of training, and nothing that only POSIX systems have."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support import restricted_process
from support.programs import TRAINING_LIBRARIES

# Modules that Windows does not have. No test runs there; this is how its absent parts are tested.
POSIX_MODULES = ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"]

TEXTS = ["rain and snow today", "a big soup with <b>salt</b>", "the team and the ball"]


def run_restricted(
    commands: Sequence[Sequence[object]], *, forbidden: Sequence[str], is_posix: bool = True
) -> list[tuple[int, str, str]]:
    """How commands end in a process that lacks modules: exit code, output and errors of each."""
    arguments = [[str(argument) for argument in command] for command in commands]
    request = {"commands": arguments, "forbidden": forbidden, "is_posix": is_posix}

    # Without -P, the modules beside the program would be importable.
    program = [sys.executable, "-P", restricted_process.__file__]
    done = subprocess.run(
        program, check=False, capture_output=True, text=True, input=json.dumps(request)
    )

    assert done.returncode == 0, done.stderr
    response = json.loads(done.stdout)
    assert response["imported"] == []
    return [(code, out, err) for code, out, err in response["outcomes"]]


def write_files_of_texts(folder: Path) -> list[Path]:
    """Write the texts to files of each kind that is read by column or by line."""
    lines = {
        "a.txt": [],
        "a.csv": ["id,text"],
        "a.tsv": ["text\tid"],
        "a.jsonl": [],
    }
    for number, text in enumerate(TEXTS):
        lines["a.txt"].append(text)
        lines["a.csv"].append(f'{number},"{text}"')
        lines["a.tsv"].append(f"{text}\t{number}")
        lines["a.jsonl"].append(json.dumps({"text": text, "id": text[:3]}))

    files = []
    for name, lines_of_file in lines.items():
        file = folder / name
        file.write_text("\n".join([*lines_of_file, ""]))
        files.append(file)
    return files


@pytest.mark.parametrize(
    "lacking",
    ["libraries of training", pytest.param("parts of POSIX systems", marks=pytest.mark.slow)],
)
def test_every_prediction_is_what_the_whole_program_gives(cli, trained_run, tmp_path, lacking):
    """Each format, source and page is the same to the byte."""
    model = ["predict", "--model", trained_run.path]
    commands = [
        [*model, "--input", tmp_path / "a.csv", "--output", "predictions.jsonl"],
        [*model, "--attention", "maps.html", *TEXTS],
        [*model, "--engine", "numpy", "--device", "cpu", *TEXTS],
        ["--version"],
    ]
    for output_format in ("text", "jsonl", "tsv", "csv", "html"):
        commands.append([*model, "--format", output_format, "--top-k", 2, *TEXTS])
    for output_format in ("text", "jsonl", "csv"):
        commands.append([*model, "--explain", "--format", output_format, *TEXTS])
    for file in write_files_of_texts(tmp_path):
        commands.append([*model, "--input", file])

    expected_outcomes = [cli(*command) for command in commands]
    files = [tmp_path / "predictions.jsonl", tmp_path / "maps.html"]
    expected_contents = [file.read_bytes() for file in files]
    # These are to be replaced.
    for file in files:
        file.write_bytes(b"")

    if lacking == "libraries of training":
        outcomes = run_restricted(commands, forbidden=TRAINING_LIBRARIES)
    else:
        outcomes = run_restricted(commands, forbidden=POSIX_MODULES, is_posix=False)

    for command, outcome, expected in zip(commands, outcomes, expected_outcomes, strict=True):
        assert outcome == (0, expected.out, expected.err), command
    assert [file.read_bytes() for file in files] == expected_contents


def test_only_pages_need_their_template_engine(trained_run, tmp_path):
    """It takes a twentieth of a second to import."""
    model = ["predict", "--model", trained_run.path]
    commands = [
        [*model, *TEXTS],
        [*model, "--explain", "--format", "jsonl", *TEXTS],
        [*model, "--output", tmp_path / "predictions.csv", *TEXTS],
    ]

    for code, _, _ in run_restricted(commands, forbidden=["jinja2", "markupsafe"]):
        assert code == 0


@pytest.mark.parametrize("is_posix", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_help_is_shown(is_posix):
    """Its width depends on the terminal, so its text is not compared."""
    forbidden = TRAINING_LIBRARIES if is_posix else POSIX_MODULES
    commands = [["--help"], ["predict", "--help"]]

    for code, out, _ in run_restricted(commands, forbidden=forbidden, is_posix=is_posix):
        assert code == 0
        assert "Usage: encoder-cls" in out


def test_suggestions_need_no_libraries_of_training(cli, trained_run, tmp_path):
    (tmp_path / "pool.txt").write_text("soup ball\nrain ball of the day\nzzz\n")
    command = ["suggest", trained_run.path, "--input", tmp_path / "pool.txt", "--n", 2]

    [outcome] = run_restricted([command], forbidden=TRAINING_LIBRARIES)

    expected = cli(*command)
    assert outcome == (0, expected.out, expected.err)


@pytest.mark.slow
def test_a_classifier_is_exported_without_libraries_of_training(trained_run, tmp_path):
    outputs = [tmp_path / "model.html", tmp_path / "model.mjs"]
    commands = [["export", trained_run.path, "--output", output] for output in outputs]

    outcomes = run_restricted(commands, forbidden=TRAINING_LIBRARIES)

    for output, (code, _, err) in zip(outputs, outcomes, strict=True):
        assert code == 0
        assert err.startswith(f"wrote {output}: ")
        assert output.exists()


NEEDS_TORCH = "needs PyTorch: pip install encoder-cls"


def test_what_is_not_installed_is_named_in_one_line(trained_run, tmp_path):
    parquet_file = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), parquet_file)
    both = tmp_path / "both"
    both.mkdir()
    (both / "1.csv").write_text("text\nrain\n")
    (both / "2.parquet").write_bytes(parquet_file.read_bytes())

    model = ["predict", "--model", trained_run.path]
    messages = {
        ("train",): NEEDS_TORCH,
        ("train", "--dry-run", "--run-dir", "new"): NEEDS_TORCH,
        ("eval", trained_run.path): NEEDS_TORCH,
        (*model, "--engine", "torch", "rain"): NEEDS_TORCH,
        (*model, "--device", "cuda", "rain"): NEEDS_TORCH,
        (*model, "--input", parquet_file): "a.parquet: needs pyarrow: pip install pyarrow",
        (*model, "--input", both): "2.parquet: needs pyarrow: pip install pyarrow",
        (*model, "--input", "hub:a/b"): "hub:a/b: needs datasets: pip install datasets",
    }

    outcomes = run_restricted(list(messages), forbidden=TRAINING_LIBRARIES)

    for message, (code, out, err) in zip(messages.values(), outcomes, strict=True):
        assert code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.endswith(f"{message}\n")
        assert err.count("\n") == 1
    assert not (tmp_path / "new").exists()
