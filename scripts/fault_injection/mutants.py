"""A case about the cases: faults put into copies of the package, each of which some case must notice."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from cases import Case
from samples import Workspace

import encoder_cls

HERE = Path(__file__).parent
MUTANTS = yaml.safe_load((HERE / "mutants.yaml").read_text())


def mutant(space: Workspace, _draw: random.Random, number: int) -> None:
    """Break a copy of the package, run the case that must notice, and see that it fails."""
    mutant = MUTANTS[number]
    copy = space.new_path("mutant")
    package = shutil.copytree(Path(encoder_cls.__file__).parent, copy / "encoder_cls")
    path = package / mutant["file"]
    source = path.read_text()
    assert mutant["former"] in source, f"{mutant['fault']}: {path.name} has changed: mend the mutant"
    path.write_text(source.replace(mutant["former"], mutant["latter"], 1))
    done = subprocess.run(
        [sys.executable, str(HERE), mutant["case"], *_tries(mutant), "--until-failure"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(copy)},
    )
    heard = f"{mutant['fault']}: {mutant['case']} ends with {done.returncode}: {done.stdout}{done.stderr[-500:]}"
    assert done.returncode == 1, heard
    assert "1 FAILED" in done.stdout, heard


def _tries(mutant: dict[str, Any]) -> list[str]:
    """The one try that is named, or a part of the case's."""
    return ["--only", str(mutant["only"])] if "only" in mutant else ["--fraction", str(mutant["fraction"])]


CASES = {"mutants": Case("each of these faults is noticed by its case", len(MUTANTS), mutant)}
