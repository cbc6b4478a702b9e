"""Processes that share work: in order, with its errors, and never there without the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count, islice
from pathlib import Path

import pytest
from support.programs import TIME_LIMIT

from encoder_cls.errors import DataError, EncoderClsError
from encoder_cls.system import processes
from encoder_cls.system.processes import Workers, usable_processes

ENDLESS = """
import itertools, time
from encoder_cls.system.processes import Workers
with Workers(time.sleep, 2) as workers:
    for _ in workers.map(itertools.repeat(0.01)):
        print(*(process.pid for process in workers._processes), flush=True)
"""


def halved(number: int) -> float:
    if number == 7:
        raise DataError("a.csv:7", "cannot be halved", "leave it out")
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def test_items_keep_their_order_and_are_taken_as_they_are_needed():
    taken = []
    with Workers(halved, 2) as workers:
        made = workers.map(taken.append(number) or number for number in count(10))
        assert list(islice(made, 20)) == [number / 2 for number in range(10, 30)]
    assert len(taken) < 30


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (7, DataError, "^a.csv:7: cannot be halved; leave it out$"),
        (8, EncoderClsError, "is there enough memory"),
    ],
)
def test_an_error_is_raised_in_its_place(item, error, message):
    made = []
    with Workers(halved, 2) as workers, pytest.raises(error, match=message):
        made += workers.map([1, 2, item, 4])
    assert made in ([], [0.5, 1.0])


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_they_end_with_a_process_that_is_killed():
    Path("endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, "endless.py"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pids = process.stdout.readline().split()
        process.kill()
    assert len(pids) == 2
    limit = time.monotonic() + TIME_LIMIT
    while not all(map(has_ended, pids)):
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_no_more_processes_than_a_container_or_a_person_grants(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(processes, "CPU_LIMIT", tmp_path / "cpu.max")
    assert usable_processes() == processes.MOST_PROCESSES
    for limit, expected in {"150000 100000\n": 2, "max 100000\n": processes.MOST_PROCESSES}.items():
        processes.CPU_LIMIT.write_text(limit)
        assert usable_processes() == expected
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "3")
    assert usable_processes() == 3
