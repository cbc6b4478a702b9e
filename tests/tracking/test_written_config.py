"""The data of a run, read from its config without a library for YAML: what the library reads, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config.yaml import to_yaml
from encoder_cls.tracking.run_dir import written_sources

ODD = [
    "null",
    "~",
    "yes",
    "01",
    "a: b",
    "# a",
    "it's",
    '"a"',
    "- a",
    " a ",
    "a\\b",
    "\x85 \u2028",
    "\x85",
    "a\x85b",
    "a\x85\nb",
    "\u2029",
    "caf\u00e9 \U0001f600",
]
ODD += [
    "a/b-*.csv",
    "hub:a/b?config=c&split=d",
    "*",
    "[a]",
    "{a}",
    "a  b " * 60,
    "it's a '# " * 30,
    "a\x07 b" * 40,
    "a\n\nb",
]
printable = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
spaced = st.lists(st.text(st.characters(codec="ascii"), max_size=40), min_size=1, max_size=9).map(" ".join).filter(bool)


def read(tmp_path, **data):
    path = tmp_path / "config.yaml"
    path.write_text(
        to_yaml({"name": "train", "data": data, "train": {"epochs": 1, "test": "no data"}}), encoding="utf-8"
    )
    return written_sources(path)


@pytest.mark.parametrize("source", ODD)
def test_a_path_is_read_as_it_was_written(tmp_path, source):
    """Whatever style it needs in YAML, among values of other kinds."""
    found = read(tmp_path, train=source, validation=None, text_column=["train: x"], label_names=None, test="b.csv")
    assert found == [source, "b.csv"]


@settings(deadline=None, derandomize=True)
@given(st.one_of(printable, spaced))
def test_any_text_is_read_as_it_was_written(tmp_path_factory, source):
    """Long ones too, which go on in further lines."""
    assert read(tmp_path_factory.getbasetemp(), train="a.csv", unlabelled=source) == ["a.csv", source]


@pytest.mark.parametrize(
    "content", [b"", b"data: {train: a.csv}\n", b"\xff", b"data:\ntrain: a\n", b"other:\n  train: a\n"]
)
def test_what_is_not_written_so_names_nothing(tmp_path, content):
    """Nor does a config that is not there."""
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    assert written_sources(path) == []
    assert written_sources(tmp_path / "none") == []
