"""The body of a request: what is wrong with it has a status, and a line that names the field."""

from __future__ import annotations

import json

import pytest

from encoder_cls.data.reading.columns import Columns
from encoder_cls.serving.limits import MAX_EXPLAINED_TEXTS, MAX_TEXTS
from encoder_cls.serving.requests import PredictRequest, parse_predict_request
from encoder_cls.system.web.responses import RefusedError

TOO_MANY = {"texts": [""] * (MAX_TEXTS + 1)}
TOO_MANY_TO_EXPLAIN = {"texts": [""] * (MAX_EXPLAINED_TEXTS + 1), "explain": True}

# A body, its status and a part of the message.
WRONG = {
    "no JSON": (b'{"texts": ["rain"]', 400, "not JSON"),
    "no UTF-8": (b'{"texts": ["\xff"]}', 400, "position 12"),
    "nested": (b"[" * 100_000, 400, "recursion"),
    "no number of JSON": (b'{"texts": [], "threshold": NaN}', 422, "threshold: float 'nan'"),
    "endless digits": (b'{"texts": [], "top_k": ' + b"9" * 5000 + b"}", 400, "not JSON"),
    "a list": (b'["rain"]', 422, "body: list "),
    "no texts": (b"{}", 422, "texts: nothing"),
    "texts and rows": (b'{"texts": [], "rows": []}', 422, "not both"),
    "a text among rows": (
        b'{"rows": [{}, "rain"]}',
        422,
        "rows[1]: str 'rain'; expected an object",
    ),
    "one text": (b'{"texts": "rain"}', 422, "texts: str 'rain'"),
    "a number among texts": (b'{"texts": ["rain", 7]}', 422, "texts[1]: int '7'"),
    "texts twice": (b'{"texts": ["rain"], "texts": ["sun"]}', 422, "'texts': given twice"),
    "a name twice within": (b'{"texts": [{"a": 1, "a": 2}]}', 422, "'a': given twice"),
    "an unknown field": (b'{"texts": [], "topk": 2}', 422, "'topk': no such field"),
    "a bool for a number": (b'{"texts": [], "top_k": true}', 422, "top_k: bool 'True'"),
    "no level": (b'{"texts": [], "level": 0}', 422, "level"),
    "words for a level": (b'{"texts": [], "level": 1, "explain": true}', 422, "leave out level"),
    "no class": (b'{"texts": [], "top_k": 0}', 422, "top_k"),
    "a probability of 2": (b'{"texts": [], "threshold": 2}', 422, "threshold"),
    "a string for a number": (b'{"texts": [], "threshold": "0.5"}', 422, "threshold: str '0.5'"),
    "a number for a bool": (b'{"texts": [], "explain": 1}', 422, "explain: int '1'"),
    "too many": (json.dumps(TOO_MANY).encode(), 413, "1,001"),
    "too many to explain": (json.dumps(TOO_MANY_TO_EXPLAIN).encode(), 413, "17 texts"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_the_field(case):
    body, status, message = WRONG[case]

    with pytest.raises(RefusedError) as refused:
        parse_predict_request(body)

    assert refused.value.status == status
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_fields_that_are_left_out_have_defaults():
    request = parse_predict_request(b'{"texts": ["rain", ""]}')

    expected = PredictRequest(texts=["rain", ""], top_k=1, threshold=0.0, explain=False)
    assert request == expected


def test_a_body_may_have_a_byte_order_mark_and_half_surrogates():
    """JSON can hold them."""
    request = parse_predict_request(b'\xef\xbb\xbf{"texts": ["rain \\ud800"]}')

    assert request.texts == ["rain \ud800"]


def test_each_field_is_read():
    body = b'{"texts": [], "top_k": 3, "threshold": 1, "explain": true}'

    expected = PredictRequest(texts=[], top_k=3, threshold=1, explain=True)
    assert parse_predict_request(body) == expected


def test_an_object_of_a_row_may_be_null_but_nothing_else_in_its_place():
    columns = Columns(["text"], features=["meta.channel"])
    objects = [None, {}, {"channel": "email"}, "email"]
    requests = [PredictRequest(rows=[{"text": "rain", "meta": value}]) for value in objects]

    read = [request.given_with(columns)[0].text for request in requests[:3]]

    assert read[0] == read[1] != read[2]
    with pytest.raises(RefusedError, match="unknown key 'meta'"):
        requests[3].given_with(columns)
    with pytest.raises(RefusedError, match="the key 'text' is missing; the model reads 'text', "):
        PredictRequest(rows=[{"meta": {}}]).given_with(columns)
