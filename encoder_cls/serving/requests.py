"""Parse and check the body of `POST /predict`; refuse every body that is not valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from encoder_cls.serving import limits
from encoder_cls.system.display import kind, shown
from encoder_cls.system.web.bodies import parse_json_object
from encoder_cls.system.web.responses import RefusedError


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The fields of a request.

    Attributes:
        texts: the texts to classify.
        top_k: how many of the most probable labels each prediction lists.
        threshold: the least probability of a label; less probable labels are withheld. 0 withholds
            none. For a multi-label model it replaces the thresholds of all labels, unless it is 0.
        explain: whether to explain each prediction by the words of its text.
    """

    texts: list[str]
    top_k: int = 1
    threshold: float = 0.0
    explain: bool = False


class Field(NamedTuple):
    """The values that a field of a request may have.

    Attributes:
        expected: a description of the valid values for error messages.
        is_valid: whether a value is valid.
    """

    expected: str
    is_valid: Callable[[Any], bool]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


# Compare types instead of calling `isinstance`, because in Python True and False are of the type
# int, too. In JSON they are not numbers.
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
        RefusedError: the body is not JSON (400); a field is missing, unknown, given twice or not
            valid (422); or there are too many texts (413).
    """
    fields = parse_json_object(body, example='{"texts": ["..."]}')

    # A missing list of texts gets the same message as a list that is null.
    fields.setdefault("texts", None)
    for name, value in fields.items():
        _check_field(name, value)
    for number, text in enumerate(fields["texts"]):
        if not isinstance(text, str):
            raise RefusedError(422, f"texts[{number}]: {kind(text)}; expected is a string")

    request = PredictRequest(**fields)
    _check_number_of_texts(request)
    return request


def _check_field(name: str, value: Any) -> None:
    if name not in FIELDS:
        raise RefusedError(422, f"{shown(name)}: no such field; known are {', '.join(FIELDS)}")
    field = FIELDS[name]
    if not field.is_valid(value):
        raise RefusedError(422, f"{name}: {kind(value)}; expected is {field.expected}")


def _check_number_of_texts(request: PredictRequest) -> None:
    max_texts = limits.MAX_TEXTS
    kind_of_request = "a request"
    if request.explain:
        max_texts = limits.MAX_EXPLAINED_TEXTS
        kind_of_request = 'a request with "explain"'

    if len(request.texts) > max_texts:
        raise RefusedError(
            413,
            f"texts: {len(request.texts):,} texts; {kind_of_request} may have {max_texts:,}; "
            "send the texts in several requests",
        )
