"""The HTTP interface: requests to JSON predictions, and their counts in the text format of Prometheus."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.html_pages import html_page
from encoder_cls.serving import limits
from encoder_cls.serving.batching import Batcher, PredictRequest, RefusedError, TextAnswer
from encoder_cls.system.display import json_text, kind, replace_unprintable, shown

HUNG_UP = 499  # the code that proxies log when a client hangs up
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT_TEXTS = 1000  # for rates: enough for whole percents
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_BODY, _SCRIPT = (
    files("encoder_cls.serving").joinpath(f"page.{it}").read_text("utf-8") for it in ("html", "js")
)
PAGE = html_page("encoder-cls", _BODY, script=_SCRIPT, connect="'self'").encode()
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
PAGE_HEADERS = HEADERS | {
    "Content-Type": "text/html; charset=utf-8",
    # Beside the policy in the page itself.
    "Content-Security-Policy": "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
# The values of each field of a request, in words and as a test. For Python a bool is an int; in JSON it is no number.
FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "texts": ('a list of strings: {"texts": ["..."]}', lambda it: isinstance(it, list)),
    "top_k": ("a whole number from 1", lambda it: type(it) is int and it >= 1),
    "threshold": ("a number from 0 to 1", lambda it: type(it) in {int, float} and 0 <= it <= 1),
    "explain": ("true or false", lambda it: type(it) is bool),
}


class Metrics:
    """Counts of all requests, and rates of the last texts."""

    def __init__(self) -> None:
        self._recent: deque[TextAnswer] = deque(maxlen=RECENT_TEXTS)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        of: dict[str, Any] = {"namespace": "encoder_cls", "registry": self._registry}
        self.requests = Counter(
            "requests", "Requests by path and status.", ["path", "status"], **of
        )
        self.seconds = Histogram(
            "predict_seconds", "From a request's head to its predictions.", buckets=SECONDS, **of
        )
        self.batch_requests = Histogram(
            "batch_requests", "Requests computed together.", buckets=REQUESTS, **of
        )
        self.reloads = Counter("reloads", "Reloads of the model.", ["outcome"], **of)
        self._texts = Counter("texts", "Texts answered.", **of)
        self._truncated = Counter("truncated_texts", "Texts longer than the encoder reads.", **of)
        self._words = Counter("words", "Words read by the encoder.", **of)
        self._unknown = Counter("unknown_words", "Words that training never saw.", **of)
        self._labels = Counter(
            "labels", "Texts by their most probable label, or their labels.", ["label"], **of
        )
        self._waiting = Gauge("waiting_requests", "Requests without an answer.", **of)
        self._info = Info("model", "The model that answers.", **of)
        of_last = f"of the last {RECENT_TEXTS} texts"
        self._unknown_rate = Gauge(
            "unknown_word_rate", f"Unknown words among the words {of_last}.", **of
        )
        self._label_rate = Gauge("label_rate", f"The part {of_last} with a label.", ["label"], **of)

    def count(self, answers: Sequence[TextAnswer]) -> None:
        """Count the answers to a request."""
        self._texts.inc(len(answers))
        for text in answers:
            for label in text.labels:
                self._labels.labels(replace_unprintable(label)).inc()
            self._words.inc(text.words)
            self._unknown.inc(text.record["unknown_words"])
            self._truncated.inc(text.record["truncated"])
        self._recent += answers

    def text(self, *, waiting: int, model: str) -> bytes:
        """All counts in the text format, with the number of waiting requests and the model's SHA-256."""
        recent = list(self._recent)
        unknown, words = (
            sum(it.record["unknown_words"] for it in recent),
            sum(it.words for it in recent),
        )
        self._unknown_rate.set(unknown / max(1, words))
        self._label_rate.clear()
        for label, number in Counts(
            replace_unprintable(label) for it in recent for label in it.labels
        ).items():
            self._label_rate.labels(label).set(number / len(recent))
        self._waiting.set(waiting)
        self._info.info({"sha256": model})
        return generate_latest(self._registry)


