"""What `predict` does with standard input: lines, tables, pipes that stay open."""

from __future__ import annotations

import json
import os
import pkgutil
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Timer

import pytest
from support.predictions import texts_of
from support.programs import COMMAND, TIME_LIMIT, assert_failed, succeed

from encoder_cls.bulk.input_texts import InputTexts
from encoder_cls.bulk.request import Request
from encoder_cls.data.reading.rows import Row

TEXTS = ["rain and snow today", "a big soup with salt", "the team and the ball"]
LABELS = ["weather", "küche", "sport"]


@pytest.fixture
def redirect(monkeypatch) -> Iterator[Callable[[str], None]]:
    """A function that makes a file the standard input, as `< FILE` of a shell does."""
    with ExitStack() as opened:

        def redirect_from(name: str) -> None:
            monkeypatch.setattr("sys.stdin", opened.enter_context(Path(name).open()))

        yield redirect_from


@pytest.fixture
def engines_used(monkeypatch) -> set[str]:
    """The engines that have computed an encoder's logits, by name."""
    used = set()
    methods = {
        "numpy": "encoder_cls.encoder.numpy_encoder.NumpyEncoder._encode",
        "torch": "encoder_cls.encoder.torch_encoder.TorchEncoder.logits",
    }
    for engine, method in methods.items():
        monkeypatch.setattr(method, recording(engine, pkgutil.resolve_name(method), used))
    return used


def recording(engine: str, method: Callable[..., object], used: set[str]) -> Callable[..., object]:
    """The method of an engine, which also adds its name to a set."""

    def call(*arguments, **options):
        used.add(engine)
        return method(*arguments, **options)

    return call


# More work than `BREAK_EVEN` in these tests, so that PyTorch is faster.
MANY_TEXTS = 5000


def test_numpy_predicts_a_pipe_from_its_first_text_to_its_last(
    cli, trained_run, monkeypatch, engines_used
):
    """The size of a pipe is unknown, and one engine predicts a whole source."""
    monkeypatch.setattr("encoder_cls.encoder.engine_choice.BREAK_EVEN", 1e6)
    Path("texts.txt").write_text("rain and snow today\n" * MANY_TEXTS)

    with subprocess.Popen(["cat", "texts.txt"], stdout=subprocess.PIPE) as process:
        monkeypatch.setattr("sys.stdin", process.stdout)
        outcome = cli("predict", "--model", trained_run.path, "--format", "jsonl")

    assert len(outcome.out.splitlines()) == MANY_TEXTS
    assert engines_used == {"numpy"}


def test_the_engine_that_is_faster_for_all_of_it_predicts_a_redirected_file(
    cli, trained_run, monkeypatch, redirect, engines_used
):
    monkeypatch.setattr("encoder_cls.encoder.engine_choice.BREAK_EVEN", 1e6)
    Path("texts.txt").write_text("rain and snow today\n" * MANY_TEXTS)
    redirect("texts.txt")

    outcome = cli("predict", "--model", trained_run.path, "--format", "jsonl")

    assert len(outcome.out.splitlines()) == MANY_TEXTS
    assert engines_used == {"torch"}


# Lines


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"snow and rain\n\nsoup", ["weather", None, "küche"]),
        (b"", []),
    ],
    ids=["empty line", "empty file"],
)
@pytest.mark.parametrize("source", ["texts.txt", "-"])
def test_every_line_gets_one_prediction(
    cli, trained_run, monkeypatch, redirect, source, content, labels
):
    """Also empty lines, and those that are read in several blocks."""
    monkeypatch.setattr("encoder_cls.bulk.standard_input.READ_BYTES", 3)
    Path("texts.txt").write_bytes(content)
    redirect("texts.txt")

    options = ["--input", source, "--format", "jsonl"]
    outcome = succeed(cli, "predict", "--model", trained_run.path, *options)

    assert [json.loads(line)["label"] for line in outcome.out.splitlines()] == labels


