"""Tables in which labels are corrected keep all columns of the data."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.corrections import read_corrections
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.evaluation.label_tables import LabelRow, label_tables


def review_of(file: str, **settings: object) -> list[dict[str, str]]:
    """The rows of a table, `review.csv`, that reviews the first row of a file."""
    data = DataConfig(train=file, **settings)
    row = LabelRow("train", SourceLocation(file, 2), "soup", "a", "b", 0.9, "a", "kxyz", "soup")
    (content,) = label_tables([row], data=data)
    Path("review.csv").write_bytes(b"".join(content))
    with Path("review.csv").open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines))


def write(file: str, columns: Sequence[str]) -> None:
    names = ["text", "label", *columns]
    values = ["soup", "a", *(f"own {column}" for column in columns)]
    Path(file).write_text(f"{','.join(names)}\n{','.join(values)}\n")


@pytest.mark.parametrize(
    "columns",
    [
        ["file", "line", "row", "score", "suggested", "split", "label_in_data", "key"],
        ["key", "review_key"],
        ["score", "note"],
    ],
)
def test_a_review_keeps_columns_of_the_names_that_it_adds(columns):
    """Also one of a table that is an earlier review, whose columns it replaces."""
    write("data.csv", columns)
    [row] = review_of("data.csv")
    for column in columns:
        assert row[column] == f"own {column}"
    assert "kxyz" in row.values()

    Path("review.csv").rename("earlier.csv")
    [again] = review_of("earlier.csv")
    assert list(again) == list(row)
    for column in columns:
        assert again[column] == f"own {column}"


def test_codes_have_their_names_beside_them():
    """Also in the review of an earlier review."""
    write("data.csv", ["name"])
    [row] = review_of("data.csv", code_names={"a": "Cooks", "b": "Clerks"})
    assert (row["label_name"], row["suggested_name"]) == ("Cooks", "Clerks")
    assert row["name"] == "own name"

    Path("review.csv").rename("earlier.csv")
    [again] = review_of("earlier.csv", code_names={"b": "Office clerks"})
    assert list(again) == list(row)
    assert (again["label_name"], again["suggested_name"]) == ("", "Office clerks")


def test_a_row_below_one_that_is_left_out_keeps_its_columns():
    Path("data.csv").write_text("text,label,note\nbad row\nsoup,a,mine\n")
    data = DataConfig(train="data.csv", bad_rows="skip")
    row = LabelRow(
        "train", SourceLocation("data.csv", 3), "soup", "a", "b", 0.9, "a", "kxyz", "soup"
    )

    (content,) = label_tables([row], data=data)

    header, line = b"".join(content).decode("utf-8-sig").splitlines()
    assert header.startswith("text,label,note,")
    assert line.startswith("soup,a,mine,")


@pytest.mark.parametrize("columns", [["key", "label_in_data"], ["review_key"], []])
def test_corrections_have_their_keys_beside_a_column_key_of_the_data(columns):
    write("data.csv", columns)
    review_of("data.csv")
    content = Path("review.csv").read_text(encoding="utf-8-sig")
    Path("review.csv").write_text(content.replace("soup,a,", "soup,b,"))

    [correction], _ = read_corrections(DataConfig(train="data.csv", corrections="review.csv"))
    assert (correction.key, correction.label) == ("kxyz", "b")

    # A row that nobody has corrected is no correction.
    Path("review.csv").write_text(content)
    assert read_corrections(DataConfig(train="data.csv", corrections="review.csv"))[0] == []
