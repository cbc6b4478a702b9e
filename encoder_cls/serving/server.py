"""The server: start, reload, shut down.

What arrives slower than that holds a connection and nothing else, since all connections are one thread's; but
connections are limited, too.

Signals are handled here and not by uvicorn, which would end the process by the same signal once more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import load_classifier
from encoder_cls.serving.app import Service, host_name, is_loopback
from encoder_cls.serving.requests import (
    CLOSING_SECONDS,
    HEADER_SECONDS,
    KEEP_ALIVE_SECONDS,
    MOST_CONNECTIONS,
    SEND_SECONDS,
    STOPPING_SECONDS,
)


class TimedProtocol(H11Protocol):
    """A connection that ends when its client is too slow."""

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; of too many connections the newest is told to come again."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(429, "Too Many Requests", f"there are {MOST_CONNECTIONS} connections already")
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Read; from the first byte of a request to the end of its head there is so much time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._forget_head()
        self._forget_send()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads slower than the server writes."""
        super().pause_writing()
        self._send_timer = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        self._forget_send()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "Bad Request", msg)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEADER_SECONDS, self._head_is_late)

    def _forget_head(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_send(self) -> None:
        if self._send_timer:
            self._send_timer.cancel()
            self._send_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(408, "Request Timeout", f"no whole request within {HEADER_SECONDS} seconds")

    def _refuse(self, status: int, reason: str, message: str) -> None:
        """Answer without a request, and end."""
        body = f'{{"error": "{message}"}}'
        self.transport.write(
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}".encode("ascii")
        )
        self.transport.close()


STOPPING = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name))
SECONDS_BETWEEN_LOOKS = 0.05
SHORT_HASH = 12  # characters of a model's SHA-256 that are shown


def serve(folder: Path, *, host: str, port: int, allowed_hosts: Sequence[str], tell: Callable[[str], None]) -> None:
    """Serve a classifier until a signal comes.

    Args:
        folder: a run or model folder, read again at SIGHUP.
        host: the address to listen on.
        port: of TCP; 0: one that is free.
        allowed_hosts: by which clients may name the server, beside this host, `localhost` and loopback addresses;
            without any, at another address than a loopback one, by any.
        tell: told, in lines, where the server listens, what it does and what goes wrong.

    Raises:
        ConfigError: there is no such model or address.
        EncoderClsError: the model is damaged, or the port is taken.
        StoppedError: a second signal came before all was answered.
    """
    with _listening(host, port) as listener:
        is_open = not (allowed_hosts or is_loopback(listener.getsockname()[0]))
        names = [host_name(name) for name in (host, *allowed_hosts)]
        hosts = None if is_open else [name for name in names if name and not is_loopback(name)]
        service = Service(_load(folder), tell, hosts=hosts)
        config = uvicorn.Config(
            service.app(),
            http=TimedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",  # what is wrong with a request is told to whoever sent it
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )
        server = _Server(config, service, folder, tell)
        server.run(sockets=[listener])
    if server.stopped:
        raise server.stopped
    tell("stopped; all accepted requests are answered")


class _Server(uvicorn.Server):
    """Which signals do what.

    Attributes:
        stopped: by the second signal, at once, with the requests that waited then; none: there was no second signal.
    """

    def __init__(self, config: uvicorn.Config, service: Service, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(config)
        self.stopped: StoppedError | None = None
        self._service, self._folder, self._tell = service, folder, tell
        self._tasks: set[asyncio.Task[None]] = set()  # which the event loop alone would not keep
        self._reloading = asyncio.Lock()
        self._reloads_waiting = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and only then say so."""
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            if not is_loopback(host):
                self._tell(f"warning: whoever can connect to {host} can ask: there are no passwords and no encryption")
            model, address = self._service.classifier.sha256[:SHORT_HASH], f"[{host}]" if ":" in host else host
            self._tell(f"serving {self._folder} (model {model}) on http://{address}:{port}; Ctrl-C stops it")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as long as the server runs."""
        loop = asyncio.get_running_loop()
        handled: dict[signal.Signals, Callable[[int], None]] = dict.fromkeys(STOPPING, self._stop_by)
        if hasattr(signal, "SIGHUP"):
            handled[signal.SIGHUP] = self._reload_by

        def handle(number: int, _: object) -> None:
            loop.call_soon_threadsafe(handled[signal.Signals(number)], number)

        former = {number: signal.signal(number, handle) for number in handled}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _start(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop_by(self, number: int) -> None:
        if self._service.is_stopping:
            reason = f"stopped at once; requests without an answer: {self._service.batcher.waiting}"
            self.stopped = self.stopped or StoppedError(reason, signal_number=number)
            self.force_exit = self.should_exit = True
            for connection in list(self.server_state.connections):  # Python 3.12 and later wait for each to close
                connection.transport.abort()
            return
        self._service.stop()
        self._tell(f"stopping: {self._service.batcher.waiting} requests wait; once more ends at once")
        self._start(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        """Connections stay open until all is answered; who sends more meanwhile is told 503, and closes his own."""
        await asyncio.sleep(STOPPING_SECONDS)
        while self._service.batcher.is_alive:  # a thread that waits for it could not be ended by a second signal
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        self.should_exit = True

    def _reload_by(self, _: int) -> None:
        if self._reloads_waiting < 2:  # one that runs, and one that finds what is written while it does
            self._reloads_waiting += 1
            self._start(asyncio.create_task(self._reload()))

    async def _reload(self) -> None:
        """Let the model that is in the folder now answer from now on, if it can."""
        async with self._reloading:
            reloads, former = self._service.metrics.reloads, self._service.classifier
            try:
                self._service.classifier = await asyncio.to_thread(_load, self._folder)
            except Exception as error:  # whatever it is, the model that is there goes on answering
                reloads.labels("failed").inc()
                self._tell(f"warning: not reloaded, model {former.sha256[:SHORT_HASH]} goes on answering: {error}")
            else:
                reloads.labels("done").inc()
                self._tell(f"reloaded: model {self._service.classifier.sha256[:SHORT_HASH]}")
            finally:
                self._reloads_waiting -= 1


def _load(folder: Path) -> Classifier:
    """A classifier that has proven to answer.

    By NumPy, however much work comes: equal texts get equal answers at any time, and no import stops the others.
    """
    classifier = load_classifier(folder, engine="numpy")
    classifier.predict(["a text"])
    return classifier


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at an address; bound before the model is read, which takes longer.

    Raises:
        ConfigError: this machine has no such address.
        EncoderClsError: it is taken, or not for this user.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # The protocol has to be named: asyncio sends without delay where it sees that it is TCP, and else an answer
        # waits 40 ms for the client's acknowledgement of its head.
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: {getattr(error, 'strerror', None) or error}") from None
    with listener:
        try:
            if os.name == "posix":  # elsewhere it would share the port with whoever has it
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            reason = f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
            raise EncoderClsError(f"{reason} (another --port may be free; 0 takes any)") from None
        yield listener