def test_lines_of_standard_input_may_be_invalid_utf8(cli, trained_run, monkeypatch, redirect):
    """A pipe goes on after such a line; a file is refused."""
    monkeypatch.setattr("encoder_cls.bulk.standard_input.READ_BYTES", 3)
    Path("texts.txt").write_bytes(b"snow \xff\xfe rain\nball \xed\xa0\x80 goal\n")
    redirect("texts.txt")
    command = ["predict", "--model", trained_run.path, "--format", "jsonl"]

    outcome = succeed(cli, *command, "--input", "-")
    assert [json.loads(line)["label"] for line in outcome.out.splitlines()] == ["weather", "sport"]

    refused = cli(*command, "--input", "texts.txt")
    assert_failed(refused, 3, "texts.txt:1: not UTF-8")


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["with a line feed", "at the end"])
def test_a_line_of_standard_input_has_a_longest_length(
    cli, trained_run, monkeypatch, redirect, ending
):
    """A line of the longest length is a text. A longer one ends the work after those before."""
    monkeypatch.setattr("encoder_cls.bulk.standard_input.READ_BYTES", 3)
    monkeypatch.setattr("encoder_cls.bulk.standard_input.LONGEST_LINE", 16)
    longest = b"s" * 16
    too_long = b"s" * 17
    Path("texts.txt").write_bytes(b"rain\n" + longest + b"\n" + too_long + ending)
    redirect("texts.txt")

    outcome = cli("predict", "--model", trained_run.path)

    assert outcome.code == 3
    assert len(outcome.out.splitlines()) == 2
    assert "standard input:3: the line is longer than" in outcome.err


@pytest.mark.parametrize(
    "content",
    [
        b"rain\n\n snow",
        b"rain\r\n\r\n snow\r\n",
        b"\xef\xbb\xbfrain\n\n snow\n",
    ],
)
def test_line_ends_and_a_byte_order_mark_are_not_part_of_a_text(classifier, redirect, content):
    """Spaces are part of it."""
    Path("texts.txt").write_bytes(content)
    redirect("texts.txt")

    assert texts_of(classifier, "-") == ["rain", "", " snow"]
    assert texts_of(classifier, "texts.txt") == ["rain", "", " snow"]


# Tables


def test_standard_input_with_a_format_is_read_as_a_file(cli, trained_run, redirect):
    """Each row gets a prediction, and the header none."""
    Path("t.csv").write_text('id,text\n7,"rain, snow"\n8,the ball\n')
    redirect("t.csv")

    options = ["--input", "-.csv", "--format", "jsonl"]
    outcome = succeed(cli, "predict", "--model", trained_run.path, *options)

    assert [json.loads(line)["id"] for line in outcome.out.splitlines()] == ["7", "8"]


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("id,text", ".csv"),
        ("text\tid", ".tsv"),
        ('{"text": "rain", "id": 1}', ".jsonl"),
    ],
)
def test_lines_that_look_like_a_table_are_warned_of(cli, trained_run, redirect, line, ending):
    Path("t").write_text(f"{line}\nrain\n")
    redirect("t")

    outcome = cli("predict", "--model", trained_run.path)

    assert f"--input -{ending} reads its rows" in outcome.err
    assert len(outcome.out.splitlines()) == 2


# Pipes that stay open


def test_standard_input_that_does_not_wait_is_waited_for(classifier, monkeypatch):
    """A pipe that another program has made non-blocking has no line at first."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def write_later() -> None:
        os.write(writer, b"rain\n")
        os.close(writer)

    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        chunks = InputTexts(Request(source="-"), classifier).chunks()
        timer = Timer(0.05, write_later)
        timer.start()
        assert list(chunks) == [[Row("rain")]]
        timer.join()


def test_standard_input_is_predicted_line_by_line(trained_run):
    """Each prediction comes while the pipe is open, so that another program can wait for it."""
    command = [*COMMAND, "predict", "--model", trained_run.path, "--format", "jsonl"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            for text, label in zip(TEXTS, LABELS, strict=True):
                process.stdin.write(f"{text}\n")
                readable, _, _ = select.select([process.stdout], [], [], TIME_LIMIT)
                assert readable, "no prediction while the pipe is open"
                assert json.loads(process.stdout.readline())["label"] == label

            rest, _ = process.communicate("soup", timeout=TIME_LIMIT)
            assert rest.count("\n") == 1
        finally:
            process.kill()
    assert process.returncode == 0
