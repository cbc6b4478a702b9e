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


def press(page: Page, key: str, *, code: str = "") -> None:
    """Press and release a key, which may be at a certain place of the keyboard."""
    text = "\r" if key == "Enter" else key if len(key) == 1 else ""
    page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, text=text)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)


def click(page: Page, selector: str) -> None:
    """Click on the middle of an element."""
    box = page.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, **place, button="left", clickCount=1)


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


def shows_guesses(page: Page, label: str) -> None:
    """Let the page show this guess for each text from now on, as after a fit."""
    page.run(
        f"const guess = {{ labels: [{label!r}], top: [] }}; const plainShow = show;"
        "show = (news) => { if (news.text) news.text.guess = guess; plainShow(news); }; 0"
    )


def test_enter_takes_the_guess_that_the_page_names_after_a_click(start, browser):
    """Whatever was clicked before: a class, a button, a setting, the summary of a part."""
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        # A window in which nothing scrolls.
        page.resize(1200)
        shows_guesses(page, "weather")
        click(page, "[data-name=sport]")
        page.until("state.num_asked == 1 && !isBusy")
        press_and_wait(page, "Enter")
        click(page, "#skip")
        page.until("state.num_asked == 3 && !isBusy")
        press_and_wait(page, "Enter")
        for part in ("#settings summary", "#keys", "#keys", "#settings summary"):
            click(page, part)
        press_and_wait(page, "Enter")
        click(page, "#settings summary")
        click(page, "#hide")
        click(page, "#hide")
        press_and_wait(page, "Enter")
    labels = [row["label"] for row in read_table(Path("labels.csv"))]
    assert labels == ["sport", *["weather"] * 4]


def test_a_click_is_not_lost_while_news_of_the_model_come(start, browser):
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        page.run("document.querySelector('[data-name=sport]').isOld = true")
        page.run("refresh()")
        assert page.run("document.querySelector('[data-name=sport]').isOld")
        shows_guesses(page, "sport")
        page.run("refresh()")
        assert page.run("document.querySelector('[data-name=sport]').className") == "guessed"


def test_a_button_that_was_reached_by_keyboard_is_pressed_once(start, browser):
    """The next text takes the focus, so that Enter accepts the guess that the page names."""
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        shows_guesses(page, "weather")
        page.run("document.querySelector('[data-name=sport]').focus()")
        press_and_wait(page, "Enter")
        press_and_wait(page, "Enter")
        assert page.run("document.activeElement.id") == "text"

        # A part that is closed leaves Enter to the page, too.
        page.run("document.querySelector('#manage summary').focus()")
        press(page, "Enter")
        page.until("document.querySelector('#manage').open")
        press(page, "Enter")
        page.until("document.activeElement.id == 'text'")
        press_and_wait(page, "Enter")
        assert not page.run("document.querySelector('#manage').open")
    labels = [row["label"] for row in read_table(Path("labels.csv"))]
    assert labels == ["sport", "weather", "weather"]


def test_a_key_without_a_latin_letter_or_digit_counts_as_the_key_at_its_place(start, browser):
    """On French, Persian and Russian keyboards; a + or a Latin letter is what it says."""
    running = start()
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        page.run("for (const name of 'defghij') state.classes.push({ name, count: 0 })")
        page.run("chosen = []; choose = (name) => chosen.push(name); addClass = () => choose('+')")
        keys = [("&", "Digit1"), ("\u06f2", "Digit2"), ("\u0444", "KeyA"), ("a", "KeyQ")]
        keys += [("+", "Digit1"), ("\u00f9", "Quote")]
        for key, code in keys:
            press(page, key, code=code)
        assert page.run("chosen") == ["küche", "sport", "j", "j", "+"]


def test_the_enter_of_an_input_method_labels_nothing(start_label, browser, topics):
    names = ",".join(f"分類{number}" for number in range(24))
    running = start_label(
        "pool.csv", "--labels", names, "--output", "labels.csv", before=WITHOUT_MODEL
    )
    with browser.opened(running.address) as page:
        page.until("!!state && !!state.text")
        page.run("document.querySelector('#filter').focus()")
        page.call("Input.imeSetComposition", text="分類7", selectionStart=3, selectionEnd=3)
        page.until("document.querySelectorAll('#classes button').length == 1")
        # Chromium marks the Enter that ends a composition, and Safari the one after it.
        for marks in ("isComposing: true", "keyCode: 229"):
            page.run(
                "document.querySelector('#filter').dispatchEvent(new KeyboardEvent('keydown', "
                f"{{ key: 'Enter', bubbles: true, {marks} }}))"
            )
        assert not page.run("isBusy")
        page.call("Input.insertText", text="分類7")
        press_and_wait(page, "Enter")
    assert [row["label"] for row in read_table(Path("labels.csv"))] == ["分類7"]


def test_many_classes_are_found_by_typing(start_label, browser, topics):
    names = [f"class {number}" for number in range(60)]
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
        assert page.run("document.querySelectorAll('#classes button').length") == 40
        assert page.texts_of("#more-classes") == ["and 20 more: type to find one"]
        # A class that is a code is found by the name beside it, too.
        page.run("state.classes[27].beside = 'Clerks'")
        for name in ("clerk", "s 13"):
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
