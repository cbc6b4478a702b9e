"""The faults that the fault injection puts into the package: each still fits the code that it changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FAULTS = yaml.safe_load((ROOT / "scripts/fault_injection/mutants.yaml").read_text())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["fault"])
def test_a_fault_fits_the_code(fault):
    """What it replaces is there, and it changes something; that a case notices it is the case `mutants`."""
    source = (ROOT / "encoder_cls" / fault["file"]).read_text()
    assert fault["former"] in source
    compile(source.replace(fault["former"], fault["latter"], 1), fault["file"], "exec")
