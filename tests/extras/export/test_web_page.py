"""A classifier as a page, in a real browser: it predicts offline, and may do nothing else."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import (
    ADDS_A_HANDLER,
    ASKS_ANOTHER_MACHINE,
    HOSTILE,
    Page,
    needs_axe,
    needs_browser,
    violations,
)

from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.extras.export.model_file import exported_model
from encoder_cls.extras.export.web_page import model_facts, web_page


@pytest.fixture(scope="module")
def page_file(trained_run, tmp_path_factory) -> Path:
    """The exported page of the trained run."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    model = exported_model(trained_run.path)
    file.write_text(web_page(model, model_facts(trained_run.path, model)))
    return file


@pytest.fixture
def page(page_file, browser) -> Iterator[Page]:
    """The page in a browser, with the model unpacked."""
    with browser.opened(page_file.as_uri()) as page:
        page.until("!document.querySelector('#text').disabled")
        yield page


def type_in(page: Page, field: str, text: str) -> None:
    """Set the value of a field, as if it were typed."""
    element = f"document.querySelector({json.dumps(field)})"
    page.run(f"{element}.value = {json.dumps(text)}")
    page.run(f"{element}.dispatchEvent(new Event('input'))")


def classify_many(page: Page, content: str) -> None:
    """Paste some texts, and wait until all are classified."""
    type_in(page, "#many", content)
    page.run("document.querySelector('#classify').click()")
    page.until("!document.querySelector('#download').hidden")


@needs_browser
def test_a_text_is_classified_while_it_is_typed(page, classifier):
    """The label, the classes, and the words in colours; the HTML in a text is only characters."""
    type_in(page, "#text", HOSTILE)
    page.until("document.querySelectorAll('.words span').length")

    [prediction] = classifier.predict([HOSTILE])
    assert page.texts_of(".result")[0].startswith(f"{prediction.label}, ")
    assert page.texts_of("#prediction td:first-child") == [name for name, _ in prediction.top(5)]
    assert page.texts_of(".words") == [HOSTILE]
    assert page.run("document.title") == "tiny"
    assert page.complaints == []

    # A screen reader is told the label after a pause.
    page.until("document.querySelector('#spoken').textContent")
    assert page.texts_of("#spoken") == page.texts_of(".result")

    type_in(page, "#text", " ")
    assert page.texts_of("#prediction > *") == []


@needs_browser
def test_labels_below_a_threshold_are_withheld(page):
    type_in(page, "#text", "zzz qqq")
    type_in(page, "#threshold", "0.999")
    page.until("document.querySelector('.result')?.textContent.startsWith('Withheld: ')")


@needs_browser
@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("rain, snow\nball goal\n\nsoup", ["rain, snow", "ball goal", "soup"]),
        ("rain, snow\nball, goal", ["rain, snow", "ball, goal"]),
        ('id;text\r\n1;"rain; ""snow"""\r\n2;ball', ['rain; "snow"', "ball"]),
        (
            "text\r\nrain, snow\r\nball; goal, soup\r\nsoup",
            ["rain, snow", "ball; goal, soup", "soup"],
        ),
        ("name\tnote\nA\tball and goal\nB\train and snow", ["ball and goal", "rain and snow"]),
    ],
    ids=[
        "lines",
        "sentences with a comma",
        "a column of the model",
        "a column alone",
        "the longest column",
    ],
)
def test_many_texts_are_pasted(page, classifier, content, texts):
    """One a line, or as a table, in which the column with the texts is found."""
    classify_many(page, content)
    assert page.texts_of("#rows td:nth-child(3)") == texts
    labels = [prediction.label for prediction in classifier.predict(texts)]
    assert page.texts_of("#rows td:first-child") == labels


@needs_browser
def test_an_empty_table_leaves_the_one_that_is_being_classified(page):
    page.run("openTable('rain\\nball', 'a'); openTable(' ', 'b')")
    page.until("!document.querySelector('#download').hidden")

    assert page.texts_of("#rows td:nth-child(3)") == ["rain", "ball"]
    assert page.complaints == []


