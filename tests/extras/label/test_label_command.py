"""The program on a port of this machine: only its own page may ask, and a kill loses nothing."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.excel import write_sheets
from support.labelling import WITHOUT_MODEL, read_table, write_pool
from support.programs import TIME_LIMIT, assert_failed

from encoder_cls.config.loading import load_config
from encoder_cls.data.load_dataset import load_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the pool and of the labels of `running`."""
    return tmp_path_factory.mktemp("labelled")


@pytest.fixture(scope="module")
def running(start_label, folder):
    write_pool(folder / "pool.csv")
    arguments = (folder / "pool.csv", "--labels", "sport,food", "--output", folder / "labels.csv")
    return start_label(*arguments, before=WITHOUT_MODEL)


def test_only_the_own_page_may_ask(running):
    path = f"/{running.token}/state"
    assert running.ask(path)[0] == 200
    assert running.ask(path, Origin=f"http://127.0.0.1:{running.port}")[0] == 200
    assert running.ask(path, Host=f"localhost:{running.port}")[0] == 200

    other_last_character = "y" if running.token.endswith("x") else "x"
    other_token = running.token[:-1] + other_last_character

    assert running.ask("/state")[0] == 404
    assert running.ask("/")[0] == 404
    assert running.ask(f"/{running.token}")[0] == 404
    assert running.ask(f"/{other_token}/state")[0] == 404
    assert running.ask(path, Host="evil.example")[0] == 403
    assert running.ask(path, Origin="http://evil.example")[0] == 403


@pytest.mark.parametrize(
    ("action", "fields", "status"),
    [
        ("label", b"{", 400),
        ("label", {"key": "x"}, 422),
        ("label", {"key": "x", "labels": [1], "shown_guess": [], "is_change": False}, 422),
        ("label", {"key": "x", "labels": ["a"], "shown_guess": [], "is_change": 0}, 422),
        ("skip", {"key": "x", "why": "because"}, 422),
        ("undo", {"num_asked": True}, 422),
        ("label", b"x" * (2 << 20), 413),
        ("nothing", {}, 404),
    ],
)
def test_bad_requests_are_refused(running, action, fields, status):
    code, response = running.ask(f"/{running.token}/{action}", fields)
    assert code == status
    assert response["error"]
    assert running.act("state")["num_asked"] == 0


def test_requests_that_are_not_json_are_refused(running):
    """A form of another page could send them."""
    path = f"/{running.token}/undo"
    assert running.ask(path, {"num_asked": 0}, Content_Type="text/plain")[0] == 415


def test_the_browser_gets_the_secret_address_by_a_file(start_label, pool):
    """Everybody can list the arguments of its process, but only the owner reads the file."""
    before = (
        WITHOUT_MODEL
        + """
import webbrowser
from pathlib import Path

webbrowser.open = Path("opened").write_text
"""
    )
    arguments = (pool, "--labels", "sport,food", "--output", "labels.csv", "--browser")
    running = start_label(*arguments, before=before)
    deadline = time.monotonic() + TIME_LIMIT
    while not (Path("opened").exists() and Path("opened").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    opened = Path("opened").read_text()
    assert running.token not in opened
    file = Path(urlsplit(opened).path)
    assert f"url={running.address}" in file.read_text("utf-8")
    assert file.stat().st_mode & 0o077 == 0
    running.stop()
    assert not file.exists()


def test_a_second_program_on_the_same_file_is_refused(running, folder, cli):
    outcome = cli("label", folder / "pool.csv", "--output", folder / "labels.csv", "--no-browser")
    assert_failed(outcome, 1, f"process {running.process.pid} is labelling here")


def test_a_kill_loses_no_label(start_label, pool):
    arguments = (pool, "--labels", "sport,food", "--output", "labels.csv")
    running = start_label(*arguments, before=WITHOUT_MODEL)
    state = running.act("state")
    for _ in range(3):
        state = running.label(state, "food")
    running.kill()

    again = start_label(*arguments, before=WITHOUT_MODEL)
    assert again.act("state")["text"]["key"] == state["text"]["key"]
    again.label(state, "sport")
    code, printed = again.stop()

    assert code == 0
    assert [row["label"] for row in read_table(Path("labels.csv"))] == ["food"] * 3 + ["sport"]
    assert "labels.csv: 4 labels (sport 1, food 3)" in printed
    assert "--set data.train=labels.csv" in printed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "name the file of the labels"),
        (["-", "--output", "labels.csv"], "name the texts to label"),
        (["pool.csv"], "--output labels.csv"),
        (["pool.csv", "--output", "labels.txt"], "must end with .csv"),
        (["pool.csv", "--output", "pool.csv"], "is a file that is read"),
        (["pool.csv", "--output", "labels.csv", "--labels", "a,b,A"], "already"),
    ],
)
def test_wrong_options_write_nothing(cli, pool, arguments, named):
    before = pool.read_bytes()
    assert_failed(cli("label", *arguments), 2, named)
    assert pool.read_bytes() == before
    assert not Path("labels.csv").exists()


def test_a_pool_without_texts_is_an_error(cli):
    Path("empty.csv").write_text("text\n")
    assert_failed(cli("label", "empty.csv", "--output", "labels.csv"), 3, "no texts")
    Path("other.csv").write_text("message\nhello\n")
    outcome = cli("label", "other.csv", "--output", "labels.csv")
    assert_failed(outcome, 3, "--text-column")


