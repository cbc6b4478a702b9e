"""docs/tour.md and docs/first_hour.md: every command prints what the page says, but for numbers.

`python tests/test_tour.py` runs the commands and writes their output into the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import TIME_OF_LINE

ROOT = Path(__file__).parents[1]
TOUR = ROOT / "docs" / "tour.md"
FIRST_HOUR = ROOT / "docs" / "first_hour.md"
EXAMPLE = ROOT / "encoder_cls" / "data" / "example"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
CONTINUED = ">"
WORK_IN_PROGRESS = re.compile(r"[a-z][a-z -]*(: \d+%)?, \d+ s(, about .* left)?")


def journeys(page: str) -> dict[str, str]:
    """The sections of the tour that have commands, by their headings."""
    sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return {
        section.partition("\n")[0].removeprefix("## "): section
        for section in sections
        if BLOCK.search(section)
    }


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output that the page has."""
    command: list[str] = []
    output: list[str] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            if command:
                yield "\n".join(command), "\n".join(output)
            command = [line.removeprefix(PROMPT)]
            output = []
        elif line.startswith(CONTINUED) and not output:
            command.append(line.removeprefix(CONTINUED).removeprefix(" "))
        else:
            output.append(line)
    yield "\n".join(command), "\n".join(output)


def run(command: str, folder: Path) -> str:
    """The output of a shell in a folder, where `encoder-cls` is the program that is tested."""
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    for name, arguments in (("encoder-cls", "-m encoder_cls"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)

    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "EXAMPLE": str(EXAMPLE),
        "CONFIGS": str(ROOT / "configs"),
        "COLUMNS": "110",
        "TERM": "dumb",
        "OMP_NUM_THREADS": "1",
    }

    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # The pages show what a terminal shows.
    return TIME_OF_LINE.sub("", ended.stdout.rstrip("\n"))


def comparable(text: str) -> list[str]:
    """The lines of an output without what depends on the machine, such as numbers and times."""
    lines = []
    for line in text.splitlines():
        # Work is shown only if it takes longer than a second, as it does not on a fast machine.
        if WORK_IN_PROGRESS.fullmatch(line):
            continue

        # Leave out the words of an explanation, and all numbers.
        stable = re.sub(r"\((for|against) it .*\)$", "", line)
        stable = re.sub(r"[+-]?\d[\d.,e-]*", "0", stable)
        # A slow machine needs minutes.
        stable = re.sub(r"\b0 (min|h)\b", "0 s", stable)

        # Of an indented line, such as a score in a report, compare only what it is about.
        words = stable.split()
        if line.startswith("  "):
            words = words[:2]
        lines.append(" ".join(words))
    return lines


def check(text: str, folder: Path) -> None:
    """Run the commands of a text in order, in one folder, and compare what they print."""
    for block in BLOCK.findall(text):
        for command, expected in steps(block):
            found = run(command, folder)
            assert comparable(found) == comparable(expected), f"$ {command}\n{found}"


@pytest.mark.slow
@pytest.mark.parametrize("journey", journeys(TOUR.read_text()))
def test_the_tour_shows_what_happens(journey, tmp_path):
    check(journeys(TOUR.read_text())[journey], tmp_path)


@pytest.mark.slow
def test_the_first_hour_shows_what_happens(tmp_path):
    check(FIRST_HOUR.read_text(), tmp_path)


def rewritten(text: str, folder: Path) -> str:
    """The text with the present output of every command."""

    def block(match: re.Match[str]) -> str:
        lines = []
        for command, _ in steps(match[1]):
            first, *further = command.splitlines()
            lines.append(PROMPT + first)
            lines.extend(f"{CONTINUED} {line}".rstrip() for line in further)
            lines.extend(run(command, folder).splitlines())
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(block, text)


def record() -> None:
    """Run all commands, each section of the tour in its own folder, and write what is printed."""
    with tempfile.TemporaryDirectory() as folder:
        FIRST_HOUR.write_text(rewritten(FIRST_HOUR.read_text(), Path(folder)))

    tour = TOUR.read_text()
    for section in journeys(tour).values():
        with tempfile.TemporaryDirectory() as folder:
            tour = tour.replace(section, rewritten(section, Path(folder)))
    TOUR.write_text(tour)


if __name__ == "__main__":
    record()
