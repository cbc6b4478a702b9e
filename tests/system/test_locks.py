"""Locks between processes: one holder, named to whoever does not wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from encoder_cls.system.locks import LockedError, locked

HOLD = """
import sys
from pathlib import Path
from encoder_cls.system.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_has_one_holder_until_its_process_ends(tmp_path):
    """Whoever does not wait is refused, with the holder's number; one who was killed holds nothing."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid}"), locked(path, wait=False):
            pass
        holder.kill()
        with locked(path):
            assert path.read_text() == f"process {os.getpid()}"
    with locked(path, wait=False):
        pass
