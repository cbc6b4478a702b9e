"""A server for an ASGI application: its socket, its settings, its signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.system.terminal import discard_output_to_lost_terminal, handling_signals
from encoder_cls.system.web.connections import Connection
from encoder_cls.system.web.server_limits import KEEP_ALIVE_SECONDS

# The signals that stop the server. Not all of them exist on every system.
STOP_SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)


def uvicorn_config(
    app: ASGIApp,
    *,
    keep_alive: int = KEEP_ALIVE_SECONDS,
    closing_seconds: int,
    on_refused: Callable[[int], None] | None = None,
) -> uvicorn.Config:
    """Configure uvicorn for plain HTTP requests only.

    Args:
        keep_alive: seconds for which a connection stays open without a request.
        closing_seconds: to read the last responses.
        on_refused: gets the status of requests that are refused before their path is known.
    """
    return uvicorn.Config(
        app,
        http=partial(Connection, on_refused=on_refused),  # type: ignore[arg-type]
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


class Server(uvicorn.Server):
    """A uvicorn server that returns after a signal.

    uvicorn itself would raise the signal again after its shutdown, which kills the process.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let this class handle signals; uvicorn calls this while it runs."""
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[int], None]] = dict.fromkeys(
            STOP_SIGNALS, self.on_stop_signal
        )
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self.on_hangup

        def handle(number: int) -> None:
            loop.call_soon_threadsafe(handlers[number], number)

        with handling_signals(handlers, handle):
            yield

    def on_stop_signal(self, _number: int) -> None:
        """Stop once all responses are sent."""
        self.should_exit = True

    def on_hangup(self, number: int) -> None:
        """The terminal has been closed: stop as at any other signal."""
        discard_output_to_lost_terminal()
        self.on_stop_signal(number)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open a socket during the block; the port 0 takes any free port.

    Raises:
        ConfigError: this machine has no such address.
        EncoderClsError: the address cannot be used, as when another program uses it.
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
