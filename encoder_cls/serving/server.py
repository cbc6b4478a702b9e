"""The server: it starts, reloads its model, limits its connections and shuts down.

Signals are handled here, because uvicorn would raise a signal again after its shutdown, and the
process would be killed by that signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError, EncoderClsError, StoppedError
from encoder_cls.serving import limits
from encoder_cls.serving.app import Service
from encoder_cls.serving.request_checks import host_name, is_loopback
from encoder_cls.system.display import listed
from encoder_cls.system.terminal import (
    discard_output_to_lost_terminal,
    handling_signals,
    has_lost_terminal,
)

# The signals that stop the server. Not all of them exist on every system.
STOP_SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)
# The number of characters of a model's SHA-256 that log lines show.
SHORT_HASH_LENGTH = 12


def max_connections() -> int:
    """The maximum number of connections: at most half of the files that this process may open."""
    try:
        import resource
    except ImportError:  # Windows, where connections do not count as open files
        return limits.MAX_CONNECTIONS

    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_files == resource.RLIM_INFINITY:
        return limits.MAX_CONNECTIONS
    return min(limits.MAX_CONNECTIONS, max_files // 2)


class Connection(H11Protocol):
    """A connection that is closed to make room for a new connection if it waits for its client."""

    # When the client last sent something, on the clock of the event loop, in seconds.
    _last_active: float

    def __init__(
        self, *arguments: Any, on_refused: Callable[[int], None] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._on_refused = on_refused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for this new connection if there are too many, or refuse this connection.

        Room is made by closing the connection that has waited longest for its client. If no
        connection waits for its client, the new connection gets the status 429.
        """
        super().connection_made(transport)
        self._last_active = self.loop.time()
        if len(self.connections) <= max_connections():
            return

        # Connections that are being closed still belong to `self.connections`. Do not count them.
        others = self._other_open_connections()
        if len(others) < max_connections():
            return

        waiting = [connection for connection in others if connection.is_waiting_for_client]
        if waiting:
            longest_waiting = min(waiting, key=lambda connection: connection._last_active)
            longest_waiting.transport.abort()
        else:
            self._refuse(
                429,
                "Too Many Requests",
                f"{len(others)} connections have requests already; try again in a second",
            )

    def _other_open_connections(self) -> list[Connection]:
        """All connections of the server except this connection and those that are being closed."""
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

    def handle_events(self) -> None:
        """Ignore an empty line before a request, which some clients send after a body."""
        buffer = self.conn._receive_buffer
        if self.conn.their_state is h11.IDLE and bytes(buffer)[:2] == b"\r\n":
            buffer.maybe_extract_at_most(2)
        super().handle_events()

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether the client has sent no request, or does not read its response.

        A request whose body is still being sent does not count as waiting: bodies have a time
        limit of their own.
        """
        has_request = self.cycle is not None and not self.cycle.response_complete
        return not has_request or self.flow.write_paused

    def send_400_response(self, msg: str) -> None:
        """Respond with the status 400 to bytes that are not HTTP."""
        self._refuse(400, "Bad Request", msg)

    def _refuse(self, status: int, reason: str, message: str) -> None:
        """Send an error response and close the connection."""
        body = f'{{"error": "{message}"}}'
        head = (
            f"HTTP/1.1 {status} {reason}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self.transport.write(f"{head}{body}".encode("ascii"))
        self.transport.close()
        if self._on_refused:
            self._on_refused(status)


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    keep_alive: int,
    same_labels: bool,
    log: Callable[[str], None],
) -> None:
    """Serve the classifier of a run or model folder until a signal stops the server.

    SIGTERM and SIGINT stop the server after the accepted requests have their responses; a second
    signal stops it at once. SIGHUP loads the model again from the folder.

    Args:
        folder: the folder of a run or of an exported model.
        host: the address to listen on.
        port: the port to listen on; 0 takes any free port.
        allowed_hosts: names of the server that requests may use besides `host`, `localhost` and
            IP addresses. If this is empty and `host` is not a loopback address, requests
            may use any name.
        keep_alive: the seconds for which a connection stays open without a request.
        same_labels: whether a model with other classes than the one in use is not loaded.
        log: called with a line for each change of state and each failure.

    Raises:
        ConfigError: this machine has no address `host`.
        EncoderClsError: the port cannot be used, or the classifier cannot be loaded.
        StoppedError: a second signal stopped the server before all requests had responses.
    """
    # Open the socket first, so that a port in use is reported before the model is loaded.
    with listening(host, port) as listener:
        is_local = is_loopback(listener.getsockname()[0])
        hosts: list[str] | None = None
        if allowed_hosts or is_local:
            names = [host_name(name) for name in (host, *allowed_hosts)]
            hosts = [name for name in names if name and not is_loopback(name)]

        service = Service(_load_and_try(folder), log, hosts)
        config = uvicorn_config(
            service.app(), keep_alive=keep_alive, closing_seconds=limits.CLOSING_SECONDS
        )
        config.http = partial(  # type: ignore[assignment]
            Connection, on_refused=service.count_refused_connection
        )
        # `_Server.startup` sets the length of the queue of the system.
        config.backlog = limits.ACCEPTED_AT_ONCE
        server = _Server(config, service, folder, log, same_labels=same_labels)
        server.run(sockets=[listener])

    if server.stop_error:
        raise server.stop_error
    log("stopped; all accepted requests got their responses")


def uvicorn_config(app: ASGIApp, *, keep_alive: int, closing_seconds: int) -> uvicorn.Config:
    """Configure uvicorn for an application that uses only plain HTTP requests.

    Args:
        app: the application.
        keep_alive: the seconds for which a connection stays open without a request.
        closing_seconds: the seconds that clients have to read their last responses.
    """
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",  # errors of requests go to their clients
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=closing_seconds,
    )


class _Server(uvicorn.Server):
    """A uvicorn server that handles signals in its own way, and reloads its classifier.

    Attributes:
        stop_error: the error for a second stop signal, after which requests have no response; None
            if there was no second signal.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        folder: Path,
        log: Callable[[str], None],
        *,
        same_labels: bool,
    ) -> None:
        super().__init__(config)
        self.stop_error: StoppedError | None = None
        self._service = service
        self._folder = folder
        self._log = log
        self._same_labels = same_labels
        # Held while the model is reloaded, so that two reloads run one after the other.
        self._reload_lock = Lock()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and then log the address."""
        await super().startup(sockets)
        if max_connections() < limits.MAX_CONNECTIONS:
            self._log(
                f"warning: at most {max_connections()} connections, half of the files that this"
                " process may open (`ulimit -n`)"
            )
        for listener in sockets or []:
            # asyncio uses `backlog` both for the number of connections that it accepts at once
            # and for the queue of the system. Call `listen` again to make only the queue longer.
            listener.listen(limits.BACKLOG)
            self._log_address(listener)

    def _log_address(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        if not is_loopback(host):
            self._log(f"warning: listening on {host} without authentication or TLS")
        address = f"[{host}]" if ":" in host else host
        model = self._service.classifier.sha256[:SHORT_HASH_LENGTH]
        self._log(
            f"serving {self._folder} (model {model}) on http://{address}:{port};"
            " press Ctrl-C to stop"
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in this class while the server runs; uvicorn calls this method."""
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[int], None]] = {}
        for stop_signal in STOP_SIGNALS:
            handlers[stop_signal] = self._on_stop_signal
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._on_hangup

        def handle(number: int) -> None:
            loop.call_soon_threadsafe(handlers[number], number)

        with handling_signals(handlers, handle):
            yield

    def _on_hangup(self, number: int) -> None:
        """Reload the model, or stop the server if its terminal has been closed."""
        if not has_lost_terminal():
            Thread(target=self._reload, daemon=True).start()
            return

        discard_output_to_lost_terminal()
        # The system and the shell may both send SIGHUP. The second one must not count as a second
        # stop signal, which would leave requests without a response.
        if not self._service.batcher.is_stopping:
            self._on_stop_signal(number)

    def _on_stop_signal(self, number: int) -> None:
        """Stop after the accepted requests at the first signal, and at once at the second."""
        batcher = self._service.batcher
        if batcher.is_stopping:
            self._exit_now(number)
            return
        batcher.stop()
        self._log(
            f"stopping: {batcher.num_waiting} requests wait for their responses;"
            " press Ctrl-C again to stop at once"
        )
        Thread(target=self._finish_requests_and_exit, daemon=True).start()

    def _finish_requests_and_exit(self) -> None:
        """Exit once all accepted requests have their results."""
        # For a moment keep the connections open and respond to new requests with the status 503,
        # so that clients and load balancers learn that they should use another server.
        time.sleep(limits.STOPPING_SECONDS)
        self._service.batcher.thread.join()
        self.should_exit = True

    def _exit_now(self, number: int) -> None:
        """Exit without responses to the waiting requests."""
        if self.stop_error is None:
            num_waiting = self._service.batcher.num_waiting
            reason = f"stopped at once; requests without a response: {num_waiting}"
            self.stop_error = StoppedError(reason, signal_number=number)
        self.force_exit = True
        self.should_exit = True
        # Close all connections, because the server of Python 3.12 and later waits for them.
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _reload(self) -> None:
        """Load the classifier of the folder again, and use it if it can predict."""
        with self._reload_lock:
            reloads = self._service.metrics.reloads
            old = self._service.classifier
            try:
                new = _load_and_try(self._folder)
                difference = _difference_of_labels(old, new)
                if self._same_labels:
                    _check_same_labels(difference)
            # Keep the old model after any error: a damaged folder must not stop the server.
            except Exception as error:
                reloads.labels("failed").inc()
                old_model = old.sha256[:SHORT_HASH_LENGTH]
                self._log(f"warning: not reloaded, model {old_model} stays in use: {error}")
                return

            self._service.classifier = new
            reloads.labels("done").inc()
            self._log(f"reloaded: model {new.sha256[:SHORT_HASH_LENGTH]}")
            if difference:
                self._log(f"warning: the reloaded model has other classes: {difference}")


