"""A case about input that is large in one direction: long lines, long texts, many texts on a page, many classes."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from cases import Case
from processes import Ended, fork
from samples import SHAPE, TABLES, Workspace, engine_of, predict

MEGABYTE = 1_000_000
GROWTH = 4  # the larger of two inputs, in units of the smaller
SLACK_SECONDS = 2.0  # what a machine may be busy with in between
LARGEST_REPORT = 3 * MEGABYTE  # of 1,000 classes
MOST_BYTES_A_BYTE = 16  # memory for each byte of a line: its blocks, the line, its text, what is kept of that
ROOM = 400 * MEGABYTE  # memory besides that
CLASSES = 1000


def grow(space: Workspace, draw: random.Random, number: int) -> None:
    """An input and one four times as large: both end well, time and memory grow no faster than the input."""
    kind = list(KINDS)[number % len(KINDS)]
    if number < len(KINDS) and kind in HUGE:
        ended = KINDS[kind](space, draw, HUGE[kind], "numpy")
        _check_memory(kind, ended, HUGE[kind])
        return
    size = draw.randint(4, 16) * MEGABYTE
    engine = engine_of(number, kinds=len(KINDS))
    small, large = (KINDS[kind](space, draw, bytes_in_all, engine) for bytes_in_all in (size, GROWTH * size))
    # Twice what would be linear: quadratic time would be four times that.
    most = 2 * GROWTH * small.cpu_seconds + SLACK_SECONDS
    assert large.cpu_seconds < most, (
        f"{kind}, {size:,} bytes: {small.cpu_seconds:.1f} s, then {large.cpu_seconds:.1f} s"
    )
    _check_memory(kind, large, GROWTH * size)


def _check_memory(kind: str, ended: Ended, size: int) -> None:
    most = _own_bytes() + MOST_BYTES_A_BYTE * size + ROOM
    assert ended.peak_bytes < most, f"{kind}, {size:,} bytes: {ended.peak_bytes / 1e9:.2f} GB"


def _own_bytes() -> int:
    """The memory of this process, which each fork begins with."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _predict(space: Workspace, engine: str, *more: str | Path, stdin: Path | None = None) -> Ended:
    arguments = predict(space.reference("default"), engine, *more)

    def prepare() -> None:
        if stdin:  # through a pipe, from which each read gets some kilobytes
            pipe = subprocess.Popen(["cat", stdin], stdout=subprocess.PIPE).stdout
            assert pipe
            os.dup2(pipe.fileno(), 0)

    ended = fork(arguments, cwd=space.folder, prepare=prepare).end()
    assert ended.code == 0, ended.err
    return ended


def _check_answers(ended: Ended) -> None:
    """Two answers: of the long text, which is cut, and of the one after it, which is as it would be by itself."""
    first, second = (json.loads(line) for line in ended.out.splitlines())
    assert first["truncated"], first
    assert not second["truncated"], second


