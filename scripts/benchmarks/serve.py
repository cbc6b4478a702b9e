"""How fast and how robust `encoder-cls serve` is, over loopback.

    python scripts/benchmarks/serve.py RUN [--requests 20000] [--seconds 10] [--texts FILE]

Asks a server of RUN for the bundled example's test texts, one in a request: by 1, 8 and 64 clients for some seconds
each, and the same model in this process, one text after the other. Then 64 clients send many requests, of which 1% are
hostile (broken JSON, bodies of 50 MB, half requests, writers that send a byte now and then); half-way the server is
told to load its model again, and near the end to stop. Every request that is not hostile has to be answered with 200,
or with 503 once the server stops; the exit code is 1 where one is not. Prints two Markdown tables. Client and server
share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import re
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path

from reporting import cpu_name, note, table

ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "encoder_cls" / "data" / "example" / "test.csv"
CLIENTS = (1, 8, 64)
HOSTILE_EVERY = 100  # requests
LARGE_BODY = 50 << 20
SECONDS_BETWEEN_BYTES = 0.5
SECONDS_BETWEEN_LOOKS = 0.5
LONGEST_WAIT = 60  # seconds, for an answer; longer counts as none
HEAD = "POST /predict HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n"


@dataclass
class Seen:
    """What became of requests.

    Attributes:
        seconds: of each answer with 200.
        outcomes: how many had which status, and how many none.
        hostile: the same of hostile requests, by kind.
        memory: the server's resident bytes, now and then.
    """

    seconds: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)


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


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10, help="for each number of clients")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="a CSV file with a column `text`")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with arguments.texts.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    print(f"{cpu_name()}, {os.cpu_count()} cores; texts of {statistics.mean(map(len, texts)):.0f} characters\n")
    print("\n".join(asyncio.run(throughput(arguments.run, texts, seconds=arguments.seconds))), flush=True)
    seen, code = asyncio.run(hostile(arguments.run, texts, requests=arguments.requests))
    print("\n" + "\n".join(hostile_table(seen, code)))
    sys.exit(1 if code or lost(seen) else 0)


async def throughput(run: Path, texts: Sequence[str], *, seconds: float) -> list[str]:
    """A table: the model in this process, and the server with more and more clients."""
    rows = [row("in process, one by one", in_process(run, texts, seconds=seconds))]
    async with server(run) as (_, port, _):
        for clients in CLIENTS:
            note(f"{clients} clients")
            began = time.perf_counter()
            found = await asyncio.gather(
                *(ask_for(port, [*texts[number:], *texts[:number]], seconds=seconds) for number in range(clients))
            )
            elapsed = time.perf_counter() - began
            rows.append(row(f"served, {clients} client{'s' * (clients > 1)}", (elapsed, list(chain(*found)))))
    return table(("", "texts a second", "p50, ms", "p99, ms"), rows)


def row(what: str, measured: tuple[float, list[float]]) -> list[str]:
    """A row of the table: of seconds in all, and of each text."""
    elapsed, found = measured
    percentiles = statistics.quantiles(found, n=100)
    return [what, f"{len(found) / elapsed:,.0f}", f"{1e3 * percentiles[49]:.1f}", f"{1e3 * percentiles[98]:.1f}"]


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


async def hostile(run: Path, texts: Sequence[str], *, requests: int, clients: int = CLIENTS[-1]) -> tuple[Seen, int]:
    """What became of many requests, hostile ones among them, and the server's exit code."""
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
    seen.outcomes["reloaded"] = sum("reloaded" in line for line in said)
    note("".join(said).strip())
    return seen, code


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


def lost(seen: Seen) -> int:
    """How many requests that were not hostile got neither an answer nor a refusal."""
    return sum(count for what, count in seen.outcomes.items() if what.startswith(("no answer", "4", "500")))


def hostile_table(seen: Seen, code: int) -> list[str]:
    """A table of what became of requests and of the server."""
    percentiles = statistics.quantiles(seen.seconds, n=100)
    middle = len(seen.memory) // 2  # about when it loads its model again, and holds two for a moment
    moments = (middle // 2, middle - 2, middle + middle // 2, -2)
    mebibytes = [f"{seen.memory[moment] / 2**20:.0f}" for moment in moments] + [f"{max(seen.memory) / 2**20:.0f}"]
    rows = [
        *(
            [f"honest requests: {what}", f"{count:,}"]
            for what, count in sorted(seen.outcomes.items())
            if what != "reloaded"
        ),
        ["honest requests: p50, p99 of the answers, ms", f"{1e3 * percentiles[49]:.0f}, {1e3 * percentiles[98]:.0f}"],
        *([f"hostile requests: {what}", f"{count:,}"] for what, count in sorted(seen.hostile.items())),
        ["reloads under load", str(seen.outcomes["reloaded"])],
        ["lost", str(lost(seen))],
        ["memory, MiB: after 1/4, before the reload, after 3/4, at the end, peak", ", ".join(mebibytes)],
        ["exit code of the server", str(code)],
    ]
    return table(("", "found"), rows)


if __name__ == "__main__":
    main()
