"""Data sets of the Hugging Face Hub, read from a local stand-in: no test here needs a network.

The libraries beneath read the environment when they are imported, so everything runs in three processes of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from support.hub_stand_in import Files, HubStandIn
from support.programs import run_beside_hub, setting

PATIENCE = 15  # seconds that may be slept, in all, before a source that cannot be read is given up
# Class 0 and 1, not in the order of the alphabet.
GERMAN, ENGLISH = (
    ["lob", "klage"],
    ["praise", "complaint"],
)

# The viewer of the real Hub is another host, datasets-server.<HF_ENDPOINT>, not to be looked up here.
READ = """
import datasets.config, json, sys, time, traceback
from encoder_cls.cli.app import main
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError

datasets.config.USE_PARQUET_EXPORT = False
slept, sleep = [], time.sleep
time.sleep = lambda seconds: slept.append(seconds) or sleep(seconds)
for role, source in json.loads(sys.argv.pop(1)):
    slept.clear()
    try:
        columns = Columns(["text"], None if role == "input" else "label")
        rows = read_rows(source, columns, Reading(), role=role)
        answer = [[row.text, row.label] for row in rows]
    except DataError as error:
        answer = str(error)
    except Exception:
        answer = {"not a DataError": traceback.format_exc()}
    print(json.dumps([answer, sum(slept)]), flush=True)
if len(sys.argv) > 1:
    main()
"""


def readme(**configs: list[str]) -> bytes:
    """The card of a repository, with the class names of each config; the first config is the default one."""
    files, infos = [], []
    for name, class_names in configs.items():
        splits = [
            {"split": split, "path": f"{name}/{split}-*"}
            for split in ("train", "test", "unlabelled")
        ]
        files.append({"config_name": name, "default": not files, "data_files": splits})
        label = {"name": "label", "dtype": {"class_label": {"names": dict(enumerate(class_names))}}}
        infos.append(
            {"config_name": name, "features": [{"name": "text", "dtype": "string"}, label]}
        )
    return (
        f"---\n{yaml.safe_dump({'configs': files, 'dataset_info': infos})}---\n# Made up\n".encode()
    )


def parquet(*rows: tuple[str, int]) -> bytes:
    """A Parquet file of texts and class numbers, whose names are in the card alone."""
    texts, labels = zip(*rows, strict=True)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), buffer)
    return buffer.getvalue()


def repository(mark: str) -> Files:
    """Two configs, one of them with its train split in two files; the texts carry the mark."""
    return {
        "README.md": readme(german=GERMAN, english=ENGLISH),
        "german/train-00000-of-00002.parquet": parquet(*((f"{mark} gut {i}", 0) for i in range(4))),
        "german/train-00001-of-00002.parquet": parquet(
            *((f"{mark} böse {i}", 1) for i in range(4))
        ),
        "german/test-00000-of-00001.parquet": parquet((f"{mark} alt", 1), (f"{mark} \tneu ", 0)),
        "german/unlabelled-00000-of-00001.parquet": parquet(("a", 0), ("b", -1), ("c", -1)),
        "english/train-00000-of-00001.parquet": parquet((f"{mark} good", 0), (f"{mark} bad", 1)),
        "english/test-00000-of-00001.parquet": parquet((f"{mark} new", 0)),
        "english/unlabelled-00000-of-00001.parquet": parquet(("a", -1)),
    }


def train_rows(mark: str) -> list[list[str]]:
    """The rows of the train split of the config `german`."""
    good, bad = GERMAN
    return [[f"{mark} gut {i}", good] for i in range(4)] + [
        [f"{mark} böse {i}", bad] for i in range(4)
    ]


# Texts with the names of their classes, or the message of a DataError.
Prediction = list[list[str]] | str
REPOSITORIES = {"owner/name": {"main": repository("main"), "v1": repository("v1")}}
OF_TEST = [["main alt", "klage"], ["main \tneu ", "lob"]]
READ_ROWS = {
    ("train", "hub:owner/name"): train_rows("main"),
    ("test", "hub:owner/name"): OF_TEST,
    ("train", "hub:owner/name?split=test"): OF_TEST,
    ("train", "hub:owner/name?split=train+test"): train_rows("main") + OF_TEST,
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
REFUSED = {
    ("validation", "hub:owner/name"): ("hub:owner/name: ", "'validation'", ADVICE),
    ("train", "hub:owner/name?config=french"): ("hub:owner/name: ", "'french'", ADVICE),
    ("train", "hub:owner/name?revision=v2"): ("hub:owner/name: ", "v2", ADVICE),
    ("train", "hub:owner/nobody"): ("hub:owner/nobody: ", ADVICE),
    ("validation", "hub:owner/name?streaming=true"): ("cannot load split 'validation'",),
    ("train", "hub:owner/name?sprit=test"): (
        "hub:owner/name?sprit=test: write it as hub:owner/name[?config=...",
    ),
    ("train", "hub:owner/name?split=unlabelled"): (
        "unlabelled:1: label -1 of column 'label' has no name",
    ),
}
SETTINGS = [
    "data.train=hub:owner/name",
    "data.validation=null",
    "data.test=hub:owner/name?config=german",
]
TRAIN = ["train", "--dry-run", "--device", "cpu", *setting(*SETTINGS, "data.cache=kept")]


@dataclass(frozen=True)
class Ended:
    """What a process has read of sources and slept meanwhile, and what its command printed."""

    predictions: dict[tuple[str, str], tuple[Prediction, float]]
    out: str
    err: str


def run(
    sources: Iterable[tuple[str, str]], *command: str, cache: Path, **environment: str
) -> Ended:
    """Read sources, one after the other, then run a command."""
    sources = list(sources)
    ended = run_beside_hub(READ, json.dumps(sources), *command, cache=cache, **environment)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines(keepends=True)
    predictions = {
        source: tuple(json.loads(line)) for source, line in zip(sources, lines, strict=False)
    }
    return Ended(predictions, "".join(lines[len(sources) :]), ended.stderr)


@pytest.fixture(scope="module")
def hub() -> Iterator[HubStandIn]:
    """The stand-in."""
    with HubStandIn(REPOSITORIES) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Hub's library keeps of what `read` has read."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def read(hub: HubStandIn, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All sources, and a training on some of them at the end."""
    folder = tmp_path_factory.mktemp("hub")
    for path, content in repository("local").items():
        file = folder / "copy" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with contextlib.chdir(folder):
        return run([*READ_ROWS, *REFUSED], *TRAIN, cache=cache, HF_ENDPOINT=hub.url)


