"""Bulk prediction that is tried: a folder of parts, the command that answers it, and what must be there in the end."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from processes import Arguments, Ended, Process, fork
from samples import FILLERS, TOPICS, Workspace, engine_of, predict

WORDS = " ".join(TOPICS.values()).split() + FILLERS
FORMATS = ("jsonl", "csv", "tsv", "parquet", "text")
ENDINGS = (".csv", ".jsonl", ".tsv")
WRITTEN = re.compile(r": ([\d,]+) of ([\d,]+) files? written by this process \(([\d,]+) texts?\)")
Row = tuple[str, str]


@dataclass(frozen=True)
class Job:
    """A folder of parts, what is asked of its texts, and where the answers go."""

    space: Workspace
    parts: Path
    out: Path
    output_format: str
    engine: str
    run: str = "default"
    more: tuple[str, ...] = ()

    def begin(self, *, prepare: Callable[[], object] = lambda: None) -> Process:
        """The command, in a process."""
        named: Arguments = [
            "--input",
            self.parts,
            "--output",
            f"{self.out}/",
            "--format",
            self.output_format,
            *self.more,
        ]
        arguments = predict(self.space.reference(self.run), self.engine, *named)
        return fork(arguments, cwd=self.space.folder, prepare=prepare)

    def finish(self) -> Ended:
        """The command, to its end, which must be a good one."""
        ended = self.begin().end()
        assert ended.code == 0, f"exit {ended.code}: {ended.err}"
        return ended

    def other(self, out: Path, **changes: str | tuple[str, ...]) -> Job:
        """The same into another folder, or something else."""
        return Job(**(vars(self) | {"out": out} | changes))

    def expected(self) -> dict[str, bytes]:
        """The answers by name of file, of a process that nothing disturbs."""
        fresh = self.other(self.space.new_path("undisturbed"))
        fresh.finish()
        return answers_in(fresh.out)

    def check(self, expected: dict[str, bytes], *, others: int = 0) -> None:
        """Fail unless the folder holds these answers, a record for each, and nothing else but so many older ones."""
        found = answers_in(self.out)
        assert found.keys() >= expected.keys(), f"without answers: {expected.keys() - found.keys()}"
        for name, content in expected.items():
            assert found[name] == content, f"{name} differs: {found[name][:200]!r}, expected {content[:200]!r}"
        assert len(found) == len(expected) + others, f"too many: {found.keys() - expected.keys()}"
        names = {path.name for path in (self.out / "_parts").iterdir()}
        stems = {Path(name).stem for name in found}
        assert names == {f"{stem}.json" for stem in stems}, f"records and what is left: {sorted(names)}"
        left = [path.name for path in self.out.iterdir() if path.name.startswith(".")]
        assert not left, f"left: {left}"
        for part in self.parts.iterdir():
            self._check_rows(part, found[f"{part.stem}.{self.output_format}"])

    def _check_rows(self, part: Path, content: bytes) -> None:
        """Each row of a part has one answer, in order."""
        rows = read_rows(part)
        if self.output_format == "jsonl":
            assert [json.loads(line)["id"] for line in content.splitlines()] == [row[0] for row in rows], part.name
        elif self.output_format != "parquet":
            lines = content.count(b"\n") - (self.output_format in {"csv", "tsv"})
            assert lines == len(rows), f"{part.name}: {lines} answers to {len(rows)} rows"


def new_job(space: Workspace, draw: random.Random, number: int, *, kinds: int = 1) -> Job:
    """Some parts with some rows."""
    parts = space.new_path("parts")
    parts.mkdir()
    for part in range(draw.randint(2, 6)):
        rows = [new_row(draw, f"{part}-{row}") for row in range(draw.choice([0, 1, 7, 60]))]
        write_rows(parts / f"part-{part:02}{draw.choice(ENDINGS)}", rows)
    write_rows(parts / "part-99.csv", [new_row(draw, f"99-{row}") for row in range(9)])  # one that is not empty
    return Job(space, parts, space.new_path("out"), draw.choice(FORMATS), engine_of(number, kinds=kinds))


def new_row(draw: random.Random, name: str) -> Row:
    """A name and a text."""
    return name, " ".join(draw.choices(WORDS, k=draw.choice([0, 1, 5, 20])))


def write_rows(path: Path, rows: list[Row]) -> None:
    """A part of these rows, by its ending."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in rows))
        return
    content = io.StringIO()
    table = csv.writer(content, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n")
    table.writerows([("id", "text"), *rows])
    path.write_text(content.getvalue())


def read_rows(path: Path) -> list[Row]:
    """The rows of a part."""
    if path.suffix == ".jsonl":
        return [(row["id"], row["text"]) for row in map(json.loads, path.read_text().splitlines())]
    table = csv.reader(io.StringIO(path.read_text()), delimiter="\t" if path.suffix == ".tsv" else ",")
    return [(row[0], row[1]) for row in [*table][1:]]


def answers_in(out: Path) -> dict[str, bytes]:
    """The files of answers by name, without what is temporary."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name[0] != "."}


def num_written(ended: Ended) -> int:
    """How many files a command says that it has written; none, if it did not come to its end."""
    found = WRITTEN.search(ended.err)
    return int(found[1]) if found else 0
