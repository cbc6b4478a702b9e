"""Pages and TensorBoard in a real browser: no page complains, and all show the right numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from support.browser import Page, needs_axe, needs_browser, violations
from support.programs import TIME_LIMIT

from encoder_cls.classifier.attention_maps import AttentionMaps, attention_maps
from encoder_cls.classifier.attention_page import MAX_MAP_TOKENS, render_attention
from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.prediction_page import (
    legend,
    page_around_rows,
    prediction_row,
    words_html,
)
from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.run.tensorboard import TAGS
from encoder_cls.system.html_pages import SHADES, html_page, shade

pytestmark = needs_browser
RUN = "tiny"
HOSTILE = (
    '<script>document.title="run"</script>'
    "<img src=x onerror=\"document.title='run'\">"
    "' onmouseover=\"x"
)


def rendered(classifier) -> list[str]:
    """A page of each kind, with hostile texts and names in it."""
    texts = ["rain and snow", "ball goal team", HOSTILE, "\x00\ud800\x1b[31m"]
    split = Split(texts=texts, labels=np.zeros(4, dtype=np.int64), where=[HOSTILE] * 4)
    report = Report(evaluation=evaluate_split(classifier, split, name=HOSTILE))

    rows = []
    for text, prediction in zip(texts, classifier.predict(texts), strict=True):
        rows.append(prediction_row(text, prediction, Explanation(), label=HOSTILE))

    maps = attention_maps(classifier, HOSTILE)
    return [
        render_report("a report", report),
        "".join(rows).join(page_around_rows(is_multi_label=False)),
        render_attention(HOSTILE, [(HOSTILE, maps)]),
    ]


@pytest.fixture
def show(browser, tmp_path) -> Callable[[str], AbstractContextManager[Page]]:
    """A function that opens some HTML in the browser."""

    def opened(html: str) -> AbstractContextManager[Page]:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        return browser.opened(path.as_uri())

    return opened


def test_a_page_opens_and_nothing_strange_runs(show, classifier):
    """No page complains or runs a text, and on a phone of 390 pixels nothing scrolls sideways."""
    for html in rendered(classifier):
        with show(html) as page:
            page.resize(390)
            assert page.run("document.documentElement.scrollWidth") <= 390
            assert page.complaints == []
            assert page.run("document.title") != "run"
            assert page.run("document.querySelectorAll('img').length") == 0
            assert page.run("document.querySelectorAll('script').length") == 1


def page_of_all_shades() -> str:
    """A page with every colour that a word or a cell of a matrix may have."""
    strengths = [number / SHADES for number in range(1, SHADES + 1)]
    weighted_words = []
    cells = ""
    for strength in strengths:
        for weight in (strength, -strength):
            weighted_words.append((f"word{weight:.2f}", 2 * weight))
        for side in ("d", "o"):
            cells += f'<td class="{side} {shade(strength)}">77</td>'

    words = words_html(weighted_words)
    row = f'<tr><th scope="row">a</th>{cells}</tr>'
    matrix = f'<table class="matrix" style="--n:18"><tbody>{row}</tbody></table>'
    card = f'<div class="card">{words}</div>'
    return html_page("shades", f"<h1>Shades</h1>{legend()}{card}{words}{matrix}")


@needs_axe
def test_pages_are_accessible(show, classifier):
    """The tool axe-core finds nothing wrong, in light and in dark colours."""
    for html in [page_of_all_shades(), *rendered(classifier)]:
        with show(html) as page:
            assert violations(page) == []


def test_tables_are_sorted_by_pointer_and_by_keyboard(show):
    """Numbers are sorted as numbers, the largest first; pressing again turns the order round."""
    rows = ""
    for name, number in (("b", 9), ("c", 10), ("a", 1)):
        rows += f"<tr><td>{name}</td><td>{number}</td></tr>"
    head = "<thead><tr><th>n</th><th>v</th></tr></thead>"
    table = f"<table class=sortable>{head}<tbody>{rows}</tbody></table>"

    # The first column, and the order that each column's header tells: d(escending), a or none.
    state = """
    [...document.querySelectorAll("td:first-child")]
      .map((cell) => cell.textContent).join("")
    + ":"
    + [...document.querySelectorAll("th")]
      .map((head) => (head.getAttribute("aria-sort") ?? "-")[0]).join("")
    """
    name_button = "document.querySelectorAll('th button')[0]"
    number_button = "document.querySelectorAll('th button')[1]"
    # The space bar presses the element that has the focus.
    presses = [
        ("document.activeElement", number_button, "cba:-d", "▼"),
        (number_button, number_button, "abc:-a", "▲"),
        (name_button, name_button, "abc:d-", "▼"),
    ]
    with show(html_page("x", table)) as page:
        page.run(f"{number_button}.focus()")
        for pressed, button, order, arrow in presses:
            page.run(f"{pressed}.click()")
            assert page.run(state) == order
            assert arrow in page.run(f"getComputedStyle({button}, '::after').content")


def test_attention_maps_are_drawn_on_one_scale(show):
    """No attention is the palest blue of the scale, all of it the darkest, half of it between."""
    weights = np.array([[[[0, 1], [0.5, 0.5]]]], dtype=np.float32)
    maps = AttentionMaps(tokens=["[CLS]", "rain"], weights=weights)
    pixels = """
    (async () => {
      const image = new Image();
      image.src = document.querySelector("[data-levels] image").getAttribute("href");
      await image.decode();
      const context = document.createElement("canvas").getContext("2d");
      context.drawImage(image, 0, 0);
      return [...context.getImageData(0, 0, image.width, image.height).data];
    })()
    """
    with show(render_attention("x", [("", maps)])) as page:
        colours = np.reshape(page.run(pixels), (4, 4))

    no_attention, all_attention, half, other_half = colours[:, :3]
    assert no_attention.tolist() == [0xF7, 0xFB, 0xFF]
    assert all_attention.tolist() == [0x08, 0x30, 0x6B]
    assert (all_attention < half).all()
    assert (half < no_attention).all()
    assert (half == other_half).all()


def test_an_attention_map_shows_the_value_at_the_pointer(show):
    """It says which token looks at which, and how much, until the pointer is gone."""
    weights = np.array([[[[0.25, 0.75], [0.5, 0.5]]]], dtype=np.float32)
    maps = AttentionMaps(tokens=["[CLS]", "天気"], weights=weights)
    with show(render_attention("x", [("", maps)])) as page:
        image = "document.querySelector('[data-levels] image')"
        area = page.run(f"{image}.getBoundingClientRect().toJSON()")
        x = area["x"] + 0.75 * area["width"]
        y = area["y"] + 0.25 * area["height"]
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        pointed = page.until("document.getElementById('pointed')?.textContent")
        assert pointed == "\u2068[CLS]\u2069 → \u2068天気\u2069: 0.75"

        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.until("!document.getElementById('pointed')")


def test_tokens_of_both_directions_end_beside_the_map(show):
    """The end of a token from right to left is at its left."""
    weights = np.full((1, 1, 2, 2), 0.5, dtype=np.float32)
    maps = AttentionMaps(tokens=["end!", "סוף!"], weights=weights)
    names = "[...document.querySelectorAll('text.row')]"
    with show(render_attention("x", [("", maps)])) as page:
        ends = page.run(f"{names}.map((name) => name.getBBox().x + name.getBBox().width)")
        assert abs(ends[0] - ends[1]) < 2

        # Where the first and the last character of each token are.
        places = "[0, 3].map((at) => name.getStartPositionOfChar(at).x)"
        english, hebrew = page.run(f"{names}.map((name) => {places})")
        assert english[0] < english[1]
        assert hebrew[0] > hebrew[1]


@pytest.mark.parametrize(
    ("tokens", "name", "rows"),
    [(10, "message", 1), (MAX_MAP_TOKENS, "an endless name", 2)],
    ids=["usual text", "longest text"],
)
def test_four_heads_have_few_rows_where_letters_stay_legible(show, tokens, name, rows):
    """On 1,200 pixels they have one row, of the longest text two; on a phone always four."""
    weights = np.full((1, 4, tokens, tokens), 1 / tokens, dtype=np.float32)
    maps = AttentionMaps(tokens=[name] * tokens, weights=weights)
    all_maps = "[...document.querySelectorAll('[data-levels]')]"
    num_rows = f"new Set({all_maps}.map((map) => map.getBoundingClientRect().top)).size"
    with show(render_attention("x", [("", maps)])) as page:
        page.resize(1200)
        assert page.run(num_rows) == rows
        page.resize(390)
        assert page.run(num_rows) == 4


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """The address of TensorBoard on a free port of this machine."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
    command += ["--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                address = re.search(r"http://127\.0\.0\.1:\d+/", line)
                if address:
                    yield address[0]
                    break
        finally:
            process.terminate()
            process.stderr.read()


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=TIME_LIMIT) as response:
        return json.load(response)


