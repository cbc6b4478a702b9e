"""Data of unknown form: its files, its columns, its rows, and the config that is drafted for it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.data import write
from support.excel import write_sheets
from support.tables import write_table
from support.topics import labelled_texts

from encoder_cls import load_config, load_data
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.extras.init.column_profile import column_profiles, sample_of
from encoder_cls.extras.init.draft_config import draft_config
from encoder_cls.extras.init.findings import finding_lines
from encoder_cls.extras.init.inspect_data import Inspection, inspect_data
from encoder_cls.extras.init.label_predictability import label_predictability

TEXTS = labelled_texts(20, seed=0)


def inspected(source: str, **chosen: Any) -> Inspection:
    """What is found in a source, whose drafted config can be loaded and has the same data."""
    inspection = inspect_data(source, chosen)
    assert inspection.problem == ""
    write("draft.yaml", draft_config(inspection))

    config = load_config(Path("draft.yaml"))
    dataset = load_data(config)
    assert inspection.dataset is not None
    assert dataset.label_names == inspection.dataset.label_names
    assert len(dataset.train) == len(inspection.dataset.train)
    return inspection


def problem_of(source: str, **chosen: Any) -> str:
    return inspect_data(source, chosen).problem


def office_rows(*, num_blank: int = 0) -> list[list[object]]:
    """Rows as an office has them; the first ones have no label."""
    draw = random.Random(0)
    rows: list[list[object]] = [["Nr", "Datum", "Kunde", "Betreff", "Inhalt", "Gruppe", "Status"]]
    for number, (text, label) in enumerate(TEXTS):
        date = f"{number % 28 + 1:02}.03.2024"
        customer = f"K{draw.randrange(20)}"
        subject = " ".join(text.split()[:3])
        label_cell = label if number >= num_blank else ""
        status = draw.choice(["offen", "zu"])
        rows.append([number, date, customer, subject, f"{text}, ok", label_cell, status])
    return rows


# Reading


def test_rows_that_cannot_be_read_are_named_before_the_columns():
    """Here, all lines but the last have a comma after them."""
    lines = [json.dumps({"text": text, "label": label}) for text, label in TEXTS]
    problem = problem_of(write("a.jsonl", ",\n".join(lines)))
    assert problem.startswith(
        f"{len(TEXTS) - 1} rows cannot be read (a.jsonl:1, a.jsonl:2, a.jsonl:3, …): not valid JSON"
    )


@pytest.mark.parametrize(
    ("num_rows", "taken"),
    [
        (4, [0, 1, 2, 3]),
        (5, [0, 2, 4]),
        (8, [0, 2, 4, 6]),
        (9, [0, 4, 8]),
    ],
)
def test_a_sample_is_evenly_spread_over_all_rows(num_rows: int, taken: Sequence[int]):
    records = [{"number": number} for number in range(num_rows)]
    sample = sample_of(records, most=4)

    assert sample.num_rows == num_rows
    assert [record["number"] for record in sample.records] == taken


# Columns


def test_columns_are_found_by_what_is_in_them():
    """The names `Inhalt` and `Gruppe` could mean anything; codes, dates and flags are no labels."""
    source = write_table("a.csv", office_rows(), ";", encoding="windows-1252")
    inspection = inspected(source)

    table = inspection.table
    assert table is not None
    assert table.text is not None
    assert table.label is not None
    assert table.text.name == "Inhalt"
    assert table.text.others == ("Betreff",)
    assert table.label.name == "Gruppe"
    assert table.group == "Kunde"
    assert inspection.settings == {
        "train": "a.csv",
        "text_column": "Inhalt",
        "label_column": "Gruppe",
        "delimiter": ";",
        "encoding": "windows-1252",
    }


def test_numbers_and_fields_inside_objects_are_found_as_columns():
    labels = {"küche": 1, "sport": 2, "weather": 5}
    lines = []
    for number, (text, label) in enumerate(TEXTS):
        record = {"id": number, "payload": {"body": text}, "meta": {"stars": labels[label]}}
        lines.append(json.dumps(record))
    inspection = inspected(write("a.jsonl", "\n".join(lines)))

    assert inspection.settings["text_column"] == "payload.body"
    assert inspection.settings["label_column"] == "meta.stars"


def test_a_column_that_words_tell_is_preferred_to_one_that_they_do_not():
    rows = [["words", "shift", "team"]]
    shifts = random.Random(0).choices(["early", "late", "night"], k=len(TEXTS))
    rows += [[text, shift, label] for shift, (text, label) in zip(shifts, TEXTS, strict=True)]
    inspection = inspected(write_table("a.csv", rows))
    assert inspection.settings["label_column"] == "team"


def rows_with_columns_beside() -> list[list[object]]:
    """Every second row has no label; the column `code` is the label, in other words."""
    draw = random.Random(0)
    codes = {"küche": 1, "sport": 2, "weather": 3}
    rows: list[list[object]] = [
        ["id", "text", "topic", "channel", "amount", "code", "score", "closed_by", "empty", "same"]
    ]
    for number, (text, label) in enumerate(labelled_texts(40, seed=0)):
        has_label = number % 2
        rows.append(
            [
                number,
                text,
                label if has_label else "",
                draw.choice(["email", "phone", ""]),
                f"{draw.uniform(0, 90):.3f}",
                codes[label],
                f"{codes[label] + draw.random() / 2:.3f}",
                draw.choice(["ann", "bob"]) if has_label else "",
                "",
                "x",
            ]
        )
    return rows


def test_features_are_proposed_without_ids_and_columns_that_new_texts_will_lack():
    rows = rows_with_columns_beside()
    inspection = inspected(write_table("a.csv", rows), label_column="topic", text_column="text")

    assert inspection.table.features.names == ("channel", "amount")
    doubts = inspection.table.features.doubts
    assert list(doubts) == ["id", "code", "score", "closed_by"]
    assert doubts["id"].startswith("nearly every row has another value")
    assert doubts["code"].startswith("it alone is right on 100.0%; ")
    assert doubts["score"].startswith("it alone is right on ")
    assert doubts["closed_by"].startswith("only rows with a label have a value")

    lines = list(finding_lines(inspection))
    assert f"no feature: column 'code': {doubts['code']}" in lines
    draft = draft_config(inspection).replace("  # features:", "  features:").replace("# -", "-")
    assert load_config(Path(write("b.yaml", draft))).data.features == ("channel", "amount")


def test_a_number_is_what_a_training_reads_as_one():
    """Python's own numbers may have underscores."""
    rows = [[f"some text {row}", "abc"[row % 3], f"1_{row:03}", f"1.{row:03}"] for row in range(99)]
    table = write_table("a.csv", [["text", "topic", "code", "size"], *rows])

    features = inspected(table, label_column="topic", text_column="text").table.features

    assert features.names == ("size",)
    assert list(features.doubts) == ["code"]


