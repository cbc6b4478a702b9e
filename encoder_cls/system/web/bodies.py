"""The body of a request: a JSON object, and nothing that parsers could understand differently."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from encoder_cls.system.display import kind, shown
from encoder_cls.system.web.responses import RefusedError


def check_content_type(request: Request) -> None:
    """Raise a `RefusedError` (415) if a body does not say that it is JSON.

    Browsers let a page of any site send bodies of other types, but ask the server before they send
    JSON to another site.
    """
    content_type, _, _ = request.headers.get("content-type", "").partition(";")
    if content_type.strip().lower() != "application/json":
        raise RefusedError(415, "send the body as JSON, with Content-Type: application/json")


class Form(BaseModel):
    """The fields of a request, whose descriptions say what they may be, for messages.

    Strings are `InstanceOf[str]`: pydantic's own type refuses half surrogates, which JSON can hold.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


AnyForm = TypeVar("AnyForm", bound=Form)


def parse_body(body: bytes, form: type[AnyForm], *, example: str) -> AnyForm:
    """Parse a JSON object with the fields of a form; a message shows the example.

    Raises:
        RefusedError: the body is not JSON (400); it is no object, repeats a name, or has other
            fields or values than the form (422).
    """
    fields = parse_json_object(body, example=example)
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        first_fault = error.errors()[0]
    raise RefusedError(422, _message(first_fault, form))


def _message(fault: Any, form: type[Form]) -> str:
    # The location is empty for a name that is not Unicode.
    name, *items = fault["loc"] or ("\N{REPLACEMENT CHARACTER}",)
    if name not in form.model_fields:
        return f"{shown(name)}: no such field; known are {', '.join(form.model_fields)}"

    found = fault["input"]
    if fault["type"] == "missing":
        found = None
    expected = form.model_fields[name].description
    if items:
        name = f"{name}[{items[0]}]"
        expected = "an object" if fault["type"] == "dict_type" else "a string"
    return f"{name}: {kind(found)}; expected {expected}"


def parse_json_object(body: bytes, *, example: str) -> dict[str, Any]:
    """Parse a JSON object; a message shows the example.

    Raises:
        RefusedError: the body is not JSON (400), is no object, or repeats a name (422).
    """
    try:
        fields = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_without_repeated_names)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None

    if not isinstance(fields, dict):
        raise RefusedError(422, f"body: {kind(fields)}; expected an object such as {example}")
    return fields


def _without_repeated_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse repeated names.

    Parsers differ in which value they take, so a proxy could have checked another one.
    """
    fields: dict[str, Any] = {}
    for name, value in members:
        if name in fields:
            raise RefusedError(422, f"{shown(name)}: given twice")
        fields[name] = value
    return fields
