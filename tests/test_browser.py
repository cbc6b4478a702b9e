"""HTML and TensorBoard in a real browser: they open, complain of nothing, and show the numbers of the run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from encoder_cls.data.split import Split
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.html import render_report
from encoder_cls.inference.explain import AttentionMaps, attention_maps
from encoder_cls.inference.prediction_pages import render_attention, render_explanations
from encoder_cls.system.html_page import escaped
from encoder_cls.tracking.curves import ACCURACY, OF_SEVERAL_LABELS, TAGS
from encoder_cls.tracking.metric_log import read_metrics

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
QUIET = (
    *("--enable-unsafe-swiftshader", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
RUN = "tiny"
HOSTILE = '<script>document.title="run"</script><img src=x onerror="document.title=\'run\'">\' onmouseover="x'


def opened(address: str, folder: Path, *, milliseconds: int = 2000) -> tuple[str, list[str]]:
    """The page as the browser has it after a while, and what it complained of."""
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", *QUIET, "--enable-logging=stderr", f"--user-data-dir={folder}",
         f"--virtual-time-budget={milliseconds}", "--dump-dom", address],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, [line for line in complaints if re.search("Uncaught|Refused|rror", line)]


def rendered(classifier) -> dict[str, str]:
    """Each kind of HTML, with hostile texts and names in it."""
    texts = ["rain and snow", "ball goal team", HOSTILE, "\x00\ud800\x1b[31m"]
    split = Split(texts=texts, labels=np.zeros(4, dtype=np.int64), where=[HOSTILE] * 4)
    report, logits = evaluate(classifier, split, name=HOSTILE, reference=None)
    rows = [{"text": text, "label": HOSTILE, "probability": 0.5, "weights": []} for text in texts]
    return {
        "report": render_report("a report", report, split, logits),
        "explanations": render_explanations(HOSTILE, rows),
        "attention": render_attention(HOSTILE, [(HOSTILE, attention_maps(classifier, HOSTILE))]),
    }


@pytest.mark.parametrize("kind", ["report", "explanations", "attention"])
def test_a_page_opens_and_nothing_strange_runs(classifier, tmp_path, kind):
    """No complaint, no script of a text, and the content security policy lets the page's own script run."""
    path = tmp_path / "page.html"
    path.write_text(rendered(classifier)[kind], encoding="utf-8")
    dom, complaints = opened(path.as_uri(), tmp_path / "profile")
    assert complaints == []
    assert "<title>run</title>" not in dom
    assert "<img" not in dom
    assert len(re.findall("<script", dom)) == 1


def acted(tmp_path: Path, body: str, act: str) -> str:
    """What a script says that acts on a page with the style and script of all pages."""
    style, script = (files("encoder_cls.system").joinpath(f"html_page.{kind}").read_text() for kind in ("css", "js"))
    path = tmp_path / "page.html"
    path.write_text(
        f"<!doctype html><html><head><meta charset=utf-8><title></title><style>{style}</style></head>"
        f"<body>{body}<script>{script}</script><script>{act}</script>",
        encoding="utf-8",
    )
    dom, complaints = opened(path.as_uri(), tmp_path / "profile")
    assert complaints == []
    return re.search("<title>(.*?)</title>", dom)[1]


def test_tables_are_sorted_by_pointer_and_by_keyboard(tmp_path):
    """Numbers as numbers, the largest first; once more turns the order round; a mark says how it is sorted."""
    rows = "".join(f"<tr><td>{name}</td><td>{number}</td></tr>" for name, number in (("b", 9), ("c", 10), ("a", 1)))
    table = f"<table class=sortable><thead><tr><th>n</th><th>v</th></tr></thead><tbody>{rows}</tbody></table>"
    act = """
    const found = [], buttons = document.querySelectorAll("th button");
    for (const [number, how] of [[1, "focus"], [1, ""], [0, ""]]) {
      if (how) buttons[number].focus();  // a button: whatever has the focus is pressed by the space bar
      (how ? document.activeElement : buttons[number]).click();
      const sorted = [...document.querySelectorAll("th")].map((head) => (head.getAttribute("aria-sort") ?? "-")[0]);
      const mark = getComputedStyle(buttons[number], "::after").content.includes("▼") ? "v" : "^";
      found.push([...document.querySelectorAll("td:first-child")].map((cell) => cell.textContent).join("")
        + ":" + sorted.join("") + mark);
    }
    document.title = found.join(" ");
    """
    assert acted(tmp_path, table, act) == "cba:-dv abc:-a^ abc:d-v"


def test_an_attention_map_tells_the_value_at_the_pointer(tmp_path):
    """Which token looks at which, and how much; nothing when the pointer is gone."""
    weights = np.array([[[[0.25, 0.75], [0.5, 0.5]]]], dtype=np.float32)
    page = render_attention("x", [("", AttentionMaps(tokens=["[CLS]", "天気"], weights=weights))])
    act = """
    const image = document.querySelector("svg[data-levels] image"), area = image.getBoundingClientRect();
    const at = { clientX: area.left + 0.75 * area.width, clientY: area.top + 0.25 * area.height };
    image.dispatchEvent(new PointerEvent("pointermove", at));
    const told = document.getElementById("pointed").textContent;
    image.dispatchEvent(new PointerEvent("pointerleave"));
    document.title = told + (document.getElementById("pointed") ? " still" : "");
    """
    assert acted(tmp_path, page.partition("<body>")[2].partition("<script>")[0], act) == "[CLS] → 天気: 0.75"