def test_a_sheet_of_a_workbook_is_labelled(start_label, cli):
    """If several sheets have texts, one must be named, also in the command that trains."""
    sheets = {}
    for title in ("spring", "autumn"):
        sheets[title] = [["text"], [f"the soup of {title}"], [f"the goal of {title}"]]
    write_sheets("pool.xlsx", sheets)
    arguments = ("pool.xlsx", "--output", "labels.csv", "--labels", "sport,food")
    assert_failed(cli("label", *arguments, "--no-browser"), 3, "data.sheet")

    running = start_label(*arguments, "--set", "data.sheet=autumn", before=WITHOUT_MODEL)
    state = running.act("state")
    for label in ("sport", "food"):
        assert "autumn" in state["text"]["text"]
        state = running.label(state, label)
    assert state["text"] is None
    _, printed = running.stop()
    assert "--set data.sheet=autumn" in printed


def test_the_command_that_trains_names_a_column_of_any_name(start_label):
    name = "Text: short, long"
    Path("pool.csv").write_text(f'"{name}"\na soup\na goal\n')
    options = ["--output", "labels.csv", "--labels", "sport,food", "--text-column", name]
    running = start_label("pool.csv", *options, before=WITHOUT_MODEL)
    state = running.act("state")
    for label in ("sport", "food"):
        state = running.label(state, label)
    _, printed = running.stop()

    [setting] = re.findall(r"'(data.text_column=.*?)'", printed)
    assert load_config(None, [setting]).data.text_column == (name,)


def test_the_command_that_trains_runs(start_label, cli):
    """For texts in another encoding, with another separator, in a column of any name."""
    texts = [f"{word} für die Gäste" for word in ("Suppe", "Ball", "Brot", "Tor")]
    Path("pool.csv").write_text(
        "\n".join(["key^label", *(f"{text}^{text}" for text in texts)]), "cp1252"
    )
    running = start_label(
        *("pool.csv", "--output", "labels.csv", "--labels", "@sport,+", "--text-column", "label"),
        *(
            "--set",
            "data.delimiter=^",
            "--set",
            "data.encoding=cp1252",
            "--set",
            "data.bad_rows=skip",
        ),
        before=WITHOUT_MODEL,
    )
    state = running.act("state")
    for label in ("@sport", "+", "@sport", "+"):
        state = running.label(state, label)
    _, printed = running.stop()

    settings = shlex.split(printed.partition("train with: encoder-cls train ")[2])
    config = load_config(None, [each for each in settings if each != "--set"]).data
    dataset = load_dataset(config)
    assert dataset.label_names == ("+", "@sport")
    assert {*dataset.train.texts, *dataset.validation.texts} == set(texts)


def test_texts_with_a_label_are_not_asked(start_label):
    Path("pool.csv").write_text("text,label\na soup,food\na goal,\n")
    running = start_label("pool.csv", "--output", "labels.csv", before=WITHOUT_MODEL)
    assert "pool.csv: 1 row with a label in column 'label' left out" in "".join(running.lines)
    state = running.act("state")
    assert state["num_texts"] == 1
    assert state["text"]["text"] == "a goal"


def test_a_pattern_that_fits_the_labels_is_continued(start_label, pool):
    """The files of an earlier session are no texts, but any other file keeps its content."""
    pattern = pool.parent / "*"
    arguments = (pattern, "--labels", "sport,food", "--output", "labels.csv")
    running = start_label(*arguments, before=WITHOUT_MODEL)
    state = running.label(running.act("state"), "food")
    running.stop()
    Path("labels-curve.jsonl").write_text('{"num_labels": 2}\n')
    Path("labels-torn.txt").write_text("a part of a line\n")

    again = start_label(*arguments, before=WITHOUT_MODEL)
    assert again.act("state")["text"] == state["text"]
    assert again.act("state")["num_texts"] == state["num_texts"]


def test_labels_in_the_folder_of_the_texts_are_refused(cli, pool):
    """Also those of an earlier session; the message says what to do."""
    Path("texts").mkdir()
    pool.rename("texts/pool.csv")
    for _ in range(2):
        outcome = cli("label", "texts", "--output", "texts/labels.csv", "--no-browser")
        assert_failed(outcome, 2, "folder that is read (texts); name an output in another folder")
        Path("texts/labels.csv").write_text("text,label\n")


def test_a_link_stays_a_link_and_has_the_lock_of_its_file(start_label, cli, pool):
    Path("real").mkdir()
    link = Path("labels.csv")
    link.symlink_to("real/labels.csv")
    running = start_label(pool, "--labels", "sport,food", "--output", link, before=WITHOUT_MODEL)
    running.label(running.act("state"), "food")

    outcome = cli("label", pool, "--output", "real/labels.csv", "--no-browser")
    assert_failed(outcome, 1, "is labelling here")
    running.act("undo", {"num_asked": 1})
    assert link.is_symlink()
    assert read_table(Path("real/labels.csv")) == []


def test_a_run_gives_classes_and_first_guesses(start_label, trained_run, pool):
    arguments = (pool, "--model", trained_run.path, "--output", "labels.csv")
    running = start_label(*arguments)
    state = running.act("state")
    assert [each["name"] for each in state["classes"]] == ["küche", "sport", "weather"]

    deadline = time.monotonic() + TIME_LIMIT
    while not state["model"]["has_guesses"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        state = running.act("state")
    state = running.label(state, "sport")
    assert state["text"]["how"] == "suggested"
    assert state["text"]["guess"]["top"]
    assert read_table(Path("labels.csv"))[0]["guess"] in {"küche", "sport", "weather"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["pool.csv", "--review", "runs/tiny"], "--review takes the texts"),
        (["pool.csv", "--model", "runs/tiny", "--labels", "a,b"], "--model has the classes"),
        (["--review", "nowhere"], "nowhere"),
    ],
)
def test_options_that_contradict_each_other_are_errors(cli, pool, arguments, named):
    outcome = cli("label", *arguments, "--output", "labels.csv", "--no-browser")
    assert outcome.code in {1, 2}
    assert named in outcome.err
    assert not Path("labels.csv").exists()
