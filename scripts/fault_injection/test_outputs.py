"""What a user names as output: nothing that a command reads is ever written over."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from samples import SPLITS, engine_of, predict, sha256_of, tries

TEXTS = ["rain and snow", "a ball, a goal", "bread and soup"]
KNOWN_HEX = "0123456789abcdef"  # what a temporary name ends with, where it is to be guessed
RUN_FILES = ["model/config.json", "model/model.safetensors", "model/tokenizer.json", "model/new.json", "config.yaml"]
RUN_FILES += ["sources.json", "metrics.jsonl", "checkpoints/new.json"]
ODD_NAMES = ["answers.tsv", "answers.txt", "deeper/answers.jsonl", ".hidden.txt"]


def asked(place, draw, output, *more, code=2, by_eval=False, outputs=None, **streams):
    """A command, what it is to write by option, the exit code that must come (any, if none), and its streams."""
    command = ["eval", place.run, *more] if by_eval else predict(place.run, place.engine, *more)
    option = "--output" if by_eval or code != 2 else draw.choice(["--output", "--output", "--attention"])
    return SimpleNamespace(command=command, outputs=outputs or {option: output}, code=code, streams=streams)


def part(place, draw):
    source = draw.choice([place.parts, place.parts / "*.txt", place.parts / "part-?.txt"])
    return asked(place, draw, place.parts / "part-1.txt", "--input", source)


def new_file_among_the_parts(place, draw):
    if draw.random() < 0.5:
        return asked(place, draw, place.parts / draw.choice(ODD_NAMES), "--input", place.parts)
    (place.parts / "answers.txt").write_text("answers of before\n")
    return asked(place, draw, place.parts / "answers.txt", "--input", place.parts / "*.txt")


def file_of_the_run(place, draw):
    more = {"by_eval": True} if draw.random() < 0.5 else {}
    return asked(place, draw, place.run / draw.choice(RUN_FILES), *([] if more else ["some rain"]), **more)


def data_that_is_scored(place, draw):
    other = shutil.copy(place.folder / "test.csv", place.folder / "other.csv")
    return asked(place, draw, other, "--data", other, by_eval=True)


def one_file_twice(place, draw):
    page = place.folder / "page.html"
    if draw.random() < 0.5:
        page.write_text("an older page")
    return asked(place, draw, page, "some rain", outputs={"--output": page, "--attention": page})


def standard_output_by_name(place, draw):
    log, name = place.folder / "log", Path(draw.choice(["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]))
    log.write_text("what was in the log\n")
    if draw.random() < 0.3:  # where the report is printed, too
        return asked(place, draw, name, by_eval=True, appends=log)
    form = draw.choice(["text", "jsonl", "tsv", "csv", "html"])
    return asked(place, draw, name, "--format", form, *TEXTS, code=0, appends=log)


def new_file(place, draw):
    older = place.folder / f"answers.{draw.choice(['txt', 'csv', 'jsonl', 'tsv', 'html'])}"
    if draw.random() < 0.7:
        older.write_text("older answers")
        older.chmod(draw.choice([0o600, 0o640, 0o644, 0o666]))
    source = draw.choice([place.texts, place.parts, place.parts / "*.txt", place.classes])
    return asked(place, draw, older, "--input", source, code=0)


def link_at_the_temporary_name(place, draw):
    for name in (f".tmp-{KNOWN_HEX}-answers.txt", f".tmp-{os.getpid()}-answers.txt", f".tmp-{KNOWN_HEX}"):
        (place.folder / name).symlink_to(draw.choice([place.texts, place.folder / "nothing"]))
    return asked(place, draw, place.folder / "answers.txt", "some rain", code=None)


KINDS = {
    "the input": lambda it, draw: asked(it, draw, it.texts, "--input", it.texts),
    "standard input's file": lambda it, draw: asked(
        it, draw, it.texts, *draw.choice([(), ("--input", "-")]), stdin=it.texts
    ),
    "one of several inputs": part,
    "a new file among the inputs": new_file_among_the_parts,
    "a text of a class": lambda it, draw: asked(
        it, draw, it.classes / draw.choice(["good/1.txt", "good/2.txt", "answers.jsonl"]), "--input", it.classes
    ),
    "a file of the run": file_of_the_run,
    "data of the run": lambda it, draw: asked(it, draw, it.folder / f"{draw.choice([*SPLITS])}.csv", by_eval=True),
    "data that is scored": data_that_is_scored,
    "one file twice": one_file_twice,
    "standard output by name": standard_output_by_name,
    "a new file": new_file,
    "a link at the temporary name": link_at_the_temporary_name,
}


@pytest.mark.parametrize("kind", KINDS)
@tries(17)
def test_outputs(space, draw, kind, number):
    """Any file that a command reads, under any of its names, as its output: refused, or written beside it."""
    place = new_place(space, engine_of(number))
    case = KINDS[kind](place, draw)
    output = {option: another_name(path, place.folder, draw) for option, path in case.outputs.items()}
    log = case.streams.get("appends")
    before, logged = contents(place.folder, log), log.read_bytes() if log else b""
    named = {(place.folder / path).resolve() for path in output.values()}
    command = [*case.command, *(it for option in output.items() for it in option)]
    ended = space.fork(command, prepare=lambda: prepare(place.folder, **case.streams)).end()

    assert case.code in {None, ended.code}, f"exit {ended.code}, expected {case.code}: {ended.err}"
    assert ended.code in {0, 1, 2}, f"exit {ended.code}: {ended.err}"
    assert not {"Traceback", "unexpected"} & {*ended.err.split()}, ended.err
    after = contents(place.folder, log)
    # A file that was there and is no output of the try keeps its content and its mode; one that is, keeps its mode.
    for path, (content, mode) in before.items():
        assert path in after, f"{path} is gone"
        assert after[path][1] == mode, f"{path} has the mode {after[path][1]:o}, before {mode:o}"
        assert (path in named and ended.code == 0) or after[path][0] == content, f"{path} is written over"
    assert not [path for path in after.keys() - before.keys() if path.name.startswith(".tmp-")], "something is left"
    if log:
        assert log.read_bytes().startswith(logged), "what was in the log is gone"
        assert (len(log.read_bytes()) > len(logged)) == (ended.code == 0), "nothing was appended"


def prepare(folder, stdin=None, appends=None):
    """In the new process: its streams, and the end of temporary names."""
    os.chdir(folder)
    for path, flags, number in ((stdin, os.O_RDONLY, 0), (appends, os.O_WRONLY | os.O_APPEND, 1)):
        if path:
            os.dup2(os.open(path, flags), number)
    mock.patch("secrets.token_hex", lambda length=8: KNOWN_HEX[: 2 * length]).start()


def new_place(space, engine):
    """A new folder with texts of all kinds, and a run whose data is there alone, where it may be harmed."""
    folder = space.new_path("named")
    parts, classes = folder / "parts", folder / "reviews"
    place = SimpleNamespace(folder=folder, run=folder / "run", engine=engine, parts=parts, classes=classes)
    place.texts = folder / "texts.txt"
    for name in ("texts.txt", "parts/part-0.txt", "parts/part-1.txt", "reviews/good/1.txt", "reviews/bad/1.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(TEXTS) + "\n")
    shutil.copytree(space.reference("default"), place.run)
    config = (place.run / "config.yaml").read_text()
    for split, path in space.data.items():
        config = config.replace(path, shutil.copy(path, folder / f"{split}.csv").as_posix())
    (place.run / "config.yaml").write_text(config)
    return place


def another_name(path, folder, draw):
    """The same file by another name: relative, roundabout, through a link to it or to its folder."""
    if not path.is_relative_to(folder):
        return path
    relative, kind = path.relative_to(folder), draw.randrange(6)
    if kind == 3 and path.is_file():
        link = folder / f"link-{draw.randrange(10**6)}{path.suffix}"
        link.symlink_to(path)
        return link
    around = folder.with_name(f"{folder.name}-link")
    around.is_symlink() or around.symlink_to(folder)
    return {0: relative, 1: folder / "parts" / ".." / relative, 2: around / relative}.get(kind, path)


def contents(folder, except_for):
    """Of all files in a folder their hashes and modes; links are not followed."""
    paths = [it for it in folder.rglob("*") if it.is_file() and it != except_for and not it.is_symlink()]
    return {path.resolve(): (sha256_of(path), path.stat().st_mode & 0o777) for path in paths}
