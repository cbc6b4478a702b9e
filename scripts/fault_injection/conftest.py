"""Draw tries of the cases, count them, and write the counts into the table of docs/reliability.md.

    pytest scripts/fault_injection                        # every case: three hours on 2 cores
    pytest scripts/fault_injection -k test_signals        # one case
    pytest scripts/fault_injection -k 'test_signals[17]'  # one try again, as it was
    pytest scripts/fault_injection --fraction 0.01 -n 2   # 1% of every case, as in CI
    pytest scripts/fault_injection --write-table          # also writes the counts into the page

A test function is a case, called as the page calls it, and each of its parameters, or examples of
Hypothesis, is a try. Needs Linux; a case that needs what this machine does not have (strace, user
namespaces) is skipped.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: many small processes, each on one core
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import importlib
import random
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import faults
import pytest

pytest.register_assert_rewrite("samples")
import samples  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs/reliability.md"
TABLE = re.compile(r"(<!-- table: .* -->\n\n).*?(\n<!-- end of table -->)", re.DOTALL)
HEAD = ["| case | tries | failed | seconds | commit |", "| --- | ---: | ---: | ---: | --- |"]
USED_BY_COMMANDS = (
    "encoder_cls.bulk.delimited_format",
    "encoder_cls.bulk.predict",
    "encoder_cls.cli.app",
    "encoder_cls.cli.train",
    "encoder_cls.encoder.torch_encoder",
    "encoder_cls.run.evaluate",
    "encoder_cls.serving.server",
    "encoder_cls.system.cache",
    "encoder_cls.extras.tune.search",
    "matplotlib.figure",
    "pyarrow.parquet",
    "scipy.optimize",
    "sklearn.feature_extraction.text",
    "sklearn.metrics",
    "sklearn.pipeline",
    "sklearn.svm",
    "tqdm",
)


@dataclass
class Result:
    """What became of the tries of a case."""

    tries: int = 0
    tries_in_all: int = 0
    failed: int = 0
    seconds: float = 0.0
    why_skipped: str = ""


RESULTS = defaultdict(Result)


def pytest_addoption(parser):
    group = parser.getgroup("fault injection")
    group.addoption(
        "--fraction", type=float, default=1.0, help="the part of each case's tries to make"
    )
    group.addoption(
        "--seed", default="0", help="of what is left to chance; Hypothesis has --hypothesis-seed"
    )
    group.addoption(
        "--write-table", action="store_true", help=f"write the results into {PAGE.name}"
    )


def pytest_configure(config):
    samples.FRACTION = config.option.fraction


def case_of(nodeid):
    """The name of a case, as in the page."""
    return re.search(r"::test_(\w+)", nodeid)[1].replace("_", "-")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep the same tries of each case in every process."""
    items_of_case = defaultdict(list)
    for item in items:
        items_of_case[case_of(item.nodeid)].append(item)

    kept = set()
    for name, case_items in items_of_case.items():
        chance = random.Random(f"{name} {config.option.seed}")
        kept.update(chance.sample(case_items, samples.part_of(len(case_items))))

        # An item of Hypothesis makes many tries, any other one makes one.
        tries = 1
        tries_in_all = len(case_items)
        examples = case_items[0].get_closest_marker("examples")
        if examples:
            (tries_in_all,) = examples.args
            tries = samples.part_of(tries_in_all)
        for item in case_items:
            item.user_properties += [("tries_in_all", tries_in_all), ("tries", tries)]

    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    result = RESULTS[case_of(report.nodeid)]
    result.tries_in_all = properties["tries_in_all"]
    result.seconds += report.duration
    if report.skipped:
        result.why_skipped = report.longrepr[2].removeprefix("Skipped: ")
    elif report.when == "call":
        result.tries += properties["tries"]
    if report.failed and report.when != "teardown":
        result.failed += 1


def pytest_terminal_summary(terminalreporter, config):
    command = ["git", "-C", PAGE.parent, "describe", "--always", "--dirty"]
    described = subprocess.run(command, capture_output=True, text=True, check=False)
    commit = described.stdout.strip()

    lines = {name: table_line(name, result, commit) for name, result in RESULTS.items()}
    terminalreporter.write_line("\n".join([*HEAD, *lines.values()]))

    if config.option.write_table:
        PAGE.write_text(with_lines(PAGE.read_text(), lines))


def table_line(name, result, commit):
    """The line of a case in the table."""
    if result.why_skipped:
        tries = f"skipped: {result.why_skipped}"
    elif result.tries == result.tries_in_all:
        tries = f"{result.tries:,}"
    else:
        tries = f"{result.tries:,} of {result.tries_in_all:,}"
    return f"| `{name}` | {tries} | {result.failed} | {result.seconds:.0f} | {commit} |"


def with_lines(page, lines):
    """The page with these lines in its table; cases without one keep theirs, of an older run."""
    older = {}
    for match in re.finditer(r"^\| `([a-z-]+)` \|.*", TABLE.search(page)[0], re.MULTILINE):
        older[match[1]] = match[0]

    table = "\n".join([*HEAD, *(older | lines).values()])
    return TABLE.sub(lambda match: f"{match[1]}{table}\n{match[2]}", page)


@pytest.fixture(scope="session")
def session_space():
    """A workspace, in a process that has loaded all that commands load, so that forks have it."""
    for name in USED_BY_COMMANDS:
        importlib.import_module(name)

    import torch

    torch.set_num_threads(1)
    faults.put_named()
    folder = tempfile.TemporaryDirectory(prefix="fault-injection-", ignore_cleanup_errors=True)
    with folder as name:
        space = samples.Workspace(Path(name).resolve())
        tempfile.tempdir = str(space.scratch)
        yield space
        tempfile.tempdir = None


@pytest.fixture
def space(session_space):
    """The workspace; files that a try makes in it are removed after the try."""
    yield session_space
    shutil.rmtree(session_space.scratch, ignore_errors=True)
    session_space.scratch.mkdir(exist_ok=True)


@pytest.fixture
def draw(request):
    """Chance, another for each try."""
    return random.Random(f"{request.node.name} {request.config.option.seed}")
