"""`encoder-cls audit`: what of the training texts can be read in the files of a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.small_runs import WITHOUT_TECHNIQUES
from support.tables import write_table
from support.topics import labelled_texts

from encoder_cls import train_tokenizer
from encoder_cls.extras.audit import audit as audit_module
from encoder_cls.extras.audit.readable_words import WordSplitter
from encoder_cls.extras.audit.telling_words import TellingWords

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

# The values of a column, which alternate.
AGENTS = ["ann@desk.example", "nobody"]
# In one text each.
RARE = ["Zquorvexa", "Wünzqlbäcker", "492988127734", "anna.meier@example.org", "@qvoxjari"]
# In several texts, so that at least two of them are no held-out ones.
SHARED = "ring 0800123456 or bob@corp.example, see https://www.corp.example/faq, ask @helpdesk"


def train(cli, *settings: str, rare: list[str] = RARE, shared: str = SHARED) -> None:
    """Train a linear model on texts with a size and an agent, the first ones with planted words.

    Halfway between two sizes, a point begins with the digits of one of them.
    """
    texts = labelled_texts(30, seed=0)
    added = [*rare, *[shared] * 6, *[""] * len(texts)]
    rows = [
        (f"{text} {words}", label, 100_000 + number, AGENTS[number % 2])
        for number, ((text, label), words) in enumerate(zip(texts, added, strict=False))
    ]
    write_table("train.csv", [("text", "label", "size", "agent"), *rows])
    values = ["data.train=train.csv", "model.encoder=false", *WITHOUT_TECHNIQUES, *settings]
    options = [part for value in values for part in ("--set", value)]
    assert cli("train", *options, "--run-dir", "run").code == 0


def audit(cli, path: str, *, code: int) -> dict:
    outcome = cli("audit", path, "--json")
    assert outcome.code == code
    return json.loads(outcome.out)


@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_what_is_in_several_texts_is_found_and_rare_words_are_not_there(
    cli, tmp_path, kind, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    # The program writes the last of these words into each model card.
    rare = [*RARE, "calibration"]
    train(cli, f"tokenizer.type={kind}", "data.features=[size,agent]", rare=rare)
    found = audit(cli, "run", code=8)

    assert (found["num_texts"], found["min_texts"]) == (90, 2)
    assert found["model_files"]["README.md"] == found["model_files"]["config.json"] == {}
    for name in ("model.safetensors", "tokenizer.json"):
        kinds = {kind: words["examples"] for kind, words in found["model_files"][name].items()}
        numbers = kinds.pop("numbers")
        assert "0800123456" in numbers
        assert all(number in "0800123456" for number in numbers)
        assert kinds == {
            "words_of_addresses": ["ann", "bob", "corp", "desk", "example", "faq"],
            "words_of_handles": ["helpdesk"],
        }

    # What is in every model is said, and is no find.
    assert found["class_names"] == ["küche", "sport", "weather"]
    assert found["data_path"] == "train.csv"
    assert found["columns"] == {"agent": AGENTS}
    edges = list(map(float, found["edges"]["size"]))
    assert 100_000 < edges[0] < edges[-1] < 100_090
    assert f"of the column size, {len(edges)} points between values" in cli("audit", "run").out


def test_rare_words_of_a_model_that_has_learned_all_words(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # None of these words is in the program, whose own words take half a second of each audit.
    monkeypatch.setattr(audit_module, "_texts_of_program", lambda: iter(()))
    train(cli, "tokenizer.min_frequency=1", "data.cache=cached")
    shutil.rmtree("cached")
    found = audit(cli, "run", code=8)
    assert not Path("cached").exists()

    rare = {"zquorvexa", "wünzqlbäcker", "492988127734", "meier", "qvoxjari"}
    assert rare <= set(found["model_files"]["model.safetensors"]["rare_words"]["examples"])
    assert "rare_words" not in found["model_files"]["README.md"]
    assert any("rare_words" in kinds for kinds in found["run_files"].values())
    shown = cli("audit", "run")
    assert shown.code == 8
    assert "'wünzqlbäcker'" in shown.out
    assert "cached (data.cache), which has all texts and is not shared" in shown.out
    assert shown.err == "error: run/model: parts of the training texts can be read in it\n"

    # Without texts, only the look of a word tells.
    shutil.copytree("run/model", "alone")
    Path("train.csv").unlink()
    for path, reason in (("alone", "without its run"), ("run", "train.csv")):
        found = audit(cli, path, code=8)
        assert reason in found["why_no_texts"]
        (numbers,) = found["model_files"]["tokenizer.json"].values()
        assert numbers["examples"] == ["0800123456", "492988127734"]
    assert "cannot be told" in cli("audit", "alone").out


def test_a_model_without_finds_ends_well(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(cli, shared="")
    found = audit(cli, "run", code=0)

    assert not any(found["model_files"].values())
    assert not found["readable"]


def test_a_subword_that_is_inside_words_of_enough_texts_is_not_rare():
    telling = TellingWords(WordSplitter(train_tokenizer(["ring"])), min_groups=2)
    for number, text in enumerate(["ring", "bring it", "string it", "wing", "wings"]):
        telling.add(text, number)

    assert {"ring", "wing"} <= telling.rare_words(set())
    assert telling.rare_words({"ring", "wing", "wings"}) == {"bring", "string", "wings"}


def test_a_word_that_is_also_outside_of_addresses_is_an_ordinary_word():
    telling = TellingWords(WordSplitter(train_tokenizer(["ring"])), min_groups=2)
    telling.add("write to may.flower@mail.example or @flower, in may", 0)

    assert telling.of_addresses() == {"flower", "mail", "example"}
    assert telling.of_handles() == {"flower"}
