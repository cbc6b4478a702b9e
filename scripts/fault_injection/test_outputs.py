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


def hash_of_name(name):
    return sha256(name.encode()).hexdigest()[:12]


# The end of a temporary name that can be guessed.
KNOWN_HEX = "0123456789abcdef"
# The middle of a temporary name: of which file it is, and of which machine.
MARK = f"{hash_of_name('predictions.txt')}-{hash_of_name(platform.node())}"
LINKS = (
    f".tmp-{KNOWN_HEX}-predictions.txt",
    f".tmp-{os.getpid()}-predictions.txt",
    f".tmp-{MARK}-{KNOWN_HEX}",
)
RUN_FILES = [
    "model/config.json",
    "model/model.safetensors",
    "model/tokenizer.json",
    "model/new.json",
    "config.yaml",
    "sources.json",
    "metrics.jsonl",
    "checkpoints/new.json",
]
NAMES_AMONG_INPUTS = [
    "predictions.tsv",
    "predictions.txt",
    "deeper/predictions.jsonl",
    ".hidden.txt",
]
NAMES_AMONG_TEXTS_OF_CLASSES = ["good/1.txt", "good/2.txt", "predictions.jsonl"]
PARTS = ["parts", "parts/*.txt", "parts/part-?.txt"]
STDOUT = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
SOURCES = ["texts.txt", "parts", "parts/*.txt", "reviews"]
ENDINGS = ["txt", "csv", "jsonl", "tsv", "html"]
FORMATS = ["text", "jsonl", "tsv", "csv", "html"]
# Modes of an older file at the output; none: there is no such file.
MODES = (None, 0o600, 0o640, 0o644, 0o666)


class Asked(NamedTuple):
    """A command in a folder of texts of all kinds, its output, and the expected exit code."""

    words: tuple
    output: str
    code: int | None = 2  # none: any
    modes: tuple = (None,)  # of an older file at the output, one of which is drawn
    stdin: str | None = None
    stdout: str | None = None  # a file that is appended to
    links: tuple = ()
    by_eval: bool = False

    def can_be_a_page(self):
        """Whether the output may be named by `--attention` in place of `--output`."""
        return self.code == 2 and not self.by_eval and "--attention" not in self.words


def from_input(source, output, **more):
    return Asked(("--input", source), output, **more)


def written_to_standard_output():
    """Outputs that are standard output by name; refused where a report is printed there, too."""
    for name in STDOUT:
        yield Asked((), name, stdout="log", by_eval=True)
        for form in FORMATS:
            yield Asked(("--format", form, *TEXTS), name, 0, stdout="log")


def written_to_a_new_file():
    for source in SOURCES:
        for ending in ENDINGS:
            yield from_input(source, f"predictions.{ending}", code=0, modes=MODES)


def written_into_the_run():
    for name in RUN_FILES:
        yield Asked((), f"run/{name}", by_eval=True)
        yield Asked(("some rain",), f"run/{name}")


KINDS = {
    "the input": [from_input("texts.txt", "texts.txt")],
    "standard input's file": [
        Asked((), "texts.txt", stdin="texts.txt"),
        Asked(("--input", "-"), "texts.txt", stdin="texts.txt"),
    ],
    "one of several inputs": [from_input(source, "parts/part-1.txt") for source in PARTS],
    "a new file among the inputs": [
        from_input("parts/*.txt", "parts/predictions.txt", modes=(0o644,)),
        *(from_input("parts", f"parts/{name}") for name in NAMES_AMONG_INPUTS),
    ],
    "a text of a class": [
        from_input("reviews", f"reviews/{name}") for name in NAMES_AMONG_TEXTS_OF_CLASSES
    ],
    "a file of the run": [*written_into_the_run()],
    "data of the run": [Asked((), f"{split}.csv", by_eval=True) for split in SPLITS],
    "data that is scored": [Asked(("--data", "other.csv"), "other.csv", by_eval=True)],
    "one file twice": [
        Asked(("--attention", "page.html", "some rain"), "page.html", modes=(None, 0o644))
    ],
    "standard output by name": [*written_to_standard_output()],
    "a new file": [*written_to_a_new_file()],
    "a link at the temporary name": [Asked(("some rain",), "predictions.txt", None, links=LINKS)],
}