@pytest.mark.parametrize("kind", ["report", "explanations", "attention"])
def test_nothing_scrolls_sideways_on_a_phone(classifier, tmp_path, kind):
    """In a window of 390 pixels every page is as wide as the window."""
    # A window of Chromium cannot be so narrow, a frame can; it stands here whole, so that it may be asked.
    frame = (
        f'<iframe width="390" height="800" style="border:0" srcdoc="{escaped(rendered(classifier)[kind])}"></iframe>'
    )
    act = """
    const frame = document.querySelector("iframe");
    frame.addEventListener("load", () => {
      const page = frame.contentDocument.documentElement;
      document.title = `${page.scrollWidth} of ${page.clientWidth}`;
    });
    """
    # The load may be over before the script runs, so the frame is put in its place once more.
    shown = acted(tmp_path, frame, act + "frame.remove(); document.body.append(frame);")
    width, window = map(int, shown.split(" of "))
    assert width == window <= 390


@contextmanager
def tensorboard(folder: Path):
    """TensorBoard on a free port of this machine alone."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"]
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
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_tensorboard_shows_what_was_measured(trained_run, tmp_path):
    """Every panel has something to show, which is what `metrics.jsonl` says, and the pages open."""
    rows = read_metrics(trained_run.metrics_file)
    with tensorboard(trained_run.path.parent) as address:
        wanted = {"timeseries", "scalars", "images", "text", "pr_curves", "hparams", "projector"}
        missing, deadline = wanted, time.monotonic() + 60
        while missing and time.monotonic() < deadline:  # it reads the files bit by bit
            time.sleep(0.5)
            missing = wanted - {
                name for name, panel in ask(f"{address}data/plugins_listing").items() if panel["enabled"]
            }
        assert not missing
        check_curves(address, rows)
        check_images(address, rows)
        check_texts(address, rows)
        check_projector(address)
        first, _ = opened(address, tmp_path / "profile", milliseconds=15_000)
        groups = re.findall(r'class="group-title"[^>]*>([^<]+)<', first)
        assert [group.strip() for group in groups][:2] == ["Pinned", ACCURACY]
        for panel in ("", "#projector"):  # the first, which is of several kinds, and the one that draws in space
            dom, complaints = opened(address + panel, tmp_path / f"profile{panel}", milliseconds=15_000)
            assert "TensorBoard" in dom
            assert complaints == []


def check_curves(address: str, rows: list[dict]) -> None:
    """The run is called as its folder; each curve has the same numbers at the same steps."""
    (run,) = ask(f"{address}data/runs")
    assert run == RUN
    tags = ask(f"{address}data/plugin/scalars/tags")[RUN]
    named = {tag: key for key, tag in TAGS.items()} | {"validation F1/sport": ("validation", "f1/sport")}
    expected = {
        tag for tag, (split, name) in named.items() if name not in OF_SEVERAL_LABELS and "pretrain" not in split
    }
    assert expected <= set(tags)
    for tag in set(tags) & set(named):
        split, name = named[tag]
        curve = ask(f"{address}data/plugin/scalars/scalars?run={RUN}&tag={quote(tag, safe='')}")
        expected = [(row["step"], row[name]) for row in rows if row["split"] == split and name in row]
        assert [(step, pytest.approx(value, rel=1e-5)) for _, step, value in curve] == expected


def check_images(address: str, rows: list[dict]) -> None:
    """At each of the steps of their rows, and each an image."""
    for name, key in (("confusion matrix", "confusion_matrix"), ("reliability", "calibration")):
        where = f"{address}data/plugin/images/"
        samples = ask(f"{where}images?run={RUN}&sample=0&tag={quote(f'validation/{name}', safe='')}")
        steps = [row["step"] for row in rows if row["split"] == "validation" and key in row]
        assert [sample["step"] for sample in samples] == steps
        assert len(steps) > 1
        for sample in samples:
            with urllib.request.urlopen(f"{where}individualImage?{sample['query']}", timeout=30) as answer:
                assert answer.read(8) == b"\x89PNG\r\n\x1a\n"


def check_texts(address: str, rows: list[dict]) -> None:
    """The config, the data's facts and the mistakes are there, the latter two as tables."""
    tags = ask(f"{address}data/plugin/text/tags")[RUN]
    assert set(tags) == {f"{tag}/text_summary" for tag in ("settings", "data", "result", "most confident mistakes")}
    (text,) = ask(f"{address}data/plugin/text/text?run={RUN}&tag=data%2Ftext_summary")
    assert "<table>" in text["text"]
    assert f"{rows[0]['training_texts']:,}</td>" in text["text"]


def check_projector(address: str) -> None:
    """Points, each with its text, and images to draw them with."""
    where = f"{address}data/plugin/projector/"
    (found,) = ask(f"{where}info?run={RUN}")["embeddings"]
    query = f"run={RUN}&name={found['tensorName']}"
    for kind, start in (("metadata", b"label\ttext\n"), ("sprite_image", b"\x89PNG")):
        with urllib.request.urlopen(f"{where}{kind}?{query}", timeout=30) as answer:
            assert answer.read().startswith(start)
    points, width = found["tensorShape"]
    with urllib.request.urlopen(f"{where}tensor?{query}", timeout=30) as answer:
        assert len(answer.read()) == 4 * points * width
