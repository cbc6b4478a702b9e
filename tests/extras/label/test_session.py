"""A session asks texts once, writes each label at once, and continues where it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.labelling import read_table

from encoder_cls.data.random_sample import drawn_rank
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.extras.label.session import NO_CLASS, SKIPPED
from encoder_cls.extras.label.text_queue import BLOCK, is_random_turn
from encoder_cls.system.web.responses import RefusedError

FILE = Path("labels.csv")


def label_next(session, label: str) -> str:
    """Label the text that is asked, and return its text."""
    text = session.state()["text"]
    session.label(text["key"], [label])
    return text["text"]


def test_each_label_is_in_the_file_before_the_next_text_is_asked(reopen):
    session = reopen().session
    for number in range(5):
        text = label_next(session, "sport")
        rows = read_table(FILE)
        assert len(rows) == number + 1
        assert rows[-1]["text"] == text
        assert rows[-1]["label"] == "sport"
        assert rows[-1]["how"] == "random"


def test_a_killed_session_continues_with_the_same_text(reopen, pool):
    """Also if the pool was sorted in the meantime."""
    session = reopen().session
    label_next(session, "sport")
    session.skip(session.state()["text"]["key"], SKIPPED)
    asked = session.state()["text"]["key"]

    header, *lines = pool.read_text("utf-8").splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    pool.write_text(header + "".join(lines), encoding="utf-8")

    state = reopen().session.state()
    assert state["text"]["key"] == asked
    assert (state["num_labelled"], state["num_skipped"]) == (1, 1)


def test_every_text_is_asked_once_but_near_duplicates(reopen, pool):
    lines = pool.read_text("utf-8").splitlines(keepends=True)
    copies = [line.upper() for line in lines[1:5]]
    pool.write_text("".join([*lines, *copies]), encoding="utf-8")
    different = {row["text"].lower() for row in read_table(pool)}

    session = reopen().session
    asked = []
    while session.state()["text"]:
        asked.append(label_next(session, "food"))
    assert len(asked) == len(different)
    assert {text.lower() for text in asked} == different


def test_undo_takes_back_labels_and_skips_in_order(reopen):
    session = reopen().session
    first = session.state()["text"]["key"]
    label_next(session, "sport")
    second = session.state()["text"]["key"]
    session.skip(second, NO_CLASS)

    # A new process undoes what the one before has done.
    session = reopen().session
    session.undo(2)
    assert session.state()["text"]["key"] == second
    session.undo(1)
    assert session.state()["text"]["key"] == first
    assert read_table(FILE) == []
    with pytest.raises(RefusedError, match="nothing to undo"):
        session.undo(0)


def test_a_text_is_changed_later(reopen):
    session = reopen().session
    label_next(session, "sport")
    label_next(session, "sport")
    shown = session.state(back=2)["text"]
    assert shown["labels"] == ["sport"]

    session.label(shown["key"], ["food"], is_change=True)
    assert [row["label"] for row in read_table(FILE)] == ["food", "sport"]
    assert session.state(back=1)["text"] == shown | {"labels": ["food"]}


def test_undo_brings_back_the_label_before_a_change(reopen):
    """Also a skip; then it goes on with the action before. Classes may be renamed in between."""
    session = reopen().session
    keys = []
    for label in ("sport", "food"):
        keys.append(session.state()["text"]["key"])
        session.label(keys[-1], [label])
    keys.append(session.state()["text"]["key"])
    session.skip(keys[-1], SKIPPED)
    asked = session.state()["text"]["key"]

    session.label(keys[0], ["food"], is_change=True)
    session.label(keys[2], ["food"], is_change=True)
    session.label(keys[0], ["sport"], is_change=True)
    session.rename_class("food", "cuisine")
    assert [row["label"] for row in read_table(FILE)] == ["sport", "cuisine", "cuisine"]

    session.undo(3)
    assert [row["label"] for row in read_table(FILE)] == ["cuisine", "cuisine", "cuisine"]
    session.undo(3)
    session.undo(3)
    assert [row["label"] for row in read_table(FILE)] == ["sport", "cuisine"]
    assert session.state()["text"]["key"] == asked
    assert session.state(back=1)["text"]["why_skipped"] == SKIPPED

    session.undo(3)
    assert session.state()["text"]["key"] == keys[2]
    session.undo(2)
    assert session.state()["text"]["key"] == keys[1]
    assert [row["label"] for row in read_table(FILE)] == ["sport"]


def test_a_page_that_is_out_of_date_changes_nothing(reopen):
    """Two pages show one text; a request that is sent twice counts once."""
    session = reopen().session
    key = session.state()["text"]["key"]
    session.label(key, ["sport"])
    session.label(key, ["sport"])

    with pytest.raises(RefusedError, match="not asked any more"):
        session.label(key, ["food"])
    with pytest.raises(RefusedError, match="not asked any more"):
        session.skip(key, SKIPPED)
    with pytest.raises(RefusedError, match="another page"):
        session.undo(0)
    assert [row["label"] for row in read_table(FILE)] == ["sport"]


def test_classes_are_added_and_renamed(reopen):
    session = reopen().session
    session.add_class(" opera ")
    label_next(session, "opera")
    session.rename_class("opera", "music")
    assert [row["label"] for row in read_table(FILE)] == ["music"]

    for name in ("Music", "", "a\nb", "x" * 201):
        with pytest.raises(RefusedError):
            session.add_class(name)
    with pytest.raises(RefusedError, match="already"):
        session.rename_class("music", "FOOD")
    names = [each["name"] for each in reopen().session.state()["classes"]]
    assert names == ["sport", "food", "music"]


def names_of(opened) -> list[str]:
    return [each["name"] for each in opened.session.state()["classes"]]


def test_classes_keep_their_keys_and_names_in_the_next_process(reopen):
    """Whichever is used first; an added class is there without a label, a renamed one once."""
    session = reopen(classes=("sport", "food")).session
    label_next(session, "food")
    session.add_class("new one")
    session.rename_class("sport", "games")
    assert names_of(reopen(classes=("sport", "food"))) == ["games", "food", "new one"]
    assert names_of(reopen(classes=())) == ["games", "food", "new one"]

    # A name that was free may be given again.
    session = reopen(classes=("sport", "food")).session
    session.add_class("sport")
    session.rename_class("games", "play")
    assert names_of(reopen(classes=("sport", "food"))) == ["play", "food", "new one", "sport"]


@pytest.mark.parametrize(
    "content",
    [None, "{", '{"classes": "sport"}', '{"guesses": {"k": {"classes": [7]}}}'],
    ids=["gone", "torn", "other types", "unknown class"],
)
def test_labels_do_not_depend_on_what_a_session_keeps(reopen, content):
    label_next(reopen().session, "sport")
    kept = Path("labels-session.json")
    kept.unlink()
    if content is not None:
        kept.write_text(content)
    opened = reopen(classes=("food",))
    assert names_of(opened) == ["food", "sport"]
    assert opened.session.state()["num_labelled"] == 1


def test_a_session_of_several_labels_continues_without_its_option(reopen):
    session = reopen(is_multi_label=True).session
    for labels in (["food", "sport"], []):
        session.label(session.state()["text"]["key"], labels)
    before = FILE.read_bytes()
    assert reopen(classes=()).session.state()["is_multi_label"]
    assert FILE.read_bytes() == before


def test_names_may_have_joiners_and_spaces_of_their_script(reopen):
    """Persian, Indic and emoji joiners, the French no-break space, marks of direction."""
    session = reopen().session
    names = [
        "می\u200cخواهم",
        "क्\u200dष",
        "\U0001f469\u200d\U0001f4bb",
        "À\u00a0traiter",
        "אב\u200f",
    ]
    for name in names:
        session.add_class(name)
        label_next(session, name)
    assert [row["label"] for row in read_table(FILE)] == names
    assert [each["name"] for each in reopen().session.state()["classes"]][2:] == names

    for name in ("À traiter", "\u200d", "a\u2028b", "a\x7fb"):
        with pytest.raises(RefusedError):
            session.add_class(name)


def test_a_class_is_renamed_though_a_guess_names_a_class_that_is_gone(reopen):
    label_next(reopen().session, "sport")
    FILE.write_text(FILE.read_text("utf-8").replace(",random,,", ",random,tennis,"), "utf-8")

    reopen().session.rename_class("sport", "sports")
    row = read_table(FILE)[0]
    assert (row["label"], row["guess"]) == ("sports", "")


def test_an_unknown_class_is_not_renamed(reopen):
    with pytest.raises(RefusedError, match="no class 'tennis'"):
        reopen().session.rename_class("tennis", "golf")


def test_several_labels_are_one_cell(reopen):
    session = reopen(is_multi_label=True).session
    keys = []
    for labels in (["food", "sport"], []):
        keys.append(session.state()["text"]["key"])
        session.label(keys[-1], labels)
    session.skip(session.state()["text"]["key"], NO_CLASS)

    assert [row["label"] for row in read_table(FILE)] == ["sport|food", "", ""]
    session = reopen(is_multi_label=True).session
    assert session.state(back=3)["text"]["labels"] == ["sport", "food"]
    with pytest.raises(RefusedError, match="may not contain"):
        session.add_class("a|b")


def test_an_emptied_label_is_asked_again(reopen):
    session = reopen().session
    text = label_next(session, "sport")
    label_next(session, "food")
    FILE.write_text(FILE.read_text("utf-8").replace(",sport,", ",,", 1), encoding="utf-8")

    session = reopen().session
    assert [row["label"] for row in read_table(FILE)] == ["", "food"]
    asked = set()
    while session.state()["text"]:
        asked.add(label_next(session, "food"))
    assert text in asked


def test_errors_say_what_to_do(reopen):
    with pytest.raises(ConfigError, match="--labels: there is a class 'a' already"):
        reopen(classes=("a", "A"))

    label_next(reopen().session, "sport")
    FILE.write_text(FILE.read_text("utf-8").replace(",sport,", ",SPORT,"), encoding="utf-8")
    with pytest.raises(DataError, match=r"labels\.csv: there is a class 'sport' already"):
        reopen()

    FILE.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column"):
        reopen()
    assert FILE.read_text() == "a,b\n1,2\n"


def test_one_text_in_ten_is_drawn_at_random():
    """The first one, and then one in each ten at a place that varies."""
    places = []
    for block in range(50):
        turns = [place for place in range(BLOCK) if is_random_turn(BLOCK * block + place)]
        assert len(turns) == 1
        places += turns
    assert places[0] == 0
    assert len(set(places)) == BLOCK


def test_random_texts_come_in_the_order_of_their_ranks(reopen):
    session = reopen().session
    ranks = []
    for _ in range(10):
        ranks.append(drawn_rank(session.state()["text"]["key"]))
        label_next(session, "sport")
    assert ranks == sorted(ranks)


def test_suggested_texts_and_texts_of_the_random_order_take_turns(reopen):
    opened = reopen()
    opened.queue.suggestions = [30, 31, 32]
    keys = [text.key for text in opened.texts]

    asked = []
    for _ in range(8):
        asked.append(keys.index(opened.session.state()["text"]["key"]))
        label_next(opened.session, "sport")
    assert asked == [0, 1, 30, 2, 31, 3, 32, 4]

    # All but the first one, and the last one, after which nothing is suggested, show the guess.
    hows = [row["how"] for row in read_table(FILE)]
    assert hows == ["random", *["suggested"] * 6, "random"]


def test_a_change_that_cannot_be_saved_whole_changes_nothing(reopen):
    """Another program has changed the table of skipped texts: the label is not saved twice."""
    session = reopen().session
    key = session.state()["text"]["key"]
    session.skip(key, SKIPPED)
    with FILE.with_name("labels-skipped.csv").open("a") as file:
        file.write("\r\n")

    for label in ("sport", "food"):
        with pytest.raises(EncoderClsError, match="another program"):
            session.label(key, [label], is_change=True)
    assert read_table(FILE) == []
