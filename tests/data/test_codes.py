"""Classes that are codes: their levels, and the files that name codes above them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.excel import write_sheets
from support.tables import write_table

from encoder_cls.config.loading import config_of, load_config
from encoder_cls.data.codes import Codes, check_codes, code_warnings
from encoder_cls.errors import ConfigError

FILE_OF_CODES = {"2": "", "25": "2", "2512": "25", "3": "", "31": "3"}


def config(**data: object):
    return config_of({"name": "x", "data.train": "a.csv", **{f"data.{k}": data[k] for k in data}})


@pytest.mark.parametrize(
    ("rule", "code", "path"),
    [
        ((1, 2, 4), "2512", ("2", "25", "2512")),
        ((1, 2), "2512", ("2", "25", "2512")),
        ((1, 2, 4), "25", ("2", "25")),
        (".", "C.10.5", ("C", "C.10", "C.10.5")),
        (FILE_OF_CODES, "2512", ("2", "25", "2512")),
        (None, "2512", ("2512",)),
    ],
)
def test_a_code_has_the_codes_above_it(rule, code, path):
    assert Codes([code], rule).path(code) == path


def test_each_level_sums_the_probabilities_of_its_classes():
    """A class with fewer levels is its own code below them, and an unknown label is none."""
    codes = Codes(["2512", "25", "31", "2513"], (1, 2, 4))
    top, middle, last = codes.levels
    probabilities = np.array([[0.1, 0.2, 0.4, 0.3]])

    assert top.codes == ("2", "3")
    assert top.probabilities(probabilities) == pytest.approx(np.array([[0.6, 0.4]]))
    assert middle.codes == ("25", "31")
    assert last.codes == ("2512", "25", "31", "2513")
    assert middle.labels(np.array([3, 2, 4])).tolist() == [0, 1, 2]
    assert codes.depths.tolist() == [3, 2, 2, 3]


def test_a_file_of_levels_has_the_names_of_codes_too():
    rows = [("Name", "code", "parent"), ("Clerks", "04", ""), ("", "0411", "04")]
    read = config(levels=write_table("isco.csv", rows, separator=";")).data
    assert read.levels == {"04": "", "0411": "04"}
    assert read.code_names == {"04": "Clerks"}

    names = write_table("names.tsv", [("code", "name"), ("04", "Office")], separator="\t")
    assert config(levels="isco.csv", code_names=names).data.code_names == {"04": "Office"}

    index = write_table("index.csv", [("code", "name"), ("04", "Office"), ("04", "Clerk")])
    with pytest.raises(ConfigError, match=r"data\.code_names: '04' has another name"):
        config(code_names=index)


def test_the_names_of_a_new_file_of_levels_replace_those_of_a_base_run():
    old = [("code", "parent", "name"), ("04", "", "Clerks"), ("0411", "04", "")]
    base = config(levels=write_table("isco.csv", old))
    Path("base").mkdir()
    Path("base/config.yaml").write_text(base.to_yaml())
    write_table("new.csv", [*old[:1], ("04", "", "Office"), ("0412", "04", "Typists")])

    def names_of(*settings: str):
        values = load_config(None, ["data.train=b.csv", *settings], from_run=Path("base")).data
        return values.code_names

    assert names_of() == {"04": "Clerks"}
    assert names_of("data.levels=new.csv") == {"04": "Office", "0412": "Typists"}
    assert names_of("data.levels=[2]") == {"04": "Clerks"}


def test_levels_are_prefixes_or_a_separator_on_the_command_line():
    for value, levels in {"[1, 2, 4]": (1, 2, 4), "2": (2,), ".": ".", " > ": " > "}.items():
        settings = ["data.train=a.csv", f"data.levels={value}"]
        assert load_config(None, settings).data.levels == (
            levels.strip() if isinstance(levels, str) else levels
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([("code", "above")], "no column 'parent'; the first row must name the columns code and"),
        ([("code", "parent"), ("1", "2"), ("1", "3")], ":3: data.levels: '1' has another parent"),
        ([("code", "parent", "name"), ("1", "", "a"), ("1", "", "b")], "'1' has another name"),
        ([("code", "parent"), ("", "2")], ":2: data.levels: the row has no code"),
        ([("code", "parent"), ("1", "2"), ("2", "1")], "data.levels: the code '1' is above itself"),
    ],
)
def test_a_wrong_file_of_levels_is_refused(content, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        config(levels=write_table("codes.csv", content))


def test_an_excel_file_of_codes_is_read_from_the_sheet_that_has_them():
    """Below a title, from texts and numbers, with the columns in any case."""
    codes = [("Code", "Parent", "Name"), ("04", None, "Clerks"), (411, "04", None)]
    sheets = {"About": [("Text",), ("of codes",)], "Codes": [("Codes of 2026",), *codes]}
    write_sheets("codes.xlsx", sheets)
    read = config(levels="codes.xlsx").data
    assert read.levels == {"04": "", "411": "04"}
    assert read.code_names == {"04": "Clerks"}
    assert config(code_names="codes.xlsx").data.code_names == {"04": "Clerks"}


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ({"a": [("code", "name")]}, "codes.xlsx: data.levels: no column 'parent'"),
        (
            {"a": [("code", "parent"), (1, None)], "b": [("code", "parent")]},
            r"data.levels: codes.xlsx: several sheets have these columns \('a', 'b'\); save the",
        ),
        (
            {"a": [("code", "parent"), ("=A1", None)]},
            "codes.xlsx:2: data.levels: column 'code' has a formula without a result",
        ),
        ({}, "data.levels: cannot be read: No such file"),
    ],
)
def test_a_wrong_excel_file_of_codes_is_refused(sheets, message):
    if sheets:
        write_sheets("codes.xlsx", sheets)
    with pytest.raises(ConfigError, match=message):
        config(levels="codes.xlsx")


def test_levels_must_fit_the_classes():
    for levels, classes, message in [
        (
            FILE_OF_CODES,
            ["2512", "9"],
            "not in the column `code` of the file: 1 ('9'); add them to the file and name it",
        ),
        (
            {"0110": "01", "01": "", "2512": ""},
            ["110", "2512"],
            "1 ('110'); '110' is '0110' there: cells of numbers have lost leading zeros",
        ),
        (".", ["1.2.", "1..2", ".1", "1.2"], "a separator '.': 3 ('1.2.', '1..2', '.1')"),
        (".", ["a", "b"], "no class has a code above it, such as 'a', 'b'"),
    ]:
        with pytest.raises(ConfigError) as caught:
            check_codes(config(levels=levels).data, classes, is_multi_label=False)
        assert message in str(caught.value)

    with pytest.raises(ConfigError, match="may have several"):
        check_codes(config(levels=[1]).data, ["a"], is_multi_label=True)
    with pytest.raises(ConfigError, match="the lengths must increase"):
        config(levels=[2, 1])


def test_codes_without_leading_zeros_or_names_are_warned_of():
    data = config(levels=[1, 2], code_names={"1100": "Legislators"}).data
    shortened, nameless = code_warnings(data, ["110", "1100"])
    assert "codes with fewer than 4 digits: 1 ('110')" in shortened
    assert "codes without a name in data.code_names: 1 ('110')" in nameless


def test_codes_above_others_without_a_row_are_warned_of():
    (warning,) = code_warnings(config(levels={**FILE_OF_CODES, "41": "4O"}).data, ["2512", "41"])
    assert "have no row in the file of data.levels: 1 ('4O'); they are taken for" in warning
