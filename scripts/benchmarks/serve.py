"""How fast and how robust `encoder-cls serve` is, over loopback.

    python scripts/benchmarks/serve.py RUN [--requests 20000] [--seconds 10] [--output docs/results.md]

Asks a server of RUN for the bundled example's test texts, one in a request: by 1, 8 and 64 clients for some seconds
each, and the same model in a process of its own, one text after the other. Then 64 clients send many requests, of which
1% are hostile (broken JSON, bodies of 50 MB, half requests, writers that send a byte now and then); half-way the server
is told to load its model again, and near the end to stop. Every request that is not hostile has to be answered with
200, or with 503 once the server stops; the command fails where one is not. Client and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import chain, cycle, islice
from pathlib import Path

from shared.benchmark import Benchmark, Case, Found, Row, median, note
from shared.data import EXAMPLE, path_of, read
from shared.page import table

CLIENTS = (1, 8, 64)
HOSTILE_EVERY = 100  # requests
LARGE_BODY = 50 << 20
SECONDS_BETWEEN_BYTES = 0.5
SECONDS_BETWEEN_LOOKS = 0.5
LONGEST_WAIT = 60  # seconds, for an answer; longer counts as none
HEAD = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Seen:
    """What became of requests.

    Attributes:
        seconds: of each answer with 200.
        outcomes: how many had which status, and how many none.
        hostile: the same of hostile requests, by kind.
        memory: the server's resident bytes, now and then.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.hostile: Counter[str] = Counter()
        self.memory: list[int] = []


