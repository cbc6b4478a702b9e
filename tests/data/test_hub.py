"""Data sets of the Hugging Face Hub, read from a local stand-in: no test here needs a network.

The libraries beneath read the environment when they are imported, so everything runs in three
processes of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from support.hub_stand_in import Files, HubStandIn
from support.programs import TIME_OF_LINE, run_beside_hub, setting

# Seconds that may be slept, in all, before a source that cannot be read is given up.
PATIENCE = 15

# The names of classes 0 and 1 in each config, not in the order of the alphabet.
GERMAN_CLASSES = ["lob", "klage"]
ENGLISH_CLASSES = ["praise", "complaint"]

# Reads sources, each with its role, and then runs a command. For each source it prints a line of
# JSON: the rows or the message of the error, and the seconds that were slept.
#
# The viewer of the real Hub is another host, datasets-server.<HF_ENDPOINT>, not to be looked up
# here.
READ_SOURCES = """
import datasets.config, json, sys, time, traceback
from encoder_cls.cli.app import main
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError

datasets.config.USE_PARQUET_EXPORT = False

slept = []
sleep = time.sleep

def counted_sleep(seconds):
    slept.append(seconds)
    sleep(seconds)

time.sleep = counted_sleep

for role, source in json.loads(sys.argv.pop(1)):
    slept.clear()
    try:
        columns = Columns(["text"], None if role == "input" else "label")
        rows = read_rows(source, columns, Reading(), role=role)
        result = [[row.text, row.label] for row in rows]
    except DataError as error:
        result = str(error)
    except Exception:
        result = {"not a DataError": traceback.format_exc()}
    print(json.dumps([result, sum(slept)]), flush=True)

if len(sys.argv) > 1:
    main()
