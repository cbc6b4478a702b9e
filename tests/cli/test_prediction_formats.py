"""The formats of predictions: what each of them holds, also of hostile texts."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.predictions import predictions_for
from support.programs import succeed

from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.withholding import Withholding
from encoder_cls.data.reading.rows import Row

TEXTS = ["rain and snow today", "a big soup with salt", "the team and the ball"]
LABELS = ["weather", "küche", "sport"]

EVERY_FORMAT = pytest.mark.parametrize("output_format", ["text", "jsonl", "tsv", "csv"])

# What must not reach a terminal or break a line: C0 and C1 controls, ends of lines and paragraphs,
# and marks of direction.
HOSTILE = "rain\x1b[2J\x07\x00\x85\x9b\u2028\u2029\u202e\u2066\u200f\ufeff\tsnow\r\n"
HOSTILE_ROWS = [
    Row(HOSTILE, id=HOSTILE),
    Row("", id=HOSTILE),
    Row("\ud800 rain", id=HOSTILE),
    Row("[PAD] [CLS]", id=HOSTILE),
    Row("\U000e0001 \x00", id=HOSTILE),
]


def lines_of(
    classifier: Classifier,
    texts: Sequence[str | Row],
    *,
    output_format: str = "jsonl",
    top_k: int = 1,
    threshold: float = 0.0,
) -> list[str]:
    """The lines of the predictions for texts."""
    options = PredictionOptions(
        output_format=output_format,
        top_k=top_k,
        withholding=Withholding(threshold=threshold),
        batch_tokens=8192,
    )
    return predictions_for(classifier, texts, options).splitlines()


def with_suffix(classifier: Classifier, suffix: str) -> Classifier:
    """The same classifier, with a suffix at each name of a class."""
    names = [f"{name}{suffix}" for name in LABELS]
    return Classifier(
        classifier.encoder, classifier.tokenizer, names, max_seq_len=classifier.max_seq_len
    )


# The fields of each format


def test_jsonl_has_the_keys_of_the_contract_in_order(classifier):
    """Programs read these keys."""
    lines = lines_of(classifier, TEXTS, top_k=99)

    for line, label in zip(lines, LABELS, strict=True):
        record = json.loads(line)
        assert list(record) == ["label", "probability", "top", "truncated", "unknown_words"]
        assert record["label"] == label
        assert record["truncated"] is False
        assert record["unknown_words"] == 0


def test_jsonl_has_all_classes_with_the_most_probable_one_first(classifier):
    lines = lines_of(classifier, TEXTS, top_k=99)

    for line in lines:
        record = json.loads(line)
        top = record["top"]
        assert top[0] == {"label": record["label"], "probability": record["probability"]}
        assert {entry["label"] for entry in top} == set(LABELS)

        probabilities = [entry["probability"] for entry in top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert math.fsum(probabilities) == pytest.approx(1, abs=1e-9)


def test_tsv_has_a_header_and_one_field_a_column(classifier):
    header, *rows = lines_of(classifier, TEXTS, output_format="tsv", top_k=2)

    assert header.split("\t") == [
        "label",
        "probability",
        "label_2",
        "probability_2",
        "truncated",
        "unknown_words",
        "unfamiliar",
        "reason",
    ]
    for row, expected_label in zip(rows, LABELS, strict=True):
        label, probability, _, second_probability, *rest = row.split("\t")
        assert label == expected_label
        assert 1 >= float(probability) > float(second_probability) >= 0
        assert re.fullmatch(r"[01]\.\d{6}", probability)
        assert re.fullmatch(r"[01]\.\d{6}", second_probability)
        assert rest == ["false", "0", "", ""]


def test_tsv_has_no_more_columns_than_there_are_classes(classifier):
    header, *_ = lines_of(classifier, TEXTS, output_format="tsv", top_k=99)
    assert header.count("\t") == 9


def test_csv_has_the_columns_of_tsv_and_reads_back(classifier):
    """Fields with commas, quotes or line ends are quoted; TSV escapes line ends instead."""
    suffix = ', "so\nto say"'
    other = with_suffix(classifier, suffix)
    texts = [Row(text, id='1,"2"') for text in TEXTS]

    options = PredictionOptions(output_format="csv", top_k=2, batch_tokens=8192)
    content = io.StringIO(predictions_for(other, texts, options), newline="")

    rows = list(csv.reader(content, strict=True))
    for row_id, label, *_ in rows[1:]:
        assert row_id == '1,"2"'
        assert label.endswith(suffix)

    lines_of_tsv = lines_of(other, texts, output_format="tsv", top_k=2)
    for row, line in zip(rows, lines_of_tsv, strict=True):
        assert [cell.replace("\n", r"\n") for cell in row] == line.split("\t")


def test_text_names_classes_probabilities_and_what_was_not_read(classifier):
    """A person sees the label first, then the text, then whether words were cut or unknown."""
    long_text = "rain " * 40 + "zzz"
    texts = [TEXTS[0], long_text, "zzz yyy rain", "zzz rain"]

    short, long, two_unknown, one_unknown = lines_of(
        classifier, texts, output_format="text", top_k=2
    )

    assert re.fullmatch(r"weather 0\.\d{3}  (sport|küche) 0\.\d{3}  'rain and snow today'", short)
    assert long.endswith("(16 of 42 tokens)")
    assert two_unknown.endswith("(2 unknown words)")
    assert one_unknown.endswith("(1 unknown word)")


@pytest.mark.parametrize(
    ("output_format", "lines"),
    [
        ("tsv", 1),
        ("csv", 1),
        ("jsonl", 0),
        ("text", 0),
    ],
)
def test_without_texts_only_a_table_has_a_line(classifier, output_format, lines):
    assert len(lines_of(classifier, [], output_format=output_format)) == lines


@pytest.mark.parametrize("sort", [None, "probability"])
def test_a_page_is_whole_without_texts(classifier, sort):
    options = PredictionOptions(output_format="html", sort=sort)
    page = predictions_for(classifier, [], options)
    assert page.count("<html") == page.count("</html>") == 1


# Withheld labels


WITHHELD_LABELS = {"text": "?", "jsonl": "null", "tsv": "", "csv": ""}


@EVERY_FORMAT
def test_a_less_probable_label_is_withheld(classifier, output_format):
    """A label needs the threshold or more. Its probability is there in both cases."""
    text = TEXTS[:1]
    probability = classifier.predict(text)[0].probability

    def last_line(threshold: float) -> str:
        """The prediction without the other classes, which JSON has, too."""
        lines = lines_of(classifier, text, output_format=output_format, threshold=threshold)
        return lines[-1].partition("top")[0]

    kept = last_line(probability)
    withheld = last_line(probability + 1e-9)

    label = '"weather"' if output_format == "jsonl" else "weather"
    assert label in kept
    assert withheld == kept.replace(label, WITHHELD_LABELS[output_format])
    assert f"{probability:.3f}"[:-1] in withheld


# Hostile texts, ids and names of classes


@EVERY_FORMAT
def test_hostile_texts_labels_and_ids_give_one_printable_line_each(classifier, output_format):
    """On a terminal they cannot move the cursor, reverse the direction or begin a line."""
    hostile = with_suffix(classifier, HOSTILE)
    options = PredictionOptions(output_format=output_format, top_k=3, batch_tokens=8192)

    lines = predictions_for(hostile, HOSTILE_ROWS, options, on_terminal=True).splitlines()

    num_headers = 1 if output_format in {"tsv", "csv"} else 0
    assert len(lines) == num_headers + len(HOSTILE_ROWS)

    num_tabs = 10 if output_format == "tsv" else 0
    for line in lines:
        without_colours = re.sub(r"\x1b\[[0-9;]*m", "", line)
        assert without_colours.replace("\t", "").isprintable()
        assert without_colours.encode()
        assert line.count("\t") == num_tabs


def test_json_keeps_hostile_ids_and_labels_exactly(classifier):
    hostile = with_suffix(classifier, HOSTILE)

    first_line, blank_line, *_ = lines_of(hostile, HOSTILE_ROWS, top_k=3)

    first = json.loads(first_line)
    assert first["id"] == HOSTILE
    assert first["label"] in hostile.label_names
    assert json.loads(blank_line)["reason"] == "blank"


@pytest.mark.parametrize(("output_format", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_table_in_a_file_keeps_labels_and_ids_as_they_are(classifier, output_format, separator):
    """Only a terminal needs unusual spaces and marks to be escaped."""
    odd = "N\u00a0\u3000\u200b\x07\u202e東京"
    other = with_suffix(classifier, odd)

    options = PredictionOptions(output_format=output_format, batch_tokens=8192)
    content = predictions_for(other, [Row("rain", id=odd)], options)

    _, row = csv.reader(io.StringIO(content, newline=""), delimiter=separator)
    assert row[0] == odd
    assert row[1] in other.label_names


@pytest.mark.parametrize(("name", "prefix"), [("a.jsonl", "'"), ("a.csv", "")])
def test_a_formula_of_another_format_is_no_live_formula_in_a_csv_file(
    cli, trained_run, name, prefix
):
    """Formulas in JSON get an apostrophe; those of a CSV file stay as they are."""
    formula = '=HYPERLINK("http://example.org")'
    row = {"text": formula, "note": "+1+2"}
    if name == "a.jsonl":
        Path(name).write_text(f"{json.dumps(row)}\n")
    else:
        with Path(name).open("w", newline="") as file:
            csv.writer(file).writerows([row.keys(), row.values()])

    options = ["--input", name, "--keep-columns", "--output", "out.csv"]
    succeed(cli, "predict", "--model", trained_run.path, *options)

    with Path("out.csv").open(newline="") as file:
        (written,) = csv.DictReader(file)
    assert written["text"] == f"{prefix}{formula}"
    assert written["note"] == f"{prefix}+1+2"


def test_jsonl_output_is_strict_json(cli, trained_run):
    """JSON has no NaN, which Python reads and writes."""
    Path("texts.jsonl").write_text('{"text": "rain", "id": NaN}\n')

    options = ["--input", "texts.jsonl", "--format", "jsonl"]
    outcome = succeed(cli, "predict", "--model", trained_run.path, *options)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    json.loads(outcome.out, parse_constant=refuse)


# The column of ids


@pytest.mark.parametrize(("output_format", "separator"), [("tsv", "\t"), ("csv", ",")])
@pytest.mark.parametrize("num_without_id", [1, 3])
def test_no_id_is_lost_where_the_first_rows_have_none(
    cli, trained_run, monkeypatch, output_format, separator, num_without_id
):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    without_id = '{"text": "rain"}\n' * num_without_id
    Path("texts.jsonl").write_text(without_id + '{"text": "rain", "id": "the id"}\n')

    options = ["--input", "texts.jsonl", "--format", output_format]
    outcome = succeed(cli, "predict", "--model", trained_run.path, *options)

    header, *lines, last_line = outcome.out.splitlines()
    assert header.startswith("id")
    assert len(lines) == num_without_id
    assert all(line.startswith(separator) for line in lines)
    assert last_line.startswith("the id")


def test_where_no_row_has_an_id_there_is_no_column_of_ids(cli, trained_run, monkeypatch):
    """The row after a malformed one is not read, and adds no column."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 1)
    Path("texts.jsonl").write_text(
        '{"text": "rain"}\n{"text": "snow", "id": null}\nbroken\n{"text": "x", "id": 1}\n'
    )

    options = ["--input", "texts.jsonl", "--format", "tsv"]
    outcome = cli("predict", "--model", trained_run.path, *options)

    assert outcome.code == 3
    assert [line.count("\t") for line in outcome.out.splitlines()] == [5, 5, 5]


