"""The server: start, reload and shut down, and which connections it keeps.

Signals are handled here and not by uvicorn, which would end the process by the same signal again.
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
# Characters of a model's SHA-256 that are shown.
SHORT_HASH = 12


def most_connections() -> int:
    """The number of connections to keep: at most half of the files that the process may open."""
    try:
        import resource
    except ImportError:  # Windows, where connections are no files
        return limits.MAX_CONNECTIONS

    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most_files == resource.RLIM_INFINITY:
        return limits.MAX_CONNECTIONS
    return min(limits.MAX_CONNECTIONS, most_files // 2)


class Connection(H11Protocol):
    """A connection that makes room for a new one while it waits for its client."""

    _last_active: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection that has waited longest if there are too many, or refuse this."""
        super().connection_made(transport)
        self._last_active = self.loop.time()
        if len(self.connections) <= most_connections():
            return

        others = self._open_others()
        if len(others) < most_connections():
            return

        waiting = [connection for connection in others if connection.waits_for_client]
        if waiting:
            longest = min(waiting, key=lambda connection: connection._last_active)
            longest.transport.abort()
        else:
            self._refuse(
                429, "Too Many Requests", f"{len(others)} connections have requests already"
            )

    def _open_others(self) -> list[Connection]:
        """The other connections that are not closing."""
        others = []
        for connection in self.connections:
            if not isinstance(connection, Connection) or connection is self:
                continue
            if not connection.transport.is_closing():
                others.append(connection)
        return others

    def data_received(self, data: bytes) -> None:
        """Note when the client was last active."""
        self._last_active = self.loop.time()
        super().data_received(data)

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has no request, or leaves the response to it unread.

        The body of a request has a time limit of its own.
        """
        has_request = self.cycle is not None and not self.cycle.response_complete
        return not has_request or self.flow.write_paused

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._refuse(400, "Bad Request", msg)

    def _refuse(self, status: int, reason: str, message: str) -> None:
        body = f'{{"error": "{message}"}}'
        head = (
            f"HTTP/1.1 {status} {reason}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self.transport.write(f"{head}{body}".encode("ascii"))
        self.transport.close()


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    keep_alive: int,
    log: Callable[[str], None],
) -> None:
    """Serve the classifier of a run or model folder until a signal comes; SIGHUP reads it again.

    Args:
        folder: of a run or of a model.
        host: the address to listen on.
        port: 0: any free one.
        allowed_hosts: names of the server besides `host`, `localhost` and loopback addresses. If
            there are none and `host` is not a loopback address: any.
        keep_alive: seconds that a connection stays open without a request.
        log: gets a line for each change of state and each failure.
    """
    # Before the model is read, which takes longer.
    with listening(host, port) as listener:
        is_local = is_loopback(listener.getsockname()[0])
        hosts: list[str] | None = None
        if allowed_hosts or is_local:
            names = [host_name(name) for name in (host, *allowed_hosts)]
            hosts = [name for name in names if name and not is_loopback(name)]

        service = Service(_load(folder), log, hosts)
        config = uvicorn.Config(
            service.app(),
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the client gets the error of a request
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=limits.ACCEPTED_AT_ONCE,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=limits.CLOSING_SECONDS,
        )
        server = _Server(config, service, folder, log)
        server.run(sockets=[listener])

    if server.stopped:
        raise server.stopped
    log("stopped; all accepted requests got their responses")


class _Server(uvicorn.Server):
    """A server with its own signals.

    Attributes:
        stopped: the error of a second signal, which leaves requests without a response.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, folder: Path, log: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self.stopped: StoppedError | None = None
        self._service = service
        self._folder = folder
        self._log = log
        self._reloading = Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and only then log it."""
        await super().startup(sockets)
        if most_connections() < limits.MAX_CONNECTIONS:
            self._log(
                f"warning: at most {most_connections()} connections, half of the files that this"
                " process may open (`ulimit -n`)"
            )
        for listener in sockets or []:
            # asyncio takes one number for both: connections that it accepts before it serves them,
            # and those that the system keeps until then.
            listener.listen(limits.BACKLOG)
            self._log_address(listener)

    def _log_address(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        if not is_loopback(host):
            self._log(f"warning: listening on {host} without authentication or TLS")
        address = f"[{host}]" if ":" in host else host
        model = self._service.classifier.sha256[:SHORT_HASH]
        self._log(
            f"serving {self._folder} (model {model}) on http://{address}:{port}; Ctrl-C stops it"
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs."""
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[int], None]] = dict.fromkeys(STOPPING, self._stop_by)
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._hang_up

        def handle(number: int) -> None:
            loop.call_soon_threadsafe(handlers[number], number)

        with handling_signals(handlers, handle):
            yield

    def _hang_up(self, number: int) -> None:
        """Reload; or stop, if SIGHUP says that the terminal of the server has gone."""
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
            self._stop_at_once(number)
            return
        batcher.stop()
        self._log(f"stopping: {batcher.waiting} requests wait; once more ends at once")
        Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        """Exit once all accepted requests have their results.

        Until then connections stay open, and new requests get 503.
        """
        time.sleep(limits.STOPPING_SECONDS)
        self._service.batcher.thread.join()
        self.should_exit = True

    def _stop_at_once(self, number: int) -> None:
        if self.stopped is None:
            waiting = self._service.batcher.waiting
            reason = f"stopped at once; requests without a response: {waiting}"
            self.stopped = StoppedError(reason, signal_number=number)
        self.force_exit = True
        self.should_exit = True
        # Python 3.12 and later wait for each connection to close.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _reload(self) -> None:
        """Replace the classifier by the folder's current one, if that one works."""
        with self._reloading:
            reloads = self._service.metrics.reloads
            try:
                classifier = _load(self._folder)
            # Whatever the error is, the old model stays in use.
            except Exception as error:
                reloads.labels("failed").inc()
                old = self._service.classifier.sha256[:SHORT_HASH]
                self._log(f"warning: not reloaded, model {old} stays in use: {error}")
                return
            self._service.classifier = classifier
            reloads.labels("done").inc()
            self._log(f"reloaded: model {classifier.sha256[:SHORT_HASH]}")


def _load(folder: Path) -> Classifier:
    """A classifier that has predicted once.

    NumPy computes it, however much work comes: equal texts get equal predictions at any time, and
    no import delays other requests.
    """
    classifier = load_classifier(folder, engine="numpy")
    classifier.predict(["a text"])
    return classifier


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at an address.

    Raises:
        ConfigError: this machine has no such address.
        EncoderClsError: the address cannot be used, such as one that another program uses.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        # asyncio sends without delay only on a socket whose protocol is TCP; otherwise a response
        # waits 40 ms for the client's acknowledgement of its head.
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--host {host}: {reason}") from None

    with listener:
        try:
            if os.name == "posix":  # elsewhere it would share the port with another program
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            reason = f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
            raise EncoderClsError(f"{reason} (another --port may be free; 0 takes any)") from None
        yield listener
