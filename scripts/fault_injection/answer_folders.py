"""Cases about `predict --output FOLDER/`: killed, run by several at once, run again when something is another."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from cases import Case
from disks import in_namespace
from jobs import FORMATS, Job, answers_in, new_job, new_row, num_written, read_rows, write_rows
from processes import kill_at_file_event, mount_alone
from samples import ENGINES, Workspace, assert_mendable

FILE_EVENTS_OF_A_PART = 9


def kill(space: Workspace, draw: random.Random, number: int) -> None:
    """SIGKILL at any moment, or at any change of a file; run again, each row is there once, and nothing else."""
    job = new_job(space, draw, number)
    expected = job.expected()
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.7:
            event = draw.randint(1, FILE_EVENTS_OF_A_PART * len(expected))
            ended = job.begin(prepare=partial(kill_at_file_event, event, job.out)).end()
        else:
            process = job.begin()
            if process.wait(draw.uniform(0, 0.6)) is None:
                process.signal(signal.SIGKILL)
            ended = process.end()
        assert ended.code in {0, -signal.SIGKILL}, ended.err
        if job.out.is_dir():
            found = answers_in(job.out)
            assert found.items() <= expected.items(), "a file of answers is not whole"
    job.finish()
    job.check(expected)


def together(space: Workspace, draw: random.Random, number: int) -> None:
    """Several processes on one folder, as of one machine or of several, some killed, also without locks."""
    job = new_job(space, draw, number)
    expected = job.expected()
    kind = ("some are killed", "of other machines", "without locks")[number % 3]
    processes, killed = [], 0
    for one in range(draw.randint(2, 4)):
        prepares: list[Callable[[], object]] = []
        if kind != "some are killed":
            prepares.append(partial(_be_on, f"machine {one}"))
        if kind == "without locks":
            prepares.append(_have_no_locks)
        elif kind == "some are killed" and one and draw.random() < 0.6:
            event = draw.randint(1, FILE_EVENTS_OF_A_PART * len(expected))
            prepares.append(partial(kill_at_file_event, event, job.out))
            killed += 1
        processes.append(job.begin(prepare=lambda: [prepare() for prepare in prepares]))  # noqa: B023 - forked now
    ended = [process.end() for process in processes]
    for it in ended:
        assert it.code in {0, -signal.SIGKILL} if killed else it.code == 0, f"exit {it.code}: {it.err}"
    if kind == "of other machines":
        assert sum(map(num_written, ended)) == len(expected), "a part was done twice"
    assert num_written(job.finish()) == 0, "what was done is done again"
    job.check(expected)  # whoever was killed with its work done may have left its lock until then


def change(space: Workspace, draw: random.Random, number: int) -> None:
    """Input, model, options, answers or records are others: the parts that this concerns are done again, no others."""
    job = new_job(space, draw, number, kinds=len(CHANGES))
    expected = job.expected()
    job.finish()
    job.check(expected)
    kind = list(CHANGES)[number % len(CHANGES)]
    changed, num_again, num_others = CHANGES[kind](job, draw)
    if num_again:
        expected = changed.expected()
    else:
        stems = {part.stem for part in changed.parts.iterdir()}
        expected = {name: content for name, content in expected.items() if Path(name).stem in stems}
    ended = changed.finish()
    assert num_written(ended) == num_again, f"{kind}: {num_written(ended)} files again, expected {num_again}"
    assert ("that are not in the input" in ended.err) == bool(num_others), f"{kind}: {ended.err}"
    changed.check(expected, others=num_others)


def change_while_read(space: Workspace, draw: random.Random, number: int) -> None:
    """An input that changes while it is answered: exit 3, nothing of it is written; run again, all is there."""
    job = new_job(space, draw, number)
    event = draw.randint(1, 3)
    ended = job.begin(prepare=partial(_append_at_write, event, job)).end()
    if event % 2:  # answers and records are written by turns; while a record is, nothing is read
        assert_mendable(ended, code=3, named="has changed while it was read")
    else:
        assert ended.code == 0, ended.err
    expected = job.expected()
    job.finish()
    job.check(expected)


def full_disk(space: Workspace, draw: random.Random, number: int) -> None:
    """Too little room for the answers: one line that names a path, what is there is whole; with room, it goes on."""
    job = new_job(space, draw, number)
    expected = job.expected()
    job.out.mkdir()
    kilobytes = 4 * (1 + number % 10)

    def on_small_disk() -> None:
        mount_alone(["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", job.out])
        ended = job.begin().end()
        assert not list(job.out.rglob(".tmp-*")), "something temporary is left"
        assert answers_in(job.out).items() <= expected.items(), "a file of answers is not whole"
        if ended.code:
            assert_mendable(ended, code=1, named=str(job.out))
            enlarged = subprocess.run(["mount", "-o", "remount,size=8m", job.out], capture_output=True, check=False)
            assert enlarged.returncode == 0
            job.finish()
        job.check(expected)

    in_namespace(on_small_disk)


def _be_on(machine: str) -> None:
    mock.patch("platform.node", lambda: machine).start()


def _have_no_locks() -> None:
    """As on Windows, or on some file systems."""
    mock.patch.dict(sys.modules, {"fcntl": None}).start()


def _append_at_write(number: int, job: Job) -> None:
    """Make this process append a row to each part as it begins to write the `number`-th file."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event == "open" and Path(str(arguments[0])).name.startswith(".tmp-"):
            seen += 1
            if seen == number:
                for part in job.parts.iterdir():
                    write_rows(part, [*read_rows(part), ("more", "rain")])

    sys.addaudithook(hook)


