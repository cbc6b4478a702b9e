"""Outputs that a user names: no file that a command reads is ever overwritten."""

import os
import platform
import shutil
from hashlib import sha256
from typing import NamedTuple
from unittest import mock

import pytest
from samples import SPLITS, engine_of, predict, sha256_of, tries

TEXTS = ["rain and snow", "a ball, a goal", "bread and soup"]
KNOWN_HEX = "0123456789abcdef"  # the end of a temporary name that can be guessed
MARK = "-".join(sha256(name.encode()).hexdigest()[:12] for name in ("answers.txt", platform.node()))
LINKS = (
    f".tmp-{KNOWN_HEX}-answers.txt",
    f".tmp-{os.getpid()}-answers.txt",
    f".tmp-{MARK}-{KNOWN_HEX}",
)
RUN_FILES = [
    "model/config.json",
    "model/model.safetensors",
    "model/tokenizer.json",
    "model/new.json",
    "config.yaml",
]
RUN_FILES += ["sources.json", "metrics.jsonl", "checkpoints/new.json"]
ODD_NAMES = ["answers.tsv", "answers.txt", "deeper/answers.jsonl", ".hidden.txt"]
STDOUT = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
SOURCES = ["texts.txt", "parts", "parts/*.txt", "reviews"]
ENDINGS = ["txt", "csv", "jsonl", "tsv", "html"]
FORMATS = ["text", "jsonl", "tsv", "csv", "html"]


class Asked(NamedTuple):
    """A command in a folder of texts of all kinds, its output, and the expected exit code."""

    words: tuple
    output: str
    code: int | None = 2  # none: any
    older: tuple = (None,)  # modes of an older file at the output, one of which is drawn
    stdin: str | None = None
    stdout: str | None = None  # a file that is appended to
    links: tuple = ()
    by_eval: bool = False


def from_input(source, output, **more):
    return Asked(("--input", source), output, **more)


# fmt: off
KINDS = {
    "the input": [from_input("texts.txt", "texts.txt")],
    "standard input's file": [Asked(it, "texts.txt", stdin="texts.txt") for it in ((), ("--input", "-"))],
    "one of several inputs": [
        from_input(it, "parts/part-1.txt") for it in ("parts", "parts/*.txt", "parts/part-?.txt")],
    "a new file among the inputs": [
        from_input("parts/*.txt", "parts/answers.txt", older=(0o644,)),
        *(from_input("parts", f"parts/{name}") for name in ODD_NAMES)],
    "a text of a class": [
        from_input("reviews", f"reviews/{it}") for it in ("good/1.txt", "good/2.txt", "answers.jsonl")],
    "a file of the run": [
        Asked(() if it else ("some rain",), f"run/{name}", by_eval=it) for it in (True, False) for name in RUN_FILES],
    "data of the run": [Asked((), f"{split}.csv", by_eval=True) for split in SPLITS],
    "data that is scored": [Asked(("--data", "other.csv"), "other.csv", by_eval=True)],
    "one file twice": [Asked(("--attention", "page.html", "some rain"), "page.html", older=(None, 0o644))],
    "standard output by name": [  # refused where the report is printed there, too
        *(Asked((), name, stdout="log", by_eval=True) for name in STDOUT),
        *(Asked(("--format", it, *TEXTS), name, 0, stdout="log") for it in FORMATS for name in STDOUT)],
    "a new file": [
        from_input(source, f"answers.{ending}", code=0, older=(None, 0o600, 0o640, 0o644, 0o666))
        for source in SOURCES for ending in ENDINGS],
    "a link at the temporary name": [Asked(("some rain",), "answers.txt", None, links=LINKS)],
}
# fmt: on


@pytest.mark.parametrize("kind", KINDS)
@tries(17)
def test_outputs(space, draw, kind, number):
    """Any file that a command reads, under any of its names, as its output: refused, or written beside it."""
    folder, case = new_folder(space), draw.choice(KINDS[kind])
    output, log = folder / case.output, folder / case.stdout if case.stdout else None
    if mode := draw.choice(case.older):
        output.write_text("older answers")
        output.chmod(mode)
    for name in case.links:
        (folder / name).symlink_to(folder / draw.choice(["texts.txt", "nothing"]))
    named = another_name(output, folder, draw)
    before, logged, written = (
        contents(folder, log),
        log.read_bytes() if log else b"",
        (folder / named).resolve(),
    )
    is_page = (
        case.code == 2
        and not case.by_eval
        and "--attention" not in case.words
        and draw.random() < 0.3
    )
    command = ["eval", "run"] if case.by_eval else predict("run", engine_of(number))
    command += [*case.words, "--attention" if is_page else "--output", named]
    ended = space.fork(command, prepare=lambda: prepare(folder, case)).end()

    assert case.code in {None, ended.code}, f"exit {ended.code}, expected {case.code}: {ended.err}"
    assert ended.code in {0, 1, 2}, f"exit {ended.code}: {ended.err}"
    assert not {"Traceback", "unexpected"} & {*ended.err.split()}, ended.err
    after = contents(folder, log)
    # A file that was there and is no output of the try keeps its content and its mode; one that is, keeps its mode.
    for path, (content, mode) in before.items():
        assert path in after, f"{path} is gone"
        assert after[path][1] == mode, f"{path} has the mode {after[path][1]:o}, before {mode:o}"
        assert (path == written and ended.code == 0) or after[path][0] == content, (
            f"{path} is written over"
        )
    assert not [path for path in after.keys() - before.keys() if path.name.startswith(".tmp-")], (
        "something is left"
    )
    if log:
        assert log.read_bytes().startswith(logged), "what was in the log is gone"
        assert (len(log.read_bytes()) > len(logged)) == (ended.code == 0), "nothing was appended"


def prepare(folder, case):
    """In the new process: its streams, and the end of temporary names."""
    os.chdir(folder)
    for name, flags, number in (
        (case.stdin, os.O_RDONLY, 0),
        (case.stdout, os.O_WRONLY | os.O_APPEND, 1),
    ):
        if name:
            os.dup2(os.open(name, flags), number)
    mock.patch("secrets.token_hex", lambda length=8: KNOWN_HEX[: 2 * length]).start()


def new_folder(space):
    """A new folder with texts of all kinds, and a run with a copy of its data, which may be harmed."""
    folder = space.new_path("named")
    for name in (
        "texts.txt",
        "parts/part-0.txt",
        "parts/part-1.txt",
        "reviews/good/1.txt",
        "reviews/bad/1.txt",
        "log",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(TEXTS) + "\n")
    shutil.copytree(space.reference("default"), folder / "run")
    for name in ("config.yaml", "sources.json"):
        content = (folder / "run" / name).read_text()
        for split, path in space.data.items():
            content = content.replace(path, shutil.copy(path, folder / f"{split}.csv").as_posix())
        (folder / "run" / name).write_text(content)
    shutil.copy(folder / "test.csv", folder / "other.csv")
    return folder


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
    return {0: relative, 1: folder / "parts" / ".." / relative, 2: around / relative}.get(
        kind, path
    )


def contents(folder, except_for):
    """Of all files in a folder their hashes and modes; links are not followed."""
    paths = [
        it for it in folder.rglob("*") if it.is_file() and it != except_for and not it.is_symlink()
    ]
    return {path.resolve(): (sha256_of(path), path.stat().st_mode & 0o777) for path in paths}