def wait_for_panels(address: str, wanted: set[str]) -> None:
    """Wait until each of these panels has something to show: TensorBoard reads files bit by bit."""
    deadline = time.monotonic() + TIME_LIMIT
    while True:
        panels = ask(f"{address}data/plugins_listing")
        missing = {name for name in wanted if not panels[name]["enabled"]}
        if not missing:
            return
        assert time.monotonic() < deadline, missing
        time.sleep(0.5)


@pytest.mark.slow
def test_tensorboard_shows_what_was_measured(trained_run, browser):
    """Every panel has something to show, and the curves are those of `metrics.jsonl`."""
    rows = read_metrics(trained_run.metrics_file)
    with tensorboard(trained_run.path.parent) as address:
        wait_for_panels(address, {"timeseries", "scalars", "images", "text", "hparams"})
        check_curves(address, rows)

        with browser.opened(address) as page:
            titles = "[...document.querySelectorAll('.group-title')]"
            page.until(f"{titles}.length > 1")
            groups = page.run(f"{titles}.map((title) => title.textContent.trim())")
            assert groups[:2] == ["Pinned", "accuracy in validation"]
            assert "TensorBoard" in page.run("document.title")
            for complaint in page.complaints:
                assert '"level": "error"' not in complaint
                assert "exceptionDetails" not in complaint


def check_curves(address: str, rows: list[dict]) -> None:
    """The run is called as its folder; each curve has the same numbers at the same steps."""
    assert ask(f"{address}data/runs") == [RUN]
    tags = ask(f"{address}data/plugin/scalars/tags")[RUN]
    named = {tag: key for key, tag in TAGS.items()}
    named["validation F1/sport"] = ("validation", "f1/sport")

    of_several_labels = {
        "micro_f1",
        "encoder_micro_f1",
        "linear_micro_f1",
        "mean_average_precision",
        "subset_accuracy",
    }
    for tag, (split, name) in named.items():
        is_expected = name not in of_several_labels and "pretrain" not in split
        assert tag in tags or not is_expected, tag

    for tag in set(tags) & set(named):
        split, name = named[tag]
        logged = []
        for row in rows:
            if row["split"] == split and name in row:
                logged.append((row["step"], row[name]))

        curve = ask(f"{address}data/plugin/scalars/scalars?run={RUN}&tag={quote(tag, safe='')}")
        shown = [(step, pytest.approx(value, rel=1e-5)) for _, step, value in curve]
        assert shown == logged