def test_chosen_features_are_in_the_config_and_may_be_warned_of():
    rows = rows_with_columns_beside()
    inspection = inspected(
        write_table("a.csv", rows), label_column="topic", text_column="text", features="code"
    )

    assert load_config(Path("draft.yaml")).data.features == ("code",)
    lines = list(finding_lines(inspection))
    assert any(line.startswith("warning: data.features: column 'code': it alone") for line in lines)
    assert not any(line.startswith("features: ") for line in lines)
    [unused] = [line for line in lines if line.startswith("columns that are not used")]
    assert "'code'" not in unused


def test_chosen_columns_are_taken_as_they_are():
    inspection = inspected(
        write_table("a.csv", office_rows()), text_column="Betreff", label_column="Status"
    )
    assert inspection.settings["text_column"] == "Betreff"
    assert inspection.settings["label_column"] == "Status"


def test_a_chosen_value_that_is_not_valid_is_refused():
    with pytest.raises(ConfigError, match=r"label_column"):
        inspect_data(
            write_table("a.csv", office_rows()),
            {"text_column": "Betreff", "label_column": "Betreff"},
        )


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        (["id", "text"], [0, 1], "no column looks like labels; there are 'id', 'text'"),
        (["id", "kind"], [0, 2], "no column looks like texts; there are 'id', 'kind'"),
        (["sport", "x"], [2, 1], "the first line looks like a row, not like the names of columns"),
        (["1", "x"], [0, 1], "the first line looks like a row"),
    ],
)
def test_what_is_missing_in_a_table_is_said(
    header: list[str], columns: Sequence[int], message: str
):
    rows: list[list[object]] = [list(header)]
    for number, (text, label) in enumerate(TEXTS):
        values = [number, text, label]
        rows.append([values[column] for column in columns])
    assert message in problem_of(write_table("a.csv", rows))


