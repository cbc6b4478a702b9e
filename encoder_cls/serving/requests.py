"""The body of `POST /predict`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, InstanceOf

from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.data.reading.rows import Row, row_of
from encoder_cls.serving import limits
from encoder_cls.system.display import kind, listed, shown
from encoder_cls.system.fields import DOT, field_names, field_of, has_field
from encoder_cls.system.web.bodies import Form, parse_body
from encoder_cls.system.web.responses import RefusedError

EXAMPLE = '{"texts": ["..."]}'
TEXTS = f"a list of strings: {EXAMPLE}"
ROWS = 'a list of objects: {"rows": [{"text": "...", "channel": "..."}]}'


class PredictRequest(Form):
    """Texts to classify, and how their predictions are shown."""

    texts: Annotated[list[InstanceOf[str]] | None, Field(description=TEXTS)] = None
    # The columns of texts and features, in place of texts.
    rows: Annotated[list[dict[str, Any]] | None, Field(description=ROWS)] = None
    # How many of the most probable labels each prediction lists.
    top_k: Annotated[int, Field(ge=1, description="a whole number from 1")] = 1
    # The least probability of a label; less probable labels are withheld. 0 withholds none. For a
    # multi-label model it replaces the thresholds of all labels, unless it is 0.
    threshold: Annotated[
        float, Field(ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1")
    ] = 0.0
    # The level of codes that is answered, counted from 1 at the top; by default, the classes.
    level: Annotated[int | None, Field(ge=1, description="a whole number from 1")] = None
    # Whether each prediction is explained by the words of its text.
    explain: Annotated[bool, Field(description="true or false")] = False

    @property
    def given(self) -> Sequence[str | dict[str, Any]]:
        """The texts, or the rows."""
        return self.texts or self.rows or ()

    def given_with(self, columns: Columns) -> Sequence[str | Row]:
        """The texts; or the rows, which may leave out features.

        Raises:
            RefusedError: a row lacks a text column, or has a key that is no column, perhaps a
                feature that is misspelled.
            DataError: a row has a value of the wrong type.
        """
        if self.rows is None:
            return self.texts or ()
        rows = []
        for number, record in enumerate(self.rows):
            where = SourceLocation(f"rows[{number}]")
            _check_keys(where, record, columns)
            rows.append(row_of(where, record, columns))
        return rows


def _check_keys(where: str, record: dict[str, Any], columns: Columns) -> None:
    known = f"the model reads {listed(columns.named)}"
    for name in field_names(record):
        if name in columns.named or name == "id":
            continue
        has_columns_inside = any(column.startswith(f"{name}{DOT}") for column in columns.named)
        if has_columns_inside and not field_of(record, name):
            # The object is null or empty.
            continue
        raise RefusedError(422, f"{where}: unknown key {shown(name)}; {known}")

    for name in columns.text:
        if not has_field(record, name):
            raise RefusedError(422, f"{where}: the key {shown(name)} is missing; {known}")


def parse_predict_request(body: bytes) -> PredictRequest:
    """Parse the body of a request.

    Raises:
        RefusedError: as in `parse_body`, or there are too many texts (413).
    """
    request = parse_body(body, PredictRequest, example=EXAMPLE)

    if request.texts is not None and request.rows is not None:
        raise RefusedError(422, "give texts or rows, not both")
    if request.texts is None and request.rows is None:
        raise RefusedError(422, f"texts: {kind(None)}; expected {TEXTS}")
    if request.level is not None and request.explain:
        raise RefusedError(422, "explain: words speak for a class; leave out level")

    max_texts = limits.MAX_TEXTS
    kind_of_request = "a request"
    if request.explain:
        max_texts = limits.MAX_EXPLAINED_TEXTS
        kind_of_request = 'a request with "explain"'

    if len(request.given) > max_texts:
        raise RefusedError(
            413,
            f"texts: {len(request.given):,} texts; {kind_of_request} may have {max_texts:,}; "
            "send the texts in several requests",
        )
    return request