"""


def readme(**configs: list[str]) -> bytes:
    """The card of a repository, with the class names of each config; the first is the default."""
    files = []
    infos = []
    for name, class_names in configs.items():
        splits = []
        for split in ("train", "test", "unlabelled"):
            splits.append({"split": split, "path": f"{name}/{split}-*"})
        files.append({"config_name": name, "default": not files, "data_files": splits})

        text = {"name": "text", "dtype": "string"}
        numbered_names = dict(enumerate(class_names))
        label = {"name": "label", "dtype": {"class_label": {"names": numbered_names}}}
        infos.append({"config_name": name, "features": [text, label]})

    header = yaml.safe_dump({"configs": files, "dataset_info": infos})
    return f"---\n{header}---\n# Made up\n".encode()


def parquet(*rows: tuple[str, int]) -> bytes:
    """A Parquet file of texts and class numbers, whose names are in the card alone."""
    texts = [text for text, _ in rows]
    labels = [label for _, label in rows]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), buffer)
    return buffer.getvalue()


def repository(mark: str) -> Files:
    """Two configs, one of them with its train split in two files; the texts carry the mark."""
    praise = [(f"{mark} gut {number}", 0) for number in range(4)]
    complaints = [(f"{mark} böse {number}", 1) for number in range(4)]
    return {
        "README.md": readme(german=GERMAN_CLASSES, english=ENGLISH_CLASSES),
        "german/train-00000-of-00002.parquet": parquet(*praise),
        "german/train-00001-of-00002.parquet": parquet(*complaints),
        "german/test-00000-of-00001.parquet": parquet((f"{mark} alt", 1), (f"{mark} \tneu ", 0)),
        "german/unlabelled-00000-of-00001.parquet": parquet(("a", 0), ("b", -1), ("c", -1)),
        "english/train-00000-of-00001.parquet": parquet((f"{mark} good", 0), (f"{mark} bad", 1)),
        "english/test-00000-of-00001.parquet": parquet((f"{mark} new", 0)),
        "english/unlabelled-00000-of-00001.parquet": parquet(("a", -1)),
    }


Rows = list[list[str | None]]
"""Texts with the names of their classes."""


def train_rows(mark: str) -> Rows:
    """The rows of the train split of the config `german`."""
    praise: Rows = [[f"{mark} gut {number}", "lob"] for number in range(4)]
    complaints: Rows = [[f"{mark} böse {number}", "klage"] for number in range(4)]
    return praise + complaints


REPOSITORIES = {"owner/name": {"main": repository("main"), "v1": repository("v1")}}

TEST_ROWS: Rows = [
    ["main alt", "klage"],
    ["main \tneu ", "lob"],
]

Source = tuple[str, str]
"""The role, and the source itself."""

# What each source has.
READ: dict[Source, Rows] = {
    ("train", "hub:owner/name"): train_rows("main"),
    ("test", "hub:owner/name"): TEST_ROWS,
    ("train", "hub:owner/name?split=test"): TEST_ROWS,
    ("train", "hub:owner/name?split=train+test"): train_rows("main") + TEST_ROWS,
    ("train", "hub:owner/name?config=english"): [
        ["main good", "praise"],
        ["main bad", "complaint"],
    ],
    ("train", "hub:owner/name?revision=v1"): train_rows("v1"),
    ("train", "hub:owner/name?config=english&revision=v1&split=test"): [["v1 new", "praise"]],
    ("train", "hub:./copy"): train_rows("local"),
    ("train", "hub:owner/name?streaming=true"): train_rows("main"),
    ("input", "hub:owner/name?split=unlabelled"): [["a", None], ["b", None], ["c", None]],
}

ADVICE = "check the name and the network"

# Parts of the message about each source that cannot be read.
REFUSED: dict[Source, Sequence[str]] = {
    ("validation", "hub:owner/name"): ["hub:owner/name: ", "'validation'", ADVICE],
    ("train", "hub:owner/name?config=french"): ["hub:owner/name: ", "'french'", ADVICE],
    ("train", "hub:owner/name?revision=v2"): ["hub:owner/name: ", "v2", ADVICE],
    ("train", "hub:owner/nobody"): ["hub:owner/nobody: ", ADVICE],
    ("validation", "hub:owner/name?streaming=true"): ["cannot load split 'validation'"],
    ("train", "hub:owner/name?sprit=test"): [
        "hub:owner/name?sprit=test: write it as hub:owner/name[?config=...",
    ],
    ("train", "hub:owner/name?split=unlabelled"): [
        "unlabelled:2: label -1 of column 'label' has no name",
    ],
}

SETTINGS = [
    "data.train=hub:owner/name",
    "data.validation=null",
    "data.test=hub:owner/name?config=german",
    "data.cache=kept",
]
TRAIN = ["train", "--dry-run", "--device", "cpu", *setting(*SETTINGS)]

Result = Rows | str
"""What a source has, or the message of a `DataError`."""


@dataclass(frozen=True)
class Ended:
    """What a process has read of each source, and what its command printed.

    Attributes:
        results: what a source has, or the message of its error.
        slept: the seconds that were slept while a source was read.
        out: standard output of the command.
        err: standard error.
    """

    results: dict[Source, Result]
    slept: dict[Source, float]
    out: str
    err: str


def run(sources: Iterable[Source], *command: str, cache: Path, **environment: str) -> Ended:
    """Read sources, one after the other, then run a command."""
    sources = list(sources)
    ended = run_beside_hub(READ_SOURCES, json.dumps(sources), *command, cache=cache, **environment)
    assert ended.returncode == 0, ended.stderr

    lines = ended.stdout.splitlines(keepends=True)
    results = {}
    slept = {}
    for source, line in zip(sources, lines, strict=False):
        results[source], slept[source] = json.loads(line)

    out = "".join(lines[len(sources) :])
    return Ended(results=results, slept=slept, out=out, err=TIME_OF_LINE.sub("", ended.stderr))


def assert_refused(result: Result, *parts: str) -> None:
    """A result is the message of a `DataError` of one or two lines, with these parts."""
    assert isinstance(result, str), result
    assert len(result.splitlines()) <= 2
    for part in parts:
        assert part in result


@pytest.fixture(scope="module")
def hub() -> Iterator[HubStandIn]:
    """The stand-in."""
    with HubStandIn(REPOSITORIES) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Hub's library keeps of what `ended` has read."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def ended(hub: HubStandIn, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A process that has read all sources."""
    folder = tmp_path_factory.mktemp("hub")
    for path, content in repository("local").items():
        file = folder / "copy" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    with contextlib.chdir(folder):
        return run([*READ, *REFUSED], cache=cache, HF_ENDPOINT=hub.url)


