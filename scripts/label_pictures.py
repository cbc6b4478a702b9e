"""Take the pictures of docs/label.md: label the bundled example in a browser (needs Chromium).

    python scripts/label_pictures.py

The labels come from the example. It takes a few minutes, most of them for fits of the model.
"""

from __future__ import annotations

import base64
import csv
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Browser  # noqa: E402

EXAMPLE = ROOT / "encoder_cls/data/example/train.csv"
DOCS = ROOT / "docs"
CLASS_KEYS = "123456789abcdefghij"
# The labels before the pictures, and the seconds between them, in which fits may end.
NUM_LABELS = 70
SECONDS_BETWEEN = 1.0
WIDTH = 1000
PHONE_WIDTH = 390
# One label in so many is wrong in the run that is reviewed.
WRONG_EVERY = 40


@contextmanager
def opened(browser: Browser, folder: Path, *arguments: str) -> Iterator[Any]:
    """The page of a session."""
    command = [sys.executable, "-m", "encoder_cls", "label", *arguments, "--no-browser"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            address = re.search(r"http://\S+/", line)
            if address:
                with browser.opened(address[0]) as page:
                    page.until("!!state && !!state.text")
                    yield page
                break
        process.terminate()
        process.stderr.read()


def take(page: Any, name: str, width: int) -> None:
    """Write a picture of a page, as high as its content."""
    page.resize(width)
    height = page.run("document.querySelector('main').getBoundingClientRect().bottom") + 20
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    (DOCS / name).write_bytes(base64.b64decode(shot["data"]))


def label_and_take(browser: Browser, folder: Path, labels: dict[str, str]) -> None:
    """Label texts by keyboard, and take pictures when the model guesses."""
    classes = sorted(set(labels.values()))
    arguments = ("messages.csv", "--labels", ",".join(classes), "--output", "labels.csv")
    with opened(browser, folder, *arguments) as page:

        def label_next() -> None:
            text = page.run("state.text.text")
            num_asked = page.run("state.num_asked")
            key = CLASS_KEYS[classes.index(labels[text])]
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
            page.until(f"state.num_asked == {num_asked + 1} && !isBusy")
            time.sleep(SECONDS_BETWEEN)

        for _ in range(NUM_LABELS):
            label_next()
        page.until("state.model.curve.length > 1")
        while not page.run("!!state.text.guess && state.text.text.length > 60"):
            label_next()
        take(page, "label.png", WIDTH)
        take(page, "label-phone.png", PHONE_WIDTH)


def review_and_take(browser: Browser, folder: Path, labels: dict[str, str]) -> None:
    """Train on some wrong labels, and take a picture of their review."""
    classes = sorted(set(labels.values()))
    with (folder / "wrong.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number, (text, label) in enumerate(labels.items()):
            given = label
            if number % WRONG_EVERY == 0:
                given = classes[(classes.index(label) + 1) % len(classes)]
            writer.writerow([text, given])

    command = [sys.executable, "-m", "encoder_cls", "train", "--run-dir", "run"]
    command += ["--set", "data.train=wrong.csv", "--set", "model.encoder=false"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with opened(browser, folder, "--review", "run", "--output", "corrections.csv") as page:
        page.until("!!state.text.words")
        take(page, "label-review.png", WIDTH)


def main() -> None:
    """Take all pictures."""
    with EXAMPLE.open(encoding="utf-8", newline="") as file:
        labels = {row["text"]: row["label"] for row in csv.DictReader(file)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "messages.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text"])
            writer.writerows(enumerate(labels, start=1))
        with Browser(folder / "browser") as browser:
            label_and_take(browser, folder, labels)
            review_and_take(browser, folder, labels)


if __name__ == "__main__":
    main()
