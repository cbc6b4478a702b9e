"""The HTTP interface of a session: a page, its state as JSON, and the actions of a person.

All paths begin with a random token, which only the printed address has.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from encoder_cls.errors import EncoderClsError
from encoder_cls.extras.label.requests import (
    ClassRequest,
    LabelRequest,
    RenamingRequest,
    SkipRequest,
    UndoRequest,
)
from encoder_cls.extras.label.session import Session
from encoder_cls.system.html_pages import html_page
from encoder_cls.system.web.bodies import AnyForm, check_content_type, parse_body
from encoder_cls.system.web.origins import refusal_of_origin
from encoder_cls.system.web.responses import PAGE_HEADERS, RefusedError, json_response, refused
from encoder_cls.system.web.server_limits import MAX_BODY_BYTES

TOKEN_BYTES = 18

_FILES = files("encoder_cls.extras.label")
PAGE = html_page(
    "Label",
    _FILES.joinpath("page.html").read_text("utf-8"),
    script=_FILES.joinpath("page.js").read_text("utf-8"),
    style=_FILES.joinpath("page.css").read_text("utf-8"),
    connect="'self'",
).encode()

# The status of a response after which nothing was written, because the disk is full.
INSUFFICIENT_STORAGE = 507


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def labelling_app(session: Session, token: str) -> ASGIApp:
    """The application of a session."""
    handlers = _Handlers(session)
    routes = [
        Route("/", Response(PAGE, headers=PAGE_HEADERS), methods=["GET"]),
        Route("/state", handlers.state),
        Route("/label", handlers.label, methods=["POST"]),
        Route("/skip", handlers.skip, methods=["POST"]),
        Route("/undo", handlers.undo, methods=["POST"]),
        Route("/add-class", handlers.add_class, methods=["POST"]),
        Route("/rename-class", handlers.rename_class, methods=["POST"]),
    ]
    error_handlers: Mapping[Any, Any] = {
        RefusedError: refused,
        EncoderClsError: _failed,
        HTTPException: _unknown_request,
    }
    app = Starlette(routes=routes, exception_handlers=error_handlers)
    app.router.redirect_slashes = False

    async def guarded_app(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = refusal_of_origin(Request(scope), hosts=[])
        given_token, slash, rest = scope["path"].removeprefix("/").partition("/")
        has_token = secrets.compare_digest(given_token.encode(), token.encode())

        responder: ASGIApp = app
        if refusal:
            responder = json_response({"error": refusal}, 403)
        elif not has_token or not slash:
            message = "no such page; open the address that encoder-cls label has printed"
            responder = json_response({"error": message}, 404)
        await responder({**scope, "path": f"/{rest}"}, receive, send)

    return guarded_app


Handler = Callable[[Request], Awaitable[Response]]


class _Handlers:
    """The handlers of requests, which respond to each action with the new state."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def state(self, request: Request) -> Response:
        back = request.query_params.get("back", "0")
        if not back.isdecimal() or len(back) > 9:
            raise RefusedError(422, "back: expected a whole number from 0")
        return json_response(self._session.state(int(back)))

    async def label(self, request: Request) -> Response:
        asked = await _parsed(request, LabelRequest)
        self._session.label(
            asked.key, asked.labels, shown_guess=asked.shown_guess, is_change=asked.is_change
        )
        return json_response(self._session.state())

    async def skip(self, request: Request) -> Response:
        asked = await _parsed(request, SkipRequest)
        self._session.skip(asked.key, asked.why)
        return json_response(self._session.state())

    async def undo(self, request: Request) -> Response:
        asked = await _parsed(request, UndoRequest)
        self._session.undo(asked.num_asked)
        return json_response(self._session.state())

    async def add_class(self, request: Request) -> Response:
        asked = await _parsed(request, ClassRequest)
        self._session.add_class(asked.name)
        return json_response(self._session.state())

    async def rename_class(self, request: Request) -> Response:
        asked = await _parsed(request, RenamingRequest)
        self._session.rename_class(asked.name, asked.new_name)
        return json_response(self._session.state())


async def _parsed(request: Request, form: type[AnyForm]) -> AnyForm:
    check_content_type(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RefusedError(413, f"the body is larger than {MAX_BODY_BYTES:,} bytes")

    example = "{" + ", ".join(f'"{name}": ...' for name in form.model_fields) + "}"
    return parse_body(bytes(body), form, example=example)


async def _failed(_: Request, error: EncoderClsError) -> Response:
    return json_response({"error": f"not saved: {error}"}, INSUFFICIENT_STORAGE)


async def _unknown_request(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: no such request"
    return json_response({"error": message}, error.status_code, error.headers)
