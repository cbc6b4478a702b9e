"""A run on codes with levels: its report, its predictions, and what Python and the server say."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from support.fixtures import Outcome
from support.small_runs import WITHOUT_TECHNIQUES
from support.tables import read_table, write_table
from support.topics import TOPICS, labelled_texts

from encoder_cls import Predictor, load_classifier
from encoder_cls.classifier.prediction_json import prediction_json
from encoder_cls.data.codes import Codes
from encoder_cls.serving.request_queue import Batcher
from encoder_cls.serving.requests import PredictRequest
from encoder_cls.system.web.responses import RefusedError

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")
CODES = {"küche": "11", "sport": "12", "weather": "20"}
NAMES = {"1": "Indoors", "11": "Cooks", "12": "Coaches", "2": "Outdoors", "20": "Forecasters"}
COMMAND = ["--model", "runs/codes", "--engine", "numpy"]
# Words of two classes with one code above them, and words of one class.
UNSURE = "ball soup goal bread"
SURE = "rain snow cloud"


def unsure_rows(seed: int) -> list[tuple[str, str]]:
    """Texts of cooks and coaches, whose label is a matter of chance."""
    draw = random.Random(seed)
    rows = []
    for _ in range(60):
        words = draw.sample(TOPICS["küche"], 2) + draw.sample(TOPICS["sport"], 2)
        draw.shuffle(words)
        rows.append((" ".join(words), draw.choice(["11", "12"])))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on codes, and their files."""
    return tmp_path_factory.mktemp("codes")


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, _alone: None) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def predict(cli: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """A function that runs `predict` of the run, which is trained when it is first used."""
    if not Path("runs/codes").exists():
        for name, seed in {"train": 0, "test": 1}.items():
            rows = [(text, CODES[label]) for text, label in labelled_texts(100, seed=seed)]
            write_table(f"{name}.csv", [("text", "label"), *rows, *unsure_rows(seed)])
        above = [(code, code[:-1], name) for code, name in NAMES.items()]
        write_table("codes.csv", [("code", "parent", "name"), *above])
        settings = [
            "data.train=train.csv",
            "data.test=test.csv",
            "data.levels=codes.csv",
            "data.validation_fraction=0.3",
            "model.encoder=false",
            *WITHOUT_TECHNIQUES,
        ]
        arguments = [part for setting in settings for part in ("--set", setting)]
        trained = cli("train", *arguments, "--run-dir", "runs/codes")
        assert trained.code == 0, trained.err
    return lambda *arguments: cli("predict", *COMMAND, *arguments)


def lines(outcome: Outcome) -> list[dict]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_json_has_the_path_of_codes_with_the_sums_of_their_probabilities(predict):
    (sure,) = lines(predict(SURE, "--format", "jsonl", "--top-k", "3"))

    assert (sure["label"], sure["name"]) == ("20", "Forecasters")
    assert [(code["label"], code["name"]) for code in sure["path"]] == [
        ("2", "Outdoors"),
        ("20", "Forecasters"),
    ]
    assert sure["path"][0]["probability"] == sure["probability"]
    assert [code["name"] for code in sure["top"][:1]] == ["Forecasters"]

    (unsure,) = lines(predict(UNSURE, "--format", "jsonl", "--top-k", "3"))
    by_code = {code["label"]: code["probability"] for code in unsure["top"]}
    assert unsure["path"][0]["probability"] == pytest.approx(by_code["11"] + by_code["12"])


def test_a_level_or_the_deepest_sure_code_is_answered(predict):
    (at_level,) = lines(predict(UNSURE, "--format", "jsonl", "--level", "1", "--top-k", "9"))
    assert at_level["label"] == "1"
    assert [code["label"] for code in at_level["path"]] == ["1"]
    assert {code["label"] for code in at_level["top"]} == {"1", "2"}

    options = ["--min-precision", "0.95", "--format", "jsonl", "--top-k", "2"]
    withheld, sure = lines(predict(UNSURE, SURE, *options))
    assert (withheld["label"], withheld["path"]) == (None, [])
    backed_off, same = lines(predict(UNSURE, SURE, *options, "--back-off"))
    assert (backed_off["label"], backed_off["name"]) == ("1", "Indoors")
    assert backed_off["probability"] == backed_off["path"][-1]["probability"]
    assert {code["label"] for code in backed_off["top"]} == {"11", "12"}
    assert same == sure


def test_tables_have_a_column_for_each_level_and_all_suggestions(predict):
    write_table("new.csv", [("text",), (UNSURE,), (SURE,), ("",)])
    options = ["--min-precision", "0.95", "--back-off", "--top-k", "2"]
    outcome = predict("--input", "new.csv", "--output", "out.csv", *options)
    assert outcome.code == 0, outcome.err

    head, unsure, sure, blank = read_table("out.csv")
    rows = [dict(zip(head, row, strict=True)) for row in (unsure, sure, blank)]
    shown = [[row["label"], row["name"], row["level_1"], row["level_2"]] for row in rows]
    assert shown == [
        ["1", "Indoors", "1", ""],
        ["20", "Forecasters", "2", "20"],
        ["", "", "", ""],
    ]
    assert {rows[0]["label_1"], rows[0]["label_2"]} == {"11", "12"}
    assert rows[1]["name_1"] == "Forecasters"

    assert predict("--input", "new.csv", "--output", "out.parquet", "--level", "1").code == 0
    text = predict(SURE)
    assert text.out.startswith("20 Forecasters 0.9")


def test_the_most_probable_class_is_beside_a_code_above_it(predict):
    """On a page, and among the suggestions of a terminal if they are asked for."""
    options = ["--min-precision", "0.95", "--back-off"]
    page = predict(UNSURE, *options, "--format", "html").out
    (best,) = lines(predict(UNSURE, "--format", "jsonl"))
    assert f'data-value="{best["probability"]:.6f}"' in page

    assert predict(UNSURE, *options).out.startswith("1 Indoors ")
    assert best["name"] not in predict(UNSURE, *options).out
    assert best["name"] in predict(UNSURE, *options, "--top-k", "2").out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--level", "3"], "--level 3: runs/codes has 2 levels"),
        (["--back-off"], "--back-off: needs --min-precision"),
        (["--level", "1", "--explain"], "--explain: words speak for a class"),
        (["--min-precision", "0.95", "--back-off", "--explain"], "--explain: words speak for a"),
        (["--level", "1", "--min-precision", "0.9", "--back-off"], "--level: names the level of"),
        (["--min-precision", "0.9999", "--back-off"], "cannot be guaranteed"),
    ],
)
def test_options_that_do_not_fit_are_refused(predict, options, message):
    refused = predict("x", *options)
    assert refused.code == 2
    assert message in refused.err


