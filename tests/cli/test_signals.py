"""What ends a command from outside: signals, and a terminal that goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import pytest
from support.programs import COMMAND, ROOT, TIME_LIMIT, setting

from encoder_cls.encoder_training.distributed import STOP_KEY, ProcessGroup
from encoder_cls.errors import StoppedError
from encoder_cls.system.stop import check_stop
from encoder_cls.system.stop_signals import stop_signals
from encoder_cls.system.terminal import hangup_signals

# Seconds after which a program at a terminal is killed; reading its output is an error then.
MAX_SECONDS = 120


class AtTerminal:
    """A program at a terminal of its own, which is all that it reads and writes."""

    def __init__(self, *arguments: object) -> None:
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            # There is no other thread.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(inside)

    def read_until(self, text: str) -> None:
        """Read what the program writes, up to this text."""
        seen = ""
        while text not in seen:
            seen += os.read(self._terminal, 65_536).decode(errors="replace")

    def close_terminal(self) -> None:
        """Close the window: the system sends SIGHUP to the program."""
        os.close(self._terminal)


@contextmanager
def at_terminal(*arguments: object) -> Iterator[AtTerminal]:
    program = AtTerminal(*arguments)
    patience = Timer(MAX_SECONDS, program.process.kill)
    patience.start()
    try:
        yield program
    finally:
        patience.cancel()
        program.process.kill()
        program.process.wait()


@pytest.mark.slow
def test_a_training_whose_terminal_goes_away_writes_a_checkpoint(trained_run, tmp_path):
    # No validation and no checkpoint but the one at the signal.
    options = setting(
        "train.epochs=100000",
        "train.validate_every=1000000",
        "train.patience=null",
        "model.linear=false",
    )
    config = trained_run.path.parent / "tiny.yaml"
    with at_terminal("train", config, *options, "--run-dir", tmp_path / "run") as program:
        program.read_until("training in")
        program.close_terminal()
        assert program.process.wait(TIME_LIMIT) == 128 + signal.SIGHUP
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_a_server_whose_terminal_goes_away_ends(trained_run):
    """While the terminal is there, SIGHUP reloads the model."""
    with at_terminal("serve", trained_run.path, "--port", "0") as program:
        program.read_until("press Ctrl-C to stop")
        program.process.send_signal(signal.SIGHUP)
        program.read_until("reloaded")
        program.close_terminal()
        assert program.process.wait(TIME_LIMIT) == 0


def test_a_terminal_that_goes_away_is_no_second_signal():
    """The system and the shell both send SIGHUP. A second signal would end it at once."""
    with stop_signals():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedError) as stopped:
            check_stop()
    assert stopped.value.exit_code == 128 + signal.SIGHUP


def test_nohup_keeps_a_training_alive():
    """A program that is started with SIGHUP ignored leaves it so."""
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert hangup_signals() == ()
        with stop_signals():
            signal.raise_signal(signal.SIGHUP)
            check_stop()
    finally:
        signal.signal(signal.SIGHUP, earlier)


@pytest.mark.parametrize(("number", "code"), [(1, 128 + signal.SIGTERM), (2, -signal.SIGTERM)])
def test_the_first_process_of_a_container_ends_at_sigterm_from_the_start(number: int, code: int):
    """For process 1 the system ignores a signal without a handler; others end by the signal."""
    program = f"""
import os, signal
from encoder_cls.cli import app as cli

os.getpid = lambda: {number}
cli.open_streams = lambda: signal.raise_signal(signal.SIGTERM)
cli.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=TIME_LIMIT
    )
    assert ended.returncode == code
    assert ended.stderr == b""


def test_ctrl_c_during_the_imports_ends_without_a_traceback():
    """The program starts as the script that is installed does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, _, function = project["project"]["scripts"]["encoder-cls"].partition(":")
    program = f"""
import signal, sys

class PressCtrlC:
    def find_spec(self, name, path, target=None):
        if name == "encoder_cls.cli.train":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, PressCtrlC())
signal.signal(signal.SIGINT, signal.default_int_handler)
from {module} import {function}
{function}()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=TIME_LIMIT
    )
    assert ended.returncode == 130
    assert ended.stderr == b""


class Store:
    """The values that the processes of a group share."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> str:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


def test_the_first_process_of_a_group_alone_stops_by_itself():
    """Another one passes its signal on: if it ended by itself, the first would think it lost."""
    store = Store()
    with stop_signals(ProcessGroup(rank=1, size=2, store=store)):
        signal.raise_signal(signal.SIGTERM)
        check_stop()
    assert store.values == {STOP_KEY: str(int(signal.SIGTERM))}

    with (
        stop_signals(ProcessGroup(rank=0, size=2, store=store)),
        pytest.raises(StoppedError) as stopped,
    ):
        check_stop()
    assert stopped.value.exit_code == 143
