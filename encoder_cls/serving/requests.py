"""Parse and check requests, within limits.

docs/serving.md lists them; who needs more texts at once has `encoder-cls predict`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from encoder_cls.system.display import kind, shown

MOST_BODY_BYTES = 1 << 20  # of a request: what proxies such as nginx let through as well; some seconds of work
MOST_TEXTS = 1000  # in a request: one that holds more is bulk work, which takes minutes
MOST_EXPLAINED_TEXTS = 16  # in a request: each is classified once for each of its words
MOST_EXPLAINED_TOKENS = 1 << 15  # read to explain a text, about a second: all words of a text of 180
MOST_WAITING = 256  # requests; short ones are answered in half a second, so nobody waits for long without knowing
MOST_HELD_BYTES = 16 << 20  # of all bodies that are being read or wait: bounds the memory, and the work that waits
MOST_CONNECTIONS = 512  # half of the files that a process may have open by default

HEADER_SECONDS = 10  # from the first byte of a request's head to its last
BODY_SECONDS = 20  # to its body's last byte: 50 KB a second
SEND_SECONDS = 20  # that a client may leave an answer unread
KEEP_ALIVE_SECONDS = 15  # between two requests of a connection
STOPPING_SECONDS = 1  # that new requests are told 503 before connections are closed
CLOSING_SECONDS = 30  # for the last answers to be read; process managers kill after 30 seconds or later

BATCH_CHARACTERS = 8192  # computed at once: 2,000 tokens of English, what the engine takes as one batch


FIELDS = ("texts", "top_k", "threshold", "explain")


class RefusedError(Exception):
    """A request that gets no predictions.

    Args:
        status: of HTTP.
        message: what is wrong with it, for its sender.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """What `POST /predict` is asked for; the fields are those of its JSON.

    Attributes:
        texts: to classify.
        top_k: how many classes to name.
        threshold: the label is withheld where its probability is lower; multi-label, one for all labels, 0: the
            model's.
        explain: whether to say how much each word counts.
    """

    texts: list[str]
    top_k: int = 1
    threshold: float = 0.0
    explain: bool = False


def parse_predict_request(body: bytes) -> PredictRequest:
    """Read a request's body.

    Raises:
        RefusedError: 400 where it is no JSON, 422 where a field is wrong (the message names it), 413 where there are
            too many texts.
    """
    try:
        fields = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8: byte {error.start} is invalid") from None
    except RecursionError:
        raise RefusedError(400, "the body is not the JSON expected here: it is nested too deeply") from None
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RefusedError(
            422, f'the body is {_name(fields)}, where an object such as {{"texts": ["..."]}} is expected'
        )
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RefusedError(422, f"{shown(unknown[0])}: no such field; known are {', '.join(FIELDS)}")
    request = PredictRequest(**{"texts": None, **fields})
    _check_texts(request.texts)
    _check_options(request)
    if request.explain and len(request.texts) > MOST_EXPLAINED_TEXTS:
        raise RefusedError(
            413,
            f"texts: {len(request.texts):,}, where {MOST_EXPLAINED_TEXTS} are the most that can be explained at once",
        )
    return request


def _check_texts(texts: Any) -> None:
    if isinstance(texts, str):
        raise RefusedError(422, 'texts: a string, where a list of strings is expected: {"texts": ["..."]}')
    if not isinstance(texts, list):
        raise RefusedError(422, f"texts: {_name(texts)}, where a list of strings is expected")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise RefusedError(422, f"texts[{number}]: {_name(text)}, where a string is expected")
    if len(texts) > MOST_TEXTS:
        raise RefusedError(
            413, f"texts: {len(texts):,}, where {MOST_TEXTS:,} are the most there can be; send them in parts"
        )


def _check_options(request: PredictRequest) -> None:
    # A bool is an int for Python, and no number for JSON.
    if type(request.top_k) is not int or request.top_k < 1:
        raise RefusedError(422, f"top_k: {_name(request.top_k)}, where a whole number from 1 is expected")
    if type(request.threshold) not in {int, float} or not 0 <= request.threshold <= 1:
        raise RefusedError(422, f"threshold: {_name(request.threshold)}, where a number from 0 to 1 is expected")
    if type(request.explain) is not bool:
        raise RefusedError(422, f"explain: {_name(request.explain)}, where true or false is expected")


def _name(value: Any) -> str:
    """What a value is, in JSON's words."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else kind(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
