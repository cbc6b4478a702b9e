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
    command = [
        sys.executable,
        "-m",
        "pytest",
        Path(__file__).parent,
        "-x",
        "-k",
        test,
        "--fraction",
        fault.fraction,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment["FAULT"] = fault.name
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=environment
    )
    assert "\n1 failed" in done.stdout, f"{fault.case} holds: {done.stdout[-1500:]}{done.stderr}"