@pytest.mark.parametrize("source", READ_ROWS, ids=" of ".join)
def test_texts_are_exact_labels_are_names_and_options_are_honoured(read, source):
    assert read.predictions[source][0] == READ_ROWS[source]


@pytest.mark.parametrize("source", REFUSED, ids=" of ".join)
def test_what_cannot_be_read_is_named_with_what_to_check(read, source):
    assert_refused(read.predictions[source][0], *REFUSED[source])


def test_train_takes_its_data_from_the_hub(read, hub):
    """Its first line is the first on standard error, and the Hub had an answer to each request."""
    data = yaml.safe_load(read.out)["data"]
    assert (data["train"], data["test"]) == ("hub:owner/name", "hub:owner/name?config=german")
    lines = read.err.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("data.cache: ")] == [
        "rows",
        "tokens",
    ]
    assert lines[0] == "reading hub:owner/name"
    assert any(
        line.startswith("data: 6 training, 2 validation, 2 test texts, 2 classes") for line in lines
    )
    assert hub.unknown == []


def test_what_was_read_before_is_read_offline_if_it_is_of_that_revision(read, cache):
    """What never was is given up at once."""
    known, *others = [
        ("train", f"hub:owner/name?config=german{it}")
        for it in ("&revision=v1", "", "&revision=v2")
    ]
    never = ("train", "hub:owner/nobody")
    ended = run([known, *others, never], cache=cache, HF_HUB_OFFLINE="1")
    assert ended.predictions[known][0] == train_rows(
        "v1"
    )  # of the config german it was loaded last
    for source in others:
        assert_refused(
            ended.predictions[source][0], "hub:owner/name: ", "of another revision", ADVICE
        )
    message, seconds = ended.predictions[never]
    assert_refused(message, "hub:owner/nobody: ", ADVICE)
    assert seconds < PATIENCE


def test_a_hub_out_of_reach_is_given_up_soon(tmp_path):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # taken, but nobody listens there: connections are refused
        source = ("train", "hub:owner/name")
        ended = run(
            [source], cache=tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{deaf.getsockname()[1]}"
        )
    message, seconds = ended.predictions[source]
    assert_refused(message, "hub:owner/name: ", ADVICE)
    assert (seconds < PATIENCE, ended.err) == (True, "")


def assert_refused(message: Prediction, *named: str) -> None:
    """The message of a DataError, one line or two."""
    assert isinstance(message, str), message
    assert len(message.splitlines()) <= 2
    for part in named:
        assert part in message
