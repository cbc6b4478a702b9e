"""The page in a browser: 60 texts by keyboard with a kill in between, and every setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import Page, needs_axe, needs_browser, violations
from support.labelling import WITHOUT_MODEL, RunningLabel, read_table, write_pool

pytestmark = needs_browser

CLASSES = ("küche", "sport", "weather")
HOSTILE = '<img src=x onerror="document.title=1"> =1+1'
NUM_TEXTS = 60


def press(page: Page, key: str) -> None:
    """Press and release a key."""
    text = key if len(key) == 1 else ""
    page.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=key)


def press_and_wait(page: Page, key: str) -> None:
    """Press a key that labels or skips the text, and wait for the next text."""
    num_asked = page.run("state.num_asked")
    press(page, key)
    page.until(f"state.num_asked == {num_asked + 1} && !isBusy")


@pytest.fixture
def topics(tmp_path) -> dict[str, str]:
    return write_pool(tmp_path / "pool.csv")


@pytest.fixture
def start(start_label, topics):
    """Starts the program on the pool."""

    def start_program(*, before: str = WITHOUT_MODEL) -> RunningLabel:
        labels = ",".join(CLASSES)
        arguments = ("pool.csv", "--labels", labels, "--output", "labels.csv")
        return start_label(*arguments, before=before)

    return start_program


@pytest.mark.slow
def test_sixty_texts_are_labelled_by_keyboard(start, browser, topics):
    """The program is killed in between; no label is lost or asked twice."""
    labelled = []
    for part in (25, NUM_TEXTS - 25):
        running = start(before="")
        with browser.opened(running.address) as page:
            page.until("!!state && !!state.text")
            for _ in range(part):
                text = page.run("document.querySelector('#text').textContent")
                labelled.append((text, topics[text]))
                press_and_wait(page, str(CLASSES.index(topics[text]) + 1))
            running.kill()

            # The page says so, and takes no further label.
            press(page, "1")
            error = page.until("document.querySelector('#error').textContent")
            assert "All labels up to here are saved" in error
            complaints = [line for line in page.complaints if "ERR_CONNECTION" not in line]
            assert complaints == []

    rows = read_table(Path("labels.csv"))
    assert [(row["text"], row["label"]) for row in rows] == labelled
    assert len({row["key"] for row in rows}) == NUM_TEXTS
    assert {row["how"] for row in rows} <= {"random", "suggested"}


def test_every_key_does_what_its_button_says(start, browser):
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        press_and_wait(page, "2")
        press_and_wait(page, "0")
        press_and_wait(page, "ArrowRight")
        assert "2 without a label" in page.run("document.querySelector('#progress').textContent")

        press(page, "Backspace")
        page.until("state.num_asked == 2 && !isBusy")
        press(page, "ArrowLeft")
        page.until("state.back == 1 && !isBusy")
        press(page, "ArrowLeft")
        page.until("state.back == 2 && !isBusy")
        assert "labelled sport" in page.run("document.querySelector('#position').textContent")
        press(page, "3")
        page.until("state.back == 0 && !isBusy")
        assert [row["label"] for row in read_table(Path("labels.csv"))] == ["weather"]

        # A class is added, and digits are typed into its name without labelling.
        press(page, "+")
        page.until("document.activeElement.id == 'new-class'")
        for key in "m2":
            press(page, key)
        press(page, "Enter")
        page.run("document.querySelector('#add-form').requestSubmit()")
        page.until("state.classes.length == 4")
        assert page.run("state.classes[3].name") == "m2"
        assert page.run("state.num_asked") == 2
        press_and_wait(page, "4")
        assert [row["label"] for row in read_table(Path("labels.csv"))] == ["weather", "m2"]


def test_many_classes_are_found_by_typing(start_label, browser, topics):
    names = [f"class {number}" for number in range(30)]
    running = start_label(
        "pool.csv",
        "--labels",
        ",".join(names),
        "--output",
        "labels.csv",
        "--multi-label",
        before=WITHOUT_MODEL,
    )
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        for name in ("27", "s 13"):
            for key in name:
                press(page, key)
            assert page.run("document.querySelectorAll('#classes button').length") == 1
            press(page, "Enter")
            assert page.run("document.querySelector('#filter').value") == ""
        press_and_wait(page, "Enter")
        press_and_wait(page, "Enter")
    assert [row["label"] for row in read_table(Path("labels.csv"))] == ["class 13|class 27", ""]


def test_texts_are_shown_as_texts(start_label, browser):
    Path("hostile.csv").write_text(f'text,note\n"{HOSTILE.replace(chr(34), chr(34) * 2)}",<b>\n')
    arguments = ("hostile.csv", "--labels", "<i>a</i>,b", "--output", "labels.csv")
    running = start_label(*arguments, before=WITHOUT_MODEL)
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        assert page.run("document.querySelector('#text').textContent") == HOSTILE
        assert page.run("document.querySelectorAll('main img, main b, main i').length") == 0
        assert page.run("document.title") == "Label"
        press_and_wait(page, "1")
        assert page.complaints == []
    assert read_table(Path("labels.csv"))[0]["label"] == "<i>a</i>"


def test_a_label_that_cannot_be_saved_is_not_taken(start, browser, topics):
    """As on a full disk: the page says so, and the text stays."""
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        press_and_wait(page, "1")
        Path("labels.csv").write_text("changed by another program\n")
        text = page.run("document.querySelector('#text').textContent")
        press(page, "2")
        error = page.until("document.querySelector('#error').textContent")
        assert error.startswith("not saved: ")
        assert page.run("document.querySelector('#text').textContent") == text
        assert page.run("state.num_labelled") == 1


@needs_axe
def test_the_page_is_accessible(start, browser):
    """Also as narrow as a phone, or at 200% zoom, where nothing is cut off."""
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        press_and_wait(page, "1")
        page.run("for (const part of document.querySelectorAll('details')) part.open = true")
        page.run("document.querySelector('#error').textContent = 'no such thing'")
        page.until("!!document.querySelector('#accuracy').textContent")
        assert violations(page) == []

        overhang = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        for width in (1200, 320):
            page.resize(width)
            assert page.run(overhang) <= 0
