"""The server: start, reload, shut down, and drop slow clients.

Signals are handled here and not by uvicorn, which would end the process by the same signal once more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.serving import limits
from encoder_cls.serving.app import Service, host_name, is_loopback
from encoder_cls.system.terminal import (
    discard_output_to_lost_terminal,
    handling_signals,
    has_lost_terminal,
)

STOPPING = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)
SHORT_HASH = 12  # characters of a model's SHA-256 that are shown


class TimedProtocol(H11Protocol):
    """A connection that ends when its client is too slow; all connections share one thread."""

    _timers: dict[str, asyncio.TimerHandle]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse the newest of too many connections."""
        super().connection_made(transport)
        self._timers = {}
        if len(self.connections) > limits.MOST_CONNECTIONS:
            self._refuse(
                429, "Too Many Requests", f"there are {limits.MOST_CONNECTIONS} connections already"
            )
        else:
            self._limit("head", limits.HEADER_SECONDS, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        """Limit the time from the first byte of a request to the end of its head."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel("head")
        elif "head" not in self._timers:
            self._limit("head", limits.HEADER_SECONDS, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        for name in [*self._timers]:
            self._cancel(name)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Limit the time in which the client reads an answer."""
        super().pause_writing()
        self._limit("send", limits.SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the limit: the client reads on."""
        super().resume_writing()
        self._cancel("send")

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._refuse(400, "Bad Request", msg)

    def _limit(self, name: str, seconds: float, end: Callable[[], None]) -> None:
        self._timers[name] = self.loop.call_later(seconds, end)

    def _cancel(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _head_is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(
                408, "Request Timeout", f"no whole request within {limits.HEADER_SECONDS} seconds"
            )

    def _refuse(self, status: int, reason: str, message: str) -> None:
        body = f'{{"error": "{message}"}}'
        self.transport.write(
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}".encode("ascii")
        )
        self.transport.close()


def serve(
    folder: Path, *, host: str, port: int, allowed_hosts: Sequence[str], log: Callable[[str], None]
) -> None:
    """Serve the classifier of a run or model folder, read again at SIGHUP, until a signal comes.

    `allowed_hosts` are names of the server besides `host`, `localhost` and loopback addresses; if empty and `host` is
    not a loopback address: any. `log` gets a line for each change of state and each failure.
    """
    with listening(host, port) as listener:  # before the model is read, which takes longer
        is_open = not (allowed_hosts or is_loopback(listener.getsockname()[0]))
        names = [host_name(name) for name in (host, *allowed_hosts)]
        hosts = None if is_open else [name for name in names if name and not is_loopback(name)]
        service = Service(_load(folder), log, hosts)
        config = uvicorn.Config(
            service.app(),
            http=TimedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the client gets the error of a request
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=limits.KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=limits.CLOSING_SECONDS,
        )
        server = _Server(config, service, folder, log)
        server.run(sockets=[listener])
    if server.stopped:
        raise server.stopped
    log("stopped; all accepted requests are answered")


class _Server(uvicorn.Server):
    """A server with its own signals; `stopped` is the error of a second one, which leaves requests unanswered."""

    def __init__(
        self, config: uvicorn.Config, service: Service, folder: Path, log: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self.stopped: StoppedError | None = None
        self._service, self._folder, self._log = service, folder, log
        self._reloading = Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and only then log it."""
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            if not is_loopback(host):
                self._log(
                    f"warning: whoever can connect to {host} can ask: there are no passwords and no encryption"
                )
            model, address = (
                self._service.classifier.sha256[:SHORT_HASH],
                f"[{host}]" if ":" in host else host,
            )
            self._log(
                f"serving {self._folder} (model {model}) on http://{address}:{port}; Ctrl-C stops it"
            )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs."""
        loop = asyncio.get_running_loop()
        handled: dict[int, Callable[[int], None]] = dict.fromkeys(STOPPING, self._stop_by)
        if hasattr(signal, "SIGHUP"):
            handled[signal.SIGHUP] = self._hang_up
        with handling_signals(
            handled, lambda number: loop.call_soon_threadsafe(handled[number], number)
        ):
            yield

    def _hang_up(self, number: int) -> None:
        """Reload; or stop, if SIGHUP says that the terminal has gone from which the server was started."""
        if not has_lost_terminal():
            Thread(target=self._reload, daemon=True).start()
            return
        discard_output_to_lost_terminal()
        # The signal comes more than once, by the system and by the shell.
        if not self._service.batcher.is_stopping:
            self._stop_by(number)

    def _stop_by(self, number: int) -> None:
        batcher = self._service.batcher
        if batcher.is_stopping:
            reason = f"stopped at once; requests without an answer: {batcher.waiting}"
            self.stopped = self.stopped or StoppedError(reason, signal_number=number)
            self.force_exit = self.should_exit = True
            for connection in list(
                self.server_state.connections
            ):  # Python 3.12 and later wait for each to close
                connection.transport.abort()
            return
        batcher.stop()
        self._log(f"stopping: {batcher.waiting} requests wait; once more ends at once")
        Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        """Exit when all is answered; until then connections stay open, and new requests get 503."""
        time.sleep(limits.STOPPING_SECONDS)
        self._service.batcher.thread.join()
        self.should_exit = True

    def _reload(self) -> None:
        """Replace the classifier by the folder's current one, if that answers."""
        with self._reloading:
            reloads, old = self._service.metrics.reloads, self._service.classifier
            try:
                self._service.classifier = _load(self._folder)
            except Exception as error:  # whatever it is, the old model goes on answering
                reloads.labels("failed").inc()
                self._log(
                    f"warning: not reloaded, model {old.sha256[:SHORT_HASH]} goes on answering: {error}"
                )
            else:
                reloads.labels("done").inc()
                self._log(f"reloaded: model {self._service.classifier.sha256[:SHORT_HASH]}")


def _load(folder: Path) -> Classifier:
    """A classifier that has answered once.

    By NumPy, however much work comes: equal texts get equal answers at any time, and no import stops the others.
    """
    classifier = load_classifier(folder, engine="numpy")
    classifier.predict(["a text"])
    return classifier


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at an address; `ConfigError` if this machine has none, `EncoderClsError` if it cannot be used."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        # asyncio sends without delay only on a socket whose protocol is TCP; otherwise an answer waits 40 ms for the
        # client's acknowledgement of its head.
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: {getattr(error, 'strerror', None) or error}") from None
    with listener:
        try:
            if os.name == "posix":  # elsewhere it would share the port with another program
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            reason = f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
            raise EncoderClsError(f"{reason} (another --port may be free; 0 takes any)") from None
        yield listener
