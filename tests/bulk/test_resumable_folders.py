"""An input of several files, answered file by file.

Killed, run again, or run twice at once, each row has one answer.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.system.processes import Workers

NAMES = ["part-01.jsonl", "part-02.csv", "part-03.tsv", "part-04.jsonl"]
ROWS = 30
# The name of a machine whose first part is the first of four.
BEGINS_AT_FIRST = next(
    name
    for name in map(str, range(99))
    if int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 4 == 0
)


@pytest.fixture
def parts() -> list[str]:
    """A folder of texts; the ids of all of them."""
    Path("in").mkdir()
    for number, name in enumerate(NAMES):
        ids = [f"{number}-{row}" for row in range(ROWS)]
        if name.endswith(".jsonl"):
            lines = [json.dumps({"id": id_, "text": "rain and snow"}) for id_ in ids]
        else:
            comma = "," if name.endswith(".csv") else "\t"
            lines = [f"id{comma}text", *(f"{id_}{comma}soup with salt" for id_ in ids)]
        Path("in", name).write_text("\n".join(lines) + "\n")
    return [f"{number}-{row}" for number in range(len(NAMES)) for row in range(ROWS)]


def ids_in(folder: str) -> list[str]:
    """Of all answers that a reader of the folder finds; each file is whole."""
    found = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        found += [json.loads(line)["id"] for line in path.read_text().splitlines()]
        assert len(found) % ROWS == 0
    return found


def times(folder: str) -> dict[str, int]:
    """When each file of answers was written."""
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir() if path.is_file()}


def arguments(trained_run, *more: object) -> list[str]:
    return [
        "predict",
        "--model",
        str(trained_run.path),
        "--input",
        "in",
        "--output",
        "out/",
        *map(str, more),
    ]


def test_each_file_gets_a_file_of_predictions_and_a_record(cli, trained_run, parts):
    """Ids are kept; the record has hashes of model, input and options, and the engine."""
    outcome = cli(*arguments(trained_run))
    assert (outcome.code, outcome.out) == (0, "")
    assert "4 of 4 files written by this process (120 texts), 0 already there" in outcome.err
    assert ids_in("out") == parts
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "_parts",
        *(f"part-0{n}.jsonl" for n in range(1, 5)),
    ]
    assert sorted(path.name for path in Path("out/_parts").iterdir()) == [
        f"part-0{n}.json" for n in range(1, 5)
    ]
    record = json.loads(Path("out/_parts/part-02.json").read_text())
    expected = {"input": NAMES[1], "output": "part-02.jsonl", "rows": ROWS, "engine": "numpy"}
    assert record.items() >= expected.items()
    assert all(
        len(record[f"{name}_sha256"]) == 64 for name in ("input", "model", "options", "output")
    )


def test_complete_parts_are_skipped_and_what_has_changed_is_done_again(cli, trained_run, parts):
    """An input, the answers themselves, a record, an option: each concerns its own files."""
    assert cli(*arguments(trained_run)).code == 0
    before = times("out")
    assert "0 of 4 files written" in cli(*arguments(trained_run)).err
    assert times("out") == before

    Path("in", NAMES[0]).write_text(Path("in", NAMES[0]).read_text().replace("snow", "wind"))
    Path("out/part-02.jsonl").write_text("{}\n")
    Path("out/_parts/part-03.json").write_text("[")
    assert "3 of 4 files written" in cli(*arguments(trained_run)).err
    after = times("out")
    assert [after[name] == before[name] for name in sorted(before)] == [False, False, False, True]
    assert ids_in("out") == parts

    other_predictions = arguments(trained_run, "--top-k", 2)
    assert "4 of 4 files written" in cli(*other_predictions).err
    assert "0 of 4 files written" in cli(*other_predictions, "--batch-tokens", 99).err


def test_the_engine_is_chosen_by_all_parts_and_not_by_who_does_which(
    cli, trained_run, parts, monkeypatch
):
    """So that equal inputs have equal answers, whichever process gets to them first."""
    # Less than all have, more than each.
    monkeypatch.setattr("encoder_cls.encoder.engines.BREAK_EVEN", 1e6)
    assert cli(*arguments(trained_run)).code == 0
    records = [json.loads(path.read_text()) for path in Path("out/_parts").iterdir()]
    assert [record["engine"] for record in records] == ["torch"] * len(NAMES)


def test_predictions_in_another_format_replace_the_earlier_ones(cli, trained_run, parts):
    """Else the folder would have each row twice; a file that somebody has changed stays."""
    assert cli(*arguments(trained_run)).code == 0
    Path("out/part-04.jsonl").write_text("mine\n")
    assert cli(*arguments(trained_run, "--format", "csv")).code == 0
    names = sorted(path.name for path in Path("out").iterdir() if path.is_file())
    assert names == [*(f"part-0{n}.csv" for n in range(1, 5)), "part-04.jsonl"]


def test_a_part_that_another_process_is_at_is_waited_for(cli, trained_run, parts, monkeypatch):
    Path("out/_parts").mkdir(parents=True)
    lock = os.open("out/_parts/part-03.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(lock)

    monkeypatch.setattr("encoder_cls.bulk.resumable_folder.time.sleep", pause)
    outcome = cli(*arguments(trained_run))
    assert len(pauses) == 3
    assert outcome.code == 0
    assert outcome.err.count("waiting for 1 file that other processes are writing") == 1
    assert ids_in("out") == parts


def test_what_others_write_at_the_same_time_is_noticed(cli, trained_run, parts, monkeypatch):
    """Another process with other options: then nobody knows which rows are whose."""
    real = Classifier.tokenize
    first = Path("out/_parts/part-01.json")

    def meddle(self, texts):
        if first.exists() and "changed" not in first.read_text():
            first.write_text(
                json.dumps({**json.loads(first.read_text()), "options_sha256": "changed"})
            )
        return real(self, texts)

    monkeypatch.setattr(Classifier, "tokenize", meddle)
    monkeypatch.setattr("platform.node", lambda: BEGINS_AT_FIRST)
    outcome = cli(*arguments(trained_run))
    assert outcome.code == 1
    assert (
        "out/part-01.jsonl: another process has written it with another model or other options"
        in outcome.err
    )


def test_a_malformed_part_ends_the_work_and_what_is_done_stays(
    cli, trained_run, parts, monkeypatch
):
    monkeypatch.setattr("platform.node", lambda: BEGINS_AT_FIRST)
    whole = Path("in", NAMES[1]).read_text()
    Path("in", NAMES[1]).write_text(whole + "too,many,fields\n")
    assert_failed(cli(*arguments(trained_run)), 3, f"in/{NAMES[1]}:32: 3 fields")
    assert ids_in("out") == parts[:ROWS]
    Path("in", NAMES[1]).write_text(whole)
    assert "3 of 4 files written" in cli(*arguments(trained_run)).err
    assert ids_in("out") == parts


def test_predictions_for_files_that_are_gone_are_warned_of(cli, trained_run, parts):
    assert cli(*arguments(trained_run)).code == 0
    Path("in", NAMES[3]).unlink()
    outcome = cli(*arguments(trained_run))
    assert "warning: out: has predictions for 1 file not in the input, such as 'part-04'" in outcome.err


@pytest.mark.parametrize(
    ("changed", "code", "named"),
    [
        (["--output", "in/"], 2, "is a file that is read"),
        (["--output", "in/out/"], 2, "is among what is read (in)"),
        (["--input", "missing"], 3, "no such file or folder"),
        (["--input", "-"], 2, "a folder takes the predictions for files"),
        (["--format", "html"], 2, "a page holds the first texts only"),
        (["--attention", "a.html"], 2, "--attention: is of a few texts"),
        (["--output", "a file/"], 2, "a file is not a folder"),
        (["--output", "MODEL/"], 2, "is a part of"),
        (
            ["--input", "twins"],
            2,
            "twins/a.csv and twins/a.jsonl: the predictions for both would be written to out/a.jsonl",
        ),
        (["--input", "classes"], 2, "has a file for each text"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(cli, trained_run, parts, changed, code, named):
    for name in ("a file", "twins/a.csv", "twins/a.jsonl", "classes/x/1.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")
    changed = [argument.replace("MODEL", str(trained_run.model)) for argument in changed]
    assert_failed(cli(*arguments(trained_run, *changed)), code, named)
    assert not Path("out").exists()


@pytest.mark.parametrize("source", ["in", "in/part-*"])
def test_a_name_without_an_ending_is_a_folder_for_the_predictions_for_several_files(
    cli, trained_run, parts, source
):
    """Else a killed command would have nothing; a file, and what is there already, keep their kind."""
    command = ["predict", "--model", trained_run.path, "--input", source, "--output"]
    assert cli(*command, "answers").code == 0
    assert ids_in("answers") == parts

    Path("a file").touch()
    for name, of in (("a file", source), ("one", f"in/{NAMES[1]}"), ("all.csv", source)):
        assert cli(*command[:-2], of, "--output", name).code == 0
        assert Path(name).is_file()


def test_a_resumed_command_says_how_many_files_are_done_and_a_stopped_one_that_it_goes_on(
    cli, trained_run, parts, monkeypatch
):
    real = Classifier.tokenize
    stops = iter([False, True, False, False, False])

    def stop(self, texts):
        if next(stops):
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(Classifier, "tokenize", stop)
    outcome = cli(*arguments(trained_run))
    assert outcome.code == 130
    assert "stopped; out: 1 of 4 files done; the same command goes on with the rest" in outcome.err
    outcome = cli(*arguments(trained_run))
    assert outcome.err.startswith("out: 1 of 4 files done before\n")
    assert "3 of 4 files written" in outcome.err


@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out/"])
def test_the_predictions_of_several_processes_are_the_same_bytes(
    cli, trained_run, parts, monkeypatch, output
):
    """With what was counted, and the columns of the input; a small input is answered in this process."""
    with Path("in", NAMES[1]).open("a") as file:
        file.write("".join(f"{row},{'zzz ' * (row % 40)}\n" for row in range(80)))
    monkeypatch.setattr("encoder_cls.bulk.input_texts.CHUNK", 8)
    monkeypatch.setattr("encoder_cls.bulk.chunk_classifier.usable_processes", lambda: 2)
    used = []

    class UsedWorkers(Workers):
        def map(self, items):
            used.append(self)
            return super().map(items)

    monkeypatch.setattr("encoder_cls.bulk.chunk_classifier.Workers", UsedWorkers)

    command = ["predict", "--model", trained_run.path, "--input", "in", "--keep-columns"]
    outcomes = []
    written = []
    for shared_bytes in (10**9, 1):
        monkeypatch.setattr("encoder_cls.bulk.chunk_classifier.SHARED_BYTES", shared_bytes)
        outcomes.append(cli(*command, "--output", output))
        files = [Path(output)] if Path(output).is_file() else sorted(Path("out").glob("*.jsonl"))
        written.append([file.read_bytes() for file in files])
        assert bool(used) == (shared_bytes == 1)
        for file in files:
            file.unlink()

    assert outcomes[0] == outcomes[1]
    assert "truncated" in outcomes[0].err
    assert written[0] == written[1]
