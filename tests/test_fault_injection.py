"""The fault injection: its faults fit the code that they change, and its cases are those that the page promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARNESS = ROOT / "scripts" / "fault_injection"
PAGE = (ROOT / "docs" / "reliability.md").read_text()
# Without running anything: `def test_two_signals` is the case `two-signals`.
SOURCE = "".join(path.read_text() for path in HARNESS.glob("test_*.py"))
CASES = {name.replace("_", "-") for name in re.findall(r"^def test_(\w+)", SOURCE, re.MULTILINE)}


@pytest.fixture(scope="module", autouse=True)
def harness():
    """Its modules, as pytest imports them there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HARNESS)
        patch.delitem(sys.modules, "conftest", raising=False)
        yield


def test_each_fault_fits_the_code_and_names_a_case():
    """What it replaces is there; that a case notices it is the case `mutants`."""
    from faults import FAULTS, place_of

    for fault in FAULTS:
        place_of(fault.target)
        assert fault.case.partition("[")[0] in CASES, fault.name
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_the_page_names_every_case():
    promises = re.findall(r"^\| \*\*.*\| (`[^|]+`) \|$", PAGE, re.MULTILINE)
    assert sorted(name for cell in promises for name in re.findall(r"`([a-z-]+)`", cell)) == sorted(
        CASES
    )
