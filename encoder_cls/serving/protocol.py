"""uvicorn's HTTP, with an end to its patience: a head must come, and an answer must be read, within some seconds.

What arrives slower than that holds a connection and nothing else, since all connections are one thread's; but
connections are limited, too.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_cls.serving.limits import HEADER_SECONDS, MOST_CONNECTIONS, SEND_SECONDS


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
