"""The load test of the server, on a slice: it counts what became of each request, and notices what is lost."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import serve


def test_every_request_is_accounted_for(trained_run):
    """By several clients, a hostile one among them, through a reload and a stop."""
    seen, code = asyncio.run(serve.hostile(trained_run.path, ["rain and snow", "soup"], requests=100, clients=4))
    assert code == 0
    assert serve.lost(seen) == 0
    assert seen.outcomes.pop("reloaded") == 1
    assert sum(seen.outcomes.values()) == 99
    assert seen.outcomes["200"] == len(seen.seconds) >= 90
    assert seen.hostile == {"broken JSON: 400": 1}


def test_what_has_no_answer_is_lost():
    """That a server stops is an answer; a failure is none, nor a full queue, which so few clients cannot fill."""
    seen = serve.Seen(seconds=[0.1, 0.2], memory=[1 << 20] * 8)
    seen.outcomes.update({"200": 2, "503": 7, "not accepted, nobody listened": 1})
    assert serve.lost(seen) == 0
    seen.outcomes.update({"no answer: TimeoutError": 1, "500": 2, "429": 4})
    assert serve.lost(seen) == 7
    assert "| lost | 7 |" in serve.hostile_table(seen, 0)