FILES = {
    "an Excel file": [("a.xlsx", b"PK\3\4\x14\0\0\0\x08\0 and more")],
    "a compressed file": [("a.csv.gz", gzip.compress(b"text,label\nrain,x\n" * 50))],
    "UTF-16 without a mark": [("a.csv", "text,id\nrain,1\n".encode("utf-16le"))],
    "JSON lines": [("a.jsonl", b'{"text": "rain"}\n{"text": "ball"}\n')],
    "JSON": [("a.json", b'[\n  {"text": "rain"}\n]\n')],
    "a row with more fields": [("a.csv", b"text,label\nrain, snow,x\n")],
    "nothing": [("a.csv", b"text,id\n")],
    "two files": [("a.txt", b"rain"), ("b.txt", b"ball")],
}


def drop(page: Page, files: list[tuple[str, bytes]]) -> None:
    """Drop files on the page."""
    contents = [[name, list(content)] for name, content in files]
    page.run(f"""{{
        const data = new DataTransfer();
        for (const [name, content] of {json.dumps(contents)}) {{
          data.items.add(new File([new Uint8Array(content)], name));
        }}
        dispatchEvent(new DragEvent("drop", {{ dataTransfer: data }}));
    }}""")


@needs_browser
def test_what_is_no_table_of_texts_is_refused(page):
    """With a message, and nothing of it is classified."""
    for kind, files in FILES.items():
        drop(page, files)
        page.until("document.querySelector('#error').textContent")
        assert page.run("texts.length") == 0, kind
        page.run("document.querySelector('#error').textContent = ''")


@needs_browser
def test_a_table_with_thousands_of_columns_without_names_is_read_at_once(page):
    """As spreadsheets write it whose last column was once used."""
    page.run("var wide = 'text' + ','.repeat(9999) + '\\nball' + ','.repeat(9999)")
    page.run("var start = performance.now(); var read = readTable(wide, ['text'])")
    assert page.run("performance.now() - start") < 2000
    assert page.run("read.names.slice(0, 3)") == ["text", "column 2", "column 3"]


@needs_browser
def test_columns_that_the_model_reads_together_are_joined(page, classifier):
    """A person may choose one of them instead."""
    page.run("settings.textColumns = ['title', 'body']")
    classify_many(page, "id,body,title\n1,goal,ball\n2,soup,big")

    assert page.texts_of("#column option") == ["title + body", "id", "body", "title"]
    texts = ["ball goal", "big soup"]
    assert page.texts_of("#rows td:nth-child(3)") == texts
    labels = [prediction.label for prediction in classifier.predict(texts)]
    assert page.texts_of("#rows td:first-child") == labels


@needs_browser
def test_the_download_has_the_columns_of_the_table_and_of_the_predictions(page):
    """No cell is a formula, and no column of the table is lost."""
    classify_many(page, 'label,text\nx,"=1+1, rain"\ny,')
    csv = page.run("writeTable(table, predictions, settings)")
    header, first, second, end = csv.split("\r\n")
    assert header == "\ufefflabel,text,predicted_label,probability,unfamiliar,reason"
    assert re.fullmatch(r"x,\"'=1\+1, rain\",\w+,0\.\d{4},\w*,", first)
    assert second.startswith("y,,,")
    assert second.endswith("blank")
    assert end == ""


@needs_browser
def test_the_download_has_the_names_and_the_levels_of_codes(page):
    table = {"names": ["text"], "rows": [["bread"], [""]]}
    path = [{"label": "1"}, {"label": "11"}]
    cooks = {"label": "11", "name": "Cooks", "probability": 0.5, "path": path}
    blank = {"label": None, "probability": None, "path": [], "reason": "blank"}
    codes = {"hasNames": True, "numLevels": 2}
    csv = page.run(f"writeTable(...{json.dumps([table, [cooks, blank], codes])})")
    assert csv.splitlines() == [
        "\ufefftext,label,name,probability,level_1,level_2,unfamiliar,reason",
        "bread,11,Cooks,0.5000,1,11,,",
        ",,,,,,,blank",
    ]