@pytest.fixture(scope="module")
def prepared(hub: HubStandIn, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A process that has prepared a training on some of the sources."""
    with contextlib.chdir(tmp_path_factory.mktemp("prepared")):
        return run([], *TRAIN, cache=cache, HF_ENDPOINT=hub.url)


@pytest.mark.slow
@pytest.mark.parametrize("source", READ, ids=" of ".join)
def test_texts_are_exact_labels_are_names_and_options_are_honoured(ended, source):
    assert ended.results[source] == READ[source]


@pytest.mark.slow
@pytest.mark.parametrize("source", REFUSED, ids=" of ".join)
def test_what_cannot_be_read_is_named_with_what_to_check(ended, source):
    assert_refused(ended.results[source], *REFUSED[source])


@pytest.mark.slow
def test_train_takes_its_data_from_the_hub(prepared):
    """Its first line is the first on standard error."""
    data = yaml.safe_load(prepared.out)["data"]
    assert data["train"] == "hub:owner/name"
    assert data["test"] == "hub:owner/name?config=german"

    lines = prepared.err.splitlines()
    assert lines[0] == "reading hub:owner/name"
    counts = "data: 6 training, 2 validation, 2 test texts, 2 classes"
    assert any(line.startswith(counts) for line in lines)


@pytest.mark.slow
def test_train_caches_data_of_the_hub(prepared):
    """It keeps the rows and their tokens."""
    kept = []
    for line in prepared.err.splitlines():
        if line.startswith("data.cache: "):
            kept.append(line.split()[1])
    assert kept == ["rows", "tokens"]


@pytest.mark.slow
def test_the_stand_in_knew_each_path_that_was_asked_for(ended, hub):
    """A path that it does not know is one of a later version of the library."""
    assert hub.unknown == []


@pytest.mark.slow
def test_what_was_read_before_is_read_offline_if_it_is_of_that_revision(ended, cache):
    """Of the config `german`, revision v1 was loaded last.

    A source that was never read is given up at once.
    """
    last_loaded = ("train", "hub:owner/name?config=german&revision=v1")
    others = [
        ("train", "hub:owner/name?config=german"),
        ("train", "hub:owner/name?config=german&revision=v2"),
    ]
    never_loaded = ("train", "hub:owner/nobody")

    offline = run([last_loaded, *others, never_loaded], cache=cache, HF_HUB_OFFLINE="1")

    assert offline.results[last_loaded] == train_rows("v1")
    for source in others:
        assert_refused(offline.results[source], "hub:owner/name: ", "of another revision", ADVICE)
    assert_refused(offline.results[never_loaded], "hub:owner/nobody: ", ADVICE)
    assert offline.slept[never_loaded] < PATIENCE


@pytest.mark.slow
def test_a_hub_out_of_reach_is_given_up_soon(tmp_path):
    source = ("train", "hub:owner/name")
    with socket.socket() as deaf:
        # The port is taken, but nobody listens there: connections are refused.
        deaf.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        ended = run([source], cache=tmp_path, HF_ENDPOINT=endpoint)

    assert_refused(ended.results[source], "hub:owner/name: ", ADVICE)
    assert ended.slept[source] < PATIENCE
    assert ended.err == ""
