"""Trainings of several processes, as torchrun would start them: `python process_jobs.py JOBS.json`, answers as JSON.

All are forks of this process, which has imported what takes long and computed nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.blank_plots import PLOTS, blank_plot
from support.programs import TIME_LIMIT

import encoder_cls.training.prepare
import encoder_cls.training.train  # noqa: F401
from encoder_cls.cli.app import main
from encoder_cls.evaluation import figures


def started(rank: int, job: dict[str, Any], port: int, output: Path) -> int:
    """Start one process; returns its number."""
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {
        **{"RANK": str(rank), "WORLD_SIZE": str(job["size"]), "LOCAL_RANK": str(rank)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"},
        "TORCHELASTIC_RESTART_COUNT": str(job.get("restarts", 0)),
    }
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    more = job.get("arguments_of", {}).get(str(rank), [])
    sys.argv = ["encoder-cls", *job["arguments"], *more]
    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
        if "torch._dynamo" in sys.modules:  # to load torch's compiler takes as long as torch itself
            code = "a training has loaded torch's compiler"
            sys.stderr.write(code)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 99)


def ended(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one job to its end: the exit code and the output of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outputs = [folder / f"{rank}.txt" for rank in range(job["size"])]
    pids = [started(rank, job, port, output) for rank, output in enumerate(outputs)]
    began = time.monotonic()
    if "signal" in job:
        while not Path(job["after"]).exists() and time.monotonic() - began < TIME_LIMIT:
            time.sleep(0.001)
        os.kill(pids[job["to"]], getattr(signal, job["signal"]))
        began = time.monotonic()
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        for rank, pid in enumerate(pids):
            if rank in codes:
                continue
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                codes[rank] = os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > TIME_LIMIT:
            for rank, pid in enumerate(pids):
                if rank not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    in_order = [codes[rank] for rank in range(job["size"])]
    return {"codes": in_order, "outputs": [output.read_text() for output in outputs]}


if __name__ == "__main__":
    for plot in PLOTS:
        setattr(figures, plot, blank_plot)
    answers = []
    for job in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            answers.append(ended(job, Path(folder)))
    sys.stdout.write(json.dumps(answers))
