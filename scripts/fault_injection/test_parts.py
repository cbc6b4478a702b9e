"""`predict --output FOLDER/`: killed, run by several at once, run again when something is another."""

import csv
import json
import os
import re
import signal
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from processes import at_file_event, kill_at_file_event, mount, small_disk, with_mounts
from samples import ENGINES, FILLERS, WORDS, damage, engine_of, predict, tries

FORMATS = ("jsonl", "csv", "tsv", "parquet", "text")
OPTIONS = (("--top-k", "2"), ("--threshold", "0.7"), ("--explain",))
WRITTEN = re.compile(r": ([\d,]+) of [\d,]+ files? written by this process \(")
FILE_EVENTS_OF_A_PART = 9


@dataclass(frozen=True)
class Job:
    """A folder of parts, the options of its answers, and the folder for these."""

    space: object
    parts: Path
    out: Path
    form: str
    engine: str
    variant: str = "default"
    more: tuple = ()

    def begin(self, **options):
        """The command, in a process."""
        named = [
            "--input",
            self.parts,
            "--output",
            f"{self.out}/",
            "--format",
            self.form,
            *self.more,
        ]
        return self.space.fork(
            predict(self.space.reference(self.variant), self.engine, *named), **options
        )

    def kill_at(self, event):
        """The command, killed at one of its file events."""
        return self.begin(prepare=partial(kill_at_file_event, event, self.out))

    def expected(self):
        """The answers by name of file, of a process that nothing disturbs."""
        fresh = replace(self, out=self.space.new_path("undisturbed"))
        fresh.begin().end().check()
        return fresh.answers()

    def answers(self):
        """The files of answers by name, without temporary ones."""
        files = (
            [it for it in self.out.iterdir() if it.is_file() and it.name[0] != "."]
            if self.out.is_dir()
            else []
        )
        return {path.name: path.read_bytes() for path in files}

    def check(self, expected, *, others=0):
        """Fail unless the folder holds these answers, a record for each, and nothing else but so many older ones."""
        found = self.answers()
        assert expected.items() <= found.items(), {
            it for it in expected if expected[it] != found.get(it)
        }
        assert len(found) == len(expected) + others, f"too many: {found.keys() - expected.keys()}"
        names = {path.name for path in (self.out / "_parts").iterdir()}
        assert names == {f"{Path(name).stem}.json" for name in found}, (
            f"records and what is left: {sorted(names)}"
        )
        assert not [*self.out.glob(".*")], "something is left"
        for part in self.parts.iterdir():  # each row has one answer, in order
            rows, content = read_rows(part), found[f"{part.stem}.{self.form}"]
            if self.form == "jsonl":
                assert [json.loads(line)["id"] for line in content.splitlines()] == [
                    row[0] for row in rows
                ], part.name
            elif self.form != "parquet":
                assert content.count(b"\n") - (self.form in {"csv", "tsv"}) == len(rows), part.name


def new_job(space, draw, engine):
    """Some parts with some rows, one of which is not empty."""
    parts = space.new_path("parts")
    parts.mkdir()
    for part in range(draw.randint(2, 6)):
        write_rows(
            parts / f"part-{part:02}{draw.choice(['.csv', '.jsonl'])}",
            new_rows(draw, part, draw.choice([0, 1, 7, 60])),
        )
    write_rows(parts / "part-99.csv", new_rows(draw, 99, 9))
    return Job(space, parts, space.new_path("out"), draw.choice(FORMATS), engine)


def new_rows(draw, part, count):
    lengths = [draw.choice([0, 1, 5, 20]) for _ in range(count)]
    return [
        (f"{part}-{row}", " ".join(draw.choices(WORDS + FILLERS, k=k)))
        for row, k in enumerate(lengths)
    ]


def write_rows(path, rows):
    """A part of these rows, by its ending."""
    with path.open("w") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps({"id": name, "text": text}) + "\n" for name, text in rows)
        else:
            csv.writer(file, lineterminator="\n").writerows([("id", "text"), *rows])


def read_rows(path):
    if path.suffix == ".jsonl":
        return [(row["id"], row["text"]) for row in map(json.loads, path.read_text().splitlines())]
    return [*csv.reader(path.read_text().splitlines())][1:]


def num_written(ended):
    """How many files a command reports as written; 0 if it was killed."""
    found = WRITTEN.search(ended.err)
    return int(found[1]) if found else 0


@tries(200)
def test_parts_kill(space, draw, number):
    """SIGKILL at any moment, or at any change of a file; run again, the output has each row once, and nothing else."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.7:
            ended = job.kill_at(draw.randint(1, FILE_EVENTS_OF_A_PART * len(expected))).end()
        else:
            ended = job.begin().kill(after=draw.uniform(0, 0.6))
        assert ended.code in {0, -signal.SIGKILL}, ended.err
        assert job.answers().items() <= expected.items(), "a file of answers is not whole"
    job.begin().end().check()
    job.check(expected)


@pytest.mark.parametrize("kind", ["some are killed", "of other machines", "without locks"])
@tries(30)
def test_parts_together(space, draw, kind, number):
    """Several processes on one folder, as of one machine or of several, some killed, also without locks."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    processes, codes = [], {0}

    def be_other(machine):
        mock.patch("platform.node", lambda: f"machine {machine}").start()
        if kind == "without locks":  # as on Windows, or on some file systems
            mock.patch.dict(sys.modules, {"fcntl": None}).start()

    for one in range(draw.randint(2, 4)):
        if kind != "some are killed":
            processes.append(job.begin(prepare=partial(be_other, one)))
        elif one and draw.random() < 0.6:
            processes.append(job.kill_at(draw.randint(1, FILE_EVENTS_OF_A_PART * len(expected))))
            codes = {0, -signal.SIGKILL}
        else:
            processes.append(job.begin())
    ended = [process.end() for process in processes]
    assert {it.code for it in ended} <= codes, [it.err for it in ended]
    if kind == "of other machines":
        assert sum(map(num_written, ended)) == len(expected), "a part was done twice"
    assert num_written(job.begin().end().check()) == 0, "what was done is done again"
    job.check(expected)  # a process killed after its work may have left its lock until then


