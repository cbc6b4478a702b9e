"""Processes that share work: results in order, errors passed on, no process left behind."""

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
from encoder_cls.system.processes import (
    Workers,
    ask_parent,
    map_in_processes,
    usable_processes,
)

# Without a guard of the main module. Each process leads a session, whose number is its own.
ENDLESS = """
import itertools, os
from encoder_cls.system.processes import Workers
with Workers(os.getsid, 2) as workers:
    for process in workers.map(itertools.repeat(0)):
        print(process, flush=True)
"""
# The first items come at once, the next ones never.
SLEEPING = """
import itertools, time
from encoder_cls.system.processes import Workers
with Workers(time.sleep, 2) as workers:
    for _ in workers.map(itertools.chain([0] * 9, itertools.repeat(10**6))):
        print("begun", flush=True)
"""


def halved(number: int) -> float:
    if number == 7:
        raise DataError("a.csv:7", "cannot be halved", "leave it out")
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def test_items_keep_their_order_and_are_taken_as_they_are_needed():
    taken = []

    def numbers():
        for number in count(10):
            taken.append(number)
            yield number

    with Workers(halved, 2) as workers:
        made = list(islice(workers.map(numbers()), 20))

    assert made == [number / 2 for number in range(10, 30)]
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


def asked_twice(number: int) -> tuple[int, int, int]:
    """The responses of the parent to two questions, and the process that asks."""
    return ask_parent(number), ask_parent(-number), os.getpid()


def test_a_process_can_ask_its_parent():
    def respond(number: int) -> int:
        return 10 * number + os.getpid()

    with Workers(asked_twice, 2, respond=respond) as workers:
        responses = list(workers.map(range(9)))

    for number, (first, second, process) in enumerate(responses):
        assert first == 10 * number + os.getpid()
        assert second == -10 * number + os.getpid()
        assert process != os.getpid()


def test_an_error_in_a_response_is_raised():
    def respond(number: int) -> int:
        if number == 3:
            raise DataError("a.csv:7", "has no answer", "leave it out")
        return number

    with (
        Workers(asked_twice, 2, respond=respond) as workers,
        pytest.raises(DataError, match="has no answer"),
    ):
        list(workers.map(range(9)))


def test_the_first_items_are_worked_on_here(monkeypatch):
    monkeypatch.setattr(processes, "usable_processes", lambda: 2)
    sessions = list(map_in_processes(os.getsid, [0] * 5, alone=3))
    here = os.getsid(0)
    assert sessions[:3] == [here] * 3
    assert here not in sessions[3:]


def test_processes_share_the_processors(monkeypatch):
    """Each has threads for its part of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(processes, "CPU_LIMIT", Path("missing"))
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    with Workers(os.getenv, 2) as workers:
        assert list(workers.map(processes.THREAD_VARIABLES)) == ["3", "3", "3"]


def has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    state = status.rpartition(")")[2].split()[0]
    return state == "Z"


def test_they_end_with_a_process_that_is_killed():
    Path("endless.py").write_text(ENDLESS)
    pids: set[int] = set()
    with subprocess.Popen(
        [sys.executable, "endless.py"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        while len(pids) < 2:
            pids.add(int(process.stdout.readline()))
        process.kill()

    limit = time.monotonic() + TIME_LIMIT
    while not all(has_ended(pid) for pid in pids):
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_ctrl_c_ends_them_at_once_and_they_say_nothing():
    Path("sleeping.py").write_text(SLEEPING)
    with subprocess.Popen(
        [sys.executable, "sleeping.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        # As a terminal sends it, to all processes that belong to it.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=TIME_LIMIT)

    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1


def test_no_more_processes_than_a_container_or_a_person_grants(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(processes, "CPU_LIMIT", tmp_path / "cpu.max")
    assert usable_processes() == processes.MAX_PROCESSES

    for limit, expected in {"150000 100000\n": 2, "max 100000\n": processes.MAX_PROCESSES}.items():
        processes.CPU_LIMIT.write_text(limit)
        assert usable_processes() == expected

    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "3")
    assert usable_processes() == 3
