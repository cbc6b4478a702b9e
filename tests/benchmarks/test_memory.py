"""The memory benchmark, on a slice: what a training prepares grows by little with each text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import memory


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_by_little_with_each_text():
    """By less than the text itself: neither texts nor tokens stay in memory, and a few numbers of each text do."""
    less, more = (next(memory.measure(texts, vocabulary=2000, prepare_only=True)) for texts in (60_000, 180_000))
    assert min(less.seconds, more.seconds) > 0  # which is longer, a busy machine decides
    assert memory.bytes_per_text(less, more, "own_bytes") < 200
    assert less.own_bytes < less.peak_bytes < 2 << 30


def test_a_value_is_that_of_the_command():
    """One that the command does not know ends the measurement with its error."""
    with pytest.raises(SystemExit, match=r"train\.learning_ratio"):
        next(memory.measure(10, prepare_only=True, overrides=["train.learning_ratio=1"]))


def test_the_table_says_what_was_measured():
    """A row of a known measurement, and what a text costs from one to the next."""
    less = memory.Measured(1000, 1.5, 3.0, 100 << 20, 50 << 20, 2000.0)
    more = memory.Measured(3000, 2.5, 6.0, (100 << 20) + 8000, (50 << 20) + 2000)
    assert memory.row(less).split() == ["|", "1,000", "|", "1.5", "|", "3.0", "|", "100", "|", "50", "|", "2,000", "|"]
    assert memory.bytes_per_text(less, more, "peak_bytes") == 4
    assert memory.bytes_per_text(less, more, "own_bytes") == 1