@pytest.mark.parametrize("title", [["Report"], ["Report", "", ""]])
def test_rows_above_the_names_of_columns_are_left_out(title: list[str]):
    """The config names the columns, by which a training finds the same row."""
    rows = [[number, text, label] for number, (text, label) in enumerate(TEXTS)]
    source = write_table("a.csv", [title, ["no", "text", "label"], *rows])

    inspection = inspected(source)

    assert inspection.settings["text_column"] == "text"
    note = "a.csv: the names of its columns are in line 2; the lines above are left out"
    assert note in list(finding_lines(inspection))


def test_rows_above_that_look_like_names_are_a_problem():
    first_row = ["Report", "May", ""]
    rows = [[number, text, label] for number, (text, label) in enumerate(TEXTS)]
    source = write_table("a.csv", [first_row, ["no", "text", "label"], *rows])
    assert problem_of(source).endswith(
        "the first row must have the names of the columns: remove the rows above it"
    )


def test_a_table_that_is_called_a_text_file_is_told():
    source = write_table("a.txt", [["text", "label"], *TEXTS], "\t", encoding="utf-16")
    message = problem_of(source)
    assert message.startswith("no row has a label")
    assert message.endswith("; it has tabs: if it is a table, call it a.tsv")


def test_an_empty_table_has_no_rows():
    assert problem_of(write("a.csv", "text,label\n")) == "there are no rows"


def test_one_class_is_a_problem():
    rows = [["text", "label", "z"]] + [[text, "x", "1"] for text, _ in TEXTS]
    message = problem_of(write_table("a.csv", rows), label_column="label")
    assert "at least two classes are needed" in message


def test_the_kinds_of_cells_are_told_apart():
    cells = ["a text", "x-12", "1,5", "2024-01-02", "true", True, 3, None, " ", ["a", "b"], b"x"]
    [profile] = column_profiles({"a": cell} for cell in cells)

    assert profile.kinds == {
        "text": 1,
        "code": 1,
        "number": 2,
        "time": 1,
        "truth value": 2,
        "list": 1,
        "other": 1,
    }
    assert profile.counts["b"] == 1


def test_a_column_that_only_later_rows_have_is_empty_before():
    profiles = column_profiles([{"a": "x"}, {"b": {"c": "y"}}])
    assert [(profile.name, profile.cells) for profile in profiles] == [
        ("a", ["x", None]),
        ("b.c", [None, "y"]),
    ]


def test_words_tell_a_topic_and_no_chance():
    texts = [text for text, _ in TEXTS]
    labels = [label for _, label in TEXTS]
    draw = random.Random(0)

    assert label_predictability(texts, labels).gain > 0.9
    assert label_predictability(texts, draw.sample(labels, len(labels))).gain < 0.5
    assert label_predictability(["one"], ["x"]).gain == 0


# Rows


def test_rows_without_text_or_label_and_bad_rows_are_no_errors():
    rows = office_rows(num_blank=3)
    rows[10][4] = ""
    rows[11][4] = ""
    rows[12].append("one field too many")
    inspection = inspected(write_table("a.csv", rows))

    assert inspection.settings["bad_rows"] == "skip"
    assert inspection.settings["empty_texts"] == "drop"
    lines = list(finding_lines(inspection))
    assert "a.csv: 60 rows, fields separated by ','" in lines
    assert (
        "warning: rows of train without a label, which are left out: 3 (a.csv:2, a.csv:3, a.csv:4)"
    ) in lines
    assert (
        "warning: rows of train without a text, which are left out: 2 (a.csv:11, a.csv:12)"
    ) in lines
    assert any("cannot be read, which are left out: 1 (a.csv:13)" in line for line in lines)


def test_many_rows_without_a_label_are_texts_without_labels():
    inspection = inspected(write_table("a.csv", office_rows(num_blank=30)))
    assert inspection.settings["label_names"] == ["küche", "sport", "weather"]
    assert inspection.dataset is not None
    assert len(inspection.dataset.unlabelled.texts) > 0


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["Late", "late", "late", "refund"], ["late", "refund"]),
        # In the order of the alphabet, the name 2 would come after the names 10 and 11.
        ([str(number) for number in range(12)], [str(number) for number in range(12)]),
        # A column of integers with empty cells, as pandas writes it.
        (["1.0", "2.0"], ["1", "2"]),
    ],
)
def test_classes_beside_rows_without_a_label_are_listed_as_a_training_reads_them(labels, names):
    rows = [["text", "label"]]
    for number, (text, _) in enumerate(TEXTS):
        label = labels[number % len(labels)] if number < 45 else ""
        rows.append([text, label])

    inspection = inspected(write_table("a.csv", rows), text_column="text", label_column="label")

    assert inspection.settings["label_names"] == names
    assert len(inspection.dataset.unlabelled.texts) == len(TEXTS) - 45


