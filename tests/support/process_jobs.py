"""Trainings of several processes, started as torchrun would start them.

`python process_jobs.py JOBS.json` runs a list of jobs, one after the other, and writes how they
ended to standard output as JSON. All processes are forks of this one, which has imported what takes
long to import and computed nothing.

A job has a `size` (its number of processes) and the `arguments` of all of them. It may have
`arguments_of` single ranks, `restarts` (the number of the attempt), a rank that is `late` (it lets
the others wait for longer than it may take to join), and a `signal` that is sent to the process
`to` as soon as the file `after` is there.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.blank_plots import PLOTS, blank_plot
from support.programs import TIME_LIMIT

from encoder_cls.cli.app import main
from encoder_cls.encoder_training import distributed
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.training import train as training

# What a training loads only when it needs it, which takes two seconds: once here, not in each fork.
LIBRARIES = (
    "encoder_cls.training.prepare",
    "encoder_cls.training.train",
    "encoder_cls.evaluation.report_page",
    "matplotlib.backends.backend_agg",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "sklearn.svm",
)

# The time that processes have to join in a job with a late one.
LIMIT_TO_CONNECT = timedelta(seconds=0.5)

Job = dict[str, Any]


def start_process(rank: int, job: Job, port: int, output: Path) -> int:
    """Fork one process of a job, which writes to a file; returns its process id."""
    pid = os.fork()
    if pid:
        return pid

    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job["size"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_RESTART_COUNT": str(job.get("restarts", 0)),
    }
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    torch.set_num_threads(1)
    if "late" in job:
        distributed.MAX_WAIT_TO_CONNECT = LIMIT_TO_CONNECT
    if job.get("late") == rank:
        let_others_wait()
    more = job.get("arguments_of", {}).get(str(rank), [])
    sys.argv = ["encoder-cls", *job["arguments"], *more]
    run_and_exit()


def let_others_wait() -> None:
    """Let this process, once it has joined, be busy for longer than it may take to join."""
    check_size = ProcessGroup.check_size

    def check_size_late(group: ProcessGroup, num_shards: int) -> None:
        time.sleep(3 * LIMIT_TO_CONNECT.total_seconds())
        check_size(group, num_shards)

    ProcessGroup.check_size = check_size_late  # type: ignore[method-assign]


def run_and_exit() -> None:
    """Run the command line, and end with its exit code, without the clean-up of the parent."""
    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
        # To load torch's compiler takes as long as torch itself.
        if "torch._dynamo" in sys.modules:
            sys.stderr.write("a training has loaded torch's compiler")
            code = 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 99)


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def send_signal(job: Job, pids: list[int]) -> None:
    """Send a job's signal as soon as its file is there."""
    deadline = time.monotonic() + TIME_LIMIT
    while not Path(job["after"]).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(pids[job["to"]], getattr(signal, job["signal"]))


def wait_for_all(pids: list[int]) -> list[int]:
    """The exit codes of processes; those that have not ended after the time limit are killed."""
    deadline = time.monotonic() + TIME_LIMIT
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        running = [pid for pid in pids if pid not in codes]
        for pid in running:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def run_job(job: Job, folder: Path) -> dict[str, Any]:
    """Run a job to its end; returns the exit code and the output of each process."""
    port = free_port()
    outputs = [folder / f"{rank}.txt" for rank in range(job["size"])]
    pids = []
    for rank, output in enumerate(outputs):
        pids.append(start_process(rank, job, port, output))

    if "signal" in job:
        send_signal(job, pids)
    codes = wait_for_all(pids)
    return {"codes": codes, "outputs": [output.read_text() for output in outputs]}


if __name__ == "__main__":
    # No test waits until files are on the disk.
    os.fsync = lambda _descriptor: None
    for plot in PLOTS:
        setattr(matplotlib_figures, plot, blank_plot)
    for library in LIBRARIES:
        importlib.import_module(library)
    # Finished runs keep their checkpoints, whose weights and moments are compared.
    training.remove_files_to_resume = lambda _folder: None

    results = []
    for job in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            results.append(run_job(job, Path(folder)))
    sys.stdout.write(json.dumps(results))
