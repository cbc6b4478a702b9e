"""Input that is large in one way: long lines, long texts, many texts on a page, many classes."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from samples import SHAPE, TABLES, engine_of, tries

from encoder_cls.bulk.html_format import MAX_EXPLAINED_ROWS
from encoder_cls.system.encodings import LONGEST_LINE

MEGABYTE = 1_000_000
# The larger of two inputs, in units of the smaller.
GROWTH = 4
# For other work of the machine.
SLACK_SECONDS = 2.0
# A file of a report of 1,000 classes.
LARGEST_REPORT = 3 * MEGABYTE
# Memory for each byte of a line: its blocks, the line, its text, the kept part.
MAX_BYTES_A_BYTE = 16
# Memory besides that.
ROOM = 400 * MEGABYTE
CLASSES = 1000
# A line may have 16 MiB, a quarter of the largest size here.
LINES = 5
# The line of standard input of the first try.
HUGE = 1000 * MEGABYTE
JSONL = ("--format", "jsonl")


def predict(space, engine, *more, lines, suffix=".txt", stdin=False):
    """Predict, as `ask` does, without an error."""
    return ask(space, engine, *more, lines=lines, suffix=suffix, stdin=stdin).check()


def ask(space, engine, *more, lines, suffix=".txt", stdin=False):
    """Predict from a file of lines, or from a pipe, of which each read gets some kilobytes."""
    path = space.new_path("large").with_suffix(suffix)
    write_lines(path, lines)

    def read_from_a_pipe():
        cat = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
        os.dup2(cat.stdout.fileno(), 0)

    run = space.reference("default")
    if stdin:
        ended = space.predict(run, engine, *more, prepare=read_from_a_pipe)
    else:
        ended = space.predict(run, engine, *more, "--input", path)
    path.unlink()
    return ended


def write_lines(path, lines):
    """Write a file; no line stays in memory, which a fork would have as well."""
    with path.open("w") as file:
        for line in lines:
            file.write(line)
            file.write("\n")


def check_predictions(ended):
    """Fail unless the long text, which is cut, and the one after it have predictions."""
    predictions = [json.loads(line) for line in ended.out.splitlines()]
    assert [prediction["truncated"] for prediction in predictions] == [True, False]
    return ended


def long_text(draw, size):
    piece = draw.choice(["a", "rain ", "x" * 999 + " ", "snow, "])
    return piece * (size // len(piece))


def line_of_standard_input(space, draw, size, engine):
    """One line that takes many reads."""
    lines = [long_text(draw, size // LINES), "some rain"]
    return check_predictions(predict(space, engine, *JSONL, lines=lines, stdin=True))


def huge_line_of_standard_input(space, draw, engine):
    """A line beyond the limit is refused, after the prediction for the line before it."""

    def lines():
        yield "some rain"
        yield long_text(draw, HUGE)

    ended = ask(space, engine, *JSONL, lines=lines(), stdin=True)
    assert len(ended.out.splitlines()) == 1
    return ended.check_error(3, "standard input:2: the line is longer than 16 MiB")


def line_of_a_file(space, draw, size, engine):
    """One text of a file of any kind."""
    suffix = draw.choice([".txt", ".csv", ".tsv", ".jsonl"])
    lines = [long_text(draw, size // LINES), "some rain"]
    if suffix == ".jsonl":
        lines = [json.dumps({"text": text}) for text in lines]
    elif suffix == ".csv":
        lines = ["text", *(f'"{text}"' for text in lines)]
    elif suffix == ".tsv":
        lines = ["text", *lines]
    return check_predictions(predict(space, engine, *JSONL, lines=lines, suffix=suffix))


def explained_text(space, draw, size, engine):
    """A text of 100,000 words and more, with the weights of its words."""
    words = draw.choices(["rain", "snow", "ball", "the", "unheardof"], k=size // 5)
    lines = [" ".join(words), "some rain"]
    return check_predictions(predict(space, engine, *JSONL, "--explain", lines=lines))


def page_of_many_texts(space, draw, size, engine):
    """A page of all texts, of which only the first ones are explained, as that takes long."""
    output = space.new_path("page").with_suffix(".html")
    lines = ["rain and snow " * draw.randint(1, 3)] * (size // 4000)
    ended = predict(space, engine, "--output", output, lines=lines)

    rows = output.read_text("utf-8").split("<tr><td>")[1:]
    assert len(rows) == len(lines), f"{len(rows):,} of {len(lines):,} texts"
    num_explained = sum('class="nowrap"' in row for row in rows)
    assert num_explained <= MAX_EXPLAINED_ROWS, f"{num_explained:,} are explained"
    return ended


def text_of_training(space, draw, size, _engine):
    """One text of the training data as long as a book."""
    rows = [(long_text(draw, size // LINES), "weather")]
    rows += [(f"{draw.choice(['rain', 'snow'])} today", "weather") for _ in range(29)]
    rows += [(f"{draw.choice(['ball', 'goal'])} today", "sport") for _ in range(30)]
    return train(space, space.new_path("run"), rows)


def many_classes(space, draw, size, _engine):
    """A report of many classes that can be opened; here the size is that of the training data."""
    classes = CLASSES if size > 16 * MEGABYTE else CLASSES // GROWTH
    words = [f"w{draw.randrange(10**6)}" for _ in range(5000)]
    rows = []
    for number in range(4 * classes):
        chosen = [words[number % 5000], *draw.choices(words, k=4)]
        rows.append((" ".join(chosen), f"class {number % classes}"))

    run = space.new_path("run")
    ended = train(space, run, rows)
    for report in (run / "eval").iterdir():
        num_bytes = report.stat().st_size
        assert num_bytes < LARGEST_REPORT, f"{report.name}: {num_bytes:,} bytes"
    evaluated = space.fork(["eval", run, "--json"]).end().check()
    assert len(json.loads(evaluated.out)["per_class"]) == classes
    return ended


def train(space, run, rows):
    """Train on rows for an epoch, to the end."""
    path = run.with_suffix(".csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])

    config = {
        "data": {"train": str(path), "validation_fraction": 0.25},
        "model": SHAPE | TABLES,
        "pretrain": {"epochs": 1},
        "train": {"epochs": 1},
    }
    config_file = run.with_suffix(".yaml")
    config_file.write_text(yaml.safe_dump(config))
    command = ["train", "--config", config_file, "--run-dir", run, "--device", "cpu"]
    return space.fork(command).end().check()


KINDS = [
    line_of_standard_input,
    line_of_a_file,
    explained_text,
    page_of_many_texts,
    text_of_training,
    many_classes,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@tries(4)
def test_sizes(space, draw, kind, number):
    """An input and one four times as large: time and memory grow no faster than the input."""
    engine = engine_of(number)
    size = draw.randint(4, 16) * MEGABYTE
    if number == 0 and kind is line_of_standard_input:
        check_memory(huge_line_of_standard_input(space, draw, engine), LONGEST_LINE)
        return

    small = kind(space, draw, size, engine)
    large = kind(space, draw, GROWTH * size, engine)
    # Twice what would be linear: quadratic time would be four times that.
    most = 2 * GROWTH * small.cpu_seconds + SLACK_SECONDS
    times = f"{small.cpu_seconds:.1f} s, then {large.cpu_seconds:.1f} s"
    assert large.cpu_seconds < most, f"{size:,} bytes: {times}"
    check_memory(large, GROWTH * size)


def check_memory(ended, size):
    """Fail if it took more than its share beyond the memory of every fork."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    own_bytes = resident_pages * os.sysconf("SC_PAGE_SIZE")
    most = own_bytes + MAX_BYTES_A_BYTE * size + ROOM
    assert ended.peak_bytes < most, f"{size:,} bytes: {ended.peak_bytes / 1e9:.2f} GB"
