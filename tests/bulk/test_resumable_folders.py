"""An input of several files, each of which gets a file of predictions.

Killed, run again, or run twice at once, each row has one prediction.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.bulk import resumable_folder
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.classifier.classifier import Classifier

NAMES = ["part-01.jsonl", "part-02.csv", "part-03.tsv", "part-04.jsonl"]
STEMS = ["part-01", "part-02", "part-03", "part-04"]
# The rows of each part.
ROWS = 30


def machine_that_begins_at_first() -> str:
    """The name of a machine whose first part is the first of four."""
    number = 0
    while int(hashlib.sha256(f"machine-{number}".encode()).hexdigest()[:8], 16) % 4 != 0:
        number += 1
    return f"machine-{number}"


@pytest.fixture
def parts() -> list[str]:
    """A folder of texts, `in`; returns the ids of all of them."""
    Path("in").mkdir()
    all_ids = []
    for number, name in enumerate(NAMES):
        ids = [f"{number}-{row}" for row in range(ROWS)]
        if name.endswith(".jsonl"):
            lines = [json.dumps({"id": id_, "text": "rain and snow"}) for id_ in ids]
        else:
            separator = "," if name.endswith(".csv") else "\t"
            lines = [f"id{separator}text"]
            lines += [f"{id_}{separator}soup with salt" for id_ in ids]

        Path("in", name).write_text("\n".join(lines) + "\n")
        all_ids += ids
    return all_ids


@pytest.fixture
def in_order(monkeypatch) -> None:
    """This machine begins with the first part."""
    monkeypatch.setattr("platform.node", machine_that_begins_at_first)


def command(trained_run, *options: object) -> list[object]:
    return [
        "predict",
        "--model",
        trained_run.path,
        "--input",
        "in",
        "--output",
        "out/",
        *options,
    ]


def files_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if path.is_file())


def ids_in(folder: str) -> list[str]:
    """The ids of all predictions that a reader of the folder finds; each file is whole."""
    ids = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        lines = path.read_text().splitlines()
        assert len(lines) == ROWS
        ids += [json.loads(line)["id"] for line in lines]
    return ids


def record_of(stem: str) -> dict:
    return json.loads(Path(f"out/_parts/{stem}.json").read_text())


def times_of_writing() -> dict[str, int]:
    """When each file of predictions was written."""
    return {name: Path("out", name).stat().st_mtime_ns for name in files_in("out")}


def test_each_file_gets_a_file_of_predictions_and_a_record(cli, trained_run, parts):
    """Ids are kept; the record has hashes of model, input and options, and the engine."""
    outcome = cli(*command(trained_run))

    assert outcome.code == 0
    assert outcome.out == ""
    assert "4 of 4 files written by this process (120 texts), 0 already there" in outcome.err
    assert ids_in("out") == parts
    assert files_in("out") == [f"{stem}.jsonl" for stem in STEMS]
    assert files_in("out/_parts") == [f"{stem}.json" for stem in STEMS]

    record = record_of("part-02")
    expected = {"input": NAMES[1], "output": "part-02.jsonl", "rows": ROWS, "engine": "numpy"}
    assert record.items() >= expected.items()
    for hashed in ("input", "model", "options", "output"):
        assert len(record[f"{hashed}_sha256"]) == 64


def test_complete_parts_are_skipped(cli, trained_run, parts):
    assert cli(*command(trained_run)).code == 0
    before = times_of_writing()

    assert "0 of 4 files written" in cli(*command(trained_run)).err
    assert times_of_writing() == before


def test_changed_parts_are_done_again(cli, trained_run, parts):
    """An input, its predictions, a record: each concerns its own part."""
    assert cli(*command(trained_run)).code == 0
    before = times_of_writing()
    first = Path("in", NAMES[0])
    first.write_text(first.read_text().replace("snow", "wind"))
    Path("out/part-02.jsonl").write_text("{}\n")
    Path("out/_parts/part-03.json").write_text("[")

    assert "3 of 4 files written" in cli(*command(trained_run)).err

    after = times_of_writing()
    unchanged = [name for name in before if after[name] == before[name]]
    assert unchanged == ["part-04.jsonl"]
    assert ids_in("out") == parts


@pytest.mark.usefixtures("parts", "in_order")
def test_a_part_that_gets_other_columns_meanwhile_has_changed(cli, trained_run, monkeypatch):
    """Its rows do not fit the columns that were read ahead, which is not the reason to name."""
    part = Path("in", NAMES[0])
    content = part.read_bytes()
    part.write_bytes(b"")

    def fill_and_predict(*arguments):
        part.write_bytes(content)
        return predict_texts(*arguments)

    monkeypatch.setattr(resumable_folder, "predict_texts", fill_and_predict)

    failed = cli(*command(trained_run, "--format", "csv", "--keep-columns"))
    assert_failed(failed, 3, f"error: {part}: has changed while it was read; run the same command")


@pytest.mark.usefixtures("parts")
def test_options_that_change_predictions_concern_all_parts(cli, trained_run):
    assert cli(*command(trained_run)).code == 0

    with_top_2 = command(trained_run, "--top-k", 2)
    assert "4 of 4 files written" in cli(*with_top_2).err
    assert "0 of 4 files written" in cli(*with_top_2, "--batch-tokens", 99).err


@pytest.mark.usefixtures("parts")
def test_the_engine_is_chosen_by_the_size_of_all_parts(cli, trained_run, monkeypatch):
    """Equal inputs have equal predictions, whichever process does which part."""
    # More work than each part has, and less than all have.
    monkeypatch.setattr("encoder_cls.encoder.engine_choice.BREAK_EVEN", 1e6)

    assert cli(*command(trained_run)).code == 0

    for stem in STEMS:
        assert record_of(stem)["engine"] == "torch"


@pytest.mark.usefixtures("parts")
def test_predictions_in_another_format_replace_the_earlier_ones(cli, trained_run):
    """The folder has each row once; a file that somebody has changed stays."""
    assert cli(*command(trained_run)).code == 0
    Path("out/part-04.jsonl").write_text("mine\n")

    assert cli(*command(trained_run, "--format", "csv")).code == 0

    tables = [f"{stem}.csv" for stem in STEMS]
    assert files_in("out") == [*tables, "part-04.jsonl"]


def test_a_part_that_another_process_writes_is_waited_for(cli, trained_run, parts, monkeypatch):
    Path("out/_parts").mkdir(parents=True)
    lock = os.open("out/_parts/part-03.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(lock)

    monkeypatch.setattr("encoder_cls.bulk.resumable_folder.time.sleep", pause)
    outcome = cli(*command(trained_run))

    assert len(pauses) == 3
    assert outcome.code == 0
    assert outcome.err.count("waiting for 1 file that other processes are writing") == 1
    assert ids_in("out") == parts


@pytest.mark.usefixtures("parts", "in_order")
def test_writing_by_another_process_with_other_options_is_noticed(cli, trained_run, monkeypatch):
    """After another process with other options, nobody knows which rows are whose."""
    real = Classifier.tokenize
    first_record = Path("out/_parts/part-01.json")

    def meddle(self, texts):
        if first_record.exists():
            record = record_of("part-01")
            record["options_sha256"] = "changed"
            first_record.write_text(json.dumps(record))
        return real(self, texts)

    monkeypatch.setattr(Classifier, "tokenize", meddle)
    outcome = cli(*command(trained_run))

    assert outcome.code == 1
    expected = "part-01.jsonl: another process has written it with another model or other options"
    assert expected in outcome.err


@pytest.mark.usefixtures("in_order")
def test_a_malformed_part_ends_the_work_and_what_is_done_stays(cli, trained_run, parts):
    second = Path("in", NAMES[1])
    well_formed = second.read_text()
    second.write_text(well_formed + "too,many,fields\n")

    assert_failed(cli(*command(trained_run)), 3, f"in/{NAMES[1]}:32: 3 fields")
    assert ids_in("out") == parts[:ROWS]

    second.write_text(well_formed)
    assert "3 of 4 files written" in cli(*command(trained_run)).err
    assert ids_in("out") == parts


@pytest.mark.usefixtures("parts")
def test_predictions_for_files_that_are_gone_are_warned_of(cli, trained_run):
    assert cli(*command(trained_run)).code == 0
    Path("in", NAMES[3]).unlink()

    outcome = cli(*command(trained_run))

    expected = "warning: out: has predictions for 1 file not in the input, such as 'part-04'"
    assert expected in outcome.err


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        (
            "--output",
            "in/",
            2,
            "read (in); name an output in another folder",
        ),
        ("--output", "in/out/", 2, "is in a folder that is read (in)"),
        ("--input", "missing", 3, "no such file or folder"),
        ("--input", "-", 2, "a folder takes only the predictions for files"),
        ("--attention", "a.html", 2, "--attention: shows only a few texts"),
        ("--output", "a file/", 2, "a file is not a folder"),
        ("--output", "{model}/", 2, "is a part of"),
        (
            "--input",
            "twins",
            2,
            "twins/a.csv and twins/a.jsonl: the predictions for both would be written to "
            "out/a.jsonl",
        ),
        ("--input", "classes", 2, "has a file for each text"),
    ],
)
@pytest.mark.usefixtures("parts")
def test_impossible_requests_are_refused_before_any_work(
    cli, trained_run, option, value, code, message
):
    for name in ("a file", "twins/a.csv", "twins/a.jsonl", "classes/x/1.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")
    value = value.format(model=trained_run.model)

    assert_failed(cli(*command(trained_run, option, value)), code, message)
    assert not Path("out").exists()


@pytest.mark.parametrize("source", ["in", "in/part-*"])
def test_for_several_files_a_name_without_an_ending_is_a_folder(cli, trained_run, parts, source):
    """A killed command would leave nothing in a file."""
    options = ["--model", trained_run.path, "--input", source, "--output", "predictions"]
    assert cli("predict", *options).code == 0
    assert ids_in("predictions") == parts


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("in", "a file"),
        ("in/part-*", "a file"),
        (f"in/{NAMES[1]}", "one"),
        ("in", "all.csv"),
        ("in/part-*", "all.csv"),
    ],
)
@pytest.mark.usefixtures("parts")
def test_other_names_are_files(cli, trained_run, source, output):
    """A file that is there stays one; one file of input gives one file, and so does an ending."""
    Path("a file").touch()

    options = ["--model", trained_run.path, "--input", source, "--output", output]
    assert cli("predict", *options).code == 0
    assert Path(output).is_file()


@pytest.mark.usefixtures("parts")
def test_a_stopped_command_says_how_to_continue_and_then_continues(cli, trained_run, monkeypatch):
    real = Classifier.tokenize
    num_calls = 0

    def stop_at_second_part(self, texts):
        nonlocal num_calls
        num_calls += 1
        if num_calls == 2:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(Classifier, "tokenize", stop_at_second_part)

    outcome = cli(*command(trained_run))
    assert outcome.code == 130
    assert "stopped; out: 1 of 4 files done; run the same command again to continue" in outcome.err

    outcome = cli(*command(trained_run))
    assert outcome.err.startswith("out: 1 of 4 files already done\n")
    assert "3 of 4 files written" in outcome.err


@pytest.mark.parametrize("output", [pytest.param("out.parquet", marks=pytest.mark.slow), "out/"])
@pytest.mark.usefixtures("parts")
def test_the_predictions_of_several_processes_are_the_same_bytes(
    cli, trained_run, used_workers, monkeypatch, output
):
    """The counts and the kept columns are the same, too; one process does a small input."""
    with Path("in", NAMES[1]).open("a") as file:
        for row in range(80):
            file.write(f"{row},{'zzz ' * (row % 40)}\n")
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 8)
    options = ["--model", trained_run.path, "--input", "in", "--output", output, "--keep-columns"]

    def predict(shared_bytes: int) -> tuple[object, list[bytes]]:
        """The outcome where inputs of such a size are shared, and the files written."""
        monkeypatch.setattr("encoder_cls.bulk.input_size.SHARED_BYTES", shared_bytes)
        outcome = cli("predict", *options)
        files = [Path(output)]
        if output == "out/":
            files = sorted(Path("out").glob("*.jsonl"))
        contents = [file.read_bytes() for file in files]
        for file in files:
            file.unlink()
        return outcome, contents

    by_one_process = predict(10**9)
    assert not used_workers
    by_two_processes = predict(1)
    assert used_workers

    assert by_two_processes == by_one_process
    outcome, _ = by_one_process
    assert outcome.code == 0
    assert "truncated" in outcome.err
