"""The cycle train, review, correct in a spreadsheet, train: corrected labels reach their rows."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import shutil
import time
from pathlib import Path

import pytest
import torch
from support.excel import read_excel, write_excel
from support.local_servers import wait_until
from support.programs import assert_failed, succeed

from encoder_cls import review
from encoder_cls.config.loading import load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.extras.label import review_session
from encoder_cls.extras.label.review_session import open_review
from encoder_cls.extras.label.session import SKIPPED
from encoder_cls.extras.label.session_memory import session_file
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.web.responses import RefusedError
from encoder_cls.training import train as training
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

WORDS = {
    "food": ["soup", "bread", "salt", "pan"],
    "sport": ["ball", "goal", "team", "race"],
}
# Texts about food, labelled as sport, by their row in train.csv.
ODD_TEXTS = {
    5: '=SUM("soup";pan)',
    6: "+1 bread,\nsalt",
    7: 'the "pan";\r\nsoup',
    8: "soup pan",
}
# The row of a text about sport, labelled as food.
WRONG_FOOD = 25
CONFIG = "data: {train: train.csv, test: test.csv}\nmodel: {encoder: false}\n"


def write_data() -> None:
    """Write a config and its data.

    Training texts have five wrong labels, and two of them are equal; test texts have one.
    """
    draw = random.Random(0)

    train_rows = random_rows(80, draw)
    for number, text in ODD_TEXTS.items():
        train_rows[number] = [text, "sport"]
    train_rows[WRONG_FOOD][1] = "food"
    train_rows[40] = ["soup pan", "food"]
    write_rows(train_rows, "train.csv")

    test_rows = random_rows(12, draw)
    test_rows[0][1] = "sport"
    write_rows(test_rows, "test.csv")

    Path("c.yaml").write_text(CONFIG)


def random_rows(count: int, draw: random.Random) -> list[list[str]]:
    """Texts of both classes in turn, each with its label."""
    rows = []
    for number in range(count):
        label = "sport" if number % 2 else "food"
        text = " ".join(draw.choices(WORDS[label], k=4))
        rows.append([text, label])
    return rows


def write_rows(rows: list[list[str]], name: str) -> None:
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with data and a run on it, for all tests, which add files of their own."""
    folder = tmp_path_factory.mktemp("reviewed")
    with contextlib.chdir(folder):
        write_data()
        run = RunDir(Path("runs/c"))
        train(prepare(load_config(Path("c.yaml"))), run, device=torch.device("cpu"))
    return folder


@pytest.fixture
def reviewed(cli, folder, monkeypatch) -> list[dict[str, str]]:
    """The rows of a review of that run; the folder becomes the current one."""
    monkeypatch.chdir(folder)
    if not Path("review.csv").exists():
        outcome = cli("review", "runs/c", "--output", "review.csv")
        assert outcome.code == 0, outcome.err
        assert outcome.err.endswith("train with --set data.corrections=review.csv\n")
    return read("review.csv")


def read(name: str, delimiter: str = ",") -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def save(rows: list[dict[str, str]], name: str = "corrected.csv", *, delimiter: str = ",") -> None:
    """Write a CSV file as spreadsheets do, with their own line ends inside of cells."""
    with Path(name).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        for row in rows:
            cells = {column: cell.replace("\r\n", "\n") for column, cell in row.items()}
            writer.writerow(cells)


def save_excel(rows: list[dict[str, str]], name: str) -> None:
    """Write a workbook in which a spreadsheet has made numbers of what looks like one."""
    cells = [[as_excel_cell(name, text) for name, text in row.items()] for row in rows]
    write_excel(name, list(rows[0]), *cells)


def as_excel_cell(column: str, text: str) -> str | int | float:
    if column == "score":
        return float(text)
    if text.isdigit():
        return int(text)
    return text