def test_several_labels_in_a_cell_are_found():
    names = ["küche", "sport", "weather"]
    rows: list[list[object]] = [["text", "topics"]]
    for number, (text, label) in enumerate(TEXTS):
        other = names[(names.index(label) + 1) % len(names)]
        rows.append([text, f"{label}|{other}" if number % 4 else label])
    inspection = inspected(write_table("a.csv", rows))

    assert inspection.settings["label_separator"] == "|"
    assert inspection.dataset is not None
    assert inspection.dataset.is_multi_label


def test_labels_that_differ_only_in_case_are_one_class():
    rows = [["text", "label"]]
    rows += [
        [text, label.upper() if number < 9 else label] for number, (text, label) in enumerate(TEXTS)
    ]
    inspection = inspected(write_table("a.csv", rows))
    assert inspection.settings["fold_labels"] is True
    assert inspection.dataset is not None
    assert inspection.dataset.label_names == ("küche", "sport", "weather")


def test_all_classes_are_listed_with_their_sizes_and_warnings_follow():
    rows = [["text", "label"], *TEXTS, TEXTS[0]]
    lines = list(finding_lines(inspected(write_table("a.csv", rows))))
    assert "3 classes: küche 21, sport 20, weather 20" in lines
    assert any(line.startswith("warning: ") and "repeat" in line for line in lines)


def test_a_line_says_why_there_are_fewer_classes_than_different_labels():
    rows = [["text", "label"]]
    for number, (text, label) in enumerate(TEXTS):
        rows.append([text, label.upper() if number < 1 else label])
    rows += [["", "other"], ["", "misc"]]

    lines = list(finding_lines(inspected(write_table("a.csv", rows))))

    (label_line,) = [line for line in lines if line.startswith("label: ")]
    assert "6 different values" in label_line
    why = "1 differs from another one in capitals or spaces alone, and 2 are only in rows that are"
    (class_line,) = [line for line in lines if line.startswith("3 classes")]
    assert class_line.startswith(f"3 classes (of 6 different values, {why} left out): ")


def test_labels_that_look_alike_are_a_setting_in_comments():
    rows = [["text", "label"], *TEXTS, ["one more", "weahter"], ["and another", "weahter"]]
    inspection = inspected(write_table("a.csv", rows))
    draft = draft_config(inspection)
    assert draft.endswith("  # label_map:\n  #   weahter: weather\n")

    joined = draft.replace("  # label_map", "  label_map").replace("  #   wea", "    wea")
    config = load_config(Path(write("b.yaml", joined)))
    assert load_data(config).label_names == ("küche", "sport", "weather")


# Files and folders


def test_of_several_sheets_the_one_with_most_rows_is_read():
    rows = office_rows()
    write_sheets("a.xlsx", {"Cover": [["Please read"]], "May": rows[:20], "June": rows})

    inspection = inspected("a.xlsx")

    assert inspection.settings["sheet"] == "June"
    assert next(finding_lines(inspection)) == ("a.xlsx: 60 rows, sheet 'June' (not 'Cover', 'May')")


def test_files_of_a_folder_are_splits_by_their_names():
    for name in ("train-00.csv", "train-01.csv", "test.csv", "dev.csv"):
        write_table(f"data/{name}", [["text", "label"], *TEXTS])
    assert inspected("data").settings["validation"] == "data/dev.csv"


def test_folders_of_a_folder_are_splits_by_their_names():
    for split in ("train", "test"):
        for number, (text, label) in enumerate(TEXTS):
            write(f"data/{split}/{label}/{number}.txt", f"{text} {split}")
    inspection = inspected("data")

    assert inspection.settings == {"train": "data/train", "test": "data/test"}
    assert next(finding_lines(inspection)) == (
        "train data/train (60 rows), test data/test (60 rows), a folder of texts for each class"
    )


def test_lines_of_fasttext_have_no_columns():
    lines = [f"__label__{label} {text}" for text, label in TEXTS]
    inspection = inspected(write("a.txt", "\n".join([*lines, "a line without a label"])))
    assert inspection.settings == {"train": "a.txt", "bad_rows": "skip"}


def test_an_unknown_encoding_is_refused():
    content = "text,label\n" + "\u0441\u043e\u0432\u0441\u0435\u043c,x\n" * 3
    with pytest.raises(DataError, match="the encoding is unknown"):
        inspect_data(write("a.csv", content.encode("windows-1251")), {})
