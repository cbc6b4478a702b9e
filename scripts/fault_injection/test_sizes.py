"""Input that is large in one direction: long lines, long texts, many texts on a page, many classes."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from samples import SHAPE, TABLES, engine_of, tries

MEGABYTE = 1_000_000
GROWTH = 4  # the larger of two inputs, in units of the smaller
SLACK_SECONDS = 2.0  # for other work of the machine
LARGEST_REPORT = 3 * MEGABYTE  # of 1,000 classes
# Memory for each byte of a line: its blocks, the line, its text, the kept part.
MOST_BYTES_A_BYTE = 16
ROOM = 400 * MEGABYTE  # memory besides that
CLASSES = 1000
HUGE = 1000 * MEGABYTE  # a line of standard input, at the first try
JSONL = ("--format", "jsonl")


def answer(space, engine, *more, lines, suffix=".txt", stdin=False):
    """Predict from a file of lines, or from standard input, through a pipe of which each read gets some kilobytes."""
    path = space.new_path("large").with_suffix(suffix)
    with path.open("w") as file:
        file.writelines(part for line in lines for part in (line, "\n"))

    def prepare():
        if stdin:
            os.dup2(subprocess.Popen(["cat", path], stdout=subprocess.PIPE).stdout.fileno(), 0)

    source = () if stdin else ("--input", path)
    ended = space.predict(
        space.reference("default"), engine, *more, *source, prepare=prepare
    ).check()
    path.unlink()
    return ended


def check_answers(ended):
    """Two answers: of the long text, which is cut, and of the one after it, which is as it would be by itself."""
    assert [json.loads(line)["truncated"] for line in ended.out.splitlines()] == [True, False]
    return ended


def long_text(draw, size):
    piece = draw.choice(["a", "rain ", "x" * 999 + " ", "snow, "])
    return piece * (size // len(piece))


def line_of_standard_input(space, draw, size, engine):
    """One line that takes many reads."""
    return check_answers(
        answer(space, engine, *JSONL, lines=[long_text(draw, size), "some rain"], stdin=True)
    )


def line_of_a_file(space, draw, size, engine):
    """One text of a file of any kind."""
    suffix = draw.choice([".txt", ".csv", ".tsv", ".jsonl"])
    writers = {".csv": '"{}"'.format, ".jsonl": lambda text: json.dumps({"text": text})}
    written = writers.get(suffix, str)
    head = ["text"] if suffix in {".csv", ".tsv"} else []
    lines = [*head, *map(written, [long_text(draw, size), "some rain"])]
    return check_answers(answer(space, engine, *JSONL, lines=lines, suffix=suffix))


def explained_text(space, draw, size, engine):
    """A text of 100,000 words and more, with what its words did."""
    text = " ".join(draw.choices(["rain", "snow", "ball", "the", "unheardof"], k=size // 5))
    return check_answers(answer(space, engine, *JSONL, "--explain", lines=[text, "some rain"]))


def page_of_many_texts(space, draw, size, engine):
    """A page that a browser can open, and a warning of the texts that it lacks."""
    output, text = (
        space.new_path("page").with_suffix(".html"),
        "rain and snow " * draw.randint(1, 3),
    )
    ended = answer(space, engine, "--output", output, lines=[text] * (size // 4000))
    assert output.stat().st_size < LARGEST_REPORT, f"{output.stat().st_size:,} bytes"
    assert "warning:" in ended.err, ended.err
    return ended


def text_of_training(space, draw, size, _engine):
    """One text of the training data as long as a book."""
    words = {"weather": ["rain", "snow"], "sport": ["ball", "goal"]}
    rows = [
        (f"{draw.choice(of_class)} today", label)
        for label, of_class in words.items()
        for _ in range(30)
    ]
    # A line of a file may have 16 MiB, a quarter of the largest size here.
    text = long_text(draw, size // 5)
    return train(space, space.new_path("run"), [(text, "weather"), *rows[1:]])


def many_classes(space, draw, size, _engine):
    """A report of many classes that can be opened; here the size is that of the training data."""
    classes, run = CLASSES if size > 16 * MEGABYTE else CLASSES // GROWTH, space.new_path("run")
    words = [f"w{draw.randrange(10**6)}" for _ in range(5000)]
    texts = [
        " ".join([words[number % 5000], *draw.choices(words, k=4)]) for number in range(4 * classes)
    ]
    ended = train(
        space, run, [(text, f"class {number % classes}") for number, text in enumerate(texts)]
    )
    for report in (run / "eval").iterdir():
        assert report.stat().st_size < LARGEST_REPORT, (
            f"{report.name}: {report.stat().st_size:,} bytes"
        )
    evaluated = space.fork(["eval", run, "--json"]).end().check()
    assert len(json.loads(evaluated.out)["per_class"]) == classes
    return ended


def train(space, run, rows):
    path, config = run.with_suffix(".csv"), run.with_suffix(".yaml")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    sections = {"data": {"train": str(path), "validation_fraction": 0.25}, "model": SHAPE | TABLES}
    config.write_text(
        yaml.safe_dump(sections | {"pretrain": {"epochs": 1}, "train": {"epochs": 1}})
    )
    return (
        space.fork(["train", "--config", config, "--run-dir", run, "--device", "cpu"]).end().check()
    )


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
    """An input and one four times as large: both end well, time and memory grow no faster than the input."""
    engine, size = engine_of(number), draw.randint(4, 16) * MEGABYTE
    if number == 0 and kind is line_of_standard_input:
        check_memory(kind(space, draw, HUGE, engine), HUGE)
        return
    small, large = (kind(space, draw, in_all, engine) for in_all in (size, GROWTH * size))
    # Twice what would be linear: quadratic time would be four times that.
    most = 2 * GROWTH * small.cpu_seconds + SLACK_SECONDS
    assert large.cpu_seconds < most, (
        f"{size:,} bytes: {small.cpu_seconds:.1f} s, then {large.cpu_seconds:.1f} s"
    )
    check_memory(large, GROWTH * size)


def check_memory(ended, size):
    """Fail if it took more than its share beyond the memory of every fork."""
    own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert ended.peak_bytes < own + MOST_BYTES_A_BYTE * size + ROOM, (
        f"{size:,} bytes: {ended.peak_bytes / 1e9:.2f} GB"
    )
