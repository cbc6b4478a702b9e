"""Commands that read a finished run and its data, one of whose files is gone, damaged or odd."""

import random
import shutil
from functools import partial

import pytest
from processes import limit_memory
from samples import damage, hashes_of, tries

# Beyond what a command needs; a file without an end would fill more.
ROOM = 2_000_000_000
# A run with its data has no more files, so that each is tried.
MAX_FILES = 28
COMMANDS = {
    "review": ["review", "run"],
    "suggest": ["suggest", "run", "--input", "texts.csv", "--n", "3"],
    "eval": ["eval", "run"],
}


def gone(path, _draw):
    path.unlink()


def folder(path, _draw):
    path.unlink()
    path.mkdir()


def link_to_itself(path, _draw):
    path.unlink()
    path.symlink_to(path.name)


def device_without_end(path, _draw):
    path.unlink()
    path.symlink_to("/dev/full")


def empty(path, _draw):
    path.write_bytes(b"")


def nested_json(path, _draw):
    path.write_bytes(b"[" * 100_000)


def other_json(path, draw):
    path.write_text(draw.choice(["null", "[1, 2]", '{"data": 3}', '{"data": [NaN]}']))


def any_bytes(path, draw):
    path.write_bytes(random.Random(draw.random()).randbytes(draw.randint(1, 3000)))


def bit_or_end(path, draw):
    damage(path, draw, cut=0.5)


def zeros_inside(path, draw):
    content = path.read_bytes()
    place = draw.randrange(len(content))
    path.write_bytes(content[:place] + b"\0\0" + content[place:])


CHANGES = [
    gone,
    folder,
    link_to_itself,
    device_without_end,
    empty,
    nested_json,
    other_json,
    any_bytes,
    bit_or_end,
    zeros_inside,
]


@tries(MAX_FILES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_damaged_runs(space, draw, command, change, number):
    """Any file of a run or of its data is another: one error, or the command does without it."""
    place = space.new_path("place")
    run = space.copy_with_data("labels", place)
    shutil.copy(place / "test.csv", place / "texts.csv")
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.stat().st_size)
    assert len(files) <= MAX_FILES, "not every file is tried"
    file = files[number % len(files)]
    change(file, draw)

    before = hashes_outside(place, run / "eval")
    words = [place / word if word in {"run", "texts.csv"} else word for word in COMMANDS[command]]
    ended = space.fork(words, prepare=partial(limit_memory, ROOM)).end()
    assert ended.code in {0, 1, 2, 3}, f"{file}: exit {ended.code}: {ended.err}"
    assert "error: unexpected" not in ended.err, f"{file}: {ended.err}"
    assert "out of memory" not in ended.err, f"{file}: {ended.err}"
    if ended.code:
        ended.check_error(ended.code, str(place))
    assert hashes_outside(place, run / "eval") == before, f"{file}: files have changed"


def hashes_outside(place, report):
    """The hash of each file of a folder, except those of the run's own report and devices."""
    shown = report.relative_to(place).as_posix()
    return {name: sha256 for name, sha256 in hashes_of(place).items() if not name.startswith(shown)}
