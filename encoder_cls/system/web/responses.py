"""Responses with a JSON body, refusals among them, and the headers of all responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from encoder_cls.system.json_values import json_text

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
PAGE_HEADERS = HEADERS | {
    "Content-Type": "text/html; charset=utf-8",
    # The page itself has a policy, too, in a `meta` element. A browser applies both.
    "Content-Security-Policy": "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class RefusedError(Exception):
    """The client gets an HTTP status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def refused(_: Request, error: RefusedError) -> Response:
    """The response to a refused request."""
    return json_response({"error": str(error)}, error.status)


def json_response(
    value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with the headers of its status."""
    all_headers = HEADERS | {"Content-Type": "application/json"} | dict(headers or {})
    if status in {408, 503}:
        all_headers["Connection"] = "close"
    if status in {429, 503}:
        all_headers["Retry-After"] = "1"
    return Response(json_text(value).encode(), status, headers=all_headers)