# Pages, explanations and files


@pytest.fixture
def two_explained(monkeypatch) -> None:
    """A page explains its first two rows."""
    monkeypatch.setattr("encoder_cls.bulk.html_format.MAX_EXPLAINED_ROWS", 2)


def rows_of_page(page: str) -> list[tuple[str, bool]]:
    """The text of each row of a page of predictions, and whether its words have weights."""
    rows = []
    for row in re.findall("<tr><td>(.*)</tr>", page):
        _, _, text = row.partition('<span class="words" dir="auto">')
        words, _, below = text.partition("<br>")
        rows.append((re.sub("<.*?>", "", words), 'class="nowrap"' in below))
    return rows


PAGE_TEXTS = ["rain", "rain and snow", "soup", "rain ball", "zzz"]


@pytest.mark.usefixtures("two_explained")
def test_a_page_holds_all_texts_and_colours_the_first_ones(cli, trained_run):
    """To explain a text takes as long as to classify many."""
    command = ["predict", "--model", trained_run.path, "--format", "html", *PAGE_TEXTS]

    outcome = cli(*command)
    explained = cli(*command, "--explain")

    texts = [text for text, _ in rows_of_page(outcome.out)]
    assert texts == PAGE_TEXTS
    coloured = [is_coloured for _, is_coloured in rows_of_page(outcome.out)]
    assert coloured == [True, True, False, False, False]
    assert "Words have colours in the first 2 rows." in outcome.out
    assert "words have colours in the first 2 of 5 rows; --explain colours all" in outcome.err
    assert [is_coloured for _, is_coloured in rows_of_page(explained.out)][:4] == [True] * 4
    assert "in the first" not in explained.out
    assert "in the first" not in explained.err


