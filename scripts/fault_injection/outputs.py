"""A case about what a user names as output: nothing that a command reads is ever written over."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from cases import Case
from processes import Arguments, Ended, fork
from samples import Workspace, engine_of, predict

TEXTS = ["rain and snow", "a ball, a goal", "bread and soup"]
FORMATS = ("text", "jsonl", "tsv", "csv", "html")
KNOWN_HEX = "0123456789abcdef"  # what a temporary name ends with, where it is to be guessed


class Scenario(NamedTuple):
    """A command, and what must become of it.

    Attributes:
        arguments: of the command, without its outputs.
        outputs: what is named as output, by option.
        code: the exit code that must come; none where it may do its work or refuse.
        stdin: the file that is standard input, if any.
        appends: the file that is standard output, opened to append to, if any.
    """

    arguments: Arguments
    outputs: dict[str, Path]
    code: int | None
    stdin: Path | None = None
    appends: Path | None = None


@dataclass(frozen=True)
class Place:
    """A folder of one try, with texts of all kinds, a finished run, its data, which is there alone, and an engine."""

    folder: Path
    run: Path
    engine: str

    @property
    def texts(self) -> Path:
        """A file of texts, one a line."""
        return self.folder / "texts.txt"

    @property
    def parts(self) -> Path:
        """A folder of two files of texts."""
        return self.folder / "parts"

    @property
    def classes(self) -> Path:
        """A folder of class folders."""
        return self.folder / "reviews"


def name_output(space: Workspace, draw: random.Random, number: int) -> None:
    """Any file that a command reads, under any of its names, as its output: refused, or written beside it."""
    place = _place(space, engine_of(number, kinds=len(SCENARIOS)))
    kind = list(SCENARIOS)[number % len(SCENARIOS)]
    scenario = SCENARIOS[kind](place, draw)
    output = {option: _another_name(path, place, draw) for option, path in scenario.outputs.items()}
    before = _contents(place.folder, except_for=scenario.appends)
    logged = scenario.appends.read_bytes() if scenario.appends else b""
    named = {(place.folder / path).resolve() for path in output.values()}
    ended = _run(scenario, output, cwd=place.folder)

    what = f"{kind}: {' '.join(map(str, (*scenario.arguments, *output.items())))}"
    assert "Traceback" not in ended.err, f"{what}: {ended.err}"
    assert "unexpected" not in ended.err, f"{what}: {ended.err}"
    assert scenario.code in {None, ended.code}, f"{what}: exit {ended.code}, expected {scenario.code}: {ended.err}"
    assert ended.code in {0, 1, 2}, f"{what}: exit {ended.code}: {ended.err}"
    after = _contents(place.folder, except_for=scenario.appends)
    # A file that was there and is no output of the try keeps its content and its mode; one that is, keeps its mode.
    written = named if ended.code == 0 else set()
    for path, (content, mode) in before.items():
        assert path in after, f"{what}: {path} is gone"
        assert after[path][1] == mode, f"{what}: {path} has the mode {after[path][1]:o}, before {mode:o}"
        assert path in written or after[path][0] == content, f"{what}: {path} is written over"
    left = [path for path in after if path.name.startswith(".tmp-") and path not in before]
    assert not left, f"{what}: {left} is left"
    if scenario.appends:
        assert scenario.appends.read_bytes().startswith(logged), f"{what}: what was in the log is gone"
        assert (len(scenario.appends.read_bytes()) > len(logged)) == (ended.code == 0), f"{what}: nothing was appended"


def _place(space: Workspace, engine: str) -> Place:
    """A new folder to try things in."""
    folder = space.new_path("named")
    place = Place(folder, folder / "run", engine)
    place.parts.mkdir(parents=True)
    place.texts.write_text("\n".join(TEXTS) + "\n")
    for number in range(2):
        (place.parts / f"part-{number}.txt").write_text("\n".join(TEXTS) + "\n")
    for name in ("good", "bad"):
        (place.classes / name).mkdir(parents=True)
        (place.classes / name / "1.txt").write_text(TEXTS[0])
    reference = space.reference("default")
    shutil.copytree(reference, place.run)
    # The run's data is in the folder of the try, where it may be harmed.
    config = (place.run / "config.yaml").read_text()
    for split in ("train", "validation", "test"):
        shutil.copy(space.folder / f"{split}.csv", folder)
        config = config.replace(str(space.folder / f"{split}.csv"), str(folder / f"{split}.csv"))
    (place.run / "config.yaml").write_text(config)
    return place


def _predict(place: Place, *more: str | Path) -> Arguments:
    return predict(place.run, place.engine, *more)


def _input_itself(place: Place, draw: random.Random) -> Scenario:
    return Scenario(_predict(place, "--input", place.texts), {_an_option(draw): place.texts}, 2)


def _file_of_standard_input(place: Place, draw: random.Random) -> Scenario:
    named = ["--input", "-"] if draw.random() < 0.5 else []
    return Scenario(_predict(place, *named), {_an_option(draw): place.texts}, 2, stdin=place.texts)


def _part(place: Place, draw: random.Random) -> Scenario:
    source = draw.choice([place.parts, place.parts / "*.txt", place.parts / "part-?.txt"])
    return Scenario(_predict(place, "--input", source), {_an_option(draw): place.parts / "part-1.txt"}, 2)


def _new_file_among_the_parts(place: Place, draw: random.Random) -> Scenario:
    if draw.random() < 0.5:
        name = draw.choice(["answers.tsv", "answers.txt", "deeper/answers.jsonl", ".hidden.txt"])
        return Scenario(_predict(place, "--input", place.parts), {_an_option(draw): place.parts / name}, 2)
    (place.parts / "answers.txt").write_text("answers of before\n")
    return Scenario(
        _predict(place, "--input", place.parts / "*.txt"), {_an_option(draw): place.parts / "answers.txt"}, 2
    )


def _file_of_a_class(place: Place, draw: random.Random) -> Scenario:
    name = draw.choice(["good/1.txt", "good/2.txt", "answers.jsonl"])
    return Scenario(_predict(place, "--input", place.classes), {_an_option(draw): place.classes / name}, 2)


def _file_of_the_run(place: Place, draw: random.Random) -> Scenario:
    name = draw.choice(["model/config.json", "model/model.safetensors", "model/tokenizer.json", "model/new.json"])
    name = draw.choice([name, "config.yaml", "metrics.jsonl", "checkpoints/new.json"])
    if draw.random() < 0.5:
        return Scenario(["eval", place.run], {"--output": place.run / name}, 2)
    return Scenario(_predict(place, "some rain"), {_an_option(draw): place.run / name}, 2)


def _data_of_the_run(place: Place, draw: random.Random) -> Scenario:
    return Scenario(
        ["eval", place.run], {"--output": place.folder / f"{draw.choice(['train', 'validation', 'test'])}.csv"}, 2
    )


def _data_that_is_scored(place: Place, _draw: random.Random) -> Scenario:
    other = place.folder / "other.csv"
    shutil.copy(place.folder / "test.csv", other)
    return Scenario(["eval", place.run, "--data", other], {"--output": other}, 2)


def _one_file_twice(place: Place, draw: random.Random) -> Scenario:
    page = place.folder / "page.html"
    if draw.random() < 0.5:
        page.write_text("an older page")
    return Scenario(_predict(place, "some rain"), {"--output": page, "--attention": page}, 2)


def _standard_output_by_name(place: Place, draw: random.Random) -> Scenario:
    log = place.folder / "log"
    log.write_text("what was in the log\n")
    name = draw.choice(["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
    if draw.random() < 0.3:
        return Scenario(
            ["eval", place.run], {"--output": Path(name)}, 2, appends=log
        )  # where the report is printed, too
    return Scenario(_predict(place, "--format", draw.choice(FORMATS), *TEXTS), {"--output": Path(name)}, 0, appends=log)


def _new_file(place: Place, draw: random.Random) -> Scenario:
    """What a user wants: it is written, and all else is as it was."""
    older = place.folder / f"answers.{draw.choice(['txt', 'csv', 'jsonl', 'tsv', 'html'])}"
    if draw.random() < 0.7:
        older.write_text("older answers")
        older.chmod(draw.choice([0o600, 0o640, 0o644, 0o666]))
    source = draw.choice([place.texts, place.parts, place.parts / "*.txt", place.classes])
    return Scenario(_predict(place, "--input", source), {"--output": older}, 0)


def _link_at_the_temporary_name(place: Place, draw: random.Random) -> Scenario:
    """The name that a temporary file would have, were it known, is a link to what somebody needs."""
    output = place.folder / "answers.txt"
    for name in (f".tmp-{KNOWN_HEX}-answers.txt", f".tmp-{os.getpid()}-answers.txt", f".tmp-{KNOWN_HEX}"):
        (place.folder / name).symlink_to(draw.choice([place.texts, place.folder / "nothing"]))
    return Scenario(_predict(place, "some rain"), {"--output": output}, None)


SCENARIOS: dict[str, Callable[[Place, random.Random], Scenario]] = {
    "the input": _input_itself,
    "standard input's file": _file_of_standard_input,
    "one of several inputs": _part,
    "a new file among the inputs": _new_file_among_the_parts,
    "a text of a class": _file_of_a_class,
    "a file of the run": _file_of_the_run,
    "data of the run": _data_of_the_run,
    "data that is scored": _data_that_is_scored,
    "one file twice": _one_file_twice,
    "standard output by name": _standard_output_by_name,
    "a new file": _new_file,
    "a link at the temporary name": _link_at_the_temporary_name,
}


def _an_option(draw: random.Random) -> str:
    return draw.choice(["--output", "--output", "--attention"])


def _another_name(path: Path, place: Place, draw: random.Random) -> Path:
    """The same file by another name: relative, roundabout, through a link to it or to its folder."""
    if not path.is_relative_to(place.folder):
        return path
    relative = path.relative_to(place.folder)
    kind = draw.randrange(6)
    if kind == 0:
        return relative
    if kind == 1:
        return place.folder / "parts" / ".." / relative
    if kind == 2:
        around = place.folder.with_name(f"{place.folder.name}-link")
        if not around.exists():
            around.symlink_to(place.folder)
        return around / relative
    if kind == 3 and path.is_file():
        link = place.folder / f"link-{draw.randrange(10**6)}{path.suffix}"
        link.symlink_to(path)
        return link
    return path


def _run(scenario: Scenario, output: dict[str, Path], *, cwd: Path) -> Ended:
    def prepare() -> None:
        for path, flags, number in ((scenario.stdin, os.O_RDONLY, 0), (scenario.appends, os.O_WRONLY | os.O_APPEND, 1)):
            if path:
                os.dup2(os.open(path, flags), number)
        mock.patch("secrets.token_hex", lambda length=8: KNOWN_HEX[: 2 * length]).start()

    named = [part for option, path in output.items() for part in (option, path)]
    return fork([*scenario.arguments, *named], cwd=cwd, prepare=prepare).end()


def _contents(folder: Path, *, except_for: Path | None) -> dict[Path, tuple[str, int]]:
    """Of all files in a folder their hashes and modes; links are not followed."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path != except_for and not path.is_symlink():
            found[path.resolve()] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode & 0o777)
    return found


CASES = {
    "outputs": Case("whatever is named as output, nothing that is read is written over", 200, name_output),
}
