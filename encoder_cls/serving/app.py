"""The HTTP interface: it responds to requests with predictions, metrics or the page to try texts.

The predictions are computed by the thread of `request_queue`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.serving import limits
from encoder_cls.serving.metrics import CONTENT_TYPE, Metrics
from encoder_cls.serving.request_queue import Batcher, TextResult
from encoder_cls.serving.requests import parse_predict_request
from encoder_cls.system.display import shown
from encoder_cls.system.html_pages import PREDICTION_VIEW, html_page
from encoder_cls.system.web.bodies import check_content_type
from encoder_cls.system.web.origins import in_origin_form, refusal_of_origin
from encoder_cls.system.web.responses import HEADERS, PAGE_HEADERS, RefusedError, json_response
from encoder_cls.system.web.server_limits import MAX_BODY_BYTES

# The status of a request whose client has closed the connection; proxies such as nginx log it.
CLIENT_CLOSED_REQUEST = 499

_FILES = files("encoder_cls.serving")
PAGE = html_page(
    "encoder-cls",
    _FILES.joinpath("page.html").read_text("utf-8"),
    script=PREDICTION_VIEW + _FILES.joinpath("page.js").read_text("utf-8"),
    connect="'self'",
).encode()


class Service:
    """The handlers of all requests, with the classifier that they use.

    Assign another `classifier` to replace it while requests come.

    Args:
        warn: called with failures that concern the owner of the server.
        hosts: names that requests may use, besides `localhost` and IP addresses; None allows all.
    """

    def __init__(
        self, classifier: Classifier, warn: Callable[[str], None], hosts: Sequence[str] | None
    ) -> None:
        self.classifier = classifier
        self.metrics = Metrics()
        self.batcher = Batcher(self.metrics.batch_requests.observe)
        self._hosts = hosts
        self._warn = warn
        # The total size of all bodies that are being received or wait for predictions.
        self._held_bytes = 0

    def app(self) -> ASGIApp:
        """The application for an ASGI server such as uvicorn."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            Route("/health", self._health),
            Route("/live", self._live),
            Route("/metrics", self._metrics),
            Route("/", Response(PAGE, headers=PAGE_HEADERS), methods=["GET"]),
        ]
        handlers: Mapping[Any, Any] = {RefusedError: self._refused, HTTPException: _unknown_request}
        app = Starlette(routes=routes, exception_handlers=handlers)
        # Do not redirect, because the target of a redirect is the host that the client names.
        app.router.redirect_slashes = False
        paths = {route.path for route in routes}

        # Browsers ask for these headers before a page of another, allowed site gets an answer.
        names = "|".join(re.escape(name) for name in self._hosts or ())
        answering_allowed_pages: ASGIApp = CORSMiddleware(
            app,
            allow_origin_regex=f"https?://({names})(:[0-9]+)?",
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type"],
        )

        async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
            scope = in_origin_form(scope)
            path = scope["path"]
            if path not in paths:
                path = "other"

            async def counted_send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self.metrics.requests.labels(path, message["status"]).inc()
                await send(message)

            responder = answering_allowed_pages
            refusal = refusal_of_origin(Request(scope), self._hosts)
            if refusal:
                responder = json_response({"error": refusal}, 403)
            await responder(scope, receive, counted_send)

        return counted_app

    def count_refused_connection(self, status: int) -> None:
        """Count a request that was refused before its path was known."""
        self.metrics.requests.labels("other", status).inc()

    async def _predict(self, request: Request) -> Response:
        started = time.perf_counter()
        body = bytearray()
        try:
            check_content_type(request)
            await self._read(request, body)
            predict_request = parse_predict_request(bytes(body))
            classifier = self.classifier
            future = self.batcher.submit(predict_request, classifier)
            results = await self._wait_for_results(future, request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        finally:
            self._held_bytes -= len(body)

        self.metrics.count(results)
        self.metrics.seconds.observe(time.perf_counter() - started)
        predictions = [result.record for result in results]
        return json_response({"predictions": predictions, "model": classifier.sha256})

    async def _read(self, request: Request, body: bytearray) -> None:
        """Append the body of a request to `body`; its bytes are the caller's, also after an error.

        It is refused if it is too large (413), too slow (408), or exceeds the memory for all (429).
        """
        too_large = RefusedError(
            413,
            f"the body is larger than {MAX_BODY_BYTES:,} bytes; send the texts in several requests",
        )
        # The HTTP parser has already checked that this header is a number.
        if int(request.headers.get("content-length", "0")) > MAX_BODY_BYTES:
            raise too_large

        try:
            async with asyncio.timeout(limits.BODY_SECONDS):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > MAX_BODY_BYTES:
                        raise too_large
                    self._hold(len(chunk))
                    body += chunk
        except TimeoutError:
            reason = f"the body was not complete within {limits.BODY_SECONDS} seconds"
            raise RefusedError(408, reason) from None

    def _hold(self, num_bytes: int) -> None:
        """Add bytes to the total of all bodies, or refuse them if it is too much."""
        max_bytes = limits.MAX_HELD_BYTES
        if self._held_bytes + num_bytes > max_bytes:
            reason = f"requests of {max_bytes >> 20} MiB wait already; try again in a second"
            raise RefusedError(429, reason)
        self._held_bytes += num_bytes

    async def _wait_for_results(
        self, future: Future[list[TextResult]], request: Request
    ) -> list[TextResult]:
        """Wait for results, or until the client closes the connection."""
        results = asyncio.wrap_future(future)
        # The whole body has been received. The next message can only be that the client has
        # closed the connection.
        disconnect: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([results, disconnect], return_when=asyncio.FIRST_COMPLETED)
            if not results.done():
                raise ClientDisconnect
            return results.result()
        finally:
            disconnect.cancel()
            results.cancel()

    async def _live(self, _: Request) -> Response:
        """Respond that the process can continue: a stopping one needs no restart."""
        if not self.batcher.is_stopping:
            self._check_thread()
        return json_response({"status": "ok"})

    def _check_thread(self) -> None:
        if not self.batcher.thread.is_alive():
            raise RefusedError(503, "the computing thread has ended")

    async def _health(self, _: Request) -> Response:
        if self.batcher.is_stopping:
            raise RefusedError(503, "the server is stopping")
        self._check_thread()
        classifier = self.classifier
        health = {"status": "ok", "model": classifier.sha256, "labels": classifier.label_names}
        if classifier.features or classifier.fields:
            health["text_columns"] = classifier.text_format.columns
            health["features"] = classifier.features
        return json_response(health)

    async def _metrics(self, _: Request) -> Response:
        text = self.metrics.text(
            num_waiting=self.batcher.num_waiting, model_sha256=self.classifier.sha256
        )
        return Response(text, headers=HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _refused(self, _: Request, error: RefusedError) -> Response:
        if error.status == 500:
            self._warn(f"warning: {error}")
        return json_response({"error": str(error)}, error.status)


async def _unknown_request(request: Request, error: HTTPException) -> Response:
    known = "POST /predict, GET /health, /live and /metrics, and GET / to try texts"
    message = f"{request.method} {shown(request.url.path)}: no such request; known are {known}"
    return json_response({"error": message}, error.status_code, error.headers)
