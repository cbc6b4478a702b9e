"""What labels are: one answer for all of them, and the same for those of digits and for integers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config import load_config
from encoder_cls.data.checks import data_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.labels import Classes, names_as_texts, what_labels_are
from encoder_cls.data.load import load_dataset, load_split
from encoder_cls.data.rows import SourceLocation
from encoder_cls.errors import ConfigError, DataError

NUMBERS = st.integers(0, 6).map(str)


def locations(labels: list[str]) -> dict[str, SourceLocation]:
    return {label: SourceLocation("f", line) for line, label in enumerate(labels)}


@settings(deadline=None, derandomize=True)
@given(
    labels=st.lists(NUMBERS | st.sampled_from("ab"), min_size=1, max_size=4, unique=True),
    names=st.lists(NUMBERS | st.sampled_from("ab"), min_size=1, max_size=5, unique=True),
)
def test_labels_are_what_they_alone_can_be(labels, names):
    """Names if only that fits, indices if only that does; no two labels ever become one class."""
    are_names = set(labels) <= set(names)
    are_indices = all(label.isdigit() and int(label) < len(names) for label in labels)
    by_index = [names[int(label)] for label in labels] if are_indices else []
    if are_names != are_indices or (are_names and by_index == labels):
        found = what_labels_are(locations(labels), names)
        assert found == ("names" if are_names else "indices")
        classes = [Classes(names, found).name(label, "f") for label in labels]
        assert classes == (labels if are_names else by_index)
        assert len(set(classes)) == len(labels)
    else:
        with pytest.raises(DataError, match=r"^f:"):
            what_labels_are(locations(labels), names)


def test_without_names_every_label_is_one():
    """Whatever it looks like."""
    assert what_labels_are(locations(["1", "01", "a"]), None) == "names"
    assert Classes(None, "names").name("01", "f") == "01"


def test_names_with_leading_zeros_are_no_indices():
    """Nobody counts 00, 01, 02 where these are the names; where they are not, these are numbers all the same."""
    assert what_labels_are(locations(["01", "02"]), ["01", "02", "03"]) == "names"
    assert what_labels_are(locations(["00", "01"]), ["no", "yes"]) == "indices"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lost_or_stolen_card", "lost or stolen card"),
        ("Sci/Tech", "Sci Tech"),
        ("cardArrival", "card Arrival"),
        ("top-up-limits", "top up limits"),
        ("topUpATM", "top Up ATM"),
        ("reverted_card_payment?", "reverted card payment"),
        ("größeÄndern", "größe Ändern"),
        ("HUM", "HUM"),
        ("4", ""),
        ("__", ""),
    ],
)
def test_a_name_is_split_into_its_words(name, text):
    """At what is no letter or digit, and where small letters end; a number says nothing."""
    assert names_as_texts([name]) == [text]


# ---------------------------------------------------------------- labels of other spelling, and none


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, labels: list[object]) -> str:
    lines = (json.dumps({"text": f"{name[0]} {chr(97 + row) * 3}", "label": it}) for row, it in enumerate(labels))
    Path(name).write_text("\n".join(lines))
    return name


def load(train: str, *overrides: str) -> Dataset:
    """With the same texts for validation, so that train keeps its rows."""
    same = [f"data.{role}={train}" for role in ("train", "validation")]
    return load_dataset(load_config(None, [*same, *overrides]).data)


def load_with(validation: list[object], train: list[object], *overrides: str) -> Dataset:
    files = [f"data.validation={write('v.jsonl', validation)}", f"data.train={write('a.jsonl', train)}"]
    return load_dataset(load_config(None, [*files, *overrides]).data)


def classes_of(dataset: Dataset, split: Split) -> list[str]:
    names = (*dataset.label_names, *split.unseen_names)
    return [split.label_text(row, names) for row in range(len(split))]


FOLD = "data.fold_labels=true"
SPELLINGS = ["Late", "late ", "refund", "re\u200bfund", "late", "REFUND", "LATE", "refund"]


def test_labels_that_look_alike_are_one_class_where_they_are_folded():
    """Called by the most frequent spelling in train, without spaces around; another split changes no name."""
    test = write("t.jsonl", ["LATE", "LATE", "LATE", " Refund", "REFUND", "REFUND"])
    dataset = load(write("a.jsonl", SPELLINGS), FOLD, f"data.test={test}")
    late, refund = "late", "refund"
    assert classes_of(dataset, dataset.train) == [late, late, refund, refund, late, refund, late, refund]
    assert classes_of(dataset, dataset.test) == [late] * 3 + [refund] * 3
    assert not [it for it in data_warnings(dataset) if "differ only" in it]
    (first, second) = (it for it in data_warnings(load("a.jsonl")) if "differ only" in it)
    assert "'LATE', 'Late', 'late', 'late ' differ only" in first
    assert FOLD in first
    assert FOLD in second


def test_of_equally_frequent_spellings_the_first_names_the_class():
    """Corrected labels do not count, so that a correction renames no class."""
    assert load(write("a.jsonl", ["b", "X", "x", "x", "X"]), FOLD).label_names == ("X", "b")
    Path("fix.csv").write_text("file,line,text,label\na.jsonl,1,a aaa,x\na.jsonl,2,a bbb,x\n")
    dataset = load(write("a.jsonl", ["b", "X", "x", "x", "X", "b"]), FOLD, "data.corrections=fix.csv")
    assert classes_of(dataset, dataset.train) == ["X", "X", "X", "X", "X", "b"]
    assert dict(dataset.corrected) == {"a.jsonl:1": "b"}


@pytest.mark.parametrize("labels", [["No", "YES ", "no", "yes"], [0, 1, 0, 1]])
def test_names_of_the_config_are_those_of_folded_labels(labels):
    """Where labels are their numbers as well; corrections name them in any spelling."""
    Path("fix.csv").write_text("file,line,text,label\na.jsonl,1,a aaa,Yes\n")
    settings = [FOLD, "data.label_names=[no, yes]", "data.corrections=fix.csv"]
    dataset = load(write("a.jsonl", labels), *settings)
    assert classes_of(dataset, dataset.train) == ["yes", "yes", "no", "yes"]
    assert dict(dataset.corrected) == {"a.jsonl:1": "no"}


def test_one_of_two_names_that_folded_labels_have_is_refused():
    with pytest.raises(ConfigError, match=r"one class of 'a' and 'A', which are two in data\.label_names"):
        load(write("a.jsonl", ["a", "b"]), FOLD, "data.label_names=[a, A, b]")


def test_labels_of_other_data_are_folded_to_the_classes_of_a_run():
    """As `eval --data` does, and a run that goes on from another."""
    config = load_config(None, [f"data.train={write('a.jsonl', ['LATE', 'late', 'late'])}", FOLD]).data
    assert load_split("a.jsonl", config, ("LATE", "other")).labels.tolist() == [0, 0, 0]
    assert load_dataset(config, known=("Late", "x")).label_names == ("Late", "x")
    with pytest.raises(ConfigError, match="which are two in the run"):
        load_split("a.jsonl", config, ("LATE", "Late"))


def test_several_labels_of_a_text_are_folded_too():
    """Two spellings at one text are one label."""
    labels = [["Late", "late"], ["refund", "late"], ["REFUND"], ["refund"], []]
    dataset = load(write("a.jsonl", labels), FOLD)
    assert (dataset.label_names, dataset.train.labels.tolist()) == (
        ("late", "refund"),
        [[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]],
    )


def test_empty_labels_are_counted_and_their_use_can_be_pasted():
    """Names are those of all splits, once where only spaces around them differ, whatever is in them."""
    labels = ["late", "", "late ", None, 'it\'s "lost"', "late", " "]
    validation = [*["late"] * 24, "paid"]
    with pytest.raises(DataError, match=r"^a\.jsonl:2: the label is empty, as in 3 of 7 rows; to use") as caught:
        load_with(validation, labels)
    _, override = shlex.split(str(caught.value).partition("add ")[2].partition("; data.bad_rows=skip leaves")[0])
    assert override == 'data.label_names=["it\'s \\"lost\\"", "late", "paid"]'
    dataset = load_with(validation, labels, override)
    assert classes_of(dataset, dataset.train) == ["late", "late", 'it\'s "lost"', "late"]
    assert [*dataset.unlabelled.where] == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:7"]
    assert len(load_with(validation, labels, "data.bad_rows=skip").train) == 4


def test_of_several_labels_an_empty_one_is_written_as_an_empty_list():
    """With `data.label_names` it would say that the text has none of them."""
    with pytest.raises(DataError, match=r"^a\.jsonl:1: the label is empty; write \[\] where"):
        load_with([["x"]], [None, ["x", "y"], ["x"]])
