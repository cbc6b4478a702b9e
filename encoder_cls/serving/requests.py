"""Parse and check the body of `POST /predict`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from encoder_cls.serving import limits
from encoder_cls.system.display import kind, shown


class RefusedError(Exception):
    """A request that gets no predictions: a status of HTTP, and what is wrong."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The fields of a request's JSON.

    Attributes:
        texts: the texts to classify.
        top_k: how many classes to name.
        threshold: withholds labels with a lower probability; multi-label, replaces the model's thresholds unless 0.
        explain: whether to weigh each word.
    """

    texts: list[str]
    top_k: int = 1
    threshold: float = 0.0
    explain: bool = False


FIELDS = ("texts", "top_k", "threshold", "explain")


def parse_predict_request(body: bytes) -> PredictRequest:
    """Read a request's body, refused if it is not JSON (400), has a wrong field (422) or too many texts (413)."""
    try:
        fields = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8: byte {error.start} is invalid") from None
    except RecursionError:
        raise RefusedError(400, "the body is not the JSON expected here: it is nested too deeply") from None
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RefusedError(422, f'the body is {_name(fields)}; expected is an object such as {{"texts": ["..."]}}')
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RefusedError(422, f"{shown(unknown[0])}: no such field; known are {', '.join(FIELDS)}")
    request = PredictRequest(**{"texts": None, **fields})
    _check_types(request)
    most = limits.MOST_EXPLAINED_TEXTS if request.explain else limits.MOST_TEXTS
    if len(request.texts) > most:
        work = "that can be explained at once" if request.explain else "in a request; send them in parts"
        raise RefusedError(413, f"texts: {len(request.texts):,}; {most:,} are the most {work}")
    return request


def _check_types(request: PredictRequest) -> None:
    # A bool is an int for Python, and no number for JSON: hence `type`.
    if not isinstance(request.texts, list):
        given = "a string" if isinstance(request.texts, str) else _name(request.texts)
        raise RefusedError(422, f'texts: {given}; expected is a list of strings: {{"texts": ["..."]}}')
    for number, text in enumerate(request.texts):
        if not isinstance(text, str):
            raise RefusedError(422, f"texts[{number}]: {_name(text)}; expected is a string")
    if type(request.top_k) is not int or request.top_k < 1:
        raise RefusedError(422, f"top_k: {_name(request.top_k)}; expected is a whole number from 1")
    if type(request.threshold) not in {int, float} or not 0 <= request.threshold <= 1:
        raise RefusedError(422, f"threshold: {_name(request.threshold)}; expected is a number from 0 to 1")
    if type(request.explain) is not bool:
        raise RefusedError(422, f"explain: {_name(request.explain)}; expected is true or false")


def _name(value: Any) -> str:
    """The type of a value, and short ones with the value, in words of JSON."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else kind(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
