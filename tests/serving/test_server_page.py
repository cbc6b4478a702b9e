"""The page to try texts in a browser: it asks the server, colours words, and runs no text."""

from __future__ import annotations

import json
import subprocess

import pytest
from support.browser import (
    ADDS_A_HANDLER,
    ASKS_ANOTHER_MACHINE,
    HOSTILE,
    needs_axe,
    needs_browser,
    violations,
)

pytestmark = needs_browser
RUNS_A_SCRIPT = """{
    const script = document.createElement('script');
    script.textContent = 'document.title = 2';
    document.body.append(script);
}"""
# A browser takes a minute to lay out so much text, so only the script sees the megabyte.
HOLDS_A_MEGABYTE = """
Object.defineProperty(
    document.querySelector('#text'), 'value', {get: () => 'x'.repeat(1 << 20)}
) && 0
"""


@pytest.fixture
def page(server, browser):
    """The page of the server in a browser."""
    with browser.opened(f"http://127.0.0.1:{server.port}/") as page:
        yield page


def send(page, text: str) -> None:
    """Type a text, click, and wait for its prediction."""
    page.run(f"document.querySelector('#text').value = {json.dumps(text)}")
    page.run("document.querySelector('#send').click()")
    page.until("document.querySelectorAll('article').length == 1")


def test_the_page_tells_of_the_model(page, classifier):
    """It has the labels, and a command to try."""
    shown = page.until("document.querySelector('#model').textContent.trim()")
    assert shown.startswith("3 labels, model ")
    assert page.texts_of("#labels li") == list(classifier.label_names)

    [example] = page.texts_of("#example")
    command = ["sh", "-c", f"{example} --silent"]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    [prediction] = json.loads(printed)["predictions"]
    assert prediction["label"] in classifier.label_names


def test_a_text_is_tried(page, classifier):
    """The page shows its labels, its words in colours at their places, its HTML as characters."""
    send(page, HOSTILE)

    # The text is text.
    assert page.texts_of(".words") == [HOSTILE]
    assert page.texts_of("article img, article script") == []
    assert page.run("document.title") == "encoder-cls"

    # Its words have colours.
    assert page.texts_of(".words span")[:4] == ["😀", "rain", "zebra", "<"]
    style = "getComputedStyle(document.querySelectorAll('.words span')[1]).backgroundColor"
    assert page.run(style).startswith("rgba(0, 95, 184, ")

    # Below it are its labels and notes.
    expected = [name for name, _ in classifier.predict([HOSTILE])[0].top(5)]
    assert page.texts_of("td:first-child") == expected
    assert "unknown words" in page.run("document.querySelector('article').textContent")
    assert page.complaints == []


def test_an_error_is_shown(page):
    page.run(HOLDS_A_MEGABYTE)
    page.run("document.querySelector('#send').click()")

    error = page.until("document.querySelector('#error').textContent")
    assert "larger than 1,048,576 bytes" in error
    assert page.run("document.querySelector('#send').disabled") is False


def test_the_page_may_do_nothing_else(page):
    """Its policy refuses scripts of others, code from strings and other machines."""
    page.run(ADDS_A_HANDLER)
    page.run(RUNS_A_SCRIPT)

    assert page.run(ASKS_ANOTHER_MACHINE) == "closed"
    assert page.run("document.title") == "encoder-cls"
    of_policy = [line for line in page.complaints if "Content Security Policy" in line]
    assert len(of_policy) >= 3


@needs_axe
def test_the_page_is_accessible(page):
    send(page, "rain and the ball zebra")
    page.run("document.querySelector('#error').textContent = 'no such thing'")

    assert violations(page) == []
    # The dark colours come last.
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(15, 19, 24)"
