"""No output replaces or extends an input, and no two outputs are one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError
from encoder_cls.run.output_checks import check_fit_no_pattern, check_outputs, check_run_folder
from encoder_cls.run.run_folder import RunDir

RUN_FILES = [
    "config.yaml",
    "metrics.jsonl",
    "model/model.safetensors",
    "eval/report.json",
    "tensorboard/texts/metadata.tsv",
    "checkpoints/step-1/state.json",
    "stages/pretraining/config.json",
]
# Data of each shape, and the files of a run and of a model by itself.
FILES = [
    "one.csv",
    "parts/a.csv",
    "parts/deep/b.csv",
    "reviews/good/1.txt",
    "reviews/bad/1.txt",
    "report.json",
    "run/model/config.json",
    "run/model/model.safetensors",
    "run/metrics.jsonl",
    "run/eval/report.html",
    "run/checkpoints/step-1/state.json",
    "alone/config.json",
    "alone/model.safetensors",
    "train/a.csv",
    "validation.csv",
    "tests-0.csv",
    "elsewhere.csv",
    "third.txt",
]


@pytest.fixture
def files() -> None:
    """The files, links to some of them, and a run that names some as its data."""
    for name in FILES:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("text\nrain\n")

    run_data = ["train", "validation.csv", "tests-*.csv", "reviews"]
    Path("run/config.yaml").touch()
    Path("run/sources.json").write_text(json.dumps({"data": run_data}))

    Path("a link").symlink_to("one.csv")
    Path("to parts").symlink_to("parts")
    Path("to the model").symlink_to("run/model")
    Path("parts/c.csv").symlink_to("../elsewhere.csv")
    Path("reviews/bad/3.txt").symlink_to("../../third.txt")
    os.link("one.csv", "twin.csv")


def refusal(outputs: list[str], **options) -> str:
    """The message, a line, by which outputs are refused."""
    with pytest.raises(ConfigError) as refused:
        check_outputs([Path(output) for output in outputs], **options)

    message = str(refused.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("source", "outputs"),
    [
        ("one.csv", ["one.csv", "./parts/../one.csv", "a link", "twin.csv"]),
        ("a link", ["one.csv"]),
        (
            "parts",
            [
                "parts/a.csv",
                "elsewhere.csv",
                "parts/predictions.tsv",
                "parts/deep/new/a.html",
                "to parts/new.jsonl",
            ],
        ),
        ("to parts", ["parts/new.jsonl"]),
        ("reviews", ["reviews/good/1.txt", "reviews/good/2.txt", "third.txt"]),
        ("parts/*.csv", ["parts/a.csv"]),
        ("to */*.csv", ["to parts/c.csv"]),
        ("**/*.csv", ["elsewhere.csv"]),
    ],
)
@pytest.mark.usefixtures("files")
def test_no_input_is_an_output(source, outputs):
    """A file is not written to, nor a folder extended, also where links lead there."""
    for output in outputs:
        assert refusal([output], sources=[source]).startswith(f"{Path(output)}: is ")


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("one.csv", "new.csv"),
        ("one.csv", "parts/a.csv"),
        ("parts", "parts.csv"),
        ("parts/*.csv", "parts/new.csv"),
        ("missing*.csv", "new.csv"),
        ("one.csv", os.devnull),
        ("hub:owner/name", "owner/name"),
    ],
)
@pytest.mark.usefixtures("files")
def test_other_files_can_be_outputs(source, output):
    check_outputs([Path(output)], sources=[source])


@pytest.mark.usefixtures("files")
def test_an_output_that_a_pattern_matches_would_be_read_the_next_time():
    for source, output in (("parts/*.csv", "to parts/new.csv"), ("*", "new.csv")):
        with pytest.raises(ConfigError, match="fits the pattern that is read"):
            check_fit_no_pattern([Path("parts/new.tsv"), Path(output)], source)

    for source in ("parts/*.csv", "parts", "-"):
        check_fit_no_pattern([Path("parts/new.tsv"), Path("parts/deep/new.csv")], source)


@pytest.mark.parametrize(
    "output", ["run/predictions.csv", "run/eval/mine.json", "reviews/good/2.csv", "report.json"]
)
@pytest.mark.usefixtures("files")
def test_files_beside_those_of_a_run_can_be_outputs(output):
    check_outputs([Path(output)], model=Path("run"), is_printing=True)


@pytest.mark.parametrize("model", ["run", "run/model", "to the model"])
@pytest.mark.parametrize(
    "output",
    [
        "run/model/config.json",
        "run/model/new.csv",
        "run/checkpoints/new",
        "run/checkpoints/step-1/state.json",
        "run/config.yaml",
        "run/metrics.jsonl",
        "run/held_out_predictions.safetensors",
        "run/reference.safetensors",
        "run/pretrained/model.safetensors",
        "run/.lock",
        "run/eval/report.html",
        "to the model/model.safetensors",
        "train/a.csv",
        "train/new.jsonl",
        "validation.csv",
        "tests-0.csv",
        "reviews/good/2.txt",
    ],
)
@pytest.mark.usefixtures("files")
def test_a_run_and_its_data_are_not_written_to(model, output):
    """No output is a file of them, or would be one, whichever folder of the run is named."""
    assert refusal([output], model=Path(model))


@pytest.mark.parametrize("output", ["alone/config.json", "alone/new.csv"])
@pytest.mark.usefixtures("files")
def test_a_model_by_itself_is_not_written_to(output):
    assert "is a part of alone" in refusal([output], model=Path("alone"))
    check_outputs([Path("run/model/config.json")], model=Path("alone"))


@pytest.mark.parametrize(
    "outputs",
    [
        ["new.html", "./new.html"],
        ["one.csv", "a link"],
        ["one.csv", "twin.csv"],
        ["parts/x", "to parts/x"],
    ],
)
@pytest.mark.usefixtures("files")
def test_two_outputs_are_two_files(outputs):
    assert "two outputs would be written to one file" in refusal(outputs)
    check_outputs([Path(os.devnull), Path(os.devnull)])


@pytest.mark.usefixtures("files")
def test_the_file_of_standard_input_is_not_written_to(monkeypatch):
    with Path("one.csv").open() as stdin, Path("one.csv").open("a") as appending:
        monkeypatch.setattr("sys.stdin", stdin)
        assert "is a file that is read" in refusal(["twin.csv"], sources=["-"])
        assert "is a file that is read" in refusal([f"/dev/fd/{appending.fileno()}"], sources=["-"])
        check_outputs([Path("new.csv")], sources=["-"])


@contextmanager
def printing_into(name: str) -> Iterator[None]:
    """Append standard output to a file while the block runs."""
    kept = os.dup(1)
    with Path(name).open("a") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@pytest.mark.usefixtures("files")
def test_standard_output_is_an_output_like_others():
    """A file that is read has no end while it is appended to; what is printed has its own file."""
    with printing_into("one.csv"):
        printed = refusal([], sources=["one.csv"], is_printing=True)
        assert printed.startswith("standard output: is a file that is read")

        both = refusal(["twin.csv"], is_printing=True)
        assert "twin.csv and standard output: two outputs" in both

        check_outputs([Path("twin.csv")], is_printing=False)


@pytest.mark.usefixtures("files")
def test_an_output_is_a_file_in_a_folder():
    for output in ("one.csv/a.jsonl", "one.csv/new/a.jsonl", "a link/a.jsonl"):
        assert refusal([output]).endswith("one.csv is not a folder; name another output")
    assert refusal(["new.csv", "parts/deep"]) == "parts/deep: is a folder; name a file in it"


@pytest.mark.parametrize(
    ("run", "source"),
    [
        ("parts/run", "hub:parts"),
        ("parts/run", "hub:to parts?split=train"),
        ("reviews/run", "reviews"),
        ("reviews/runs/a", "./reviews"),
    ],
)
@pytest.mark.parametrize("key", ["train", "validation", "test", "unlabelled"])
@pytest.mark.usefixtures("files")
def test_a_run_folder_whose_files_would_be_data_is_refused(key, run, source):
    """The next training, or the report, would read what this one wrote."""
    data = DataConfig(**{"train": "one.csv", key: source})
    with pytest.raises(ConfigError, match="would be read as data the next time"):
        check_run_folder(RunDir(Path(run)), data)


def test_a_run_folder_has_a_name_of_unicode():
    """TensorBoard takes no other name."""
    with pytest.raises(ConfigError, match=r"'runs/\\udcff': not UTF-8"):
        check_run_folder(RunDir(Path("runs/\udcff")), DataConfig(train="one.csv"))


def rows_of(source: str) -> list[Row]:
    return list(read_rows(source, Columns(["text"]), Reading(), role="test"))


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("parts", "parts"),
        ("reviews/good", "reviews"),
        ("reviews/.runs", "reviews"),
        ("parts", "parts/*.csv"),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_run_folder_whose_files_would_be_no_data_is_accepted(folder, source):
    """Folders of data and of classes are read without subfolders; a hidden folder is no class."""
    run = RunDir(Path(folder) / "run")
    before = rows_of(source)

    check_run_folder(run, DataConfig(train=source))

    for name in RUN_FILES:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).touch()
    assert rows_of(source) == before
