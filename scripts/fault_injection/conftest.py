"""Draws tries of the cases, counts them, and writes the counts into the table of docs/reliability.md.

    pytest scripts/fault_injection                           # every case at its full count: three hours on 2 cores
    pytest scripts/fault_injection -k test_signals           # one case
    pytest scripts/fault_injection -k 'test_signals[17]'     # one try again, as it was
    pytest scripts/fault_injection --fraction 0.03 -n 2      # 3% of every case in two processes, as in CI
    pytest scripts/fault_injection --write-table             # and write the counts into the page

A test function is a case, called as the page calls it, and each of its parameters, or examples of Hypothesis, is a try.
Needs Linux; a case that needs what this machine does not have (strace, user namespaces) is skipped.
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
from pathlib import Path

import faults
import pytest

pytest.register_assert_rewrite("samples")
import samples  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs/reliability.md"
TABLE = re.compile(r"(<!-- table: .* -->\n\n).*?(\n<!-- end of table -->)", re.DOTALL)
HEAD = ["| case | tries | failed | seconds | commit |", "| --- | ---: | ---: | ---: | --- |"]
USED_BY_COMMANDS = """
encoder_cls.cli.app encoder_cls.cli.train encoder_cls.run.evaluate encoder_cls.encoder.torch_encoder
encoder_cls.serving.server encoder_cls.bulk.formats encoder_cls.bulk.predict encoder_cls.system.cache
encoder_cls.tuning.search tqdm matplotlib.figure
pyarrow.parquet scipy.optimize sklearn.svm sklearn.feature_extraction.text sklearn.metrics sklearn.pipeline
"""
RESULTS = defaultdict(lambda: {"tries": 0, "of": 0, "failed": 0, "seconds": 0.0, "skipped": ""})


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
    tries = defaultdict(list)
    for item in items:
        tries[case_of(item.nodeid)].append(item)
    kept = set()
    for name, of_case in tries.items():
        chosen = samples.part_of(len(of_case))
        kept |= {*random.Random(f"{name} {config.option.seed}").sample(of_case, chosen)}
        examples = of_case[0].get_closest_marker("examples")
        for item in of_case:
            of, tried = (
                (examples.args[0], samples.part_of(examples.args[0]))
                if examples
                else (len(of_case), 1)
            )
            item.user_properties += [("of", of), ("tries", tried)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_runtest_logreport(report):
    result, properties = RESULTS[case_of(report.nodeid)], dict(report.user_properties)
    result["of"] = properties["of"]
    result["seconds"] += report.duration
    result["tries"] += properties["tries"] * (report.when == "call" and not report.skipped)
    result["failed"] += report.failed and report.when != "teardown"
    if report.skipped:
        result["skipped"] = report.longrepr[2].removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter, config):
    here = ["git", "-C", PAGE.parent, "describe", "--always", "--dirty"]
    commit = subprocess.run(here, capture_output=True, text=True, check=False).stdout.strip()
    lines = {name: table_line(name, result, commit) for name, result in RESULTS.items()}
    terminalreporter.write_line("\n".join([*HEAD, *lines.values()]))
    if config.option.write_table:
        PAGE.write_text(with_lines(PAGE.read_text(), lines))


def table_line(name, result, commit):
    """The line of a case in the table."""
    tries = f"skipped: {result['skipped']}" if result["skipped"] else f"{result['tries']:,}"
    if not result["skipped"] and result["of"] != result["tries"]:
        tries += f" of {result['of']:,}"
    return f"| `{name}` | {tries} | {result['failed']} | {result['seconds']:.0f} | {commit} |"


def with_lines(page, lines):
    """The page with these lines in its table; cases without one keep theirs, of an older run."""
    older = {
        match[1]: match[0]
        for match in re.finditer(r"^\| `([a-z-]+)` \|.*", TABLE.search(page)[0], re.MULTILINE)
    }
    table = "\n".join([*HEAD, *(older | lines).values()]) + "\n"
    return TABLE.sub(lambda match: match[1] + table + match[2], page)


@pytest.fixture(scope="session")
def session_space():
    """A workspace, in a process that has loaded all that commands load, so that forks have it."""
    for name in USED_BY_COMMANDS.split():
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    faults.put_named()
    with tempfile.TemporaryDirectory(
        prefix="fault-injection-", ignore_cleanup_errors=True
    ) as folder:
        space = samples.Workspace(Path(folder).resolve())
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
