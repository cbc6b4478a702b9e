"""How fast `encoder-cls serve` responds over loopback, beside the same model in one process.

    python scripts/benchmarks/serve.py RUN [--output docs/results.md]

Asks a server of RUN for the bundled example's test texts, one in a request, by 1, 8 and 64 clients
for ten seconds each; and the same model in this process, one text after the other. Client and
server share the machine's cores. Bad clients, reloads and stops are tried by `pytest
scripts/fault_injection -k serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import chain, cycle
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, grouped, median
from shared.commands import PROGRAM
from shared.data import EXAMPLE, path_of, read
from shared.page import table

CLIENTS = (1, 8, 64)
# How long each number of clients asks.
SECONDS = 10.0
HEAD = (
    "POST /predict HTTP/1.1\r\n"
    "Host: localhost\r\n"
    "Content-Type: application/json\r\n"
    "Content-Length: {}\r\n"
    "\r\n"
)

Ask = Callable[[str], Awaitable[None]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run."""
    parser.add_argument("run", type=Path)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Numbers of clients, 0 without a server."""
    return [{"clients": number} for number in (0, *CLIENTS)]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Texts a second, and percentiles of the milliseconds of a text."""
    texts = read(path_of(Path(), EXAMPLE, "test")).texts
    if case["clients"]:
        with server(arguments.run) as port:
            asking = prediction_times(port, texts, SECONDS, clients=case["clients"])
            seconds, elapsed = asyncio.run(asking)
    else:
        seconds, elapsed = asyncio.run(in_process(arguments.run, texts, SECONDS))

    percentiles = statistics.quantiles(seconds, n=100)
    return {
        "speed": len(seconds) / elapsed,
        "p50": 1000 * percentiles[49],
        "p99": 1000 * percentiles[98],
    }


@contextmanager
def server(run: Path) -> Iterator[int]:
    """Run a server in a process of its own; gives its port.

    Raises:
        RuntimeError: it does not start.
    """
    command = [*PROGRAM, "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r":(\d+);", line)
        if not port:
            raise RuntimeError(line + process.stderr.read())

        try:
            yield int(port[1])
        finally:
            process.terminate()


async def prediction_times(
    port: int, texts: Sequence[str], limit: float, *, clients: int
) -> tuple[list[float], float]:
    """Send requests by some clients; returns the seconds of each response, and those in all."""
    began = time.perf_counter()

    async def be_client(number: int) -> list[float]:
        # Each client begins with another text.
        rotated = [*texts[number:], *texts[:number]]
        async with connection(port) as ask:
            return await timed(ask, rotated, limit)

    seconds_by_client = await asyncio.gather(*map(be_client, range(clients)))
    return list(chain(*seconds_by_client)), time.perf_counter() - began


async def in_process(run: Path, texts: Sequence[str], limit: float) -> tuple[list[float], float]:
    """Ask a classifier in this process; returns the seconds of each call, and those in all."""
    from encoder_cls import load_classifier

    classifier = load_classifier(run, engine="numpy")

    async def ask(text: str) -> None:
        classifier.predict([text])

    await ask(texts[0])  # to warm up

    began = time.perf_counter()
    seconds = await timed(ask, texts, limit)
    return seconds, time.perf_counter() - began


async def timed(ask: Ask, texts: Sequence[str], limit: float) -> list[float]:
    """Ask for so many seconds, each time once the last is done; returns the seconds of each."""
    found = []
    began = time.perf_counter()
    for text in cycle(texts):
        start = time.perf_counter()
        if start - began > limit:
            break
        await ask(text)
        found.append(time.perf_counter() - start)
    return found


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Ask]:
    """A connection that is kept between requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(text: str) -> None:
        body = json.dumps({"texts": [text]}).encode()
        writer.write(HEAD.format(len(body)).encode() + body)

        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
        prediction = await reader.readexactly(int(length))
        if head.split()[1] != b"200":
            raise RuntimeError(f"a request was refused: {prediction.decode()}")

    yield ask
    writer.close()


def _name(clients: int) -> str:
    if clients == 0:
        return "in process, one by one"
    if clients == 1:
        return "served, 1 client"
    return f"served, {clients} clients"


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each number of clients, medians over the rounds."""
    cells = []
    for (clients,), group in grouped(rows, "clients").items():
        speed = f"{median(group, 'speed'):,.0f}"
        percentiles = [f"{median(group, key):.1f}" for key in ("p50", "p99")]
        cells.append([_name(clients), speed, *percentiles])
    return table(("", "texts a second", "p50, ms", "p99, ms"), cells)


BENCHMARK = Benchmark("serve", __doc__, add_arguments, cases, measure, lines, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