@tries(20)
def test_parts_changed_meanwhile(space, draw, number):
    """An input that changes while it is answered: exit 3, nothing of it is written; run again, it is complete."""
    job, event = new_job(space, draw, engine_of(number)), draw.randint(1, 3)

    def append():
        for part in job.parts.iterdir():
            write_rows(part, [*read_rows(part), ("more", "rain")])

    ended = job.begin(prepare=partial(at_file_event, event, append, temporary=".tmp-")).end()
    if event % 2:  # answers and records are written by turns; while a record is, nothing is read
        ended.check_error(3, "has changed while it was read")
    else:
        ended.check()
    expected = job.expected()
    job.begin().end().check()
    job.check(expected)


@tries(30)
def test_parts_full_disk(space, draw, number):
    """Too little room for the answers: one line that names a path, and whole files; with room, it goes on."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    job.out.mkdir()

    def answer():
        ended = job.begin().end()
        assert not list(job.out.rglob(".tmp-*")), "something temporary is left"
        assert job.answers().items() <= expected.items(), "a file of answers is not whole"
        if ended.code:
            ended.check_error(1, str(job.out))
            mount("-o", "remount,size=8m", job.out)
            job.begin().end().check()
        job.check(expected)

    with_mounts([small_disk(job.out, 4 * (1 + number % 10))], answer)


def another_row(job, draw, part):
    write_rows(part, [*read_rows(part), *new_rows(draw, "new", 1)])


def another_text(job, _draw, _part):
    part = job.parts / "part-99.csv"
    state = part.stat()
    part.write_bytes(part.read_bytes().replace(b"99-3", b"99-x"))
    os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))  # as large and as old as before


def damaged_answers(job, draw, _part):
    damage(job.out / f"part-99.{job.form}", draw, cut=0.6)


def damaged_record(job, draw, part):
    path = record(job, part)
    content = path.read_bytes()
    cut = content[: draw.randrange(len(content) - 2)]
    values = {key: draw.choice([None, 3, [], {}, "../../x"]) for key in json.loads(content)}
    path.write_bytes(
        draw.choice(
            [b"", cut, b"[]", b"null", b"3", b"[" * 10**6, b"\xff", json.dumps(values).encode()]
        )
    )


def record(job, part):
    return job.out / "_parts" / f"{part.stem}.json"


def record_of_another(job, draw, part):
    other = draw.choice([it for it in job.parts.iterdir() if it != part])
    record(job, part).write_bytes(record(job, other).read_bytes())


ALL, NONE, ONE = "all", "none", "one"  # parts that have to be done again
CHANGES = {
    "nothing-but-how-fast": (NONE, lambda job, *_: replace(job, more=("--batch-tokens", "64"))),
    "the-time-of-an-input": (NONE, lambda _, __, part: os.utime(part)),
    "a-row-more": (ONE, another_row),
    "another-row-as-large-and-as-old": (ONE, another_text),
    "another-part": (
        ONE,
        lambda job, draw, _: write_rows(job.parts / "part-50.jsonl", new_rows(draw, 50, 5)),
    ),
    "a-part-less": (NONE, lambda _, __, part: part.unlink()),
    "another-model": (ALL, lambda job, *_: replace(job, variant="labels")),
    "other-options": (ALL, lambda job, draw, _: replace(job, more=draw.choice(OPTIONS))),
    "another-engine": (
        ALL,
        lambda job, *_: replace(job, engine=ENGINES[1 - ENGINES.index(job.engine)]),
    ),
    "another-format": (
        ALL,
        lambda job, draw, _: replace(job, form=draw.choice(sorted({*FORMATS} - {job.form}))),
    ),
    "damaged-answers": (ONE, damaged_answers),
    "no-answers": (ONE, lambda job, _, part: (job.out / f"{part.stem}.{job.form}").unlink()),
    "a-damaged-record": (ONE, damaged_record),
    "the-record-of-another-part": (ONE, record_of_another),
    "no-record": (ONE, lambda job, _, part: record(job, part).unlink()),
}


@pytest.mark.parametrize("kind", CHANGES)
@tries(8)
def test_parts_changed(space, draw, kind, number):
    """Input, model, options, answers or records are others: the parts that this concerns are done again, no others."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    job.begin().end().check()
    job.check(expected)
    again, change = CHANGES[kind]
    found = change(job, draw, draw.choice(sorted(job.parts.iterdir())))
    changed = found if isinstance(found, Job) else job
    inputs = sorted(changed.parts.iterdir())
    others = int(kind == "a-part-less")
    stems = {part.stem for part in inputs}
    expected = {name: it for name, it in expected.items() if Path(name).stem in stems}
    if again != NONE:
        expected = changed.expected()
    ended = changed.begin().end().check()
    assert num_written(ended) == {ALL: len(inputs), NONE: 0, ONE: 1}[again]
    assert ("not in the input" in ended.err) == bool(others), ended.err
    changed.check(expected, others=others)
