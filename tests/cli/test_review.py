"""The cycle train, review, correct in a spreadsheet, train: corrected labels reach their rows."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from openpyxl import Workbook
from support.programs import assert_failed

from encoder_cls.config.loading import load_config
from encoder_cls.data.corrections import correction_key
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots")

WORDS = {"food": ["soup", "bread", "salt", "pan"], "sport": ["ball", "goal", "team", "race"]}
ODD = ['=SUM("soup";pan)', "+1 bread,\nsalt", 'the "pan";\r\nsoup', "soup pan"]
WRONG = (5, 6, 7, 8, 25)  # rows whose label is the other class; the first four have odd texts


def write_data() -> None:
    """Train holds five wrong labels, and two rows of one text; test one wrong label."""
    draw = random.Random(0)
    for name, count in (("train.csv", 80), ("test.csv", 12)):
        labels = [("food", "sport")[number % 2] for number in range(count)]
        rows = [[" ".join(draw.choices(WORDS[label], k=4)), label] for label in labels]
        if name == "train.csv":
            for number, text in zip(WRONG, ODD, strict=False):
                rows[number] = [text, "sport"]
            rows[25][1] = "food"
            rows[40] = ["soup pan", "food"]
        else:
            rows[0][1] = "sport"
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text", "label"], *rows])
    Path("c.yaml").write_text("data: {train: train.csv, test: test.csv}\nmodel: {encoder: false}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the data is, and a run on it: one for all tests, which add files of their own."""
    folder = tmp_path_factory.mktemp("reviewed")
    with contextlib.chdir(folder):
        write_data()
        run = RunDir(Path("runs/c"))
        train(prepare(load_config(Path("c.yaml"))), run, device=torch.device("cpu"))
    return folder


@pytest.fixture
def reviewed(cli, folder, monkeypatch) -> list[dict[str, str]]:
    """The rows of a review of that run, in whose folder the test is."""
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
            writer.writerow({name: cell.replace("\r\n", "\n") for name, cell in row.items()})


def save_excel(rows: list[dict[str, str]], name: str) -> None:
    """Write a workbook in which a spreadsheet has made numbers of what looks like one."""
    workbook = Workbook()
    sheet = workbook.active
    sheet.append(list(rows[0]))
    for row in rows:
        cells = [float(cell) if name == "score" else cell for name, cell in row.items()]
        sheet.append([int(cell) if str(cell).isdigit() else cell for cell in cells])
    workbook.save(name)


