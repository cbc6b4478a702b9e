"""The page to try texts, in a real browser: it asks the server, colours words, and runs nothing of a text."""

from __future__ import annotations

import json
import subprocess

from browser import needs_axe, needs_browser, opened, violations

pytestmark = needs_browser
HOSTILE = '😀 rain zebra <img src=x onerror="document.title=1">'
FETCH = "fetch('http://127.0.0.1:9/').then(() => 'open', () => 'closed')"


def test_a_text_is_tried(server, classifier, tmp_path):
    """Its labels, its words in colours at their places, its HTML as characters; and errors are shown."""
    with opened(f"http://127.0.0.1:{server.port}/", tmp_path / "profile") as page:
        assert page.until("document.querySelector('#model').textContent.trim()").startswith(
            "3 labels, model "
        )
        names = page.run("[...document.querySelectorAll('#labels li')].map((it) => it.textContent)")
        assert names == list(classifier.label_names)
        example = page.run("document.querySelector('#example').textContent")
        answer = subprocess.run(
            ["sh", "-c", f"{example} --silent"], check=True, capture_output=True
        ).stdout
        assert json.loads(answer)["predictions"][0]["label"] in names
        page.run(f"document.querySelector('#text').value = {json.dumps(HOSTILE)}")
        page.run("document.querySelector('#send').click()")
        page.until("document.querySelectorAll('article').length == 1")
        assert page.run("document.querySelector('.words').textContent") == HOSTILE
        assert page.run("document.querySelectorAll('article img, article script').length") == 0
        assert page.run("document.title") == "encoder-cls"
        words = page.run(
            "[...document.querySelectorAll('.words span')].map((span) => span.textContent)"
        )
        assert words[:4] == ["😀", "rain", "zebra", "<"]
        styles = "getComputedStyle(document.querySelectorAll('.words span')[1]).backgroundColor"
        assert page.run(styles).startswith("rgba(0, 95, 184, ")
        labels = page.run(
            "[...document.querySelectorAll('td:first-child')].map((cell) => cell.textContent)"
        )
        assert labels == [name for name, _ in classifier.predict([HOSTILE])[0].top(5)]
        assert "unknown words" in page.run("document.querySelector('article').textContent")
        assert page.complaints == []
        value = f"{{get: () => 'x'.repeat({1 << 20})}}"  # to lay so much text out takes a browser a minute
        page.run(f"Object.defineProperty(document.querySelector('#text'), 'value', {value}) && 0")
        page.run("document.querySelector('#send').click()")
        assert "larger than 1,048,576 bytes" in page.until(
            "document.querySelector('#error').textContent"
        )
        assert page.run("document.querySelector('#send').disabled") is False


def test_the_page_may_do_nothing_else(server, tmp_path):
    """Its policy refuses scripts of others, code from strings and other machines, and the browser heeds it."""
    with opened(f"http://127.0.0.1:{server.port}/", tmp_path / "profile") as page:
        page.run(
            "document.body.insertAdjacentHTML('beforeend', '<img src=/x onerror=\"document.title=1\">')"
        )
        page.run("{ const it = document.createElement('script'); it.textContent = 'document.title = 2';"
                 " document.body.append(it) }")  # fmt: skip
        assert page.run(FETCH) == "closed"
        assert page.run("document.title") == "encoder-cls"
        refused = [
            complaint for complaint in page.complaints if "Content Security Policy" in complaint
        ]
        assert len(refused) >= 3


@needs_axe
def test_the_page_is_accessible(server, tmp_path):
    with opened(f"http://127.0.0.1:{server.port}/", tmp_path / "profile") as page:
        page.run("document.querySelector('#text').value = 'rain and the ball zebra'")
        page.run("document.querySelector('#send').click()")
        page.until("document.querySelectorAll('article').length == 1")
        page.run("document.querySelector('#error').textContent = 'no such thing'")
        assert violations(page) == []
        assert (
            page.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
        )  # dark comes last
