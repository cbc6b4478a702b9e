"""Exported models that read columns beside the text predict what the library predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.browser import needs_browser
from support.columns import FEATURES, config_of, rows
from support.node import ask_node, features_of, needs_node
from support.small_runs import run_all

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.extras.export.javascript import javascript_module
from encoder_cls.extras.export.model_file import exported_model
from encoder_cls.extras.export.web_page import model_facts, web_page

ODD_ROWS = [
    {"text": "yes kab", "title": "", "channel": "fax", "size": "many"},
    {"text": "yes \x1echannel\x1femail \x1d kab", "title": "no", "channel": None, "size": 37.0},
    {"text": "", "title": "", "channel": "email", "size": 3},
    {"text": "Küche 我爱", "title": "kab 😀", "channel": " email ", "size": "0499.50"},
]


@needs_node
@pytest.mark.parametrize("title", [False, True])
def test_node_predicts_rows_as_numpy_does(tmp_path, title):
    """With an encoder, features, and one or two text columns; and plain texts."""
    columns = ["title", "text"] if title else ["text"]
    given = [{"title": row["label"][:2], **row} for row in [*rows(40, seed=1)]] + ODD_ROWS
    run_all(_config(tmp_path, columns), tmp_path / "run")
    module = tmp_path / "model.mjs"
    module.write_text(javascript_module(exported_model(tmp_path / "run")), encoding="utf-8")
    classifier = load_classifier(tmp_path / "run", engine="numpy")
    texts = [{name: row[name] for name in (*columns, *FEATURES)} for row in given]
    texts += ["yes kab", "\x1echannel\x1femail\x1dyes kab"]

    found = ask_node(module, texts, explain=True)

    expected = classifier.rows(texts, "predict")
    assert found["features"] == features_of(classifier, list(expected))
    probabilities = classifier.predict_proba(texts)
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
    predictions = classifier.predict(texts)
    assert [each["label"] for each in found["predictions"]] == [each.label for each in predictions]
    for each, words in zip(found["predictions"], classifier.explain(texts), strict=True):
        if each["label"] is not None:
            assert [word["word"] for word in each["explanation"]] == [word.word for word in words]
            assert [word["start"] for word in each["explanation"]] == [word.start for word in words]


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

    assert expected.label in shown
    assert expected.label in rows_shown
    assert "yes kab [channel=email]" in rows_shown


def _config(folder: Path, columns: list[str]):
    config = config_of(folder, encoder=True, text_column=columns)
    path = Path(config.data.train)
    head, *lines = path.read_text().splitlines()
    titled = [f"title,{head}"] + [f"kab t{number % 7},{line}" for number, line in enumerate(lines)]
    path.write_text("\n".join(titled) + "\n")
    return config
