"""Prediction: the formats of the contract, every source of texts, and hostile texts."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import pkgutil
import re
import select
import subprocess
from pathlib import Path
from threading import Timer

import pyarrow
import pyarrow.parquet
import pytest
from support.predictions import predictions_for, texts_of
from support.programs import COMMAND, TIME_LIMIT, assert_failed

from encoder_cls.bulk.input_texts import InputOptions, InputTexts
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier, TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.rows import Row

TEXTS = ["rain and snow today", "a big soup with salt", "the team and the ball"]
LABELS = ["weather", "küche", "sport"]
EVERY_FORMAT = pytest.mark.parametrize("output_format", ["text", "jsonl", "tsv", "csv"])

# What must not reach a terminal or break a line: C0 and C1 controls, line and paragraph ends, marks of direction.
HOSTILE = "rain\x1b[2J\x07\x00\x85\x9b\u2028\u2029\u202e\u2066\u200f\ufeff\tsnow\r\n"


def lines_of(
    classifier, texts, *, output_format="jsonl", top_k=1, threshold=0.0, batch_tokens=8192
) -> list[str]:
    options = PredictionOptions(
        output_format=output_format, top_k=top_k, threshold=threshold, batch_tokens=batch_tokens
    )
    return predictions_for(classifier, texts, options).splitlines()


@pytest.mark.parametrize("is_pipe", [True, False])
def test_one_engine_predicts_standard_input_from_its_first_text_to_its_last(
    cli, trained_run, monkeypatch, is_pipe
):
    """NumPy for a pipe, whose size is unknown; for a file, the one that is quicker for all of it."""
    monkeypatch.setattr("encoder_cls.encoder.engines.BREAK_EVEN", 1e6)
    engines = []
    for name in ("numpy_encoder.NumpyEncoder._encode", "torch_encoder.TorchEncoder.logits"):
        method = f"encoder_cls.encoder.{name}"
        original = pkgutil.resolve_name(method)

        def counted(*arguments, name=name, original=original, **options):
            engines.append(name.partition("_")[0])
            return original(*arguments, **options)

        monkeypatch.setattr(method, counted)
    Path("texts.txt").write_text("rain and snow today\n" * 5000)
    arguments = ("predict", "--model", trained_run.path, "--format", "jsonl")
    if is_pipe:
        with subprocess.Popen(["cat", "texts.txt"], stdout=subprocess.PIPE) as process:
            monkeypatch.setattr("sys.stdin", process.stdout)
            outcome = cli(*arguments)
    else:
        with Path("texts.txt").open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            outcome = cli(*arguments)
    assert len(outcome.out.splitlines()) == 5000
    assert set(engines) == {"numpy" if is_pipe else "torch"}


def test_jsonl_has_the_keys_of_the_contract_in_order(classifier):
    """Programs read these keys; all classes together have probability 1, the best first."""
    records = [json.loads(line) for line in lines_of(classifier, TEXTS, top_k=99)]
    for record, label in zip(records, LABELS, strict=True):
        assert list(record) == ["label", "probability", "top", "truncated", "unknown_words"]
        assert (record["label"], record["truncated"], record["unknown_words"]) == (label, False, 0)
        assert [list(entry) for entry in record["top"]] == [["label", "probability"]] * 3
        of_top = [entry["probability"] for entry in record["top"]]
        assert record["top"][0] == {"label": label, "probability": record["probability"]}
        assert of_top == sorted(of_top, reverse=True)
        assert {entry["label"] for entry in record["top"]} == set(LABELS)
        assert math.fsum(of_top) == pytest.approx(1, abs=1e-9)


def test_tsv_has_a_header_and_one_field_a_column(classifier):
    """The header names each column, however many classes are asked for."""
    header, *rows = [
        line.split("\t") for line in lines_of(classifier, TEXTS, output_format="tsv", top_k=2)
    ]
    columns = [
        "label",
        "probability",
        "label_2",
        "probability_2",
        "truncated",
        "unknown_words",
        "unfamiliar",
        "reason",
    ]
    assert header == columns
    for row, label in zip(rows, LABELS, strict=True):
        assert (row[0], row[4:]) == (label, ["false", "0", "", ""])
        assert 1 >= float(row[1]) > float(row[3]) >= 0
        assert all(re.fullmatch(r"[01]\.\d{6}", field) for field in (row[1], row[3]))
    assert lines_of(classifier, TEXTS, output_format="tsv", top_k=99)[0].count("\t") == 9


def test_csv_has_the_columns_of_tsv_and_reads_back(classifier):
    """Names and ids with commas, quotes and line ends are in quotes; in TSV, what would end a row is escaped."""
    names = [f'{name}, "so\nto say"' for name in LABELS]
    quoting = Classifier(
        classifier.encoder, classifier.tokenizer, names, max_seq_len=classifier.max_seq_len
    )
    texts = [Row(text, id='1,"2"') for text in TEXTS]
    options = PredictionOptions(output_format="csv", top_k=2, batch_tokens=8192)
    content = io.StringIO(predictions_for(quoting, texts, options), newline="")
    rows = list(csv.reader(content, strict=True))
    assert {(row[0], row[1].split(",")[1]) for row in rows[1:]} == {('1,"2"', ' "so\nto say"')}
    in_tsv = [line.split("\t") for line in lines_of(quoting, texts, output_format="tsv", top_k=2)]
    assert in_tsv == [[cell.replace("\n", r"\n") for cell in row] for row in rows]


def test_text_names_classes_probabilities_and_what_was_not_read(classifier):
    """A person sees the label first, then the text, then whether words were cut or unknown."""
    short, long = lines_of(
        classifier, [TEXTS[0], "rain " * 40 + "zzz"], output_format="text", top_k=2
    )
    assert re.fullmatch(r"weather 0\.\d{3}  (sport|küche) 0\.\d{3}  'rain and snow today'", short)
    assert long.endswith("(16 of 42 tokens)")
    assert lines_of(classifier, ["zzz yyy rain"], output_format="text")[0].endswith(
        "(2 unknown words)"
    )
    assert lines_of(classifier, ["zzz rain"], output_format="text")[0].endswith("(1 unknown word)")


@EVERY_FORMAT
def test_a_less_probable_label_is_withheld(classifier, output_format):
    """Below the threshold no label is given, at it the label stays, and its probability is there in both cases."""
    threshold = classifier.predict(TEXTS[:1])[0].probability
    above, at = (
        lines_of(classifier, TEXTS[:1], output_format=output_format, threshold=limit)[-1].split(
            "top"
        )[0]
        for limit in (threshold + 1e-9, threshold)
    )
    assert (
        above
        == at.replace('"weather"', "null").replace(
            "weather", "?" if output_format == "text" else ""
        )
        != at
    )
    assert f"{threshold:.3f}"[:-1] in above


def hostile_classifier(classifier: Classifier) -> Classifier:
    """Its names of classes hold everything that could steer a terminal."""
    names = [f"{name}{HOSTILE}" for name in LABELS]
    return Classifier(
        classifier.encoder, classifier.tokenizer, names, max_seq_len=classifier.max_seq_len
    )


HOSTILE_ROWS = [
    Row(text, id=HOSTILE) for text in (HOSTILE, "", "\ud800 rain", "[PAD] [CLS]", "\U000e0001 \x00")
]


@EVERY_FORMAT
def test_hostile_texts_labels_and_ids_give_one_printable_line_each(classifier, output_format):
    """On a terminal nothing from outside can move the cursor, reverse the direction or begin a line."""
    hostile = hostile_classifier(classifier)
    options = PredictionOptions(output_format=output_format, top_k=3, batch_tokens=8192)
    lines = predictions_for(hostile, HOSTILE_ROWS, options, on_terminal=True).splitlines()

    is_table = output_format in {"tsv", "csv"}
    assert len(lines) == len(HOSTILE_ROWS) + is_table
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert all(line.replace("\t", "").isprintable() and line.encode() for line in shown)
    assert {line.count("\t") for line in lines} == {10 if output_format == "tsv" else 0}


def test_json_keeps_hostile_ids_and_labels_exactly(classifier):
    hostile = hostile_classifier(classifier)
    first, blank, *_ = map(json.loads, lines_of(hostile, HOSTILE_ROWS, top_k=3))
    assert first["id"] == HOSTILE
    assert first["label"] in hostile.label_names
    assert blank["reason"] == "blank"


@pytest.mark.parametrize("output_format", ["csv", "tsv"])
def test_a_file_of_a_table_keeps_labels_and_ids_as_they_are(classifier, output_format):
    """Also other spaces and marks: a filter for terminals is not one for files."""
    odd = "N\u00a0\u3000\u200b\x07\u202e東京"
    names = [f"{name}{odd}" for name in LABELS]
    other = Classifier(
        classifier.encoder, classifier.tokenizer, names, max_seq_len=classifier.max_seq_len
    )
    options = PredictionOptions(output_format=output_format, batch_tokens=8192)
    content = predictions_for(other, [Row("rain", id=odd)], options)
    separator = "," if output_format == "csv" else "\t"
    _, row = csv.reader(io.StringIO(content, newline=""), delimiter=separator)
    assert row[0] == odd
    assert row[1] in names


def test_a_formula_of_another_format_is_no_live_formula_in_a_csv_file(cli, trained_run):
    """Excel's and JSON's texts get an apostrophe; CSV's own ones stay as they are."""
    formula = '=HYPERLINK("http://example.org")'
    Path("a.jsonl").write_text(json.dumps({"text": formula, "note": "+1+2"}) + "\n")
    with Path("b.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "note"], [formula, "+1+2"]])

    for name, prefix in (("a.jsonl", "'"), ("b.csv", "")):
        arguments = ["--model", trained_run.path, "--input", name, "--keep-columns"]
        outcome = cli("predict", *arguments, "--output", "out.csv")
        assert outcome.code == 0, outcome.err
        with Path("out.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        assert (row["text"], row["note"]) == (f"{prefix}{formula}", f"{prefix}+1+2")


def test_standard_input_with_a_format_is_read_as_a_file(cli, trained_run, monkeypatch):
    """Its rows get answers, and its header none."""
    Path("t.csv").write_text('id,text\n7,"rain, snow"\n8,the ball\n')
    with Path("t.csv").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = cli(
            "predict", "--model", trained_run.path, "--input", "-.csv", "--format", "jsonl"
        )
    assert [json.loads(line)["id"] for line in outcome.out.splitlines()] == ["7", "8"]


@pytest.mark.parametrize(
    ("line", "ending"),
    [("id,text", ".csv"), ("text\tid", ".tsv"), ('{"text": "rain", "id": 1}', ".jsonl")],
)
def test_lines_that_look_like_a_table_are_warned_of(cli, trained_run, monkeypatch, line, ending):
    Path("t").write_text(f"{line}\nrain\n")
    with Path("t").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = cli("predict", "--model", trained_run.path)
    assert f"--input -{ending} reads its rows" in outcome.err
    assert len(outcome.out.splitlines()) == 2


def test_a_stream_without_a_format_is_named(cli, trained_run):
    os.mkfifo("pipe")
    outcome = cli("predict", "--model", trained_run.path, "--input", "pipe")
    assert outcome.code == 2
    assert "--input -.csv < pipe" in outcome.err


def test_a_text_with_a_dash_is_told_how_to_be_one(cli, trained_run):
    outcome = cli("predict", "--model", trained_run.path, "-5 degrees")
    assert outcome.code == 2
    assert "before a text that starts with a dash, write --" in outcome.err
    assert cli("predict", "--model", trained_run.path, "--", "-5 degrees").code == 0


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("a.txt", "{}\n{}\n{}\n", None),
        ("a.csv", "id,body\n07,{}\n8,{}\n,{}\n", ["07", "8", ""]),
        ("a.tsv", "id\tbody\n07\t{}\n8\t{}\n\t{}\n", ["07", "8", ""]),
        (
            "a.jsonl",
            '{{"body": "{}", "id": 7}}\n{{"id": "08", "body": "{}"}}\n{{"id": "é", "body": "{}"}}\n',
            [7, "08", "é"],
        ),
        ("a.parquet", None, [7, datetime.datetime(2024, 1, 2), b"\x01"]),
    ],
)
def test_every_kind_of_file_is_read_and_keeps_order_and_ids(cli, trained_run, name, content, ids):
    """Texts come from the named column, in order; an id, which in Parquet may be a time or bytes, is passed on."""
    for id_ in [None] if content else ids:
        if content:
            Path(name).write_text(content.format(*TEXTS), "utf-8")
        else:
            pyarrow.parquet.write_table(pyarrow.table({"body": TEXTS, "id": [id_] * 3}), name)
        column = [] if name == "a.txt" else ["--text-column", "body"]
        out = cli(
            "predict", "--model", trained_run.path, "--input", name, *column, "--format", "jsonl"
        ).out
        records = [json.loads(line) for line in out.splitlines()]
        assert [record["label"] for record in records] == LABELS
        assert all((next(iter(record)) == "id") == (ids is not None) for record in records)
        if content and ids:
            assert [record["id"] for record in records] == ids


