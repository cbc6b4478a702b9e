"""Exported models that read columns beside the text predict what the library predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.browser import needs_browser
from support.columns import FEATURES, config_of, quick_encoder, rows
from support.node import ask_node, features_of, needs_node
from support.small_runs import run_all

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.extras.export.javascript import javascript_module
from encoder_cls.extras.export.model_file import exported_model
from encoder_cls.extras.export.web_page import model_facts, web_page
from encoder_cls.text.tokenizer import token_reader

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c", "encoder_joins")

ODD_ROWS = [
    {"text": "yes kab", "title": "", "channel": "fax", "size": "many"},
    {"text": "yes \x1echannel\x1femail \x1d kab", "title": "no", "channel": None, "size": 37.0},
    {"text": "", "title": "", "channel": "email", "size": 3},
    {"text": "Küche 我爱", "title": "kab 😀", "channel": " email ", "size": "0499.50"},
]
# Values of the channel, which are written alike by both, and of the size.
ODD_CHANNELS = [0.00001234, 1.5e-7, 0.25, 3.0, 2**60, 1e22, "3.00", "007", "-0.0", True, "TRUE"]
ODD_CHANNELS += ["x" * 120, "\ud800", "\x85a\xa0", "\ufeffb", "a\x1cb\x1c", "😀" * 101, "", "None"]
ODD_SIZES = ["1_0", "1__0", "1e2", ".5", "5.", "+30", "inf", "nan", "1e999", "0x10", " 12 ", False]
for odd in ODD_CHANNELS:
    ODD_ROWS.append({"text": "yes kab", "title": "no", "channel": odd, "size": None})
for odd in ODD_SIZES:
    ODD_ROWS.append({"text": "yes kab", "title": "no", "channel": "phone", "size": odd})


@needs_node
@pytest.mark.parametrize("title", [pytest.param(False, marks=pytest.mark.slow), True])
def test_node_predicts_rows_as_numpy_does(tmp_path, title):
    """With an encoder, features, and one or two text columns; and plain texts."""
    columns = ["title", "text"] if title else ["text"]
    given = [{"title": row["label"][:2], **row} for row in [*rows(40, seed=1)]] + ODD_ROWS
    run_all(_config(tmp_path, columns), tmp_path / "run")
    module = tmp_path / "model.mjs"
    module.write_text(javascript_module(exported_model(tmp_path / "run")), encoding="utf-8")
    classifier = load_classifier(tmp_path / "run", engine="numpy")
    texts = [{name: row[name] for name in (*columns, *FEATURES)} for row in given]
    texts += ["yes kab", "\x1echannel\x1femail\x1dyes kab", dict.fromkeys(columns, "yes kab")]

    found = ask_node(module, texts, explain=True)

    expected = classifier.rows(texts, "predict")
    read = token_reader(classifier.tokenizer)
    strings = list(expected)
    for row, tokens in zip(strings, found["tokens"], strict=True):
        chunk = read([row[: 64 * classifier.max_seq_len]], 8 * classifier.max_seq_len)
        assert tokens == [chunk.distinct[index] for index in chunk.indices[1:]]
    assert found["features"] == features_of(classifier, strings)
    probabilities = classifier.predict_proba(texts)
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
    predictions = classifier.predict(texts)
    assert [each["label"] for each in found["predictions"]] == [each.label for each in predictions]
    for each, words in zip(found["predictions"], classifier.explain(texts), strict=True):
        if each["label"] is not None:
            assert [word["word"] for word in each["explanation"]] == [word.word for word in words]
            assert [word["start"] for word in each["explanation"]] == [word.start for word in words]
    with pytest.raises(AssertionError, match="TypeError: no row has the column channel"):
        ask_node(module, [dict.fromkeys([*columns, "chanel"], "yes kab")])


@needs_browser
def test_the_page_has_a_field_for_each_column(tmp_path, browser):
    run_all(config_of(tmp_path), tmp_path / "run")
    model = exported_model(tmp_path / "run")
    file = tmp_path / "page.html"
    file.write_text(web_page(model, model_facts(tmp_path / "run", model)), encoding="utf-8")
    (expected,) = load_classifier(tmp_path / "run").predict(
        [{"text": "yes kab", "channel": "email", "size": ""}]
    )

    with browser.opened(file.as_uri()) as page:
        page.until("!document.querySelector('#text').disabled")
        page.run("document.querySelector('#columns input').value = 'email'")
        page.run("document.querySelector('#text').value = 'yes kab'")
        page.run("document.querySelector('#text').dispatchEvent(new Event('input'))")
        page.until("document.querySelector('#prediction .words')?.textContent.includes('[channel')")
        shown = page.run("document.querySelector('#prediction').textContent")

        table = "text,size,channel\\nyes kab,,email\\n"
        page.run(f"document.querySelector('#many').value = '{table}'")
        page.run("document.querySelector('#classify').click()")
        page.until("!document.querySelector('#download').hidden")
        rows_shown = page.run("document.querySelector('#rows').textContent")

        page.run("document.querySelector('#many').value = 'text,size\\nyes kab,3\\n'")
        page.run("document.querySelector('#classify').click()")
        error = page.run("document.querySelector('#error').textContent")

    assert error == "the text field: has no column channel, which the model reads"
    assert expected.label in shown
    assert expected.label in rows_shown
    assert "yes kab [channel=email]" in rows_shown


def _config(folder: Path, columns: list[str]):
    config = quick_encoder(config_of(folder, encoder=True, text_column=columns))
    path = Path(config.data.train)
    head, *lines = path.read_text().splitlines()
    titled = [f"title,{head}"] + [f"kab t{number % 7},{line}" for number, line in enumerate(lines)]
    path.write_text("\n".join(titled) + "\n")
    return config
