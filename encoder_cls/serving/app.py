"""The HTTP interface: requests to JSON predictions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encoder_cls.inference.classifier import Classifier
from encoder_cls.serving import limits
from encoder_cls.serving.batching import Answer, Batcher
from encoder_cls.serving.metrics import CONTENT_TYPE, Metrics
from encoder_cls.serving.requests import PredictRequest, RefusedError, parse_predict_request
from encoder_cls.system.display import json_text
from encoder_cls.system.html_page import html_page

_BODY, _SCRIPT = (files("encoder_cls.serving").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "js"))
PAGE = html_page("encoder-cls", _BODY, script=_SCRIPT, connect="'self'").encode()


def _source_of(element: str) -> str:
    """A source of a content security policy that allows this element of the page alone."""
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>".encode(), PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
PAGE_HEADERS = HEADERS | {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_source_of('script')}; style-src {_source_of('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}
HUNG_UP = 499  # what proxies log if the client has gone


class Service:
    """A classifier that answers requests; assign to `classifier` to replace it.

    `warn` gets failures that concern the server's owner; `hosts` are allowed names of this server besides `localhost`
    and loopback addresses, None: any.
    """

    def __init__(
        self, classifier: Classifier, warn: Callable[[str], None], *, hosts: Sequence[str] | None = ()
    ) -> None:
        self.classifier = classifier
        self.is_stopping = False
        self.metrics = Metrics(waiting=lambda: self.batcher.waiting, model=lambda: self.classifier.sha256)
        self.batcher = Batcher(self.metrics.batch_requests.observe)
        self._hosts, self._warn, self._held_bytes = hosts, warn, 0

    def app(self) -> ASGIApp:
        """The application for an ASGI server."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/", _page),
        ]
        handlers: Mapping[Any, Any] = {RefusedError: self._refused, HTTPException: _no_such_page}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # to whatever host the client names
        paths = {route.path for route in routes}

        async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"] if scope["path"] in paths else "other"

            async def counted_send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self.metrics.requests.labels(path, message["status"]).inc()
                await send(message)

            refusal = _refusal_of_origin(Request(scope), self._hosts)
            await (_json({"error": refusal}, 403) if refusal else app)(scope, receive, counted_send)

        return counted_app

    def stop(self) -> None:
        """Accept no more, and answer every accepted request."""
        self.is_stopping = True
        self.batcher.stop()

    async def _predict(self, request: Request) -> Response:
        started = time.perf_counter()
        try:
            with self._room() as hold:
                # Pages of other sites can send other types without asking.
                if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                    raise RefusedError(415, "the body is JSON; send it with Content-Type: application/json")
                body = await _read(request, hold)
                answer = await self._answer(parse_predict_request(body), request)
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        self.metrics.count(answer)
        self.metrics.seconds.observe(time.perf_counter() - started)
        return _json({"predictions": [text.record for text in answer.texts], "model": answer.model})

    async def _answer(self, asked: PredictRequest, request: Request) -> Answer:
        """Wait for the answer, or until the client hangs up: then nothing more is computed for it."""
        answer: asyncio.Future[Answer] = asyncio.wrap_future(self.batcher.submit(asked, self.classifier))
        # After the body, the only message that a request can send is that its client has gone.
        gone: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            return answer.result()
        finally:
            gone.cancel()
            answer.cancel()

    async def _health(self, _: Request) -> Response:
        if self.is_stopping or not self.batcher.is_alive:
            raise RefusedError(503, "the server is stopping" if self.is_stopping else "the computing thread has ended")
        return _json({"status": "ok", "model": self.classifier.sha256, "labels": self.classifier.label_names})

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(), headers=HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _refused(self, _: Request, error: RefusedError) -> Response:
        if error.status == 500:
            self._warn(f"warning: {error}")
        return _json({"error": str(error)}, error.status)

    @contextmanager
    def _room(self) -> Iterator[Callable[[int], None]]:
        """A function that takes bytes of memory for a body until the block ends; it raises `RefusedError` (429)."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if self._held_bytes + size > (most := limits.MOST_HELD_BYTES):
                raise RefusedError(429, f"requests of {most >> 20} MiB wait already; try again in a second")
            self._held_bytes += size
            held += size

        try:
            yield hold
        finally:
            self._held_bytes -= held


def _refusal_of_origin(request: Request, hosts: Sequence[str] | None) -> str | None:
    """Why a request is refused that a page of another site may have made a browser send.

    A page can make its own name lead to a loopback address (DNS rebinding), so the server's name is checked, too.
    """
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if hosts is not None and host and not is_loopback(name := host_name(host)) and name not in hosts:
        return f"not a name of this server: {name}; --allowed-host adds one"
    if origin and origin.partition("://")[2] != host and host_name(origin) not in (hosts or ()):
        return f"asked by a page of another site, {origin}; --allowed-host allows its name"
    return None


def host_name(address: str) -> str:
    """The name or IP address in an origin or the header `Host`; empty if there is none."""
    try:
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an IP address is one of a machine for itself."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def _read(request: Request, hold: Callable[[int], None]) -> bytes:
    """The body of a request, refused if it is too large (413), too slow (408) or there is no room for it (429)."""
    most, seconds = limits.MOST_BODY_BYTES, limits.BODY_SECONDS
    too_large = RefusedError(413, f"the body is larger than {most:,} bytes; send the texts in parts")
    if int(request.headers.get("content-length", "0")) > most:  # the server has checked that it is a number
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > most:
                    raise too_large
                hold(len(chunk))
                body += chunk
    except TimeoutError:
        raise RefusedError(408, f"the body was not complete within {seconds} seconds") from None
    return bytes(body)


async def _page(_: Request) -> Response:
    return Response(PAGE, headers=PAGE_HEADERS)


async def _no_such_page(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        message = f"{request.url.path} does not take {request.method}"
    else:
        message = "there are POST /predict, GET /health, GET /metrics, and / to try texts"
    return _json({"error": message}, error.status_code, error.headers)


def _json(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    more = dict(headers or {})
    if status in {408, 503}:
        more["Connection"] = "close"
    if status in {429, 503}:
        more["Retry-After"] = "1"
    return Response(json_text(value).encode(), status, headers=HEADERS | {"Content-Type": "application/json"} | more)