def corrected(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Take the suggestion for the label, in all rows."""
    return [row | {"label": row["suggested"]} for row in rows]


def dataset(**values: str) -> Dataset:
    """Load the data of the config, with other values of `data`."""
    settings = [f"data.{key}={value}" for key, value in values.items()]
    return load_dataset(load_config(Path("c.yaml"), settings).data)


def labels_by_place(data: Dataset) -> dict[str, str]:
    """The label of each row of all splits, by `file:line`."""
    labels = {}
    for split in data.splits.values():
        for where, number in zip(split.where, split.labels, strict=True):
            labels[Path(where).name] = data.label_names[number]
    return labels


def place(row: dict[str, str]) -> str:
    """The `file:line` of a row of a review."""
    return f"{Path(row['file']).name}:{row['line']}"


COLUMNS = [
    "text",
    "label",
    "suggested",
    "score",
    "split",
    "file",
    "line",
    "row",
    "label_in_data",
    "key",
]


def test_wrong_labels_come_first(reviewed):
    """Labels of training texts are judged by cross-validation, others by the model."""
    assert list(reviewed[0]) == COLUMNS
    assert len(reviewed) <= 9

    scores = [float(row["score"]) for row in reviewed]
    assert scores == sorted(scores, reverse=True)

    texts = [row["text"] for row in reviewed if place(row).startswith("train.csv:")]
    assert ODD_TEXTS[5] in texts
    assert ODD_TEXTS[6] in texts
    assert {row["split"] for row in reviewed} >= {"train", "test"}

    corrections = {(row["label"], row["suggested"]) for row in reviewed[:6]}
    assert corrections == {("sport", "food"), ("food", "sport")}


def test_each_row_of_a_review_leads_back_to_its_line_and_its_row_in_a_spreadsheet(reviewed):
    lines = {}
    for row in reviewed:
        if row["split"] != "test":
            lines[int(row["row"])] = int(row["line"])

    # Two texts have a line feed.
    assert lines.items() >= {7: 7, 8: 8, 9: 10, 10: 12, 27: 29}.items()
    assert all(row["key"] == key_of_text(row["text"]) for row in reviewed)


def test_a_review_is_written_and_corrected_as_an_excel_file(cli, reviewed):
    """It has the rows of the CSV file, and numbers are numbers."""
    assert cli("review", "runs/c", "--output", "review.xlsx").code == 0

    header, *rows = read_excel("review.xlsx")
    assert header == list(reviewed[0])
    for row, expected in zip(rows, reviewed, strict=True):
        values = dict(zip(header, row, strict=True))
        assert values["key"] == expected["key"]
        assert values["line"] == int(expected["line"])
        assert values["score"] == pytest.approx(float(expected["score"]), abs=1e-4)

    rows[0][header.index("label")] = reviewed[0]["suggested"]
    write_excel("corrected_review.xlsx", header, *rows)
    corrected_places = dataset(corrections="corrected_review.xlsx").labels_before_corrections
    assert {Path(where).name for where in corrected_places} == {place(reviewed[0])}


def test_a_review_is_written_and_corrected_as_a_tsv_file(cli, reviewed):
    """Texts with line feeds and quotes do not shift its columns."""
    assert cli("review", "runs/c", "--output", "review.tsv").code == 0

    rows = read("review.tsv", delimiter="\t")
    assert rows == reviewed

    save(corrected(rows), "corrected.tsv", delimiter="\t")
    corrected_places = dataset(corrections="corrected.tsv").labels_before_corrections
    assert {Path(where).name for where in corrected_places} == {place(row) for row in reviewed}


@pytest.mark.usefixtures("reviewed")
def test_a_review_of_another_format_is_refused_before_it_is_made(cli):
    outcome = cli("review", "runs/c", "--output", "review.ods")
    assert_failed(outcome, 2, "--output review.ods: the name must end with .csv, .tsv or .xlsx")


@pytest.mark.parametrize("form", ["commas", "semicolons", "xlsx"])
def test_corrected_cells_reach_their_rows(reviewed, form):
    """Texts with quotes, separators, line breaks and signs of formulas are found again."""
    name = "corrected.csv"
    if form == "commas":
        save(corrected(reviewed), name)
    elif form == "semicolons":
        save(corrected(reviewed), name, delimiter=";")
    else:
        name = "corrected.xlsx"
        save_excel(corrected(reviewed), name)

    before = dataset()
    after = dataset(corrections=name)

    old_labels = labels_by_place(before)
    new_labels = labels_by_place(after)
    assert old_labels.keys() == new_labels.keys()

    changed = {where for where in old_labels if old_labels[where] != new_labels[where]}
    assert changed == {place(row) for row in reviewed}
    assert changed == {Path(where).name for where in after.labels_before_corrections}
    assert {old_labels[where] for where in changed} == {"food", "sport"}

    # The same texts are held out whatever their labels, so that scores can be compared.
    assert list(before.validation.where) == list(after.validation.where)


def test_the_order_and_the_other_cells_of_a_review_do_not_count(reviewed):
    save(corrected(reviewed))
    expected = labels_by_place(dataset(corrections="corrected.csv"))

    keys_and_labels = []
    for row in reversed(reviewed):
        keys_and_labels.append({"label": row["suggested"], "key": row["key"], "text": "another"})
    save(keys_and_labels, "few_columns.csv")

    assert labels_by_place(dataset(corrections="few_columns.csv")) == expected


def test_corrections_hold_for_data_that_has_moved(reviewed):
    save(corrected(reviewed))
    expected = labels_by_place(dataset(corrections="corrected.csv"))

    Path("moved").mkdir(exist_ok=True)
    shutil.copy("train.csv", "moved/train.csv")

    moved = dataset(train="moved/train.csv", corrections="corrected.csv")
    assert labels_by_place(moved) == expected


def test_a_review_after_corrections_replaces_the_one_before(cli, reviewed):
    """The new file also has the corrections that the model was trained with."""
    save(corrected(reviewed))
    corrections = "data.corrections=corrected.csv"
    outcome = succeed(cli, "train", "c.yaml", "--run-dir", "runs/d", "--set", corrections)
    used = f"corrections: {len(reviewed)} labels of corrected.csv in place of those of the data"
    assert used in outcome.err

    succeed(cli, "review", "runs/d", "--output", "again.csv")

    labels_again = {place(row): row["label"] for row in read("again.csv")}
    assert labels_again.items() >= {place(row): row["suggested"] for row in reviewed}.items()
    labels = labels_by_place(dataset(corrections="again.csv"))
    assert labels == labels_by_place(dataset(corrections="corrected.csv"))

    # But it replaces neither a file that the run was trained on, nor one that was corrected since.
    refused = cli("review", "runs/d", "--output", "corrected.csv")
    assert_failed(refused, 2, "is a file that is read")
    refused = cli("review", "runs/d", "--output", "again.csv")
    assert_failed(refused, 2, "again.csv: exists already")


def test_a_review_that_nobody_changed_changes_nothing(reviewed):
    with_spaces = [row | {"label": f"{row['label']} "} for row in reviewed]
    for rows in (reviewed, with_spaces):
        save(rows, delimiter=";")

        unchanged = dataset(corrections="corrected.csv")

        assert unchanged.labels_before_corrections == {}
        assert unchanged.train.fingerprint == dataset().train.fingerprint


def test_a_resumed_run_notices_changed_corrections(cli, reviewed, monkeypatch):
    command = ["train", "c.yaml", "--run-dir", "runs/e", "--set", "data.corrections=corrected.csv"]
    save(reviewed)
    # As if it had been stopped before its end.
    monkeypatch.setattr(training, "remove_files_to_resume", lambda _folder: None)
    succeed(cli, *command)
    Path("runs/e/model/README.md").unlink()

    save(corrected(reviewed))
    assert_failed(cli(*command, "--resume"), 2, "training data has changed since the run began")

    Path("corrected.csv").unlink()
    assert_failed(cli(*command, "--resume"), 3, "corrected.csv: no such file", "data.corrections")

    save(reviewed)
    succeed(cli, *command, "--resume")


def test_wrong_labels_of_repeated_texts_are_listed(cli):
    """Other texts judge a label, not copies of its own text; without others it is not judged."""
    write_data()
    with Path("train.csv").open("a") as file:
        file.write("ball zebra okapi quagga,food\n" * 4)
        file.write("42,number\n" * 3)
    succeed(cli, "train", "c.yaml", "--set", "data.validation=test.csv", "--run-dir", "r")

    succeed(cli, "review", "r", "--output", "review.csv")

    listed = [row["text"] for row in read("review.csv")]
    assert listed.count("ball zebra okapi quagga") == 4
    assert "42" not in listed


def test_json_has_all_rows(cli, reviewed):
    outcome = cli("review", "runs/c", "--json")

    review = json.loads(outcome.out)
    places = [f"{row['file']}:{row['line']}" for row in reviewed]
    assert [row["where"] for row in review["rows"]] == places
    assert review["texts"] == 92
    assert 1 <= review["estimated_errors"] <= 12


def test_a_model_without_its_run_has_no_data_to_review(cli, folder):
    shutil.copytree(folder / "runs/c/model", "alone")

    refused = cli("review", "alone")

    message = "alone: a model folder without its run has no data to review"
    assert_failed(refused, 2, message)


@pytest.fixture
def sheet() -> list[dict[str, str]]:
    """Training data as a spreadsheet writes it: semicolons, a byte order mark, own columns.

    Two of its texts are equal, and have different ids.
    """
    write_data()
    rows = []
    for number, row in enumerate(read("train.csv")):
        rows.append(
            {
                "id": f"{number:03}",
                "score": row["label"],
                "line": row["text"].replace("\r\n", "\n"),
                "topic": "a; b",
            }
        )
    save(rows, "train.csv", delimiter=";")

    Path("c.yaml").write_text(
        "data: {train: train.csv, text_column: line, label_column: score}\n"
        "model: {encoder: false}\n"
    )
    return rows


COLUMNS_OF_SHEET = [
    "id",
    "score",
    "line",
    "topic",
    "suggested",
    "review_score",
    "split",
    "file",
    "review_line",
    "row",
    "label_in_data",
    "key",
]


def test_a_review_has_the_form_and_the_columns_of_the_data(cli, sheet):
    """Columns of the data keep their names; those of the review that are equal get others."""
    succeed(cli, "train", "c.yaml", "--run-dir", "r")

    succeed(cli, "review", "r", "--output", "review.csv")
    succeed(cli, "eval", "r", "--data", "train.csv", "--report", "report")

    first_line = f"\ufeff{';'.join(COLUMNS_OF_SHEET)}\r\n".encode()
    for name in ("review.csv", "report/mistakes.csv"):
        assert Path(name).read_bytes().startswith(first_line), name

    rows_by_id = {row["id"]: row for row in sheet}
    lines_by_id = first_lines("train.csv")
    for row in read("review.csv", ";"):
        assert row.items() >= rows_by_id[row["id"]].items()
        assert int(row["review_line"]) == lines_by_id[row["id"]]


def test_a_review_serves_as_corrections_and_as_data(cli, sheet):
    succeed(cli, "train", "c.yaml", "--run-dir", "r")
    succeed(cli, "review", "r", "--output", "review.csv")
    rows = read("review.csv", ";")
    assert len(rows) > 3

    save([row | {"score": row["suggested"]} for row in rows], delimiter=";")
    assert len(dataset(corrections="corrected.csv").labels_before_corrections) == len(rows)

    save(rows * 3, "train.csv", delimiter=";")
    data = dataset()
    assert len(data.train) + len(data.validation) == 3 * len(rows)


def first_lines(name: str) -> dict[str, int]:
    """The line at which each row of a file begins, by the cell of its first column."""
    lines = {}
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=";")
        line = 1
        for row in reader:
            lines[row[0]] = line
            line = reader.line_num + 1
    return lines


def copy_run(folder: Path) -> None:
    """Copy the run and its data to the current folder, as if they had been moved here."""
    for name in ("train.csv", "test.csv"):
        shutil.copy(folder / name, name)
    shutil.copytree(folder / "runs/c", "c")

    config = Path("c/config.yaml")
    config.write_text(config.read_text().replace(str(folder), str(Path.cwd())))


def move_data_away() -> list[str]:
    """Move the data to another folder, and return the options that say so."""
    Path("away").mkdir()
    options = []
    for key in ("train", "test"):
        shutil.move(f"{key}.csv", f"away/{key}.csv")
        options += ["--set", f"data.{key}=away/{key}.csv"]
    return options


@pytest.mark.parametrize("change", ["a label", "more rows"])
def test_changed_data_is_refused_also_where_a_test_file_is_named(cli, folder, change):
    """The model would otherwise judge labels that it has learned, as other texts are held out."""
    copy_run(folder)
    succeed(cli, "review", "c")

    content = Path("train.csv").read_bytes().decode()
    if change == "a label":
        lines = content.split("\n")
        lines[1] = lines[1].replace("food", "sport")
        content = "\n".join(lines)
    else:
        content += "".join(f"more soup {number},food\r\n" for number in range(9))
    Path("train.csv").write_text(content, newline="")

    assert_failed(cli("review", "c"), 3, "has changed since the run began")
    # It scores the test file alone.
    succeed(cli, "eval", "c")


def test_an_added_validation_row_of_an_unknown_class_is_refused(cli):
    write_data()
    rows = random_rows(40, random.Random(2))
    write_rows(rows, "validation.csv")
    succeed(cli, "train", "c.yaml", "--set", "data.validation=validation.csv", "--run-dir", "r")
    succeed(cli, "review", "r")

    write_rows([*rows, ["a new planet", "astronomy"]], "validation.csv")

    changed = "validation.csv: its validation texts have changed since the run began"
    assert_failed(cli("review", "r"), 3, changed)


def test_the_counts_of_a_review_fit_together(cli, folder, monkeypatch):
    """Labels that seem to be wrong are among those that are listed."""
    monkeypatch.chdir(folder)
    draw = random.Random(1)
    rows = []
    for _ in range(120):
        text = " ".join(draw.choices(WORDS["food"], k=3))
        rows.append([text, draw.choice("abc")])
    write_rows(rows, "noise.csv")
    options = ["--set", "data.train=noise.csv", "--set", "model.encoder=false"]
    succeed(cli, "train", *options, "--run-dir", "runs/noise")

    outcome = cli("review", "runs/noise", "--json")

    review = json.loads(outcome.out)
    num_rows = len(review["rows"])
    num_errors = review["estimated_errors"]
    assert 0 < num_errors <= num_rows <= review["texts"]
    counts = f"another one is more probable for {num_rows}; at most about {num_errors} are wrong"
    assert counts in outcome.err


def test_options_name_data_that_has_moved(cli, folder):
    copy_run(folder)
    texts_before = texts_of(cli("review", "c", "--json"))
    places = move_data_away()

    for command in ("review", "eval"):
        refused = cli(command, "c")
        assert_failed(refused, 3, "if it has been moved, add --set data.train=PATH")

    assert texts_of(cli("review", "c", "--json", *places)) == texts_before
    succeed(cli, "eval", "c", *places)

    # It must be the data of the training.
    with Path("away/train.csv").open("a") as file:
        file.write("more soup,food\n")
    refused = cli("review", "c", *places)
    assert_failed(refused, 3, "away/train.csv: has changed since the run began")


def texts_of(outcome) -> list[str]:
    """The texts in the JSON of a review."""
    return [row["text"] for row in json.loads(outcome.out)["rows"]]


def test_a_review_sets_nothing_but_the_place_of_its_data(cli, folder):
    copy_run(folder)
    assert_failed(cli("review", "c", "--set", "data.text_column=a"), 2, "can be set here")
    assert_failed(cli("review", "c", "--set", "data.train="), 2, "data.train: names no file")


def test_a_finished_run_records_the_new_place_of_its_data(cli, folder):
    """After `train --resume`, which compares the data, the run can be continued and reviewed."""
    copy_run(folder)
    Path("new.csv").write_text("text,label\nnew words of soup,food\nnew words of a goal,sport\n")
    places = move_data_away()
    resume = ["train", "--run-dir", "c", "--resume", *places]
    continue_run = ["train", "--from", "c", "--set", "data.train=new.csv", "--run-dir", "next"]

    refused = cli(*continue_run)
    assert_failed(refused, 3, "train --run-dir c --resume --set data.train=PATH")

    Path("other.csv").write_text(Path("away/train.csv").read_text() + "more soup,food\n")
    refused = cli(*resume, "--set", "data.train=other.csv")
    assert_failed(refused, 3, "has changed since the run began")

    outcome = succeed(cli, *resume)
    assert "c/config.yaml: has the new place of the data" in outcome.err

    succeed(cli, "review", "c")
    succeed(cli, *continue_run)


def test_doubtful_labels_are_corrected_on_the_page(folder, monkeypatch):
    """They come in the order of `review`, with words; `data.corrections` reads the table.

    Classes have the keys that they had when the data were labelled.
    """
    monkeypatch.chdir(folder)
    found = review(Path("runs/c"))
    names = list(found.class_names)
    assert names[::-1] != names
    kept = session_file(Path(found.data.train))
    kept.write_text(json.dumps({"classes": ["gone", *names[::-1]]}))
    opened = open_review(Path("runs/c"), Path("page.csv"), {})
    kept.unlink()
    session = opened.session
    assert session.classes.names == names[::-1]
    asked = []
    with opened.model:
        while session.state()["text"]:
            text = session.state()["text"]
            asked.append(text["text"])
            guess = text["guess"]
            assert guess["labels"] != guess["labels_now"]
            while not opened.model.words(text["key"]):
                time.sleep(0.01)

            # The first label is kept, all others are corrected.
            labels = guess["labels_now"] if len(asked) == 1 else guess["labels"]
            session.label(text["key"], labels)
        summary = session.state()["model"]["accuracy"]
    assert summary == f"changed: {len(asked) - 1}; kept: 1"
    with pytest.raises(RefusedError, match="keeps the classes"):
        session.add_class("tennis")

    # Another process continues, and asks nothing again.
    assert open_review(Path("runs/c"), Path("page.csv"), {}).session.state()["text"] is None
    doubtful = review(Path("runs/c")).rows
    assert asked == list(dict.fromkeys(row.text for row in doubtful))

    config = load_config(Path("c.yaml"), ["data.corrections=page.csv"])
    dataset = load_dataset(config.data)
    kept = {Path(row.where).name for row in doubtful if row.text == asked[0]}
    changed = {Path(row.where).name for row in doubtful} - kept
    assert changed <= set(dataset.labels_before_corrections)
    assert not kept & set(dataset.labels_before_corrections)


def test_words_are_computed_only_so_far_ahead_of_the_person(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(review_session, "AHEAD", 0)
    keys = list(dict.fromkeys(row.key for row in review(Path("runs/c")).rows))
    opened = open_review(Path("runs/c"), Path("ahead.csv"), {})

    with opened.model:
        for number, key in enumerate(keys):
            wait_until(lambda key=key: opened.model.words(key) is not None)
            time.sleep(0.05)  # in which further words would be there
            assert not any(opened.model.words(later) for later in keys[number + 1 :])
            opened.session.skip(key, SKIPPED)


def test_a_run_without_doubtful_labels_is_done(cli, trained_run):
    outcome = cli("label", "--review", trained_run.path, "--output", "c.csv", "--no-browser")
    assert outcome.code == 0
    assert "no doubtful label" in outcome.err
    assert not Path("c.csv").exists()
