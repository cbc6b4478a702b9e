"""The fault injection: its faults fit the code that they change, and its cases are those that the page promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
HARNESS = ROOT / "scripts" / "fault_injection"
FAULTS = yaml.safe_load((HARNESS / "mutants.yaml").read_text())


@pytest.fixture(scope="module")
def cases() -> set[str]:
    """The names that `--help` tells."""
    wide = {**os.environ, "COLUMNS": "9999"}
    ended = subprocess.run([sys.executable, HARNESS, "--help"], capture_output=True, text=True, check=True, env=wide)
    return set(re.search(r"of ([a-z, -]+); default: all", ended.stdout)[1].split(", "))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["fault"])
def test_a_fault_fits_the_code(fault):
    """What it replaces is there, and it changes something; that a case notices it is the case `mutants`."""
    source = (ROOT / "encoder_cls" / fault["file"]).read_text()
    assert fault["former"] in source
    compile(source.replace(fault["former"], fault["latter"], 1), fault["file"], "exec")


def test_each_fault_names_a_case(cases):
    """By which it has to be noticed."""
    assert {fault["case"] for fault in FAULTS} <= cases


def test_the_page_names_every_case(cases):
    """Each case proves a promise, and each promise has a case."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    promises = re.findall(r"^\| \*\*.*\| (`[^|]+`) \|$", page, re.MULTILINE)
    named = [name for cell in promises for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(named) == sorted(cases)


def test_the_table_of_the_last_run_is_made_of_results(tmp_path):
    """A line for each case, of several files the last counts, of none the former; skipped or in part says so."""
    page = tmp_path / "docs" / "reliability.md"
    page.parent.mkdir()
    former = "old\n| `kept` | 1 | 0 | 1 | z |\n| `signals` | 9 |\n"
    begin, end = "<!-- table: scripts/fault_injection/table.py -->", "<!-- end of table -->"
    page.write_text(f"before\n{begin}\n{former}{end}\nafter\n")
    script = tmp_path / "scripts" / "fault_injection" / "table.py"
    script.parent.mkdir(parents=True)
    script.write_text((HARNESS / "table.py").read_text())
    (tmp_path / "one.json").write_text(
        '{"signals": {"tries": 2, "failed": 1, "seconds": 1, "commit": "a"},'
        ' "sizes": {"tries": 2, "of": 1024, "failed": 0, "seconds": 1.6, "commit": "a"}}'
    )
    (tmp_path / "two.json").write_text(
        '{"signals": {"tries": 0, "skipped": "no strace", "failed": 0, "seconds": 0, "commit": "b"}}'
    )
    subprocess.run([sys.executable, script, tmp_path / "one.json", tmp_path / "two.json"], check=True)
    lines = page.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "| case | tries | failed | seconds | commit |" in lines
    assert "| `signals` | skipped: no strace | 0 | 0 | b |" in lines
    assert "| `sizes` | 2 of 1,024 | 0 | 2 | a |" in lines
    assert "| `kept` | 1 | 0 | 1 | z |" in lines
    assert not {"old", "| `signals` | 9 |"} & set(lines)
