"""A case about folders that nobody foresaw: each text is read, or the command says why not; nothing is left out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from cases import Case
from fuzz_data import read_and_tell
from processes import Ended, fork, fork_call
from samples import Workspace, engine_of, predict

TEXTS = ["rain and snow", "a ball", "soup, bread", "", "  ", "NA", "two\nlines", "caf\u00e9 \u2028 end"]
ENDINGS = [".txt", ".TXT", ".Txt", ".txt.bak", ".md", ""]
CLASSES = ["good", "bad", "UGLY", "007", "no", "caf\u00e9"]
HIDDEN = [".ipynb_checkpoints", ".git", "._1.txt", ".DS_Store", ".hidden.TXT"]


class Found(NamedTuple):
    """What an independent look at a folder finds: the rows, or that they cannot all be read."""

    rows: list[tuple[str, str]]
    is_refused: bool


def read_folder(space: Workspace, draw: random.Random, number: int) -> None:
    """Class folders made by chance are read as an independent look has them, or refused; lines keep their places."""
    folder = space.new_path("folder")
    folder.mkdir()
    if number % 4 == 0:
        _check_lines(space, folder, draw, engine_of(number, kinds=4))
        return
    _fill(folder, draw)
    expected = _look(folder)
    ended = fork_call(lambda: read_and_tell(folder)).end()
    what = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert ended.code in {0, 3}, f"exit {ended.code}: {ended.err[-500:]}"
    if ended.code == 3:
        assert str(folder) in ended.message, ended.message
        assert expected.is_refused or not expected.rows, f"{what} is refused: {ended.message}"
        return
    assert not expected.is_refused, f"{what} is accepted, and something left out"
    assert sorted(json.loads(ended.out)) == sorted(map(list, expected.rows)), what


def _fill(folder: Path, draw: random.Random) -> None:
    for name in draw.sample(CLASSES, draw.randint(1, 4)):
        inside = folder / name
        if draw.random() < 0.1:
            inside = inside / "deeper"  # the class folder itself may have none
        inside.mkdir(parents=True)
        for i in range(draw.randint(0, 4)):
            ending = draw.choice(ENDINGS) if draw.random() < 0.4 else ".txt"
            content = draw.choice(TEXTS).encode() if draw.random() < 0.95 else b"caf\xe9"
            (inside / f"{i}{ending}").write_bytes(content)
        if draw.random() < 0.1:
            (inside / "more").mkdir()
            (inside / "more" / f"1{draw.choice(ENDINGS)}").write_text("deep")
    for name in draw.sample(HIDDEN, draw.randint(0, 2)):
        hidden = draw.choice([folder, *folder.iterdir()]) / name
        if "." in name[1:]:
            hidden.write_text("another program's")
        else:
            hidden.mkdir()
            (hidden / "1.txt").write_text("another program's")


def _look(folder: Path) -> Found:
    """The texts of class folders, found by walking through all that is there."""
    rows: list[tuple[str, str]] = []
    is_refused = False
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        texts = 0
        for path in entry.rglob("*"):
            parts = path.relative_to(entry).parts
            if any(part.startswith(".") for part in parts) or not path.is_file() or path.suffix.lower() != ".txt":
                continue
            texts += 1
            is_refused |= len(parts) > 1  # in a folder of a class folder
            try:
                rows.append((path.read_bytes().decode("utf-8-sig"), entry.name))
            except UnicodeDecodeError:
                is_refused = True
        is_refused |= not texts  # a class without a text
    return Found(rows, is_refused)


def _check_lines(space: Workspace, folder: Path, draw: random.Random, engine: str) -> None:
    """A file of lines, the same in a folder and by a pattern: as many answers as lines, in order, blank ones too."""
    lines = [draw.choice(["rain and snow", "", " ", "a ball, a goal", "\t"]) for _ in range(draw.randint(1, 9))]
    end = draw.choice(["\n", "\r\n"])
    (folder / "a.txt").write_text(end.join(lines) + draw.choice(["", end]), newline="")
    count = len((folder / "a.txt").read_bytes().splitlines())
    answers = [_predict(space, str(source), engine).out for source in (folder / "a.txt", folder, folder / "*.txt")]
    assert answers[0] == answers[1] == answers[2], f"{lines}: other answers for the file, its folder and a pattern"
    assert len(answers[0].splitlines()) == count, f"{lines}: {len(answers[0].splitlines())} answers"


def _predict(space: Workspace, source: str, engine: str) -> Ended:
    arguments = predict(space.reference("default"), engine, "--format", "jsonl", "--input", source)
    ended = fork(arguments, cwd=space.folder).end()
    assert ended.code == 0, ended.err
    return ended


CASES = {
    "folder-fuzz": Case("folders: every text is read as it stands, or the folder is refused", 400, read_folder),
}
