"""Data sets of the Hugging Face Hub, read from a stand-in on this machine: no test here needs a network.

The libraries beneath read the environment when they are imported, so everything runs in processes of its own;
they are few, started together, and each test looks at the part that it names.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from hub_stand_in import Files, HubStandIn
from support.time_limit import TIME_LIMIT

PATIENCE = 15  # seconds that may be slept, in all, before a source that cannot be read is given up
GERMAN, ENGLISH = ["lob", "klage"], ["praise", "complaint"]  # class 0 and 1, not in the order of the alphabet

# The viewer of the real Hub is another host, datasets-server.<HF_ENDPOINT>, not to be looked up here.
NO_VIEWER = "import datasets.config; datasets.config.USE_PARQUET_EXPORT = False\n"
TRAIN = f"{NO_VIEWER}from encoder_cls.cli import main; main()"
READ = f"""{NO_VIEWER}
import json, sys, time, traceback
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import DataError

label_column = sys.argv[2] if len(sys.argv) > 2 else None
slept, sleep = [], time.sleep
time.sleep = lambda seconds: slept.append(seconds) or sleep(seconds)
for role, source in json.loads(sys.argv[1]):
    slept.clear()
    try:
        rows = read_rows(source, role=role, text_columns=["text"], label_column=label_column)
        answer = [[row.text, row.label] for row in rows]
    except DataError as error:
        answer = str(error)
    except Exception:
        answer = {{"not a DataError": traceback.format_exc()}}
    print(json.dumps([answer, sum(slept)]))
