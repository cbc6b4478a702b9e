"""A pool of messages, a session on it, and the program in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.labelling import RunningLabel, write_pool
from support.local_servers import starting_programs

from encoder_cls.extras.label.open_session import OpenedSession, open_session
from encoder_cls.extras.label.pool import PoolOptions


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A file of texts."""
    path = tmp_path / "pool.csv"
    write_pool(path)
    return path


@pytest.fixture
def reopen(pool: Path, tmp_path: Path) -> Callable[..., OpenedSession]:
    """Opens a session on the pool, and again with the labels that there are."""

    def reopen_session(
        *, classes: tuple[str, ...] = ("sport", "food"), is_multi_label: bool = False
    ) -> OpenedSession:
        options = PoolOptions(str(pool))
        output = tmp_path / "labels.csv"
        return open_session(options, output, classes, is_multi_label=is_multi_label)

    return reopen_session


@pytest.fixture(scope="session")
def start_label() -> Iterator[Callable[..., RunningLabel]]:
    """Starts `encoder-cls label`, after some lines of Python that change it."""
    with starting_programs() as start_program:

        def start(*arguments: object, before: str = "") -> RunningLabel:
            started = start_program(
                "label",
                "--no-browser",
                *arguments,
                address=r"http://127\.0\.0\.1:\d+/\S+/",
                before=before,
            )
            return RunningLabel(started.process, started.address[0], started.lines)

        yield start
