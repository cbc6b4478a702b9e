"""`predict --output FOLDER/`: killed, run by several at once, run again after a change."""

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

FORMATS = ("jsonl", "csv", "tsv", "xlsx", "parquet", "text")
OPTIONS = (("--top-k", "2"), ("--threshold", "0.7"), ("--explain",))
WRITTEN = re.compile(r": ([\d,]+) of [\d,]+ files? written by this process \(")
FILE_EVENTS_OF_A_PART = 9


@dataclass(frozen=True)
class Job:
    """A folder of parts, the options of `predict`, and the folder of the predictions."""

    space: object
    parts: Path
    out: Path
    form: str
    engine: str
    # Of the model.
    variant: str = "default"
    # Further options.
    more: tuple = ()

    def begin(self, **options):
        """Start the command."""
        command = predict(self.space.reference(self.variant), self.engine, "--format", self.form)
        command += ["--input", self.parts, "--output", f"{self.out}/", *self.more]
        return self.space.fork(command, **options)

    def kill_at(self, event):
        """Start the command, which is killed at one of its file events."""
        return self.begin(prepare=partial(kill_at_file_event, event, self.out))

    def expected(self):
        """The predictions of a process that nothing disturbs, by name of file."""
        fresh = replace(self, out=self.space.new_path("undisturbed"))
        fresh.begin().end().check()
        return fresh.predictions()

    def predictions(self):
        """The files of predictions by name, without temporary ones."""
        if not self.out.is_dir():
            return {}

        found = {}
        for path in self.out.iterdir():
            if path.is_file() and not path.name.startswith("."):
                found[path.name] = path.read_bytes()
        return found

    def check(self, expected, *, others=0):
        """Fail unless the folder holds these predictions, and a record for each file.

        It must hold nothing else but so many others, of older parts.
        """
        found = self.predictions()
        differing = [name for name in expected if expected[name] != found.get(name)]
        assert not differing, differing
        assert len(found) == len(expected) + others, f"too many: {found.keys() - expected.keys()}"

        records = {path.name for path in (self.out / "_parts").iterdir()}
        expected_records = {f"{Path(name).stem}.json" for name in found}
        assert records == expected_records, f"records and what is left: {sorted(records)}"
        assert not [*self.out.glob(".*")], "something is left"

        for part in self.parts.iterdir():
            self._check_rows(part, found[f"{part.stem}.{self.form}"])

    def _check_rows(self, part, predictions):
        """Fail unless each row of a part has one prediction, in order."""
        rows = read_rows(part)
        if self.form == "jsonl":
            ids = [json.loads(line)["id"] for line in predictions.splitlines()]
            assert ids == [name for name, _ in rows], part.name
        elif self.form in {"csv", "tsv"}:
            assert predictions.count(b"\n") == len(rows) + 1, part.name
        elif self.form == "text":
            assert predictions.count(b"\n") == len(rows), part.name


def new_job(space, draw, engine):
    """A job of some parts, which may be empty, and one with rows."""
    parts = space.new_path("parts")
    parts.mkdir()
    for part in range(draw.randint(2, 6)):
        suffix = draw.choice([".csv", ".jsonl"])
        num_rows = draw.choice([0, 1, 7, 60])
        write_rows(parts / f"part-{part:02}{suffix}", new_rows(draw, part, num_rows))
    write_rows(parts / "part-99.csv", new_rows(draw, 99, 9))
    return Job(space, parts, space.new_path("out"), draw.choice(FORMATS), engine)


def new_rows(draw, part, count):
    """Rows of an id and a text."""
    rows = []
    for row in range(count):
        length = draw.choice([0, 1, 5, 20])
        text = " ".join(draw.choices(WORDS + FILLERS, k=length))
        rows.append((f"{part}-{row}", text))
    return rows


def write_rows(path, rows):
    """Write a part of these rows, in the format of its ending."""
    with path.open("w") as file:
        if path.suffix == ".jsonl":
            for name, text in rows:
                record = {"id": name, "text": text}
                file.write(f"{json.dumps(record)}\n")
        else:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["id", "text"])
            table.writerows(rows)


