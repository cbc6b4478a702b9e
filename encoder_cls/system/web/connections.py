"""The connections of a server: how many there may be, and how room is made for a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_cls.system.web import server_limits


def max_connections() -> int:
    """The most connections: half of the files that this process may open."""
    try:
        import resource
    except ImportError:  # Windows, where connections do not count as open files
        return server_limits.MAX_CONNECTIONS

    max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_files == resource.RLIM_INFINITY:
        return server_limits.MAX_CONNECTIONS
    return min(server_limits.MAX_CONNECTIONS, max_files // 2)


class Connection(H11Protocol):
    """A connection that is closed to make room for a new one if it waits for its client."""

    # When the client last sent something, on the clock of the event loop, in seconds.
    _last_active: float

    def __init__(
        self, *arguments: Any, on_refused: Callable[[int], None] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._on_refused = on_refused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for this new connection, or refuse it (429).

        The one that has waited longest for its client is closed.
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
        others = []
        for connection in self.connections:
            if not isinstance(connection, Connection) or connection is self:
                continue
            if not connection.transport.is_closing():
                others.append(connection)
        return others

    def data_received(self, data: bytes) -> None:
        """Note when the client was active."""
        self._last_active = self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        """Ignore an empty line, which some clients send after a body."""
        buffer = self.conn._receive_buffer
        if self.conn.their_state is h11.IDLE and bytes(buffer)[:2] == b"\r\n":
            buffer.maybe_extract_at_most(2)
        super().handle_events()

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether there is no request, or the client does not read the response.

        A body that is still being sent does not count: it has a time limit of its own.
        """
        has_request = self.cycle is not None and not self.cycle.response_complete
        return not has_request or self.flow.write_paused

    def send_400_response(self, msg: str) -> None:
        """Respond to what is not HTTP."""
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
        if self._on_refused:
            self._on_refused(status)
