"""The fault injection: its faults fit the code that they change, and the page names its cases."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARNESS = ROOT / "scripts" / "fault_injection"
PAGE = (ROOT / "docs" / "reliability.md").read_text()
# The cases, without importing them: `def test_two_signals` is the case `two-signals`.
SOURCE = "".join(path.read_text() for path in HARNESS.glob("test_*.py"))
CASES = {name.replace("_", "-") for name in re.findall(r"^def test_(\w+)", SOURCE, re.MULTILINE)}


@pytest.fixture(scope="module", autouse=True)
def harness():
    """Make the modules of the fault injection importable, as pytest imports them there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HARNESS)
        patch.delitem(sys.modules, "conftest", raising=False)
        yield


def test_each_fault_fits_the_code_and_names_a_case():
    """The object that it replaces is there; the case `mutants` tries that its case notices it."""
    from faults import FAULTS, place_of

    for fault in FAULTS:
        place_of(fault.target)
        name, _, _ = fault.case.partition("[")
        assert name in CASES, fault.name

    names = {fault.name for fault in FAULTS}
    assert len(names) == len(FAULTS)


def test_the_page_names_every_case():
    cells = re.findall(r"^\| \*\*.*\| (`[^|]+`) \|$", PAGE, re.MULTILINE)
    named = re.findall(r"`([a-z-]+)`", " ".join(cells))
    assert sorted(named) == sorted(CASES)