@pytest.mark.parametrize("kind", KINDS)
@tries(17)
def test_outputs(space, draw, kind, number):
    """A file that a command reads, by any name, as its output: refused, or written beside it."""
    folder = new_folder(space)
    case = draw.choice(KINDS[kind])
    output = folder / case.output
    log = folder / case.stdout if case.stdout else None
    mode = draw.choice(case.modes)
    if mode:
        output.write_text("older predictions")
        output.chmod(mode)
    for name in case.links:
        (folder / name).symlink_to(folder / draw.choice(["texts.txt", "nothing"]))

    named = another_name(output, folder, draw)
    written = (folder / named).resolve()
    is_page = case.can_be_a_page() and draw.random() < 0.3
    command = ["eval", "run"] if case.by_eval else predict("run", engine_of(number))
    option = "--attention" if is_page else "--output"
    command += [*case.words, option, named]

    before = contents(folder, log)
    logged = log.read_bytes() if log else b""
    ended = space.fork(command, prepare=lambda: prepare(folder, case)).end()
    assert case.code in {None, ended.code}, f"exit {ended.code}, expected {case.code}: {ended.err}"
    assert ended.code in {0, 1, 2}, f"exit {ended.code}: {ended.err}"
    assert not {"Traceback", "unexpected"} & {*ended.err.split()}, ended.err

    # A file that was there keeps its mode and, unless it is the output, its content.
    after = contents(folder, log)
    for path, (content, mode) in before.items():
        assert path in after, f"{path} is gone"
        content_now, mode_now = after[path]
        assert mode_now == mode, f"{path} has the mode {mode_now:o}, before {mode:o}"
        is_output = path == written and ended.code == 0
        assert is_output or content_now == content, f"{path} is written over"

    added = after.keys() - before.keys()
    assert not [path for path in added if path.name.startswith(".tmp-")], "something is left"
    if log:
        logged_now = log.read_bytes()
        is_appended = len(logged_now) > len(logged)
        assert logged_now.startswith(logged), "what was in the log is gone"
        assert is_appended == (ended.code == 0), "nothing was appended"


def prepare(folder, case):
    """Set the new process's streams, and the end of temporary names."""
    os.chdir(folder)
    if case.stdin:
        os.dup2(os.open(case.stdin, os.O_RDONLY), 0)
    if case.stdout:
        os.dup2(os.open(case.stdout, os.O_WRONLY | os.O_APPEND), 1)
    mock.patch("secrets.token_hex", lambda length=8: KNOWN_HEX[: 2 * length]).start()


def new_folder(space):
    """A new folder with texts of all kinds, and a run with a copy of its data."""
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

    space.copy_with_data("default", folder)
    shutil.copy(folder / "test.csv", folder / "other.csv")
    return folder


def another_name(path, folder, draw):
    """Name the same file otherwise: relative, roundabout, through a link to it or to its folder."""
    if not path.is_relative_to(folder):
        return path

    relative = path.relative_to(folder)
    way = draw.choice(["relative", "roundabout", "linked folder", "linked file", "as it is"])
    if way == "relative":
        return relative
    if way == "roundabout":
        return folder / "parts" / ".." / relative
    if way == "linked file" and path.is_file():
        link = folder / f"link-{draw.randrange(10**6)}{path.suffix}"
        link.symlink_to(path)
        return link
    if way == "linked folder":
        linked_folder = folder.with_name(f"{folder.name}-link")
        linked_folder.symlink_to(folder)
        return linked_folder / relative
    return path


def contents(folder, except_for):
    """The hash and the mode of each file in a folder; links are not followed."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path != except_for:
            found[path.resolve()] = (sha256_of(path), path.stat().st_mode & 0o777)
    return found