def read_rows(path):
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in lines]
        return [(record["id"], record["text"]) for record in records]
    _, *rows = csv.reader(lines)
    return rows


def num_written(ended):
    """How many files a command reports as written; 0 if it was killed."""
    found = WRITTEN.search(ended.err)
    return int(found[1]) if found else 0


@tries(200)
def test_parts_kill(space, draw, number):
    """SIGKILL at any moment, or at any change of a file; run again, it has each row once."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    most_events = FILE_EVENTS_OF_A_PART * len(expected)
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.7:
            event = draw.randint(1, most_events)
            ended = job.kill_at(event).end()
        else:
            ended = job.begin().kill(after=draw.uniform(0, 0.6))
        assert ended.code in {0, -signal.SIGKILL}, ended.err
        assert job.predictions().items() <= expected.items(), "a file of predictions is not whole"

    job.begin().end().check()
    job.check(expected)


@pytest.mark.parametrize("kind", ["some are killed", "of other machines", "without locks"])
@tries(30)
def test_parts_together(space, draw, kind, number):
    """Several processes on one folder, some killed, or of several machines, or without locks."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()

    def be_other(machine):
        mock.patch("platform.node", lambda: f"machine {machine}").start()
        if kind == "without locks":  # as on Windows, or on some file systems
            mock.patch.dict(sys.modules, {"fcntl": None}).start()

    most_events = FILE_EVENTS_OF_A_PART * len(expected)
    processes = []
    codes = {0}
    for machine in range(draw.randint(2, 4)):
        if kind != "some are killed":
            processes.append(job.begin(prepare=partial(be_other, machine)))
        elif machine > 0 and draw.random() < 0.6:
            event = draw.randint(1, most_events)
            processes.append(job.kill_at(event))
            codes.add(-signal.SIGKILL)
        else:
            processes.append(job.begin())

    ended = [process.end() for process in processes]
    assert {one.code for one in ended} <= codes, [one.err for one in ended]
    if kind == "of other machines":
        assert sum(map(num_written, ended)) == len(expected), "a part was done twice"
    assert num_written(job.begin().end().check()) == 0, "what was done is done again"
    # Until then, a process killed after its work may have left its lock.
    job.check(expected)


@tries(20)
def test_parts_changed_meanwhile(space, draw, number):
    """An input that changes while it is classified: exit 3, nothing of it is written."""
    job = new_job(space, draw, engine_of(number))
    event = draw.randint(1, 3)

    def append():
        for part in job.parts.iterdir():
            write_rows(part, [*read_rows(part), ("more", "rain")])

    prepare = partial(at_file_event, event, append, temporary=".tmp-")
    ended = job.begin(prepare=prepare).end()
    # Predictions and records are written by turns. Nothing is read while a record is written.
    if event % 2:
        ended.check_error(3, "has changed while it was read")
    else:
        ended.check()

    expected = job.expected()
    job.begin().end().check()
    job.check(expected)


