"""The body of `POST /predict`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, InstanceOf

from encoder_cls.serving import limits
from encoder_cls.system.web.bodies import Form, parse_body
from encoder_cls.system.web.responses import RefusedError

EXAMPLE = '{"texts": ["..."]}'


class PredictRequest(Form):
    """Texts to classify, and how their predictions are shown."""

    texts: Annotated[list[InstanceOf[str]], Field(description=f"a list of strings: {EXAMPLE}")]
    # How many of the most probable labels each prediction lists.
    top_k: Annotated[int, Field(ge=1, description="a whole number from 1")] = 1
    # The least probability of a label; less probable labels are withheld. 0 withholds none. For a
    # multi-label model it replaces the thresholds of all labels, unless it is 0.
    threshold: Annotated[
        float, Field(ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1")
    ] = 0.0
    # Whether each prediction is explained by the words of its text.
    explain: Annotated[bool, Field(description="true or false")] = False


def parse_predict_request(body: bytes) -> PredictRequest:
    """Parse the body of a request.

    Raises:
        RefusedError: as in `parse_body`, or there are too many texts (413).
    """
    request = parse_body(body, PredictRequest, example=EXAMPLE)

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
    return request
