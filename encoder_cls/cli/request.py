"""What `predict` is asked for."""

from __future__ import annotations

from typing import Literal, NamedTuple

Format = Literal["text", "jsonl", "tsv", "csv", "html", "parquet"]


class Request(NamedTuple):
    """What `predict` is asked for.

    Attributes:
        output_format: `text` or `html` for people, the others for programs; `html` is one page of the first texts.
        text_columns: the columns with the texts; none: those of the training.
        keep_columns: whether answers (jsonl, tsv, csv, parquet) come beside all columns of their rows; none: in CSV of
            CSV and Excel files.
        top_k: how many classes to name.
        threshold: a less probable best class is withheld: the label is null (jsonl, parquet), empty (tsv, csv) or "?"
            (text, html). Multi-label, the labels that are as probable are given; 0: by the thresholds of the model.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        explained: whether to say which words spoke for the best class, and which against it.
        delimiter: what separates the fields of the input; none: as in the training.
        encoding: of the input; none: as in the training.
        bad_rows: `error`, or `skip` for rows that cannot be read to be left out.
    """

    output_format: Format = "text"
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    top_k: int = 1
    threshold: float = 0.0
    batch_tokens: int | None = None
    explained: bool = False
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: str = "error"