@tries(30)
def test_parts_full_disk(space, draw, number):
    """Too little room: one line that names a path, and whole files; with room, it goes on."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    job.out.mkdir()

    def prediction():
        ended = job.begin().end()
        assert not list(job.out.rglob(".tmp-*")), "something temporary is left"
        assert job.predictions().items() <= expected.items(), "a file of predictions is not whole"
        if ended.code:
            ended.check_error(1, str(job.out))
            mount("-o", "remount,size=8m", job.out)
            job.begin().end().check()
        job.check(expected)

    pages = 1 + number % 10
    with_mounts([small_disk(job.out, 4 * pages)], prediction)


# Changes of a job that is done: what is changed of its files, or another job


def time_of_an_input(_job, _draw, part):
    os.utime(part)


def another_row(_job, draw, part):
    write_rows(part, [*read_rows(part), *new_rows(draw, "new", 1)])


def another_row_as_large_and_as_old(job, _draw, _part):
    part = job.parts / "part-99.csv"
    state = part.stat()
    part.write_bytes(part.read_bytes().replace(b"99-3", b"99-x"))
    os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))


def another_part(job, draw, _part):
    write_rows(job.parts / "part-50.jsonl", new_rows(draw, 50, 5))


def a_part_less(_job, _draw, part):
    part.unlink()


def damaged_predictions(job, draw, _part):
    damage(job.out / f"part-99.{job.form}", draw, cut=0.6)


def no_predictions(job, _draw, part):
    (job.out / f"{part.stem}.{job.form}").unlink()


def damaged_record(job, draw, part):
    path = record_of(job, part)
    content = path.read_bytes()
    cut = content[: draw.randrange(len(content) - 2)]

    values = {}
    for key in json.loads(content):
        values[key] = draw.choice([None, 3, [], {}, "../../x"])
    other_values = json.dumps(values).encode()

    odd = [b"", cut, b"[]", b"null", b"3", b"[" * 10**6, b"\xff", other_values]
    path.write_bytes(draw.choice(odd))


def record_of_another_part(job, draw, part):
    others = [other for other in job.parts.iterdir() if other != part]
    record = record_of(job, draw.choice(others))
    record_of(job, part).write_bytes(record.read_bytes())


def no_record(job, _draw, part):
    record_of(job, part).unlink()


def record_of(job, part):
    return job.out / "_parts" / f"{part.stem}.json"


def only_faster(job, _draw, _part):
    return replace(job, more=("--batch-tokens", "64"))


def another_model(job, _draw, _part):
    return replace(job, variant="labels")


def other_options(job, draw, _part):
    return replace(job, more=draw.choice(OPTIONS))


def another_engine(job, _draw, _part):
    (other,) = {*ENGINES} - {job.engine}
    return replace(job, engine=other)


def another_format(job, draw, _part):
    others = [form for form in FORMATS if form != job.form]
    return replace(job, form=draw.choice(others))


# The parts that a change has done again.
ALL = "all"
NONE = "none"
ONE = "one"
CHANGES = {
    "nothing-but-how-fast": (NONE, only_faster),
    "the-time-of-an-input": (NONE, time_of_an_input),
    "a-row-more": (ONE, another_row),
    "another-row-as-large-and-as-old": (ONE, another_row_as_large_and_as_old),
    "another-part": (ONE, another_part),
    "a-part-less": (NONE, a_part_less),
    "another-model": (ALL, another_model),
    "other-options": (ALL, other_options),
    "another-engine": (ALL, another_engine),
    "another-format": (ALL, another_format),
    "damaged-predictions": (ONE, damaged_predictions),
    "no-predictions": (ONE, no_predictions),
    "a-damaged-record": (ONE, damaged_record),
    "the-record-of-another-part": (ONE, record_of_another_part),
    "no-record": (ONE, no_record),
}


@pytest.mark.parametrize("kind", CHANGES)
@tries(8)
def test_parts_changed(space, draw, kind, number):
    """Input, model, options, predictions or records change: the parts concerned are done again."""
    job = new_job(space, draw, engine_of(number))
    expected = job.expected()
    job.begin().end().check()
    job.check(expected)

    again, change = CHANGES[kind]
    part = draw.choice(sorted(job.parts.iterdir()))
    changed = change(job, draw, part) or job
    inputs = sorted(changed.parts.iterdir())
    if again == NONE:
        # A part that is gone gets no predictions.
        stems = {part.stem for part in inputs}
        for name in list(expected):
            if Path(name).stem not in stems:
                del expected[name]
    else:
        expected = changed.expected()

    ended = changed.begin().end().check()
    numbers = {ALL: len(inputs), NONE: 0, ONE: 1}
    assert num_written(ended) == numbers[again]
    others = 1 if kind == "a-part-less" else 0
    assert ("not in the input" in ended.err) == (others > 0), ended.err
    changed.check(expected, others=others)
