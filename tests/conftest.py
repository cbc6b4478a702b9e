"""How the suite runs: its environment, its workers, and where its fixtures are."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# Workers share the cores: one thread each, set before any library counts the cores.
os.environ["OMP_NUM_THREADS"] = "1"
# Streams are buffered as on a user's machine.
os.environ.pop("PYTHONUNBUFFERED", None)
# The package is compiled once for all workers and for the programs that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import HealthCheck, settings

# Examples are drawn slowly on a busy machine, which says nothing about what is tested.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# Each worker takes a gigabyte of memory.
MAX_WORKERS = 8


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each core runs the whole suite.

    Chosen tests run in this process, where they begin at once.
    """
    is_whole = (
        config.args == config.getini("testpaths")
        and not config.option.keyword
        and not config.option.lf
    )
    if not is_whole:
        return 0
    return min(os.cpu_count() or 1, MAX_WORKERS)


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures in each process that runs tests.

    The process that only hands tests to workers does without, since the libraries that the fixtures
    import take seconds to load, and the workers start after it.
    """
    is_worker = hasattr(config, "workerinput")
    has_workers = config.option.dist != "no" and not is_worker
    if not has_workers:
        config.pluginmanager.import_plugin("support.fixtures")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without looking for garbage, of which imports leave next to none.

    What they have loaded stays to the end, so no later search looks at it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