@needs_browser
def test_a_dropped_file_is_read_in_its_encoding(page):
    """UTF-8, UTF-16 with a mark, and the encoding of Western Windows."""
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        drop(page, [("a.csv", "text,id\nKüche,1\n".encode(encoding))])
        page.until("document.querySelector('#rows td:nth-child(3)')?.textContent === 'Küche'")
        page.run("document.querySelector('#rows').replaceChildren()")


@needs_browser
def test_the_page_may_do_nothing_else(page):
    """Its policy refuses scripts of others and all requests, of the page and of its worker."""
    page.run(ADDS_A_HANDLER)
    assert page.run(ASKS_ANOTHER_MACHINE) == "closed"
    assert page.run("document.title") == "tiny"

    code = f"{ASKS_ANOTHER_MACHINE}.then(postMessage)"
    worker = f"new Worker(URL.createObjectURL(new Blob([{json.dumps(code)}])))"
    asked = f"new Promise((done) => {{ {worker}.onmessage = ({{ data }}) => done(data); }})"
    assert page.run(asked) == "closed"


@needs_axe
def test_the_page_is_accessible(page):
    """With predictions, on a wide window and in both colours; a phone scrolls only down."""
    type_in(page, "#text", "rain and zebra")
    classify_many(page, "rain\n\nball")
    page.run("showError(new Error('no such thing'))")
    assert violations(page) == []

    page.resize(390)
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_the_page_tells_of_the_model(cli, trained_run, classifier, tmp_path):
    """Its classes, its score on test texts with the interval, its hash; and it is one file."""
    page_file = tmp_path / "tiny.html"
    outcome = cli("export", trained_run.path, "--output", page_file)
    assert outcome.code == 0
    assert "open it in a browser" in outcome.err

    content = page_file.read_text(encoding="utf-8")
    report = json.loads((trained_run.eval / "report.json").read_bytes())
    low, high = report["accuracy_interval"]
    assert f"Right for {report['accuracy']:.0%} of 15 test texts" in content
    assert f"(95% interval: {low:.0%} to {high:.0%})" in content
    assert classifier.sha256 in content
    for name in classifier.label_names:
        assert f"<li><bdi>{name}</bdi></li>" in content
    assert not re.search(r"(?:src|href)=\"(?!data:)", content)


def test_a_page_of_the_linear_part_has_the_results_of_this_part(cli, run_copy, tmp_path):
    """Nothing on it was measured on both parts."""
    file = run_copy.eval / "report.json"
    report = json.loads(file.read_bytes())
    of_both = {"accuracy": 0.93, "accuracy_interval": [0.9, 0.96], "suggested_threshold": 0.77}
    report |= {**of_both, "answered_fraction": 0.8}
    report["parts"]["linear"] |= {"accuracy": 0.81, "accuracy_interval": [0.71, 0.91]}
    file.write_text(json.dumps(report))

    page_file = tmp_path / "linear.html"
    outcome = cli("export", run_copy.path, "--output", page_file, "--linear-only")
    assert outcome.code == 0
    content = page_file.read_text(encoding="utf-8")
    assert "has the linear part of the model alone" in content
    assert "Right for 81% of 15 test texts" in content
    assert "(95% interval: 71% to 91%)" in content
    facts = "".join(re.findall("<li><bdi>(.*?)</bdi></li>", content))
    for number in ("93%", "0.770", "unfamiliar", "Its probabilities"):
        assert number not in facts
    assert "placeholder" not in content


def test_a_model_without_its_run_has_no_results(trained_run, tmp_path):
    """The page says so. Names in HTML are characters."""
    classifier = load_classifier(trained_run.path)
    classifier.label_names = ("</script><b>", "b", "c")
    save_classifier(classifier, tmp_path / "model")

    model = exported_model(tmp_path / "model")
    content = web_page(model, model_facts(tmp_path / "model", model))
    assert "nothing is known of its errors" in content
    assert "</script><b>" not in content
    assert "<h1>model</h1>" in content
