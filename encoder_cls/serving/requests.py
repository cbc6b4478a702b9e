"""The body of `POST /predict`: what it may contain, and the refusal of everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from encoder_cls.serving import limits
from encoder_cls.system.display import kind, shown


class RefusedError(Exception):
    """A request that gets no predictions: an HTTP status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The fields of a request.

    The threshold replaces those of a multi-label model, unless it is 0.
    """

    texts: list[str]
    top_k: int = 1
    threshold: float = 0.0
    explain: bool = False


class Field(NamedTuple):
    """The values that a field may have, in words and as a test."""

    expected: str
    is_valid: Callable[[Any], bool]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


# In Python a bool is an int; in JSON it is no number. So types are compared.
def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_probability(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value <= 1


def _is_bool(value: Any) -> bool:
    return type(value) is bool


FIELDS = {
    "texts": Field('a list of strings: {"texts": ["..."]}', _is_list),
    "top_k": Field("a whole number from 1", _is_count),
    "threshold": Field("a number from 0 to 1", _is_probability),
    "explain": Field("true or false", _is_bool),
}


def parse_predict_request(body: bytes) -> PredictRequest:
    """Parse the body of a request.

    Raises:
        RefusedError: the body is not JSON (400), a field is missing, unknown, given twice or of the
            wrong type (422), or there are too many texts (413).
    """
    try:
        fields = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_without_repeated_names)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None

    if not isinstance(fields, dict):
        expected = 'an object such as {"texts": ["..."]}'
        raise RefusedError(422, f"body: {kind(fields)}; expected is {expected}")
    fields.setdefault("texts", None)
    for name, value in fields.items():
        _check_field(name, value)
    for number, text in enumerate(fields["texts"]):
        if not isinstance(text, str):
            raise RefusedError(422, f"texts[{number}]: {kind(text)}; expected is a string")

    request = PredictRequest(**fields)
    _check_number_of_texts(request)
    return request


def _without_repeated_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the members of a JSON object; refuse one that has a name twice.

    Parsers differ in which of the values they take, so a proxy may have checked the other one.
    """
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise RefusedError(422, f"{shown(name)}: given twice")
        found[name] = value
    return found


def _check_field(name: str, value: Any) -> None:
    if name not in FIELDS:
        raise RefusedError(422, f"{shown(name)}: no such field; known are {', '.join(FIELDS)}")
    field = FIELDS[name]
    if not field.is_valid(value):
        raise RefusedError(422, f"{name}: {kind(value)}; expected is {field.expected}")


def _check_number_of_texts(request: PredictRequest) -> None:
    most = limits.MAX_TEXTS
    work = "in a request; send them in parts"
    if request.explain:
        most = limits.MAX_EXPLAINED_TEXTS
        work = "that can be explained at once"

    if len(request.texts) > most:
        raise RefusedError(413, f"texts: {len(request.texts):,}; {most:,} are the most {work}")