@pytest.mark.usefixtures("two_explained")
def test_a_sorted_page_colours_the_rows_at_its_top(cli, trained_run, classifier):
    command = ["predict", "--model", trained_run.path, "--format", "html", *PAGE_TEXTS]

    outcome = cli(*command, "--sort", "probability")

    predictions = dict(zip(PAGE_TEXTS, classifier.predict(PAGE_TEXTS), strict=True))
    by_probability = sorted(PAGE_TEXTS, key=lambda text: predictions[text].probability)
    rows = rows_of_page(outcome.out)
    assert [text for text, _ in rows] == by_probability
    assert [is_coloured for _, is_coloured in rows][2:] == [False, False, False]
    assert any(is_coloured for _, is_coloured in rows)


def test_a_page_of_very_many_rows_is_warned_of(cli, trained_run, monkeypatch):
    monkeypatch.setattr("encoder_cls.bulk.html_format.MANY_ROWS", 2)
    command = ["predict", "--model", trained_run.path, "--format", "html"]

    assert "warning" not in cli(*command, *PAGE_TEXTS[:2]).err
    assert "warning: a page of 3 rows" in cli(*command, *PAGE_TEXTS[:3]).err


@pytest.mark.parametrize(
    ("output_format", "note"),
    [
        ("text", "only the first 2 words explained"),
        ("tsv", " (2 words left out)"),
        ("csv", " (2 words left out)"),
        ("jsonl", '"explanation_left_out": 2}'),
        ("html", "(the last 2 words are not explained)"),
    ],
)
def test_words_left_out_of_an_explanation_are_counted(classifier, monkeypatch, output_format, note):
    # Explaining a word takes the 5 tokens of its text: 2 of 4 words are explained.
    monkeypatch.setattr("encoder_cls.classifier.occlusion.MAX_TOKENS", 15)
    texts = ["the rain and snow", "soup rain and ball", "rain"]
    warnings = []

    options = PredictionOptions(output_format=output_format, explained=True)
    predictions = predictions_for(classifier, texts, options, warn=warnings.append)

    assert predictions.count(note) == 2
    (warning,) = warnings
    assert warning.startswith("warning: of very long texts only the first words")


@pytest.mark.parametrize(
    ("name", "output_format"),
    [
        ("a.tsv", "tsv"),
        ("a.JSONL", "jsonl"),
        ("a.html", "html"),
        ("a.csv", "csv"),
        ("a.out", "text"),
        ("a.txt", "text"),
        ("a", "text"),
    ],
)
def test_the_ending_of_the_output_is_its_format(cli, trained_run, name, output_format):
    command = ["predict", "--model", trained_run.path, *TEXTS, "--output", name]
    succeed(cli, *command)
    by_ending = Path(name).read_bytes()

    succeed(cli, *command, "--format", output_format)

    assert Path(name).read_bytes() == by_ending


@pytest.mark.parametrize("name", ["a.html", "a"])
def test_the_option_for_the_format_overrides_the_ending(cli, trained_run, name):
    options = ["--output", name, "--format", "tsv"]
    succeed(cli, "predict", "--model", trained_run.path, *TEXTS, *options)
    assert Path(name).read_text("utf-8").startswith("label\tprobability")
