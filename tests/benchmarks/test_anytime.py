"""Curves in, the page out; what of a search is a point of a curve."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import anytime
from anytime import Behind, Key, accuracy_at, page, read, where_behind
from anytime_benchmark.systems import Curve, Stopwatch, rising

MACHINE = {"commit": "abc", "cpu": "some"}


def test_a_model_is_had_until_a_better_one_is_there():
    """Before the first there is none."""
    curve = Curve(0.5, [(2.0, 0.8), (5.0, 0.9)], 9.0)
    assert [accuracy_at(curve, seconds) for seconds in (1, 2, 4.9, 5, 100)] == [None, 0.8, 0.8, 0.9, 0.9]


def test_a_search_has_a_point_where_validation_rises(monkeypatch):
    """Scoring on test takes no time, and what comes too late counts no more."""
    now = [0.0]
    monkeypatch.setattr("anytime_benchmark.systems.time.perf_counter", lambda: now[0])

    def tested(accuracy):
        now[0] += 100
        return accuracy

    def trials():
        for score, accuracy in ((0.5, 0.4), (0.4, 0.9), (0.6, 0.7), (0.9, 0.9)):
            now[0] += 3
            yield score, lambda accuracy=accuracy: tested(accuracy)

    assert rising(trials(), Stopwatch(), seconds=10) == [(3.0, 0.4), (9.0, 0.7)]


def test_curves_of_other_code_or_machines_are_measured_again(tmp_path):
    """For the page alone the code does not count."""
    path, values = tmp_path / "curves.jsonl", {"start_up": 1.0, "points": [[2.0, 0.5]], "seconds": 3.0}
    rows = [{"data": "sst2", "system": "fasttext", "seed": n, **values, **MACHINE} for n in range(3)]
    rows[1]["commit"], rows[2]["cpu"] = "other", "other"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(path, MACHINE) == {Key("sst2", "fasttext", 0): Curve(1.0, [(2.0, 0.5)], 3.0)}
    assert [key.seed for key in read(path, MACHINE, any_commit=True)] == [0, 1]


def test_the_page_tells_by_multiples_of_the_first_model_of_tfidf(monkeypatch):
    """The mean over seeds, where each of them has a model by then."""
    monkeypatch.setattr(anytime, "MOMENTS", (1, 2, 4))
    curves = {
        Key("sst2", "tfidf-svm", 0): Curve(1.0, [(2.0, 0.5)], 3.0),
        Key("sst2", "tfidf-svm", 1): Curve(1.0, [(4.0, 0.7)], 5.0),
        Key("sst2", "encoder-cls", 0): Curve(2.0, [(5.0, 0.8), (9.0, 0.9)], 60.0),
        Key("sst2", "encoder-cls", 1): Curve(3.0, [(7.0, 0.6)], 80.0),
    }
    lines = page(curves, ["sst2", "imdb"], ["encoder-cls", "tfidf-svm"], command="python anytime.py")
    assert [line for line in lines if line.startswith("| ") and "---" not in line] == [
        "| system | seeds | start-up, s | 1x (3 s) | 2x (6 s) | 4x (12 s) | at its end | ends, s |",
        "| encoder-cls | 2 | 2.5 | - | - | 75.0 | 75.0 ± 21.2 | 70 |",
        "| tfidf-svm | 2 | 1.0 | - | 60.0 | 60.0 | 60.0 ± 14.1 | 4 |",
    ]
    (verdict,) = (line for line in lines if line.startswith("From 2x on"))
    assert verdict.endswith("0.5 points: 6.0 to 7.0 s (no model yet).")
    assert "## imdb" not in lines


def test_it_is_told_when_another_system_is_ahead():
    """From twice the first model of TF-IDF on, by more than noise; times side by side are one."""

    def of(system, *points):
        return {Key("sst2", system, 0): Curve(1.0, list(points), 50.0)}

    peers = of("tfidf-svm", (1.0, 0.8), (20.0, 0.9), (30.0, 0.92)) | of("fasttext", (10.0, 0.803))
    systems = ["encoder-cls", "tfidf-svm", "fasttext"]
    late = of("encoder-cls", (3.0, 0.7), (5.0, 0.8), (40.0, 0.95))
    expected = [(2.0, 3.0, math.inf), (3.0, 5.0, 10.0), (20.0, 40.0, 12.0)]
    assert where_behind(peers | late, "sst2", systems, 1.0) == [
        Behind(since, until, pytest.approx(points)) for since, until, points in expected
    ]
    assert where_behind(peers | of("encoder-cls", (1.5, 0.92)), "sst2", systems, 1.0) == []


@pytest.mark.parametrize("system", ["tfidf-svm", "fasttext"])
def test_a_peer_has_a_curve(system, tmp_path):
    """On the bundled data: from a process of its own, with one thread."""
    if system == "fasttext":
        pytest.importorskip("fasttext", reason="fastText is not installed")
    curve = anytime.measured(tmp_path, Key("example", system, 0), seconds=1)
    labels, best_there_is = 11, 0.9
    assert curve.points
    assert 1.5 / labels < curve.points[0][1] < best_there_is
