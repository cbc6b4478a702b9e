"""HTML and TensorBoard in a real browser: they open, complain of nothing, and show the numbers of the run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from support.browser import Page, needs_axe, needs_browser, opened, violations
from support.programs import TIME_LIMIT

from encoder_cls.classifier.explain import AttentionMaps, Explanation, attention_maps
from encoder_cls.classifier.html_pages import (
    LEGEND,
    MOST_MAP_TOKENS,
    SHADES,
    html_page,
    prediction_row,
    render_attention,
    render_predictions,
    shade,
    words_html,
)
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.report import evaluate
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.run.tensorboard import ACCURACY, TAGS

pytestmark = needs_browser
RUN = "tiny"
HOSTILE = '<script>document.title="run"</script><img src=x onerror="document.title=\'run\'">\' onmouseover="x'


def rendered(classifier) -> list[str]:
    """Each kind of HTML, with hostile texts and names in it."""
    texts = ["rain and snow", "ball goal team", HOSTILE, "\x00\ud800\x1b[31m"]
    split = Split(texts=texts, labels=np.zeros(4, dtype=np.int64), where=[HOSTILE] * 4)
    report = evaluate(classifier, split, name=HOSTILE)
    predictions = zip(texts, classifier.predict(texts), strict=True)
    rows = [
        prediction_row(text, prediction, Explanation(), label=HOSTILE)
        for text, prediction in predictions
    ]
    return [
        render_report("a report", report),
        render_predictions("".join(rows), is_multi_label=False),
        render_attention(HOSTILE, [(HOSTILE, attention_maps(classifier, HOSTILE))]),
    ]


def shown(tmp_path: Path, *pages: str) -> Iterator[Page]:
    """Some pages, one after the other in one browser."""
    paths = [tmp_path / f"page-{number}.html" for number in range(len(pages))]
    for path, html in zip(paths, pages, strict=True):
        path.write_text(html, encoding="utf-8")
    with opened(paths[0].as_uri(), tmp_path / "profile") as page:
        for path in paths:
            page.open(path.as_uri())
            yield page


def test_a_page_opens_and_nothing_strange_runs(classifier, tmp_path):
    """No complaint, no script of a text, and on a phone of 390 pixels nothing scrolls sideways."""
    for page in shown(tmp_path, *rendered(classifier)):
        page.resize(390)
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.complaints == []
        assert page.run("document.title") != "run"
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.run("document.querySelectorAll('script').length") == 1


@needs_axe
def test_pages_are_accessible(classifier, tmp_path):
    """In light and in dark colours axe-core finds nothing, and in no shade that a word or a cell may have."""
    strengths = [number / SHADES for number in range(1, SHADES + 1)]
    words = words_html(
        (f"word{weight:.2f}", 2 * weight) for it in strengths for weight in (it, -it)
    )
    cells = "".join(
        f'<td class="{side} {shade(strength)}">77</td>' for side in "do" for strength in strengths
    )
    matrix = f'<table class="matrix" style="--n:18"><tbody><tr><th scope="row">a</th>{cells}</tr></tbody></table>'
    shades = html_page(
        "shades", f'<h1>Shades</h1>{LEGEND}<div class="card">{words}</div>{words}{matrix}'
    )
    for page in shown(tmp_path, shades, *rendered(classifier)):
        assert violations(page) == []


def test_tables_are_sorted_by_pointer_and_by_keyboard(tmp_path):
    """Numbers as numbers, the largest first; once more turns the order round; a mark shows the direction."""
    rows = "".join(
        f"<tr><td>{name}</td><td>{number}</td></tr>"
        for name, number in (("b", 9), ("c", 10), ("a", 1))
    )
    table = f"<table class=sortable><thead><tr><th>n</th><th>v</th></tr></thead><tbody>{rows}</tbody></table>"
    state = """
    [...document.querySelectorAll("td:first-child")].map((cell) => cell.textContent).join("") + ":"
      + [...document.querySelectorAll("th")].map((head) => (head.getAttribute("aria-sort") ?? "-")[0]).join("")
    """
    button = "document.querySelectorAll('th button')[{}]"
    for page in shown(tmp_path, html_page("x", table)):
        # The space bar presses the element that has the focus.
        page.run(f"{button.format(1)}.focus()")
        for press, number, order, arrow in (
            ("document.activeElement", 1, "cba:-d", "▼"),
            (button.format(1), 1, "abc:-a", "▲"),
            (button.format(0), 0, "abc:d-", "▼"),
        ):
            page.run(f"{press}.click()")
            assert page.run(state) == order
            assert arrow in page.run(
                f"getComputedStyle({button.format(number)}, '::after').content"
            )


def test_an_attention_map_shows_the_value_at_the_pointer(tmp_path):
    """Which token looks at which, and how much; nothing when the pointer is gone."""
    weights = np.array([[[[0.25, 0.75], [0.5, 0.5]]]], dtype=np.float32)
    maps = AttentionMaps(tokens=["[CLS]", "天気"], weights=weights)
    for page in shown(tmp_path, render_attention("x", [("", maps)])):
        area = page.run(
            "document.querySelector('[data-levels] image').getBoundingClientRect().toJSON()"
        )
        at = {"x": area["x"] + 0.75 * area["width"], "y": area["y"] + 0.25 * area["height"]}
        page.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        pointed = page.until("document.getElementById('pointed')?.textContent")
        assert pointed == "\u2068[CLS]\u2069 → \u2068天気\u2069: 0.75"
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.until("!document.getElementById('pointed')")


def test_tokens_of_both_directions_end_beside_the_map(tmp_path):
    """The end of a token from right to left is at its left."""
    maps = AttentionMaps(
        tokens=["end!", "סוף!"], weights=np.full((1, 1, 2, 2), 0.5, dtype=np.float32)
    )
    names = "[...document.querySelectorAll('text.row')]"
    for page in shown(tmp_path, render_attention("x", [("", maps)])):
        ends = page.run(f"{names}.map((name) => name.getBBox().x + name.getBBox().width)")
        assert abs(ends[0] - ends[1]) < 2
        places = f"{names}.map((name) => [0, 3].map((at) => name.getStartPositionOfChar(at).x))"
        (first, last), (hebrew_first, hebrew_last) = page.run(places)
        assert first < last
        assert hebrew_first > hebrew_last


def test_four_heads_have_a_row_of_1200_pixels_where_letters_stay_legible(tmp_path):
    """Of a usual text; of the longest there are two in a row; on a phone one."""
    pages = []
    for tokens, name in ((10, "message"), (MOST_MAP_TOKENS, "an endless name")):
        weights = np.full((1, 4, tokens, tokens), 1 / tokens, dtype=np.float32)
        maps = AttentionMaps(tokens=[name] * tokens, weights=weights)
        pages.append(render_attention("x", [("", maps)]))
    tops = "[...document.querySelectorAll('[data-levels]')].map((map) => map.getBoundingClientRect().top)"
    for page, heads in zip(shown(tmp_path, *pages), (1, 2), strict=True):
        page.resize(1200)
        assert page.run(f"new Set({tops}).size") == heads
        page.resize(390)
        assert page.run(f"new Set({tops}).size") == 4


@contextmanager
def tensorboard(folder: Path):
    """TensorBoard on a free port of this machine alone."""
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        folder,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if match := re.search(r"http://127\.0\.0\.1:\d+/", line):
                    yield match[0]
                    break
        finally:
            process.terminate()
            process.stderr.read()


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=TIME_LIMIT) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_tensorboard_shows_what_was_measured(trained_run, tmp_path):
    """Every panel has something to show, curves are those of `metrics.jsonl`, and the pages open."""
    rows = read_metrics(trained_run.metrics_file)
    with tensorboard(trained_run.path.parent) as address:
        wanted = {"timeseries", "scalars", "images", "text", "hparams"}
        missing, deadline = wanted, time.monotonic() + TIME_LIMIT
        while missing and time.monotonic() < deadline:  # it reads the files bit by bit
            time.sleep(0.5)
            panels = ask(f"{address}data/plugins_listing")
            missing = {name for name in wanted if not panels[name]["enabled"]}
        assert not missing
        check_curves(address, rows)
        with opened(address, tmp_path / "profile") as page:
            page.until("document.querySelectorAll('.group-title').length > 1")
            groups = page.run(
                "[...document.querySelectorAll('.group-title')].map((it) => it.textContent.trim())"
            )
            assert groups[:2] == ["Pinned", ACCURACY]
            assert "TensorBoard" in page.run("document.title")
            assert not [
                it for it in page.complaints if '"level": "error"' in it or "exceptionDetails" in it
            ]


def check_curves(address: str, rows: list[dict]) -> None:
    """The run is called as its folder; each curve has the same numbers at the same steps."""
    (run,) = ask(f"{address}data/runs")
    assert run == RUN
    tags = ask(f"{address}data/plugin/scalars/tags")[RUN]
    named = {tag: key for key, tag in TAGS.items()} | {
        "validation F1/sport": ("validation", "f1/sport")
    }
    of_several_labels = {
        "micro_f1",
        "encoder_micro_f1",
        "linear_micro_f1",
        "mean_average_precision",
        "subset_accuracy",
    }
    expected = {
        tag
        for tag, (split, name) in named.items()
        if name not in of_several_labels and "pretrain" not in split
    }
    assert expected <= set(tags)
    for tag in set(tags) & set(named):
        split, name = named[tag]
        curve = ask(f"{address}data/plugin/scalars/scalars?run={RUN}&tag={quote(tag, safe='')}")
        expected = [
            (row["step"], row[name]) for row in rows if row["split"] == split and name in row
        ]
        assert [(step, pytest.approx(value, rel=1e-5)) for _, step, value in curve] == expected
