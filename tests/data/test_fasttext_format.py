"""fastText's lines: labels are found as fastText finds them, and the text stays as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from encoder_cls.cli import app
from encoder_cls.config import load_config
from encoder_cls.config.yaml import parse_yaml
from encoder_cls.data.text_files import is_labelled, parse_line


@pytest.mark.parametrize(
    ("line", "labels", "text"),
    [
        ("__label__x One, two.\n", ["x"], "One, two."),
        (" __label__x\t\tone  two \r\n", ["x"], "one  two "),
        ("__label__x", ["x"], ""),
        ("__label__ one", [""], "one"),
        ("__label__a __label__b,c one", ["a", "b,c"], "one"),
        ("__label__a one __label__b", ["a", "b"], "one"),
        ("__label__a\u00a0b one", ["a\u00a0b"], "one"),
        ("one a__label__b", [], "one a__label__b"),
        (" \n", [], " "),
    ],
)
def test_labels_are_words_with_the_prefix_and_the_text_follows_them(line, labels, text):
    """Wherever in the line they are; only what begins the line is taken off."""
    assert parse_line(line) == (labels, text)
    assert is_labelled(line) == (bool(labels))


PAGE = Path(__file__).parents[2] / "docs" / "guide.md"


def test_every_command_and_setting_for_its_users_is_known():
    """The guide's commands in place of fastText's are accepted, and its settings are fields of a config."""
    page = PAGE.read_text("utf-8").partition("\n## Coming from fastText\n")[2].partition("\n## ")[0]
    Path("spam.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    assert list(parse_yaml(Path("spam.yaml").read_text(), source="page")) == ["data"]
    commands = re.findall(r"`encoder-cls ([^`]*)`", page)
    settings = re.findall(r"`(--set [^`]*)`", page)
    assert len(commands) >= 7
    assert len(settings) >= 5
    for command in commands:
        name, *arguments = shlex.split(command)
        typer.main.get_command(app).commands[name].make_context(name, arguments)
    load_config(Path("spam.yaml"), [setting.removeprefix("--set ") for setting in settings])