def corrected(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Take the suggestion for the label, in all rows."""
    return [row | {"label": row["suggested"]} for row in rows]


def dataset(**values: str) -> Dataset:
    return load_dataset(
        load_config(Path("c.yaml"), [f"data.{key}={value}" for key, value in values.items()]).data
    )


def labels_by_place(data: Dataset) -> dict[str, str]:
    splits = [split for split in (data.train, data.validation, data.test) if split]
    return {
        Path(where).name: data.label_names[label]
        for split in splits
        for where, label in zip(split.where, split.labels, strict=True)
    }


COLUMNS = "text label suggested score split file line row label_in_data key"


def test_wrong_labels_come_first(reviewed):
    """Those of train are judged by cross-validation, others by the model."""
    assert list(reviewed[0]) == COLUMNS.split()
    scores = [float(row["score"]) for row in reviewed]
    assert scores == sorted(scores, reverse=True)

    found = {(Path(row["file"]).name, row["text"]) for row in reviewed}
    assert {("train.csv", ODD[0]), ("train.csv", ODD[1])} <= found
    assert {row["split"] for row in reviewed} >= {"train", "test"}
    labels = {(row["label"], row["suggested"]) for row in reviewed[:6]}
    assert labels == {("sport", "food"), ("food", "sport")}
    assert len(reviewed) <= 9


def test_each_row_of_a_review_leads_back_to_its_line_and_its_row_in_a_spreadsheet(reviewed):
    lines_of = {int(row["row"]): int(row["line"]) for row in reviewed if row["split"] != "test"}
    # Two texts have a line feed.
    assert lines_of.items() >= {7: 7, 8: 8, 9: 10, 10: 12, 27: 29}.items()
    assert all(row["key"] == correction_key(row["text"]) for row in reviewed)


@pytest.mark.parametrize("form", ["commas", "semicolons", "xlsx"])
def test_corrected_cells_reach_their_rows(reviewed, form):
    """Texts have quotes, separators, line breaks and signs of formulas."""
    name = "corrected.csv"
    if form == "xlsx":
        name = "corrected.xlsx"
        save_excel(corrected(reviewed), name)
    else:
        save(corrected(reviewed), delimiter=";" if form == "semicolons" else ",")
    before = dataset()
    after = dataset(corrections=name)

    old = labels_by_place(before)
    new = labels_by_place(after)
    changed = {place for place in old if old[place] != new[place]}
    assert changed == {f"{Path(row['file']).name}:{row['line']}" for row in reviewed}
    assert {Path(where).name for where in after.corrected} == changed
    assert {old[place] for place in changed} == {"food", "sport"}
    assert old.keys() == new.keys()

    # Who validates does not change with a label, so scores before and after compare.
    assert list(before.validation.where) == list(after.validation.where)


def test_the_order_and_the_other_cells_of_a_review_do_not_count(reviewed):
    """Nor do its other columns, and the place of the data."""
    save(corrected(reviewed))
    expected = labels_by_place(dataset(corrections="corrected.csv"))

    keys_and_labels = [
        {"label": row["suggested"], "key": row["key"], "text": "another"} for row in reviewed[::-1]
    ]
    save(keys_and_labels, "few_columns.csv")
    assert labels_by_place(dataset(corrections="few_columns.csv")) == expected

    Path("moved").mkdir(exist_ok=True)
    shutil.copy("train.csv", "moved/train.csv")
    moved = dataset(train="moved/train.csv", corrections="corrected.csv")
    assert labels_by_place(moved) == expected


def test_the_cycle_goes_round(cli, reviewed):
    """Trained again, reviewed again: the new file has all corrections, so it can take the place of the first."""
    save(corrected(reviewed))
    outcome = cli(
        "train", "c.yaml", "--run-dir", "runs/d", "--set", "data.corrections=corrected.csv"
    )
    assert outcome.code == 0, outcome.err
    assert (
        f"corrections: {len(reviewed)} labels of corrected.csv in place of those of the data"
        in outcome.err
    )
    assert cli("review", "runs/d", "--output", "again.csv").code == 0
    again = {(row["file"], row["line"]): row["label"] for row in read("again.csv")}
    assert (
        again.items() >= {(row["file"], row["line"]): row["suggested"] for row in reviewed}.items()
    )
    assert labels_by_place(dataset(corrections="again.csv")) == labels_by_place(
        dataset(corrections="corrected.csv")
    )
    assert_failed(cli("review", "runs/d", "--output", "corrected.csv"), 2, "is a file that is read")


def test_a_file_that_nobody_changed_changes_nothing(cli, reviewed):
    for rows in (reviewed, [row | {"label": f"{row['label']} "} for row in reviewed]):
        save(rows, delimiter=";")
        found = dataset(corrections="corrected.csv")
        assert found.corrected == {}
        assert found.train.fingerprint == dataset().train.fingerprint


def test_a_run_that_goes_on_notices_a_change(cli, reviewed):
    save(reviewed)
    arguments = (
        "train",
        "c.yaml",
        "--run-dir",
        "runs/e",
        "--set",
        "data.corrections=corrected.csv",
    )
    assert cli(*arguments).code == 0
    Path("runs/e/model/README.md").unlink()  # as if it had been stopped before its end
    save(corrected(reviewed))
    assert_failed(cli(*arguments, "--resume"), 2, "training data has changed since the run began")
    Path("corrected.csv").unlink()
    assert_failed(cli(*arguments, "--resume"), 3, "corrected.csv: no such file", "data.corrections")
    save(reviewed)
    assert cli(*arguments, "--resume").code == 0


def test_wrong_labels_of_repeated_texts_are_listed(cli):
    """Other texts judge them, not their copies with the same label; a class of one text, repeated, is not judged."""
    write_data()
    with Path("train.csv").open("a") as file:
        file.write("ball zebra okapi quagga,food\n" * 4 + "42,number\n" * 3)
    assert (
        cli(
            "train", "--config", "c.yaml", "--set", "data.validation=test.csv", "--run-dir", "r"
        ).code
        == 0
    )
    assert cli("review", "r", "--output", "review.csv").code == 0
    listed = [row["text"] for row in read("review.csv")]
    assert listed.count("ball zebra okapi quagga") == 4
    assert "42" not in listed


def test_json_has_all_rows_and_a_model_alone_has_no_data(cli, reviewed):
    outcome = cli("review", "runs/c", "--json")
    found = json.loads(outcome.out)
    assert [row["where"] for row in found["rows"]] == [
        f"{row['file']}:{row['line']}" for row in reviewed
    ]
    assert found["texts"] == 92
    assert 1 <= found["estimated_errors"] <= 12
    shutil.copytree("runs/c/model", "alone")
    assert_failed(
        cli("review", "alone"), 2, "alone: a model folder without its run has no data to review"
    )


@pytest.fixture
def sheet() -> list[dict[str, str]]:
    """Rows of a spreadsheet with ids, semicolons, a byte order mark and names of its own; two texts are equal."""
    write_data()
    rows = [
        {
            "id": f"{number:03}",
            "score": row["label"],
            "line": row["text"].replace("\r\n", "\n"),
            "topic": "a; b",
        }
        for number, row in enumerate(read("train.csv"))
    ]
    save(rows, "train.csv", delimiter=";")
    Path("c.yaml").write_text(
        "data: {train: train.csv, text_column: line, label_column: score}\nmodel: {encoder: false}\n"
    )
    return rows


def test_what_is_corrected_is_data_in_the_columns_of_the_data(cli, sheet):
    """Separator, mark and all columns are the input's; those whose names a review would give keep their names."""
    assert cli("train", "c.yaml", "--run-dir", "r").code == 0
    assert cli("review", "r", "--output", "review.csv").code == 0
    assert cli("eval", "r", "--data", "train.csv", "--report", "report").code == 0
    columns = "id;score;line;topic;suggested;review_score;split;file;review_line;row;"
    columns += "label_in_data;key\r\n"
    for name in ("review.csv", "report/mistakes.csv"):
        assert Path(name).read_bytes().startswith(f"\ufeff{columns}".encode()), name
    rows = read("review.csv", ";")
    of_id = {row["id"]: row for row in sheet}
    for row in rows:
        assert row.items() >= of_id[row["id"]].items()
        line = next(at for at, (number, *_) in numbered_lines("train.csv") if number == row["id"])
        assert row["review_line"] == str(line)
    save([row | {"score": row["suggested"]} for row in rows], delimiter=";")
    changed = dataset(corrections="corrected.csv").corrected
    assert len(changed) == len(rows) > 3
    save(rows * 3, "train.csv", delimiter=";")
    assert len(dataset().train) + len(dataset().validation) == 3 * len(rows)


def numbered_lines(name: str) -> list[tuple[int, list[str]]]:
    """The physical line at which each row of a file begins."""
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        reader, rows, line = csv.reader(file, delimiter=";"), [], 1
        for row in reader:
            rows.append((line, row))
            line = reader.line_num + 1
    return rows


def copied_run(folder: Path) -> None:
    """The run and its data in the current folder, as if they had been moved here."""
    for name in ("train.csv", "test.csv"):
        shutil.copy(folder / name, name)
    shutil.copytree(folder / "runs/c", "c")
    config = Path("c/config.yaml")
    config.write_text(config.read_text().replace(str(folder), str(Path.cwd())))


@pytest.mark.parametrize("change", ["a label", "more rows"])
def test_changed_data_is_refused_also_where_a_test_file_is_named(cli, folder, change):
    """Else other texts were held out, and those of the training would be judged by what has learned them."""
    copied_run(folder)
    content = Path("train.csv").read_bytes().decode()
    if change == "a label":
        lines = content.split("\n")
        lines[1] = lines[1].replace("food", "sport")
        content = "\n".join(lines)
    else:
        content += "".join(f"more soup {number},food\r\n" for number in range(9))
    assert cli("review", "c").code == 0
    Path("train.csv").write_text(content, newline="")
    assert_failed(cli("review", "c"), 3, "has changed since the run began")
    assert cli("eval", "c").code == 0  # of the test file alone


def test_the_counts_of_a_review_fit_together(cli, folder, monkeypatch):
    """Labels that seem to be wrong are among those with a more probable class; corrected rows are none of them."""
    monkeypatch.chdir(folder)
    draw = random.Random(1)
    rows = [(" ".join(draw.choices(WORDS["food"], k=3)), draw.choice("abc")) for _ in range(120)]
    with Path("noise.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    options = ["--set", "data.train=noise.csv", "--set", "model.encoder=false"]
    assert cli("train", *options, "--run-dir", "runs/noise").code == 0
    outcome = cli("review", "runs/noise", "--json")
    found = json.loads(outcome.out)
    assert 0 < found["estimated_errors"] <= len(found["rows"]) <= found["texts"]
    counts = f"another one is more probable for {len(found['rows'])}, of which {found['estimated_errors']} seem"
    assert counts in outcome.err


def test_data_that_has_moved_is_named_by_a_setting(cli, folder):
    """Of `review` and `eval`; it must be the data of the training; other settings are refused."""
    copied_run(folder)
    before = json.loads(cli("review", "c", "--json").out)["rows"]
    Path("away").mkdir()
    for name in ("train.csv", "test.csv"):
        shutil.move(name, Path("away") / name)

    for command in ("review", "eval"):
        outcome = cli(command, "c")
        assert_failed(outcome, 3, "if it has been moved, add --set data.train=PATH")
    places = [part for key in ("train", "test") for part in ("--set", f"data.{key}=away/{key}.csv")]
    rows = json.loads(cli("review", "c", "--json", *places).out)["rows"]
    assert [row["text"] for row in rows] == [row["text"] for row in before]
    outcome = cli("eval", "c", *places)
    assert outcome.code == 0, outcome.err

    with Path("away/train.csv").open("a") as file:
        file.write("more soup,food\n")
    assert_failed(cli("review", "c", *places), 3, "away/train.csv: has changed since the run began")
    assert_failed(cli("review", "c", "--set", "data.text_column=a"), 2, "can be set here")
    assert_failed(cli("review", "c", "--set", "data.train="), 2, "data.train: names no file")


def test_a_finished_run_is_told_once_where_its_data_is(cli, folder):
    """By `train --resume`, which compares it; from then on the run can be continued and reviewed."""
    copied_run(folder)
    Path("new.csv").write_text("text,label\nnew words of soup,food\nnew words of a goal,sport\n")
    Path("away").mkdir()
    for name in ("train.csv", "test.csv"):
        shutil.move(name, Path("away") / name)
    go_on = ["train", "--from", "c", "--set", "data.train=new.csv", "--run-dir", "next"]
    outcome = cli(*go_on)
    assert_failed(outcome, 3, "train --run-dir c --resume --set data.train=PATH")

    places = [part for key in ("train", "test") for part in ("--set", f"data.{key}=away/{key}.csv")]
    Path("other.csv").write_text(Path("away/train.csv").read_text() + "more soup,food\n")
    refused = cli("train", "--run-dir", "c", "--resume", *places, "--set", "data.train=other.csv")
    assert_failed(refused, 3, "has changed since the run began")
    told = cli("train", "--run-dir", "c", "--resume", *places)
    assert (told.code, "c/config.yaml: has the new place of the data" in told.err) == (0, True)
    assert cli("review", "c").code == 0
    outcome = cli(*go_on)
    assert outcome.code == 0, outcome.err