"""


def readme(**configs: list[str]) -> bytes:
    """The card of a repository, with the class names of each config; the first config is the default one."""
    default, splits = next(iter(configs)), ("train", "test", "unlabelled")
    card = {
        "configs": [
            {
                "config_name": name,
                "default": name == default,
                "data_files": [{"split": split, "path": f"{name}/{split}-*"} for split in splits],
            }
            for name in configs
        ],
        "dataset_info": [
            {
                "config_name": name,
                "features": [
                    {"name": "text", "dtype": "string"},
                    {"name": "label", "dtype": {"class_label": {"names": dict(enumerate(class_names))}}},
                ],
            }
            for name, class_names in configs.items()
        ],
    }
    return f"---\n{yaml.safe_dump(card)}---\n# Made up\n".encode()


def parquet(*rows: tuple[str, int]) -> bytes:
    """A Parquet file of texts and class numbers; what these are called stands in the card alone."""
    texts, labels = zip(*rows, strict=True)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), buffer)
    return buffer.getvalue()


def repository(mark: str) -> Files:
    """Two configs, one of them with its train split in two files; the texts carry the mark."""
    return {
        "README.md": readme(german=GERMAN, english=ENGLISH),
        "german/train-00000-of-00002.parquet": parquet(*((f"{mark} gut {i}", 0) for i in range(4))),
        "german/train-00001-of-00002.parquet": parquet(*((f"{mark} böse {i}", 1) for i in range(4))),
        "german/test-00000-of-00001.parquet": parquet((f"{mark} alt", 1), (f"{mark} \tneu ", 0)),
        "german/unlabelled-00000-of-00001.parquet": parquet(("a", 0), ("b", -1), ("c", -1)),
        "english/train-00000-of-00001.parquet": parquet((f"{mark} good", 0), (f"{mark} bad", 1)),
        "english/test-00000-of-00001.parquet": parquet((f"{mark} new", 0)),
        "english/unlabelled-00000-of-00001.parquet": parquet(("a", -1)),
    }


def train_rows(mark: str) -> list[list[str]]:
    """What the train split of the config `german` must be read as."""
    good, bad = GERMAN
    return [[f"{mark} gut {i}", good] for i in range(4)] + [[f"{mark} böse {i}", bad] for i in range(4)]


Answer = list[list[str]] | str  # texts with the names of their classes, or the message of a DataError
REPOSITORIES = {"owner/name": {"main": repository("main"), "v1": repository("v1")}}

# What one process reads, with one cache, source after source.
SOURCES = {
    "train": ("train", "hub:owner/name"),
    "test": ("test", "hub:owner/name"),
    "split": ("train", "hub:owner/name?split=test"),
    "config": ("train", "hub:owner/name?config=english"),
    "revision": ("train", "hub:owner/name?revision=v1"),
    "all options": ("train", "hub:owner/name?config=english&revision=v1&split=test"),
    "no such name": ("train", "hub:owner/nobody"),
    "no such split": ("validation", "hub:owner/name"),
    "no such config": ("train", "hub:owner/name?config=french"),
    "no such revision": ("train", "hub:owner/name?revision=v2"),
    "unlabelled": ("train", "hub:owner/name?split=unlabelled"),
    "two splits": ("train", "hub:owner/name?split=train+test"),
    "no such option": ("train", "hub:owner/name?sprit=test"),
    "folder train": ("train", "hub:{folder}"),
    "streamed": ("train", "hub:owner/name?streaming=true"),
    "streamed split": ("validation", "hub:owner/name?streaming=true"),
}


class Processes:
    """Processes that run at once, each with a cache of its own; ask for the end of one by its name."""

    def __init__(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        self._pool, self.folder = pool, folder
        self._ends: dict[str, Future[subprocess.CompletedProcess[str]]] = {}

    def start(self, name: str, code: str, *arguments: str, environment: Mapping[str, str]) -> None:
        """Run Python code with no proxies and with no settings of the Hub but these."""
        folder = self.folder / name
        folder.mkdir()
        unwanted = re.compile(r".*_proxy|(HF|HUGGINGFACE|TRANSFORMERS)_.*", re.IGNORECASE)
        inherited = {key: value for key, value in os.environ.items() if not unwanted.fullmatch(key)}
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1"}
        self._ends[name] = self._pool.submit(
            subprocess.run,
            [sys.executable, "-c", code, *arguments],
            cwd=folder,
            env={**inherited, **quiet, "HF_HOME": str(folder / "cache"), "PYTHONUTF8": "1", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=TIME_LIMIT,
            check=False,
        )

    def end(self, name: str) -> subprocess.CompletedProcess[str]:
        """How a process ended, once it has."""
        ended = self._ends[name].result()
        assert ended.returncode == 0, ended.stderr
        return ended

    def answers(self, name: str) -> list[tuple[Answer, float]]:
        """What a process that ran READ says of each source, and how many seconds it slept meanwhile."""
        return [tuple(json.loads(line)) for line in self.end(name).stdout.splitlines()]


@pytest.fixture(scope="module")
def hub() -> Iterator[HubStandIn]:
    """The stand-in."""
    with HubStandIn(REPOSITORIES) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def processes(hub: HubStandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """All processes of this file, started."""
    folder = tmp_path_factory.mktemp("hub")
    for path, content in repository("local").items():
        file = folder / "copy" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    sources = json.dumps([(role, source.format(folder=folder / "copy")) for role, source in SOURCES.values()])
    one_source = json.dumps([("train", "hub:owner/name")])
    settings = (
        "data.train=hub:owner/name",
        "data.validation=null",
        "data.test=hub:owner/name?config=german",
        "data.cache=kept",
    )
    overrides = [argument for setting in settings for argument in ("--set", setting)]
    with socket.socket() as deaf, ThreadPoolExecutor(max_workers=4) as pool:
        deaf.bind(("127.0.0.1", 0))  # taken, but nobody listens there: connections are refused
        nowhere, here = {"HF_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}"}, {"HF_ENDPOINT": hub.url}
        processes = Processes(pool, folder)
        processes.start("no server", READ, one_source, "label", environment=nowhere)
        processes.start("read", READ, sources, "label", environment=here)
        processes.start("offline", READ, one_source, "label", environment={**here, "HF_HUB_OFFLINE": "1"})
        unlabelled = json.dumps([("train", "hub:owner/name?split=unlabelled")])
        processes.start("predict", READ, unlabelled, environment=here)
        processes.start("train", TRAIN, "train", "--dry-run", "--device", "cpu", *overrides, environment=here)
        yield processes


@pytest.fixture
def read(processes: Processes) -> Callable[[str], Answer]:
    """What a source was read as, by its name in SOURCES."""
    return lambda name: dict(zip(SOURCES, processes.answers("read"), strict=True))[name][0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("train", train_rows("main")),
        ("test", [["main alt", "klage"], ["main \tneu ", "lob"]]),
        ("split", [["main alt", "klage"], ["main \tneu ", "lob"]]),
        ("config", [["main good", "praise"], ["main bad", "complaint"]]),
        ("revision", train_rows("v1")),
        ("all options", [["v1 new", "praise"]]),
        ("folder train", train_rows("local")),
        ("streamed", train_rows("main")),
    ],
)
def test_texts_are_exact_labels_are_names_and_options_are_honoured(read, source, expected):
    assert read(source) == expected


def test_two_splits_are_one_after_the_other(read):
    assert read("two splits") == read("train") + read("test")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("streamed split", "cannot load split 'validation'"),
        ("no such option", "hub:owner/name?sprit=test: write it as hub:owner/name[?config=...&split=...&revision=..."),
        ("unlabelled", "hub:owner/name/unlabelled:1: label -1 of column 'label' has no name"),
    ],
)
def test_what_cannot_be_meant_or_has_no_label_is_refused(read, source, message):
    answer = read(source)
    assert isinstance(answer, str), answer
    assert message in answer


@pytest.mark.parametrize(
    ("source", "repository", "named"),
    [
        ("no such split", "hub:owner/name", "'validation'"),
        ("no such config", "hub:owner/name", "'french'"),
        ("no such revision", "hub:owner/name", "v2"),
        ("no such name", "hub:owner/nobody", ""),
    ],
)
def test_a_repository_or_a_part_of_it_that_is_missing_is_named(read, source, repository, named):
    message = read(source)
    assert_is_advice(message, repository)
    assert named in message


def test_texts_without_labels_can_be_read_as_texts(processes):
    [(rows, _)] = processes.answers("predict")
    assert rows == [["a", None], ["b", None], ["c", None]]


@pytest.mark.parametrize("process", ["no server", "offline"])
def test_a_hub_out_of_reach_is_given_up_soon(processes, process):
    [(message, seconds)] = processes.answers(process)
    assert_is_advice(message, "hub:owner/name")
    assert seconds < PATIENCE


def test_what_was_read_before_is_read_offline_if_it_is_of_that_revision(processes):
    sources = [("train", f"hub:owner/name?config=german{other}") for other in ("&revision=v1", "", "&revision=v2")]
    processes.end("read")  # of the config german, v1 is what it loaded last
    cache = {"HF_HOME": str(processes.folder / "read" / "cache"), "HF_HUB_OFFLINE": "1"}
    processes.start("cached", READ, json.dumps(sources), "label", environment=cache)
    (v1, _), *others = processes.answers("cached")
    assert v1 == train_rows("v1")
    for message, _ in others:
        assert_is_advice(message, "hub:owner/name")
        assert "of another revision" in message


@pytest.mark.parametrize("process", ["read", "offline", "no server"])
def test_nothing_is_written_on_standard_error(processes, process):
    assert processes.end(process).stderr == ""


def test_train_takes_its_data_from_the_hub(processes):
    ended = processes.end("train")
    data = yaml.safe_load(ended.stdout)["data"]
    assert (data["train"], data["test"]) == ("hub:owner/name", "hub:owner/name?config=german")
    lines = ended.stderr.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("data.cache: ")] == ["rows", "tokens"]
    assert lines[0] == "reading hub:owner/name"
    assert any(line.startswith("data: 6 training, 2 validation, 2 test texts, 2 classes") for line in lines)


def test_the_stand_in_was_asked_for_nothing_that_it_does_not_know(hub, processes):
    for name in ("read", "train"):
        processes.end(name)
    assert hub.unknown == []


def assert_is_advice(message: Answer, source: str) -> None:
    """The message of a DataError, one line or two: what could not be read, and what to check."""
    assert isinstance(message, str), message
    assert message.startswith(f"{source}: ")
    assert "check the name and the network" in message
    assert len(message.splitlines()) <= 2