def _difference_of_labels(old: Classifier, new: Classifier) -> str:
    """The classes that a new model has added or lost, and its task if that changed; or empty."""
    old_names = set(old.label_names)
    new_names = set(new.label_names)
    added = [name for name in new.label_names if name not in old_names]
    gone = [name for name in old.label_names if name not in new_names]

    differences = []
    if new.task is not old.task:
        differences.append(f"its task is {new.task.name}, not {old.task.name}")
    if added:
        differences.append(f"added: {listed(added)}")
    if gone:
        differences.append(f"gone: {listed(gone)}")
    return "; ".join(differences)


def _check_same_labels(difference: str) -> None:
    """Raise a `ConfigError` if a new model has other classes than the one in use."""
    if difference:
        raise ConfigError(f"--same-labels: the new model has other classes: {difference}")


def _load_and_try(folder: Path) -> Classifier:
    """Load a classifier and predict one text, so that errors appear before it is used.

    The engine is always NumPy. Equal texts therefore get equal predictions under any load, and
    the slow import of PyTorch never delays requests.
    """
    classifier = load_classifier(folder, engine="numpy")
    classifier.predict(["a text"])
    return classifier


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open a socket at an address, and close the socket at the end of the block.

    Args:
        host: a name or an IP address of this machine.
        port: the port; 0 takes any free port.

    Raises:
        ConfigError: this machine has no such address.
        EncoderClsError: the address cannot be used, for example because another program uses it.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        # Pass the protocol, because asyncio sends without delay only on a socket that names TCP.
        # On other sockets the body of a response would wait 40 ms until the client has
        # acknowledged the head.
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--host {host}: {reason}") from None

    with listener:
        try:
            # Allow a restart at once. On Windows this option would also let another program
            # listen on the same port.
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            reason = f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
            raise EncoderClsError(
                f"{reason} (choose another --port; --port 0 takes any free port)"
            ) from None
        yield listener