class Service:
    """A classifier that answers requests; assign to `classifier` to replace it.

    `warn` gets failures that concern the server's owner; `hosts` are allowed besides `localhost`, None: any.
    """

    def __init__(
        self, classifier: Classifier, warn: Callable[[str], None], hosts: Sequence[str] | None
    ) -> None:
        self.classifier = classifier
        self.metrics = Metrics()
        self.batcher = Batcher(self.metrics.batch_requests.observe)
        self._hosts, self._warn, self._held_bytes = hosts, warn, 0

    def app(self) -> ASGIApp:
        """The application for an ASGI server."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/", Response(PAGE, headers=PAGE_HEADERS), methods=["GET"]),
        ]
        handlers: Mapping[Any, Any] = {RefusedError: self._refused, HTTPException: _no_such_request}
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

    async def _predict(self, request: Request) -> Response:
        started, body = time.perf_counter(), bytearray()
        try:
            # Pages of other sites can send other types without a preflight request.
            if (
                request.headers.get("content-type", "").partition(";")[0].strip().lower()
                != "application/json"
            ):
                raise RefusedError(
                    415, "send the body as JSON, with Content-Type: application/json"
                )
            await self._read(request, body)
            asked, classifier = parse_predict_request(bytes(body)), self.classifier
            answers = await self._answered(self.batcher.submit(asked, classifier), request)
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        finally:
            self._held_bytes -= len(body)
        self.metrics.count(answers)
        self.metrics.seconds.observe(time.perf_counter() - started)
        return _json({"predictions": [it.record for it in answers], "model": classifier.sha256})

    async def _read(self, request: Request, body: bytearray) -> None:
        """Read a body; refuse it if it is too large (413), too slow (408) or exceeds the memory for bodies (429)."""
        most, seconds = limits.MOST_BODY_BYTES, limits.BODY_SECONDS
        too_large = RefusedError(
            413, f"the body is larger than {most:,} bytes; send the texts in parts"
        )
        if (
            int(request.headers.get("content-length", "0")) > most
        ):  # the server has checked that it is a number
            raise too_large
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > most:
                        raise too_large
                    if self._held_bytes + len(chunk) > (held := limits.MOST_HELD_BYTES):
                        raise RefusedError(
                            429, f"requests of {held >> 20} MiB wait already; try again in a second"
                        )
                    self._held_bytes += len(chunk)
                    body += chunk
        except TimeoutError:
            raise RefusedError(408, f"the body was not complete within {seconds} seconds") from None

    async def _answered(
        self, answers: Future[list[TextAnswer]], request: Request
    ) -> list[TextAnswer]:
        """Wait for the answers, or until the client hangs up: then nothing more is computed for it."""
        answer = asyncio.wrap_future(answers)
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
        if self.batcher.is_stopping or not self.batcher.thread.is_alive():
            reason = (
                "the server is stopping"
                if self.batcher.is_stopping
                else "the computing thread has ended"
            )
            raise RefusedError(503, reason)
        return _json(
            {"status": "ok", "model": self.classifier.sha256, "labels": self.classifier.label_names}
        )

    async def _metrics(self, _: Request) -> Response:
        text = self.metrics.text(waiting=self.batcher.waiting, model=self.classifier.sha256)
        return Response(text, headers=HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _refused(self, _: Request, error: RefusedError) -> Response:
        if error.status == 500:
            self._warn(f"warning: {error}")
        return _json({"error": str(error)}, error.status)


def _refusal_of_origin(request: Request, hosts: Sequence[str] | None) -> str | None:
    """The reason to refuse a request that a page of another site may have made a browser send, if any.

    A page can make its own name lead to a loopback address (DNS rebinding), so the server's name is checked, too.
    """
    host, origin = request.headers.get("host"), request.headers.get("origin")
    if (
        hosts is not None
        and host
        and not is_loopback(name := host_name(host))
        and name not in hosts
    ):
        return f"not a name of this server: {name}; --allowed-host adds one"
    if origin and origin.partition("://")[2] != host and host_name(origin) not in (hosts or ()):
        return f"asked by a page of another site, {origin}; --allowed-host allows its name"
    return None


def host_name(address: str) -> str:
    """The name or IP address in an origin or the header `Host`; empty if it has none."""
    try:
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").rstrip(
            "."
        )
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an IP address is a loopback address."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def _no_such_request(request: Request, error: HTTPException) -> Response:
    known = "POST /predict, GET /health, GET /metrics, and GET / to try texts"
    message = f"{request.method} {shown(request.url.path)}: no such request; known are {known}"
    return _json({"error": message}, error.status_code, error.headers)


def _json(
    value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    more = dict(headers or {})
    if status in {408, 503}:
        more["Connection"] = "close"
    if status in {429, 503}:
        more["Retry-After"] = "1"
    return Response(
        json_text(value).encode(),
        status,
        headers=HEADERS | {"Content-Type": "application/json"} | more,
    )


def parse_predict_request(body: bytes) -> PredictRequest:
    """Parse a request's body; refuse it if it is not JSON (400), has a wrong field (422) or too many texts (413)."""
    try:
        fields = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RefusedError(
            422, f'body: {kind(fields)}; expected is an object such as {{"texts": ["..."]}}'
        )
    for name, value in ({"texts": None} | fields).items():
        if name not in FIELDS:
            raise RefusedError(422, f"{shown(name)}: no such field; known are {', '.join(FIELDS)}")
        expected, is_valid = FIELDS[name]
        if not is_valid(value):
            raise RefusedError(422, f"{name}: {kind(value)}; expected is {expected}")
    for number, text in enumerate(fields["texts"]):
        if not isinstance(text, str):
            raise RefusedError(422, f"texts[{number}]: {kind(text)}; expected is a string")
    request = PredictRequest(**fields)
    most = limits.MOST_EXPLAINED_TEXTS if request.explain else limits.MOST_TEXTS
    if len(request.texts) > most:
        work = (
            "that can be explained at once"
            if request.explain
            else "in a request; send them in parts"
        )
        raise RefusedError(413, f"texts: {len(request.texts):,}; {most:,} are the most {work}")
    return request