def test_a_model_without_levels_has_none(cli, trained_run):
    refused = cli("predict", "x", "--model", trained_run.path, "--level", "1")
    assert refused.code == 2
    assert "has no levels; train it with data.levels" in refused.err


def test_the_report_scores_each_level(predict):
    report = json.loads(Path("runs/codes/eval/report.json").read_text("utf-8"))
    top, classes = report["levels"]
    assert (top["num_codes"], classes["num_codes"]) == (2, 3)
    # Texts of the training that occur here again are left out of the scores of levels.
    assert top["accuracy"] > classes["accuracy"]
    assert classes["accuracy"] == report["new_texts"]["accuracy"]
    assert classes["accuracy_interval"] == report["new_texts"]["accuracy_interval"]
    assert 0 < report["hierarchical_f1"] <= 1
    assert report["back_off"]["guaranteed_precision"] > 0.9

    page = Path("runs/codes/eval/report.html").read_text("utf-8")
    assert "20 Forecasters" in page
    assert 'id="levels"' in page
    card = Path("runs/codes/model/README.md").read_text("utf-8")
    assert re.search(r"Levels of its codes: level 1 \(2 codes\): accuracy", card)


def test_python_has_path_and_level(predict):
    classifier = load_classifier("runs/codes", device="cpu")
    (prediction,) = classifier.predict([UNSURE])

    assert prediction.path[0].label == "1"
    assert prediction.at_level(1).label == "1"
    assert prediction.backed_off(0.9).label == "1"
    assert prediction.at_level(2) is prediction
    with pytest.raises(ValueError, match="level 3: the model has 2"):
        prediction.at_level(3)
    assert prediction_json(prediction, top_k=1)["path"][0]["name"] == "Indoors"


def test_a_server_answers_at_a_level(predict):
    batcher = Batcher()
    classifier = load_classifier("runs/codes", device="cpu")
    for level, label in {1: "1", None: classifier.predict([UNSURE])[0].label}.items():
        request = PredictRequest(texts=[UNSURE], level=level)
        (result,) = batcher.submit(request, classifier).result(60)
        assert result.record["label"] == result.record["path"][-1]["label"] == label
        # Its metrics count classes, whatever is answered.
        assert result.labels[0] in CODES.values()

    with pytest.raises(RefusedError, match="level: 3; the model has 2 levels"):
        batcher.submit(PredictRequest(texts=[UNSURE], level=3), classifier)
    batcher.stop()


def test_names_are_beside_the_codes_that_people_decide_on(predict, cli):
    reviewed = cli("review", "runs/codes")
    assert reviewed.code == 0, reviewed.err
    assert re.search(r"1[12] (Cooks|Coaches) -> 1[12] (Cooks|Coaches)  '", reviewed.out)

    write_table("pool.csv", [("text",), (UNSURE,), (SURE,)])
    for pool in ("pool.csv", "suggested.csv"):
        arguments = ["--input", pool, "--n", "2", "--output", f"again-{pool}"]
        assert cli("suggest", "runs/codes", *arguments).code == 0
        Path(f"again-{pool}").rename("suggested.csv")
    names, *rows = read_table("suggested.csv")
    assert names[:4] == ["text", "label", "suggested", "suggested_name"]
    assert {tuple(row[2:4]) for row in rows} >= {("20", "Forecasters")}


def test_batches_of_rows_get_the_name_and_the_levels(predict):
    rows = pyarrow.table({"text": [SURE, ""]})
    sure, blank = Predictor("runs/codes")(rows).to_pylist()
    assert [sure[name] for name in ("label", "name", "level_1", "level_2")] == [
        *("20", "Forecasters", "2", "20")
    ]
    assert [blank[name] for name in ("label", "name", "level_1", "level_2")] == [None] * 4


def test_a_level_with_a_single_code_is_certain(predict):
    (prediction,) = load_classifier("runs/codes", device="cpu").predict([UNSURE])
    of_cooks = prediction._replace(probabilities={"11": 0.6, "12": 0.4}, label="11")
    top = of_cooks._replace(codes=Codes(["11", "12"], (1,))).at_level(1)
    assert (top.label, top.probability, top.uncertainty) == ("1", 1, 0)


def test_a_continued_run_keeps_the_levels(predict, cli):
    write_table("more.csv", [("text", "label"), ("bread pan today", "11"), ("race medal", "12")])
    settings = ["data.train=more.csv", "model.encoder=false", *WITHOUT_TECHNIQUES]
    arguments = [part for setting in settings for part in ("--set", setting)]
    trained = cli("train", "--from", "runs/codes", *arguments, "--run-dir", "runs/more")
    assert trained.code == 0, trained.err

    codes = load_classifier("runs/more", device="cpu").codes
    assert codes.num_levels == 2
    assert codes.names == NAMES