def _long_text(draw: random.Random, size: int) -> str:
    piece = draw.choice(["a", "rain ", "x" * 999 + " ", "snow, "])
    return piece * (size // len(piece))


def line_of_standard_input(space: Workspace, draw: random.Random, size: int, engine: str) -> Ended:
    """One line that takes many reads."""
    path = _file(space, ".txt", [_long_text(draw, size), "some rain"])
    ended = _predict(space, engine, "--format", "jsonl", stdin=path)
    path.unlink()
    _check_answers(ended)
    return ended


def line_of_a_file(space: Workspace, draw: random.Random, size: int, engine: str) -> Ended:
    """One text of a file of any kind."""
    suffix = draw.choice([".txt", ".csv", ".tsv", ".jsonl"])
    texts = [_long_text(draw, size), "some rain"]
    lines = {
        ".txt": texts,
        ".csv": ["text", *(f'"{text}"' for text in texts)],
        ".tsv": ["text", *texts],
        ".jsonl": [json.dumps({"text": text}) for text in texts],
    }
    path = _file(space, suffix, lines[suffix])
    ended = _predict(space, engine, "--format", "jsonl", "--input", path)
    path.unlink()
    _check_answers(ended)
    return ended


def explained_text(space: Workspace, draw: random.Random, size: int, engine: str) -> Ended:
    """A text of 100,000 words and more, with what its words did."""
    text = " ".join(draw.choices(["rain", "snow", "ball", "the", "unheardof"], k=size // 5))
    path = _file(space, ".txt", [text, "some rain"])
    ended = _predict(space, engine, "--format", "jsonl", "--explain", "--input", path)
    _check_answers(ended)
    return ended


def page_of_many_texts(space: Workspace, draw: random.Random, size: int, engine: str) -> Ended:
    """A page that a browser can open, and a warning of what is not on it."""
    path = _file(space, ".txt", ["rain and snow " * draw.randint(1, 3)] * (size // 4000))
    output = space.new_path("page").with_suffix(".html")
    ended = _predict(space, engine, "--input", path, "--output", output)
    assert output.stat().st_size < LARGEST_REPORT, f"{output.stat().st_size:,} bytes"
    assert "warning:" in ended.err, ended.err
    return ended


def text_of_training(space: Workspace, draw: random.Random, size: int, _engine: str) -> Ended:
    """One text of the training data as long as a book."""
    rows = [(f"{draw.choice(['rain', 'snow'])} today", "weather") for _ in range(30)]
    rows += [(f"{draw.choice(['ball', 'goal'])} today", "sport") for _ in range(30)]
    rows[0] = (_long_text(draw, size), "weather")
    return _train(space, rows)


def many_classes(space: Workspace, draw: random.Random, size: int, _engine: str) -> Ended:
    """A report that can be opened, of as many classes as there are; here the size is that of the training data."""
    classes = CLASSES if size > 16 * MEGABYTE else CLASSES // GROWTH
    words = [f"w{draw.randrange(10**6)}" for _ in range(5000)]
    rows = [
        (f"{words[i % 5000]} {' '.join(draw.choices(words, k=4))}", f"class {i % classes}") for i in range(4 * classes)
    ]
    ended = _train(space, rows)
    for report in (space.folder / "last-run" / "eval").iterdir():
        assert report.stat().st_size < LARGEST_REPORT, f"{report.name}: {report.stat().st_size:,} bytes"
    evaluated = fork(["eval", space.folder / "last-run", "--json"], cwd=space.folder).end()
    assert evaluated.code == 0, evaluated.err
    assert len(json.loads(evaluated.out)["per_class"]) == classes
    return ended


def _train(space: Workspace, rows: list[tuple[str, str]]) -> Ended:
    path = space.new_path("data").with_suffix(".csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    config = path.with_suffix(".yaml")
    sections = {
        "data": {"train": str(path), "validation_fraction": 0.25},
        "model": SHAPE | TABLES,
        "pretrain": {"epochs": 1},
        "train": {"epochs": 1},
    }
    config.write_text(yaml.safe_dump(sections))
    run = space.new_path("run")
    ended = fork(["train", "--config", config, "--run-dir", run, "--device", "cpu"], cwd=space.folder).end()
    assert ended.code == 0, ended.err
    last = space.folder / "last-run"
    last.unlink(missing_ok=True)
    last.symlink_to(run)
    return ended


def _file(space: Workspace, suffix: str, lines: list[str]) -> Path:
    path = space.new_path("large").with_suffix(suffix)
    with path.open("w") as file:
        file.writelines(_with_ends(lines))
    return path


def _with_ends(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield line
        yield "\n"


KINDS: dict[str, Callable[[Workspace, random.Random, int, str], Ended]] = {
    "a line of standard input": line_of_standard_input,
    "a line of a file": line_of_a_file,
    "an explained text": explained_text,
    "a page of many texts": page_of_many_texts,
    "a text of training": text_of_training,
    "many classes": many_classes,
}
HUGE = {"a line of standard input": 1000 * MEGABYTE}  # at the first try: what nobody would type

CASES = {
    "sizes": Case("long lines, long texts, many classes: time and memory grow with them, no faster", 24, grow),
}