Changed = tuple[Job, int, int]
"""What is asked for now, how many parts have to be done again, and how many answers to other parts stay."""


def _inputs(job: Job) -> list[Path]:
    return sorted(job.parts.iterdir())


def _nothing(job: Job, _draw: random.Random) -> Changed:
    return job.other(job.out, more=("--batch-tokens", "64")), 0, 0


def _touched(job: Job, draw: random.Random) -> Changed:
    os.utime(draw.choice(_inputs(job)))
    return job, 0, 0


def _another_row(job: Job, draw: random.Random) -> Changed:
    part = draw.choice(_inputs(job))
    write_rows(part, [*read_rows(part), new_row(draw, "new")])
    return job, 1, 0


def _another_text(job: Job, _draw: random.Random) -> Changed:
    part = job.parts / "part-99.csv"
    state = part.stat()
    part.write_bytes(part.read_bytes().replace(b"99-3", b"99-x"))
    os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))  # as large and as old as before
    return job, 1, 0


def _another_part(job: Job, draw: random.Random) -> Changed:
    write_rows(job.parts / "part-50.jsonl", [new_row(draw, f"50-{row}") for row in range(5)])
    return job, 1, 0


def _no_part(job: Job, draw: random.Random) -> Changed:
    draw.choice(_inputs(job)).unlink()
    return job, 0, 1


def _another_model(job: Job, _draw: random.Random) -> Changed:
    return job.other(job.out, run="labels"), len(_inputs(job)), 0


def _other_options(job: Job, draw: random.Random) -> Changed:
    more = draw.choice([("--top-k", "2"), ("--threshold", "0.7"), ("--explain",)])
    return job.other(job.out, more=more), len(_inputs(job)), 0


def _another_engine(job: Job, _draw: random.Random) -> Changed:
    (other,) = {*ENGINES} - {job.engine}
    return job.other(job.out, engine=other), len(_inputs(job)), 0


def _another_format(job: Job, draw: random.Random) -> Changed:
    other = draw.choice([it for it in FORMATS if it != job.output_format])
    return job.other(job.out, output_format=other), len(_inputs(job)), 0


def _damaged_answers(job: Job, draw: random.Random) -> Changed:
    path = job.out / f"part-99.{job.output_format}"
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(draw.choice([bytes(content), bytes(content[:place]), b""]))
    return job, 1, 0


def _no_answers(job: Job, draw: random.Random) -> Changed:
    (job.out / f"{draw.choice(_inputs(job)).stem}.{job.output_format}").unlink()
    return job, 1, 0


def _damaged_record(job: Job, draw: random.Random) -> Changed:
    path = job.out / "_parts" / f"{draw.choice(_inputs(job)).stem}.json"
    content = path.read_bytes()
    cut = content[: draw.randrange(len(content) - 2)]
    values: dict[str, Any] = {key: draw.choice([None, 3, [], {}, "../../x"]) for key in json.loads(content)}
    path.write_bytes(draw.choice([b"", cut, b"[]", b"null", b"3", b"[" * 10**6, b"\xff", json.dumps(values).encode()]))
    return job, 1, 0


def _record_of_another(job: Job, draw: random.Random) -> Changed:
    one, other = draw.sample([job.out / "_parts" / f"{part.stem}.json" for part in _inputs(job)], 2)
    one.write_bytes(other.read_bytes())
    return job, 1, 0


def _no_record(job: Job, draw: random.Random) -> Changed:
    (job.out / "_parts" / f"{draw.choice(_inputs(job)).stem}.json").unlink()
    return job, 1, 0


CHANGES: dict[str, Callable[[Job, random.Random], Changed]] = {
    "nothing but how fast": _nothing,
    "the time of an input": _touched,
    "a row more": _another_row,
    "another row, as large and as old": _another_text,
    "another part": _another_part,
    "a part less": _no_part,
    "another model": _another_model,
    "other options": _other_options,
    "another engine": _another_engine,
    "another format": _another_format,
    "damaged answers": _damaged_answers,
    "no answers": _no_answers,
    "a damaged record": _damaged_record,
    "the record of another part": _record_of_another,
    "no record": _no_record,
}

CASES = {
    "parts-kill": Case("kill -9 anywhere in bulk prediction: run again, each row is there once", 200, kill),
    "parts-together": Case("several processes on one folder: each row is there once", 90, together),
    "parts-changed": Case("what has changed is done again, and nothing else", 8 * len(CHANGES), change),
    "parts-changed-meanwhile": Case("an input that changes while it is read is noticed", 20, change_while_read),
    "parts-full-disk": Case("no room for answers: one line; with room it goes on", 30, full_disk),
}
