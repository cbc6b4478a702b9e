"""The HTTP interface: requests to JSON predictions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
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
from encoder_cls.serving.batching import Answer, Batcher
from encoder_cls.serving.metrics import CONTENT_TYPE, Metrics
from encoder_cls.serving.requests import (
    BODY_SECONDS,
    MOST_BODY_BYTES,
    MOST_HELD_BYTES,
    PredictRequest,
    RefusedError,
    parse_predict_request,
)
from encoder_cls.system.display import json_text
from encoder_cls.system.html_page import html_page

_BODY, _SCRIPT = (files("encoder_cls.serving").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "js"))
PAGE = html_page("encoder-cls", _BODY, script=_SCRIPT, connect="'self'").encode()


def _hash_of(element: str) -> str:
    """The source of a content security policy that allows this element, and no other of its kind."""
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>".encode(), PAGE, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


HUNG_UP = 499  # the status that proxies log where nobody waits for an answer any more
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Service:
    """A classifier, those who wait for it, and what is counted.

    Args:
        classifier: which answers; another one may take its place at any time.
        warn: told of failures that the server's owner should know of.
        hosts: by which clients may name this server beside `localhost` and loopback addresses; none: by any.
    """

    def __init__(
        self, classifier: Classifier, warn: Callable[[str], None], *, hosts: Sequence[str] | None = ()
    ) -> None:
        self.classifier = classifier
        self._hosts = hosts
        self.is_stopping = False
        self._warn = warn
        self._held_bytes = 0
        self.metrics = Metrics(waiting=lambda: self.batcher.waiting, model=lambda: self.classifier.sha256)
        self.batcher = Batcher(self.metrics.batch_requests.observe)

    def app(self) -> ASGIApp:
        """The application for an ASGI server."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/", _page),
        ]
        handlers: Mapping[Any, Any] = {
            RefusedError: self._refused,
            HTTPException: _no_such_page,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # to whatever host the client names
        return _Counting(_Guarded(app, self._hosts), self.metrics)

    def stop(self) -> None:
        """Accept nothing more; what is accepted is answered."""
        self.is_stopping = True
        self.batcher.stop()

    async def _predict(self, request: Request) -> Response:
        began = time.perf_counter()
        held = _Held(self)
        try:
            # Pages of other sites can send other types without asking.
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise RefusedError(415, "the body is JSON; send it with Content-Type: application/json")
            body = await _read(request, held.add)
            answer = await self._answer(parse_predict_request(body), request)
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        finally:
            held.release()
        self.metrics.count(answer)
        self.metrics.seconds.observe(time.perf_counter() - began)
        return _json({"predictions": answer.records, "model": answer.model})

    async def _answer(self, asked: PredictRequest, request: Request) -> Answer:
        """The answer; who hangs up before is not computed for.

        Raises:
            ClientDisconnect: nobody waits for it any more.
            RefusedError: there is none.
        """
        answer: asyncio.Future[Any] = asyncio.wrap_future(self.batcher.submit(asked, self.classifier))
        # After the body, all that can come of this request is that its sender has gone.
        gone: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            found: Answer = answer.result()
            return found
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

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are in memory; fewer with a negative number.

        Raises:
            RefusedError: they would be too many.
        """
        if size > 0 and self._held_bytes + size > MOST_HELD_BYTES:
            raise RefusedError(429, f"requests of {MOST_HELD_BYTES >> 20} MiB wait already; try again in a second")
        self._held_bytes += size


class _Held:
    """The bytes of one request."""

    def __init__(self, service: Service) -> None:
        self._service, self._size = service, 0

    def add(self, size: int) -> None:
        self._service.hold(size)
        self._size += size

    def release(self) -> None:
        self._service.hold(-self._size)


class _Counting:
    """Counts requests by path and status, around the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["path"] in {"/", "/predict", "/health", "/metrics"}

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(scope["path"] if known else "other", message["status"]).inc()
            await send(message)

        await self._app(scope, receive, counting)


class _Guarded:
    """Refuses what pages of other sites make browsers send, around the application.

    A page can let its own name lead to a loopback address (DNS rebinding), so names are checked, too.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        host, origin = headers.get("host"), headers.get("origin")
        app = self._app
        if self._hosts is not None and host and not is_loopback(name := host_name(host)) and name not in self._hosts:
            app = _json({"error": f"not a name of this server: {name}; --allowed-host adds one"}, 403)
        elif origin and origin.partition("://")[2] != host and host_name(origin) not in (self._hosts or ()):
            app = _json({"error": f"asked by a page of another site, {origin}; --allowed-host allows its name"}, 403)
        await app(scope, receive, send)


def host_name(address: str) -> str:
    """The name or IP address in an origin or the header `Host`; empty where there is none."""
    try:
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an IP address is one by which a machine calls itself."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def _read(request: Request, hold: Callable[[int], None]) -> bytes:
    """The body of a request.

    Raises:
        RefusedError: 413 where it is too large, 408 where it comes too slowly, 429 where there is no room for it.
    """
    too_large = RefusedError(413, f"the body is larger than {MOST_BODY_BYTES:,} bytes; send the texts in parts")
    declared = request.headers.get("content-length", "0")
    if int(declared) > MOST_BODY_BYTES:  # the server has seen to it that it is a number
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                if len(body) + len(chunk) > MOST_BODY_BYTES:
                    raise too_large
                hold(len(chunk))
                body += chunk
    except TimeoutError:
        raise RefusedError(408, f"the body was not complete within {BODY_SECONDS} seconds") from None
    return bytes(body)


async def _page(_: Request) -> Response:
    return Response(PAGE, headers=HEADERS | PAGE_HEADERS)


async def _no_such_page(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        message = f"{request.method} is not what {request.url.path} takes"
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
