"""What bad clients do to a server, and how it may answer each."""

from __future__ import annotations

import json
import random
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from unittest import mock

from servers import MOST_SECONDS, Served

SHORT_SECONDS = 0.4  # that a server in a try is patient with slow clients
MEGABYTE = 1 << 20
STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")

Attack = Callable[[Served, random.Random], socket.socket | None]
"""Begins an attack; the connection on which an answer may come, if it does not hang up itself."""


def _sends(*contents: bytes) -> Attack:
    def attack(served: Served, draw: random.Random) -> socket.socket:
        return _send(served, draw.choice(contents))

    return attack


def _send(served: Served, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=MOST_SECONDS)
    with suppress(ConnectionError):  # it need not read all of what it refuses
        connection.sendall(content)
    return connection


def _post(body: bytes, length: int | None = None) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (length or len(body), body)


def _slow_writer(served: Served, draw: random.Random) -> socket.socket:
    """A byte now and then, longer than the server is patient."""
    connection = _send(served, b"")
    content = _post(b'{"texts": ["rain"]}', 200)[: draw.randint(1, 200)]
    deadline = time.monotonic() + 3 * SHORT_SECONDS
    with suppress(OSError):
        for byte in content:
            connection.sendall(bytes([byte]))
            time.sleep(SHORT_SECONDS / 10)
            if time.monotonic() > deadline:
                break
    return connection


def _hangs_up(served: Served, draw: random.Random) -> None:
    """Asks for much, and does not wait."""
    body = json.dumps({"texts": ["rain snow " * draw.randint(1, 40)] * draw.choice([1, 100]), "top_k": 9}).encode()
    connection = _send(served, _post(body)[: draw.choice([None, -1])])
    if draw.random() < 0.5:  # by a reset, not by an end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def _never_reads(served: Served, _draw: random.Random) -> socket.socket:
    """Asks for a page thousands of times, and reads no answer but, much later, the first."""
    return _send(served, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)


def _chance(served: Served, draw: random.Random) -> socket.socket:
    """Any bytes, or a request with some of them changed."""
    content = bytearray(_post(b'{"texts": ["rain"]}'))
    for _ in range(draw.randint(1, 9)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return _send(served, bytes(content) if draw.random() < 0.7 else draw.randbytes(draw.randint(1, 4000)) + b"\r\n\r\n")


def status_of(connection: socket.socket) -> int:
    """Of the first answer; 0 where the connection ends without one."""
    with closing(connection):
        try:
            content = connection.recv(1 << 16)
        except ConnectionError:
            return 0
        except TimeoutError:
            return -1
    found = STATUS.match(content)
    return int(found[1]) if found else 0


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HALF = HEAD + b"Content-Le"
LARGE = b"%x\r\n%b\r\n" % (MEGABYTE, b" " * MEGABYTE)
LONG_HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (4 << 20)
BOTH_LENGTHS = _post(b"{}").replace(b"Host: localhost", b"Host: localhost\r\nContent-Length: 7")
ATTACKS: dict[str, tuple[Attack, set[int]]] = {
    "broken JSON": (_sends(_post(b'{"texts":'), _post(b"\xff\xfe"), _post(b"[" * 100_000), _post(b"")), {400}),
    "values of other kinds": (
        _sends(
            *map(_post, (b"[]", b"3", b"{}", b'{"texts": 3}', b'{"texts": [{}]}', b'{"text": []}')),
            *(_post(b'{"texts": ["a"], "top_k": %b}' % it) for it in (b"-1", b"true", b"1e999", b"9" * 5000)),
        ),
        {400, 422},
    ),
    "no number of JSON": (_sends(_post(b'{"texts": ["a"], "threshold": NaN}')), {400}),
    "large declared body": (_sends(_post(b"", 50 << 20), _post(b"", 10**18), _post(b" " * (2 * MEGABYTE))), {413}),
    "large chunked body": (_sends(CHUNKED + 3 * LARGE), {413, 0}),
    "too many texts": (
        _sends(_post(json.dumps({"texts": [""] * 1001}).encode()), _post(b'{"texts": [%b"a"]}' % (b'"",' * 200_000))),
        {413},
    ),
    "half head": (_sends(HALF, HALF[:1], b"", b"\r\n"), {408, 400}),
    "half body": (_sends(_post(b'{"te', 100), CHUNKED + b"5\r\nab"), {408}),
    "no HTTP": (
        _sends(b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 9 + b"\r\n\r\n", b"GET / HTTP/9\r\n\r\n"),
        {400, 408},
    ),
    "two lengths": (_sends(BOTH_LENGTHS, _post(b"{}").replace(b"Length: ", b"Length: -")), {400}),
    "endless head": (_sends(LONG_HEAD), {400, 0}),
    "slow writer": (_slow_writer, {408, 0}),
    "who hangs up": (_hangs_up, set()),
    "who never reads": (_never_reads, {200, 0}),
    "pages of other sites": (
        _sends(
            _post(b'{"texts": ["a"]}').replace(b"Host: localhost", b"Host: evil.example"),
            _post(b'{"texts": ["a"]}').replace(b"Host: ", b"Origin: http://evil.example\r\nHost: "),
            _post(b'{"texts": ["a"]}').replace(b"application/json", b"text/plain"),
        ),
        {403, 415},
    ),
    "any bytes": (_chance, {0, 200, 400, 403, 404, 405, 408, 413, 415, 422, 501}),
    "other paths": (
        _sends(
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PUT /predict HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ),
        {404, 405},
    ),
}


def be_impatient() -> None:
    """Make this process let go of slow clients soon."""
    for limit in ("BODY", "HEADER", "SEND"):
        mock.patch(f"encoder_cls.serving.limits.{limit}_SECONDS", SHORT_SECONDS).start()
