"""Mutation testing: each fault, put into the package one at a time, is noticed by its case."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_mutants(fault):
    """The case fails where the fault is."""
    name, bracket, number = fault.case.partition("[")
    test = f"test_{name.replace('-', '_')}{bracket}{number}"
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-x", "-k", test]
    command += ["--fraction", str(fault.fraction)]

    # The variables of this pytest would change the other one.
    environment = {"FAULT": fault.name}
    for variable, value in os.environ.items():
        if not variable.startswith("PYTEST_"):
            environment.setdefault(variable, value)

    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "\n1 failed" in done.stdout, f"{fault.case} holds: {done.stdout[-1500:]}{done.stderr}"
