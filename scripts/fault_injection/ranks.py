"""Cases about trainings of several processes, one of which is killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from functools import partial
from pathlib import Path

from cases import Case
from processes import Process, fork
from samples import VARIANTS, Workspace

SHARDS = 4
LONGEST_UNTIL_ALL_END = 10.0  # seconds after one has been killed


def kill_rank(space: Workspace, draw: random.Random, number: int) -> None:
    """Any process of two to four is killed at any moment; as torchrun would, all are started anew, perhaps fewer."""
    variant = space.sharded(list(VARIANTS)[number % len(VARIANTS)])
    run = space.new_path("rank-killed")
    ranks = _started(space, variant, run, draw.randint(2, SHARDS))
    victim = draw.randrange(len(ranks))
    if ranks[victim].wait(draw.uniform(0, 2.5)) is None:
        ranks[victim].signal(signal.SIGKILL)
    killed = time.monotonic()
    ended = [rank.end() for rank in ranks]
    waited = time.monotonic() - killed
    if ended[victim].code == -signal.SIGKILL:
        assert waited < LONGEST_UNTIL_ALL_END, f"ended {waited:.1f} s after one was killed"
        assert not any("Traceback" in it.err for it in ended), [it.err for it in ended]
        assert victim == 0 or not any(it.err for it in ended[1:]), [it.err for it in ended]
    again = [rank.end() for rank in _started(space, variant, run, draw.randint(1, SHARDS), attempt=1)]
    assert [it.code for it in again] == [0] * len(again), [it.err for it in again]
    space.finish(variant, run)  # which only compares: it is finished


def _started(space: Workspace, variant: str, run: Path, size: int, *, attempt: int = 0) -> list[Process]:
    """The processes of one training, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    of_rank = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    return [
        fork(
            space.train(variant, run),
            cwd=space.folder,
            prepare=partial(_set_environment, values | {"TORCHELASTIC_RESTART_COUNT": attempt}),
        )
        for values in of_rank
    ]


def _set_environment(values: dict[str, object]) -> None:
    os.environ.update({name: str(value) for name, value in values.items()})


CASES = {
    "kill-rank": Case("kill -9 of any process of several: all end in seconds, a restart is exact", 20, kill_rank),
}