class Client:
    """A connection that is kept between requests.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, content: bytes) -> int:
        """The status of the answer.

        Raises:
            OSError: nobody listens, or the connection has ended.
            EOFError: it has ended within the answer.
        """
        reader, writer = self._streams or await asyncio.open_connection("127.0.0.1", self._port)
        self._streams = reader, writer
        try:
            writer.write(content)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length))
        except BaseException:
            self.close()
            raise
        if b"connection: close" in head.lower():
            self.close()
        return int(head.split()[1])

    def close(self) -> None:
        """End the connection."""
        if self._streams:
            self._streams[1].close()
            self._streams = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, and how much to ask."""
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10, help="for each number of clients")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Numbers of clients, 0 without a server; then hostile ones among many."""
    return [{"clients": it, "requests": 0} for it in (0, *CLIENTS)] + [{"clients": 64, "requests": arguments.requests}]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """One of the cases."""
    texts = read(path_of(Path(), EXAMPLE, "test")).texts
    if case["requests"]:
        return asyncio.run(hostile(arguments.run, texts, requests=case["requests"], clients=case["clients"]))
    if not case["clients"]:
        return summary(*in_process(arguments.run, texts, seconds=arguments.seconds))
    return asyncio.run(served(arguments.run, texts, clients=case["clients"], seconds=arguments.seconds))


async def served(run: Path, texts: Sequence[str], *, clients: int, seconds: float) -> Found:
    """How fast a server answers so many clients."""
    async with server(run) as (_, port, _):
        began = time.perf_counter()
        found = await asyncio.gather(
            *(ask_for(port, [*texts[number:], *texts[:number]], seconds=seconds) for number in range(clients))
        )
        return summary(time.perf_counter() - began, list(chain(*found)))


def summary(elapsed: float, seconds: Sequence[float]) -> Found:
    """Texts a second and percentiles, of seconds in all and of each text."""
    percentiles = statistics.quantiles(seconds, n=100)
    return {"speed": len(seconds) / elapsed, "p50": 1000 * percentiles[49], "p99": 1000 * percentiles[98]}


def in_process(run: Path, texts: Sequence[str], *, seconds: float) -> tuple[float, list[float]]:
    """The seconds in all, and those of each text."""
    from encoder_cls import load_classifier

    classifier = load_classifier(run, engine="numpy")
    classifier.predict(texts[:1])
    found, began = [], time.perf_counter()
    for text in cycle(texts):
        start = time.perf_counter()
        classifier.predict([text])
        found.append(time.perf_counter() - start)
        if time.perf_counter() - began > seconds:
            break
    return time.perf_counter() - began, found


async def ask_for(port: int, texts: Sequence[str], *, seconds: float) -> list[float]:
    """The seconds of each answer to one client, who asks as soon as it has one."""
    client, found = Client(port), []
    began = time.perf_counter()
    for text in cycle(texts):
        start = time.perf_counter()
        if await client.ask(request(text)) != 200:
            raise RuntimeError("an honest request was refused")
        found.append(time.perf_counter() - start)
        if time.perf_counter() - began > seconds:
            break
    client.close()
    return found


def request(text: str) -> bytes:
    """A request for the prediction of a text."""
    body = json.dumps({"texts": [text]}).encode()
    return HEAD.format(len(body)).encode() + body


@asynccontextmanager
async def server(run: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, list[str]]]:
    """A server in a process of its own, its port, and what it says."""
    command = [sys.executable, "-m", "encoder_cls", "serve", str(run), "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    errors = process.stderr
    assert errors is not None
    said = [(await errors.readline()).decode()]
    port = re.search(r":(\d+);", said[0])
    if not port:
        sys.exit(said[0] + (await errors.read()).decode())

    async def listen() -> None:
        async for line in errors:
            said.append(line.decode())

    listening = asyncio.create_task(listen())
    try:
        yield process, int(port[1]), said
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await listening


async def hostile(run: Path, texts: Sequence[str], *, requests: int, clients: int) -> Found:
    """What became of many requests, hostile ones among them, and of the server."""
    seen = Seen()
    async with server(run) as (process, port, said):
        watching = asyncio.create_task(watch(process.pid, seen))
        waiting = iter(islice(cycle(texts), requests))
        numbers = iter(range(requests))
        attacks: set[asyncio.Task[None]] = set()

        async def client() -> None:
            connection = Client(port)
            for text in waiting:
                number = next(numbers)
                if number == requests // 2:
                    process.send_signal(signal.SIGHUP)
                if number == requests - requests // 50:
                    process.send_signal(signal.SIGTERM)
                if number % HOSTILE_EVERY == 0:
                    attacks.add(asyncio.create_task(attack(port, number // HOSTILE_EVERY, seen)))
                else:
                    await ask_counted(connection, text, seen)
            connection.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        code = await process.wait()
        for task in attacks:
            task.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)
        watching.cancel()
    note("".join(said).strip())
    middle = len(seen.memory) // 2  # about when it loads its model again, and holds two for a moment
    moments = [seen.memory[it] for it in (middle // 2, middle - 2, middle + middle // 2, -2)] if middle > 1 else []
    percentiles = statistics.quantiles(seen.seconds, n=100)
    return {
        "outcomes": dict(sorted(seen.outcomes.items())),
        "hostile": dict(sorted(seen.hostile.items())),
        "p50": 1000 * percentiles[49],
        "p99": 1000 * percentiles[98],
        "reloads": sum("reloaded" in line for line in said),
        "memory": [*moments, max(seen.memory, default=0)],
        "code": code,
    }


async def ask_counted(client: Client, text: str, seen: Seen) -> None:
    """Ask, and count the outcome."""
    start = time.perf_counter()
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            status = await client.ask(request(text))
    except ConnectionRefusedError:
        seen.outcomes["not accepted, nobody listened"] += 1
        return
    except (OSError, EOFError, TimeoutError) as error:
        # Sent to a server that had closed the connection: it says 503 for a second before, and has read nothing.
        what = "connection closed after the stop" if seen.outcomes["503"] else f"no answer: {type(error).__name__}"
        seen.outcomes[what] += 1
        return
    seen.outcomes[str(status)] += 1
    if status == 200:
        seen.seconds.append(time.perf_counter() - start)


async def attack(port: int, number: int, seen: Seen) -> None:
    """Be one of four kinds of bad client, and count what the server makes of it."""
    kind = ("broken JSON", "50 MB body", "half request", "slow writer")[number % 4]
    outcome = "ended by the server"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    with suppress(OSError):
        if kind == "broken JSON":
            writer.write(HEAD.format(9).encode() + b'{"texts":')
        elif kind == "50 MB body":
            writer.write(HEAD.format(LARGE_BODY).encode())
            for _ in range(LARGE_BODY >> 20):
                writer.write(bytes(1 << 20))
                await writer.drain()
        elif kind == "half request":
            writer.write(HEAD.format(100).encode()[:40])
        else:
            for byte in HEAD.format(100).encode():
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(SECONDS_BETWEEN_BYTES)
                if reader.at_eof():
                    break
    with suppress(OSError):
        head = await reader.read(1 << 16)
        outcome = head.split()[1].decode() if head else outcome
    writer.close()
    seen.hostile[f"{kind}: {outcome}"] += 1


async def watch(pid: int, seen: Seen) -> None:
    """Note the memory of a process now and then."""
    while True:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            seen.memory += [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def lost(found: Found) -> int:
    """How many requests that were not hostile got neither an answer nor a refusal."""
    return sum(count for what, count in found["outcomes"].items() if what.startswith(("no answer", "4", "500")))


def lines(rows: Sequence[Row]) -> list[str]:
    """Speed by the number of clients; then what became of hostile requests and of the server."""
    speeds, found = [], []
    for clients in (0, *CLIENTS):
        them = [row for row in rows if row.case["clients"] == clients and not row.case["requests"]]
        if them:
            name = f"served, {clients} client{'s' * (clients > 1)}" if clients else "in process, one by one"
            speeds.append(
                [name, f"{median(them, 'speed'):,.0f}", *(f"{median(them, it):.1f}" for it in ("p50", "p99"))]
            )
    for row in rows:
        if row.case["requests"]:
            found += table((f"{row.case['requests']:,} requests, 1% of them hostile", ""), _outcomes(row.found))
    return [*table(("", "texts a second", "p50, ms", "p99, ms"), speeds), "", *found]


def _outcomes(found: Found) -> list[list[str]]:
    return [
        *([f"honest: {what}", f"{count:,}"] for what, count in found["outcomes"].items()),
        ["honest: p50, p99 of the answers, ms", f"{found['p50']:.0f}, {found['p99']:.0f}"],
        *([f"hostile: {what}", f"{count:,}"] for what, count in found["hostile"].items()),
        ["reloads; lost; exit code", f"{found['reloads']}; {lost(found)}; {found['code']}"],
        [
            "memory, MiB: after 1/4, before the reload, after 3/4, at the end, peak",
            ", ".join(f"{it / 2**20:.0f}" for it in found["memory"]),
        ],
    ]


def failures(rows: Sequence[Row]) -> list[str]:
    """What was lost."""
    hostile_rows = [row.found for row in rows if row.case["requests"]]
    return [f"lost: {lost(it)}; exit code: {it['code']}" for it in hostile_rows if lost(it) or it["code"]]


BENCHMARK = Benchmark(
    name="serve",
    doc=__doc__,
    add_arguments=add_arguments,
    cases=cases,
    measure=measure,
    lines=lines,
    failures=failures,
    rounds=1,
)

if __name__ == "__main__":
    BENCHMARK.main()
