"""What a source names: the files that a person means, and no others in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from encoder_cls.data.source_files import class_folders, data_files, files_named
from encoder_cls.errors import DataError


def make(*names: str) -> None:
    """Write a small table to each of these files."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("text,label\na,b\n", "utf-8")


def names(files: list[Path]) -> list[str]:
    return [str(file) for file in files]


@pytest.mark.parametrize("pattern", ["d/*", "d/**/*.csv"])
def test_a_pattern_leaves_out_names_that_begin_with_a_dot(pattern):
    make("d/a.csv", "d/._a.csv", "d/.hidden/b.csv")
    assert names(files_named(pattern)) == ["d/a.csv"]


def test_a_name_that_begins_with_a_dot_can_be_named():
    make("d/a.csv", "d/._a.csv")
    assert names(files_named("d/._a.csv")) == ["d/._a.csv"]


def test_a_folder_leaves_out_what_programs_keep_beside_its_files():
    """Excel keeps a file beside an open one, macOS beside any."""
    make("d/a.csv", "d/._a.csv", "d/~$a.xlsx")
    assert names(files_named("d")) == ["d/a.csv"]
    assert names(data_files("d", is_labelled=True)) == ["d/a.csv"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("data [x]/*.csv", ["data [x]/a.csv", "data [x]/b.csv"]),
        ("data [x]/[ac].csv", ["data [x]/a.csv"]),
        ("data [[]x]/[ac].csv", ["data [x]/a.csv"]),
        ("data [x]/**/[[]y]/*.csv", ["data [x]/[y]/c.csv"]),
    ],
)
def test_brackets_in_the_names_of_folders_are_no_pattern(pattern, expected):
    make("data [x]/a.csv", "data [x]/b.csv", "data [x]/[y]/c.csv")
    assert names(files_named(pattern)) == expected


def test_json_beside_tables_that_is_no_array_is_no_data():
    """It probably describes the tables."""
    make("d/a.csv", "d/b.csv.gz")
    Path("d/dataset_infos.json").write_text('{"rows": 1}')
    assert names(data_files("d", is_labelled=True)) == ["d/a.csv", "d/b.csv.gz"]


def test_json_beside_tables_is_data_where_it_is_an_array():
    make("d/a.csv", "d/b.csv.gz")
    Path("d/dataset_infos.json").write_text('{"rows": 1}')
    Path("d/c.json").write_text("\n[]")
    assert len(data_files("d", is_labelled=False)) == 4


def test_a_folder_of_json_alone_is_data():
    Path("e").mkdir()
    Path("e/part-0.json").write_text("{}")
    assert names(data_files("e", is_labelled=True)) == ["e/part-0.json"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("testimonials.csv", "values.csv"),
        ("trainers.csv", "tests.csv"),
        ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
        ("training.csv", "train2.csv"),
        ("val.csv", "valid_2.csv"),
    ],
)
def test_files_whose_names_only_begin_like_splits_are_read_together(first, second):
    """`testimonials` is no `test`, and the parts of one split are one split."""
    make(f"d/{first}", f"d/{second}")
    assert len(data_files("d", is_labelled=True)) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("train.csv", "test.csv"),
        ("train-0001.csv", "validation-0001.jsonl"),
        ("train.csv", "val.csv"),
        ("train2.csv", "my_test.csv"),
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("mails-training.csv", "mails-testing.csv"),
        ("TrainData.csv", "TestSet.csv"),
        ("a.train.jsonl", "a.valid.jsonl"),
        ("trainset.csv", "devset.csv"),
    ],
)
def test_a_whole_word_of_a_name_tells_its_split(first, second):
    make(f"d/{first}", f"d/{second}")
    with pytest.raises(DataError, match=r"^d: holds files of several splits"):
        data_files("d", is_labelled=True)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["d/x/1.txt", "d/y/readme.md"],
            r"d/y: a folder without \.txt files",
        ),
        (
            ["d/x/1.txt", "d/y/._1.txt"],
            r"d/y: a folder without \.txt files",
        ),
        (
            ["d/x/1.txt", "d/y/z/1.TXT"],
            r"d/y: has texts in deeper folders \(d/y/z/1\.TXT\)",
        ),
        (
            ["d/x/1.txt", "d/y/1.txt", "d/y/z/w/1.txt"],
            r"d/y: has texts in deeper folders \(d/y/z/w/1\.txt\)",
        ),
        (
            ["d/deep/x/1.txt", "d/deep/y/1.txt"],
            r"d/deep: has texts in deeper folders \(d/deep/x/1\.txt\)",
        ),
        (
            ["d/x/1.txt", "d/y/1.txt", "d/a.ft"],
            r"d: holds class folders .* and a\.ft",
        ),
    ],
)
@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_class_folder_whose_texts_would_be_left_out_is_refused_by_name(
    files, message, is_labelled
):
    """It has no texts of its own, or more of them deeper down."""
    make(*files)
    with pytest.raises(DataError, match=f"^{message}"):
        class_folders(Path("d"), is_labelled=is_labelled)


def test_lines_beside_class_folders_are_left_alone_in_a_training():
    """They may be lists of files, such as those of IMDB."""
    make("d/x/1.txt", "d/y/1.txt", "d/urls.txt")
    assert names(class_folders(Path("d"), is_labelled=True)) == ["d/x", "d/y"]


def test_lines_beside_class_folders_are_refused_among_texts_without_labels():
    """Both could be meant."""
    make("d/x/1.txt", "d/y/1.txt", "d/urls.txt")
    message = r"d: holds class folders with \.txt files and urls\.txt"
    with pytest.raises(DataError, match=message):
        class_folders(Path("d"), is_labelled=False)


def test_folders_beside_tables_are_left_alone_unless_they_hold_texts_themselves():
    make("d/a.csv", "d/old/a.csv", "d/notes/more/1.txt")
    assert class_folders(Path("d"), is_labelled=True) == []
    assert names(data_files("d", is_labelled=True)) == ["d/a.csv"]