def test_texts_are_in_the_columns_of_the_training_unless_named(cli, trained_run, tmp_path):
    """The model knows them, wherever its folder lies; columns that are named go first."""
    trained = load_classifier(trained_run.path)
    trained.text_format = TextFormat(columns=("title", "body"))
    save_classifier(trained, tmp_path / "model")
    Path("a.csv").write_text("title,body,text\nrain,snow,soup\n", "utf-8")
    assert cli("predict", "--model", "model", "--input", "a.csv").out.startswith("weather")
    named = ["--text-column", "text", "--text-column", "body"]
    assert "'soup snow'" in cli("predict", "--model", "model", "--input", "a.csv", *named).out
    assert cli("predict", "--model", trained_run.path, "--input", "a.csv").out.startswith("küche")


def test_labels_are_taken_off_the_lines_of_ft_files_only(classifier):
    """A .txt file is the user's text unchanged; both keep each line, and hidden files are none of the user's."""
    for name in ("parts/1.txt", "parts/2.ft", "parts/._1.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("__label__a __label__b rain\n\n__label__a\nsnow\n", "utf-8")
    of_txt, of_ft = (
        ["__label__a __label__b rain", "", "__label__a", "snow"],
        ["rain", "", "", "snow"],
    )
    assert texts_of(classifier, "parts") == of_txt + of_ft


def test_labels_that_are_read_as_text_are_warned_of(cli, trained_run, monkeypatch):
    """A test file of fastText would get other answers than its texts."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 1)
    for name, warnings in (("test.ft", 0), ("test.txt", 1)):
        Path(name).write_text("__label__weather rain and snow\n" * 2)
        outcome = cli("predict", "--model", trained_run.path, "--input", name)
        assert outcome.code == 0
        assert (
            outcome.err.count(f"warning: {name}: the labels of fastText's lines are read as text")
            == warnings
        )


def test_jsonl_output_is_strict_json(cli, trained_run):
    """An id that is NaN, which Python reads but JSON does not know, is not passed on as such."""
    Path("texts.jsonl").write_text('{"text": "rain", "id": NaN}\n')
    out = cli(
        "predict", "--model", trained_run.path, "--input", "texts.jsonl", "--format", "jsonl"
    ).out
    json.loads(out or "{}", parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("output_format", ["tsv", "csv"])
@pytest.mark.parametrize("late", [1, 3])
def test_no_id_is_lost_where_the_first_rows_have_none(
    cli, trained_run, monkeypatch, output_format, late
):
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 2)
    Path("texts.jsonl").write_text(
        '{"text": "rain"}\n' * late + '{"text": "rain", "id": "the id"}\n'
    )
    outcome = cli(
        "predict", "--model", trained_run.path, "--input", "texts.jsonl", "--format", output_format
    )
    header, *lines = outcome.out.splitlines()
    assert header.startswith("id")
    assert {line[0] for line in lines[:-1]} == {"\t" if output_format == "tsv" else ","}
    assert lines[-1].startswith("the id")


def test_where_no_row_has_an_id_there_is_no_column_of_ids(cli, trained_run, monkeypatch):
    """What comes after a malformed row is not answered, and adds no column."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 1)
    Path("texts.jsonl").write_text(
        '{"text": "rain"}\n{"text": "snow", "id": null}\nbroken\n{"text": "x", "id": 1}\n'
    )
    outcome = cli(
        "predict", "--model", trained_run.path, "--input", "texts.jsonl", "--format", "tsv"
    )
    assert outcome.code == 3
    assert [line.count("\t") for line in outcome.out.splitlines()] == [5, 5, 5]


def test_many_lines_keep_their_order(classifier, monkeypatch):
    """Texts are sorted by length within chunks, results are not; chunks have no seam."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 100)
    rows = [i % 3 for i in range(150)]
    Path("texts.txt").write_text(
        "".join(f"{TEXTS[row]}{' of' * (i % 7)}\n" for i, row in enumerate(rows))
    )
    chunks = list(InputTexts(InputOptions(source="texts.txt"), classifier).chunks())
    assert [len(chunk) for chunk in chunks] == [100, 50]
    labels = [json.loads(line)["label"] for chunk in chunks for line in lines_of(classifier, chunk)]
    assert labels == [LABELS[row] for row in rows]


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"snow and rain\n\nsoup", ["weather", None, "küche"]),
        (b"snow \xff\xfe rain\nball \xed\xa0\x80 goal\n", ["weather", "sport"]),
        (b"", []),
    ],
    ids=["empty line", "invalid UTF-8", "empty file"],
)
@pytest.mark.parametrize("source", ["texts.txt", "-"])
def test_every_line_gets_one_prediction(cli, trained_run, monkeypatch, source, content, labels):
    """Empty lines, lines in several blocks, and in a pipe bytes that are no UTF-8, for which a file is refused."""
    monkeypatch.setattr("encoder_cls.bulk.standard_input.READ_BYTES", 3)
    Path("texts.txt").write_bytes(content)
    with Path("texts.txt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = cli(
            "predict", "--model", trained_run.path, "--input", source, "--format", "jsonl"
        )
    if source != "-" and b"\xff" in content:
        assert_failed(outcome, 3, "texts.txt:1: not UTF-8")
        return
    assert outcome.code == 0
    assert [json.loads(line)["label"] for line in outcome.out.splitlines()] == labels


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["with a line feed", "at the end"])
def test_a_line_of_standard_input_has_a_longest_length(cli, trained_run, monkeypatch, ending):
    """The lines before it are answered; a line of this length is a text, as in a file."""
    monkeypatch.setattr("encoder_cls.bulk.standard_input.READ_BYTES", 3)
    monkeypatch.setattr("encoder_cls.bulk.standard_input.LONGEST_LINE", 16)
    Path("texts.txt").write_bytes(b"rain\n" + b"s" * 16 + b"\n" + b"s" * 17 + ending)
    with Path("texts.txt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = cli("predict", "--model", trained_run.path)
    assert outcome.code == 3
    assert len(outcome.out.splitlines()) == 2
    assert "standard input:3: the line is longer than" in outcome.err


@pytest.mark.parametrize(
    "content", [b"rain\n\n snow", b"rain\r\n\r\n snow\r\n", b"\xef\xbb\xbfrain\n\n snow\n"]
)
def test_line_ends_and_a_byte_order_mark_are_not_part_of_a_text(classifier, monkeypatch, content):
    """What Windows programs put around texts is left out, and nothing else."""
    Path("texts.txt").write_bytes(content)
    with Path("texts.txt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert (
            texts_of(classifier, "-") == texts_of(classifier, "texts.txt") == ["rain", "", " snow"]
        )


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_malformed_row_ends_the_work_and_nothing_is_written(
    cli, trained_run, monkeypatch, ending
):
    """A file is written as a whole, or the one that was there before stays."""
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 4)
    Path("rows.csv").write_text("text\n" + "rain\n" * 16 + "rain,snow\n")
    Path(f"answers.{ending}").write_text("old")
    outcome = cli(
        "predict",
        "--model",
        trained_run.path,
        "--input",
        "rows.csv",
        "--output",
        f"answers.{ending}",
    )
    assert_failed(outcome, 3, "rows.csv:18: 2 fields")
    assert Path(f"answers.{ending}").read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == [f"answers.{ending}", "rows.csv"]


def test_standard_input_that_does_not_wait_is_waited_for(classifier, monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        texts = InputTexts(InputOptions(source="-"), classifier).chunks()
        later = Timer(0.05, lambda: (os.write(writer, b"rain\n"), os.close(writer)))
        later.start()
        assert list(texts) == [[Row("rain")]]
        later.join()


def test_standard_input_is_predicted_line_by_line(trained_run):
    """Each line's answer comes while the pipe is still open, so that another program can converse."""
    command = [*COMMAND, "predict", "--model", trained_run.path, "--format", "jsonl"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            for text, label in zip(TEXTS, LABELS, strict=True):
                process.stdin.write(f"{text}\n")
                assert select.select([process.stdout], [], [], TIME_LIMIT)[0], (
                    "no answer while the pipe is open"
                )
                assert json.loads(process.stdout.readline())["label"] == label
            assert process.communicate("soup", timeout=TIME_LIMIT)[0].count("\n") == 1
        finally:
            process.kill()
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["a.tsv", "a.JSONL", "a.html", "a.csv", "a.out", "a.txt", "a"])
def test_the_ending_of_the_output_is_its_format(cli, trained_run, name):
    command = ["predict", "--model", trained_run.path, *TEXTS, "--output", name]
    formats = {"a.tsv": "tsv", "a.JSONL": "jsonl", "a.html": "html", "a.csv": "csv"}
    assert cli(*command).code == 0
    found = Path(name).read_bytes()
    assert cli(*command, "--format", formats.get(name, "text")).code == 0
    assert Path(name).read_bytes() == found
    assert cli(*command, "--format", "tsv").code == 0
    assert Path(name).read_text("utf-8").startswith("label\tprobability")


@pytest.mark.parametrize(
    ("output_format", "lines"), [("tsv", 1), ("csv", 1), ("jsonl", 0), ("text", 0)]
)
def test_no_texts_give_what_programs_can_read(classifier, output_format, lines):
    options = PredictionOptions(output_format=output_format)
    assert len(predictions_for(classifier, [], options).splitlines()) == lines
    assert "</html>" in predictions_for(classifier, [], PredictionOptions(output_format="html"))


def test_a_page_holds_the_first_texts_and_says_so(cli, trained_run, monkeypatch):
    """Of more than a browser can show; no more are classified, and the reading ends."""
    monkeypatch.setattr("encoder_cls.bulk.prediction_loop.MOST_PAGE_TEXTS", 2)
    asked = []
    real = Classifier.tokenize
    monkeypatch.setattr(
        Classifier, "tokenize", lambda self, texts: (asked.extend(texts), real(self, texts))[1]
    )
    command = ["predict", "--model", trained_run.path, "--format", "html"]
    outcome = cli(*command, *TEXTS)
    assert asked == TEXTS[:2]
    assert outcome.out.count("<tr>") == 3
    assert "This page holds the first 2 texts only." in outcome.out
    assert outcome.err == "warning: the page holds the first 2 texts only; other formats hold all\n"
    whole = cli(*command, *TEXTS[:2])
    assert "holds" not in whole.out + whole.err


def test_words_left_out_of_an_explanation_are_counted(classifier, monkeypatch):
    monkeypatch.setattr("encoder_cls.classifier.explain.MOST_TOKENS", 15)  # of 5 tokens a time
    notes = {
        "text": "only the first 2 words explained",
        "tsv": " (2 words left out)",
        "csv": " (2 words left out)",
    }
    notes |= {"jsonl": '"explanation_left_out": 2}', "html": "(the last 2 words are not explained)"}
    for output_format, what in notes.items():
        warnings = []
        options = PredictionOptions(output_format=output_format, explained=True)
        texts = ["the rain and snow", "soup rain and ball", "rain"]
        predictions = predictions_for(classifier, texts, options, warn=warnings.append)
        assert predictions.count(what) == 2, output_format
        assert len(warnings) == 1
        assert warnings[0].startswith("warning: of very long texts only the first words")


def test_no_precision_at_all_withholds_nothing(cli, trained_run):
    outcome = cli(
        "predict", "--model", trained_run.path, "--min-precision", "0", "rain", "the ball"
    )
    assert outcome.code == 0
    assert "withheld" not in outcome.err


def test_a_threshold_of_0_gives_all_labels():
    """None stands for the thresholds of the model."""
    prediction = Prediction(
        label="a",
        probability=0.9,
        probabilities={"a": 0.9, "b": 0.2},
        truncated=False,
        unknown_words=0,
        labels=("a",),
    )
    assert prediction.labels_from(None) == ("a",)
    assert prediction.labels_from(0.0) == ("a", "b")


def test_numpy_has_one_thread_also_for_files(cli, trained_run, monkeypatch):
    """Threads that wait in busy loops take the time of others."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    Path("a.txt").write_text("rain\n")
    cli("predict", "--model", trained_run.path, "--input", "a.txt")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
