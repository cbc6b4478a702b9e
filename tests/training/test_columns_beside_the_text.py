"""Runs whose rows have columns beside the text (`data.features`), and their predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline
from support.columns import FEATURES, config_of, quick_encoder, rows, write_csv
from support.programs import assert_failed, succeed
from support.small_runs import NO_TECHNIQUES, run_all

from encoder_cls import Columns, Predictor, Reading, read_rows
from encoder_cls.classifier.given_rows import rows_given
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.label_tables import LabelRow, label_records
from encoder_cls.run.run_folder import RunDir
from encoder_cls.serving.request_queue import Batcher
from encoder_cls.serving.requests import parse_predict_request
from encoder_cls.sklearn import TextClassifier
from encoder_cls.system.row_text import readable, row_parts, row_text
from encoder_cls.system.web.responses import RefusedError
from encoder_cls.text.row_tokens import row_form
from encoder_cls.training.prepare import prepare
from encoder_cls.training.run_warnings import run_warnings


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of the linear model."""
    folder = tmp_path_factory.mktemp("features")
    run_all(config_of(folder), folder / "run")
    return folder / "run"


def test_a_class_is_learned_that_only_word_and_column_together_tell(run, cli, tmp_path):
    """Files, and a model folder without its run, have the columns by name."""
    table = write_csv(tmp_path / "new.csv", rows(200, seed=1))
    lines = [json.dumps(row | {"size": float(row["size"] or "nan")}) for row in rows(200, seed=1)]
    (tmp_path / "new.jsonl").write_text("\n".join(lines).replace("NaN", "null"))

    report = json.loads(succeed(cli, "eval", run / "model", "--data", table, "--json").out)
    printed = [
        succeed(cli, "predict", "--model", run, "--input", file, "--format", "jsonl").out
        for file in (table, tmp_path / "new.jsonl")
    ]

    assert report["accuracy"] > 0.95
    assert printed[0] == printed[1]


def test_a_model_of_texts_reads_the_texts_of_rows(run, cli, tmp_path):
    """It may be compared with a model that reads columns, on the rows of that model."""
    config = config_of(tmp_path, features=[])
    run_all(config, tmp_path / "plain")
    table = write_csv(tmp_path / "new.csv", rows(100, seed=1))

    command = ("eval", run, "--data", table, "--against", tmp_path / "plain", "--json")
    compared = json.loads(succeed(cli, *command).out)
    alone = json.loads(succeed(cli, "eval", tmp_path / "plain", "--data", table, "--json").out)

    assert compared["against"]["accuracy"] == alone["accuracy"]


def test_a_missing_column_is_an_error_and_a_missing_value_is_not(run, cli, tmp_path):
    (tmp_path / "a.csv").write_text("text,size\nyes sir,3\n")
    (tmp_path / "b.csv").write_text("text,size,channel\nyes sir,,\n")

    refused = cli("predict", "--model", run, "--input", tmp_path / "a.csv")
    predicted = succeed(cli, "predict", "--model", run, "--input", tmp_path / "b.csv")

    assert_failed(refused, 3, "no column 'channel'", "data.features")
    assert "'yes sir'" in predicted.out


def test_a_row_of_json_may_leave_out_a_feature_that_another_row_has(run, cli, tmp_path):
    """As null is left out by many programs: in files, and in rows as mappings."""
    given = [{"text": "yes sir", "size": None, "channel": "email"}, {"text": "no sir"}]
    whole = [dict.fromkeys(("text", *FEATURES)) | row for row in given]
    for name, written in (("short", given), ("whole", whole)):
        lines = "".join(f"{json.dumps(row)}\n" for row in written)
        (tmp_path / f"{name}.jsonl").write_text(lines)
        (tmp_path / f"{name}.json").write_text(json.dumps(written))
    lines = (tmp_path / "short.jsonl").read_text().replace("channel", "chanel")
    (tmp_path / "misspelled.jsonl").write_text(lines)

    command = ("predict", "--model", run, "--format", "jsonl", "--input")
    printed = {
        succeed(cli, *command, tmp_path / name).out
        for name in ("short.jsonl", "whole.jsonl", "short.json", "whole.json")
    }
    refused = cli(*command, tmp_path / "misspelled.jsonl")

    (tmp_path / "broken.jsonl").write_text('{"text": "yes sir"}\nno\n')
    assert_failed(cli(*command, tmp_path / "broken.jsonl"), 3, "broken.jsonl:2: not valid JSON")
    assert len(printed) == 1
    assert_failed(refused, 3, "misspelled.jsonl: no column 'channel'; it has 'text', 'size', 'ch")
    assert refused.out == ""
    classifier = load_classifier(run)
    assert classifier.predict(given) == classifier.predict(whole)


def test_an_object_that_is_null_has_null_columns():
    """So that a file with a single row, which has no values of them, is read."""
    Path("one.jsonl").write_text('{"text": "yes sir", "meta": null}\n')
    columns = Columns(["text", "more.text"], features=["meta.channel"])
    record = {"text": "yes sir", "meta": None, "more": None}

    [row] = rows_given([record], columns, "predict")
    assert row_parts(row).features == {"meta.channel": ""}
    assert row_parts(row).fields == [("text", "yes sir"), ("more.text", "")]
    [read] = read_rows("one.jsonl", columns._replace(text=["text"]), Reading())
    assert row_parts(read.text).features == {"meta.channel": ""}
    with pytest.raises(DataError, match=r"no column 'meta\.channel'"):
        list(rows_given([record | {"meta": {}}], columns, "predict"))


def test_plain_texts_lack_the_columns_and_cannot_spell_them(run, cli):
    plain = succeed(cli, "predict", "--model", run, "yes sir", "yes madam", "--format", "jsonl")
    spelled = succeed(
        cli,
        *("predict", "--model", run, "--format", "jsonl"),
        *("\x1echannel\x1femail\x1dyes sir", "yes madam"),
    )

    [note] = [line for line in plain.err.splitlines() if "columns" in line]
    assert "'channel', 'size'" in note
    assert plain.out.splitlines()[1] == spelled.out.splitlines()[1]
    assert json.loads(spelled.out.splitlines()[0])["unknown_words"] > 0


def test_python_takes_rows_as_mappings_and_as_a_table(run):
    classifier = load_classifier(run)
    given = [{key: row[key] for key in ("text", *FEATURES)} for row in rows(50, seed=1)]

    expected = classifier.predict(given)

    assert classifier.predict(pandas.DataFrame(given)) == expected
    assert len({prediction.label for prediction in expected}) == 2
    (of_text,) = classifier.predict(["\x1echannel\x1femail\x1dyes sir"])
    assert of_text == classifier.predict([" channel email yes sir"])[0]
    with pytest.raises(DataError, match="rows: no column 'channel'; it has 'text', 'size' "):
        classifier.predict([{"text": "yes"}, {"text": "yes", "size": 3}])
    with pytest.raises(DataError, match=r"rows\[1\]: no column 'text'"):
        classifier.predict([given[0], {"channel": "email", "size": 3}])
    with pytest.raises(DataError, match="no column 'size'"):
        classifier.predict(pandas.DataFrame(given)[["text", "channel"]])
    twice = pandas.DataFrame(given)[["text", "channel", "size", "size"]]
    with pytest.raises(DataError, match="two columns are called 'size'"):
        classifier.predict(twice)

    batch = {key: [row[key] for row in given] for key in given[0]}
    labels = [prediction.label for prediction in expected]
    assert Predictor(classifier)(batch)["label"].tolist() == labels


def test_a_server_takes_rows_and_says_which_columns(run):
    classifier = load_classifier(run)
    given = [{key: row[key] for key in ("text", *FEATURES)} for row in rows(5, seed=1)]
    with_ids = [{"id": f"t{number}", **row} for number, row in enumerate(given)]
    batcher = Batcher()

    request = parse_predict_request(json.dumps({"rows": with_ids, "explain": True}).encode())
    results = batcher.submit(request, classifier).result(60)
    lacking = parse_predict_request(json.dumps({"rows": [{"text": "yes"}]}).encode())
    (without,) = batcher.submit(lacking, classifier).result(60)
    misspelled = json.dumps({"rows": [{"text": "yes", "chanel": "email"}]}).encode()
    with pytest.raises(RefusedError, match="unknown key 'chanel'; the model reads") as refused:
        batcher.submit(parse_predict_request(misspelled), classifier)
    batcher.stop()

    assert refused.value.status == 422
    assert without.labels[0] == classifier.predict(["yes"])[0].label
    predictions = classifier.predict(given)
    assert [result.labels[0] for result in results] == [each.label for each in predictions]
    assert [result.record["id"] for result in results] == ["t0", "t1", "t2", "t3", "t4"]
    record = results[0].record
    assert record["text"].startswith(f"{given[0]['text']} [channel=")
    for word in record["explanation"]:
        assert record["text"][word["start"] : word["end"]] == word["word"]


def test_the_estimator_takes_a_table(tmp_path):
    """It is cloned, searched and cross-validated as others are, and saved for the command line."""
    written = rows(150)
    frame = pandas.DataFrame(written).rename(columns={"text": "message", "size": "weight"})
    labels = frame.pop("label")
    settings = {
        "model.encoder": False,
        "data.text_column": "message",
        **{f"train.{name}": value for name, value in NO_TECHNIQUES.items()},
    }
    estimator = TextClassifier(features=["channel", "weight"], settings=settings)
    search = GridSearchCV(Pipeline([("model", estimator)]), {"model__seed": [0]}, cv=2)

    model = search.fit(frame, labels).best_estimator_["model"]
    predicted = cross_val_predict(estimator, frame, labels, cv=2)

    assert model.classifier_.features == ("channel", "weight")
    assert set(predicted) == {"right", "wrong"}
    weights = np.arange(len(frame)) % 3 + 1
    clone(estimator).fit(frame, labels, sample_weight=weights).save(tmp_path / "saved")
    config = RunDir(tmp_path / "saved").load_config()
    dataset = prepare(config).dataset
    assert dataset.train.weights is not None
    assert row_parts(dataset.train.texts[0]).features.keys() == {"channel", "weight"}
    with pytest.raises(ValueError, match="a DataFrame with the columns"):
        estimator.fit(frame["message"], labels)
    with pytest.raises(ValueError, match="no column 'channel'"):
        model.predict(frame[["message", "weight"]])
    numbered = frame.rename(columns={"weight": 7})
    numbers = clone(estimator).set_params(features=[7]).fit(numbered, labels)
    assert numbers.classifier_.features == ("7",)


def test_what_a_person_sees_names_the_columns(run, cli, tmp_path):
    (tmp_path / "a.csv").write_text("text,size,channel\nyes kab,40,email\n")
    command = ("predict", "--model", run, "--input", tmp_path / "a.csv", "--explain")

    printed = succeed(cli, *command).out
    page = succeed(cli, *command, "--format", "html").out
    words = json.loads(succeed(cli, *command, "--format", "jsonl").out)["explanation"]

    assert "yes kab [channel=email, size=40]" in printed
    assert (
        "[channel=email" in page.replace("<b>", "").replace("</b>", "") or "channel=email" in page
    )
    assert {"yes", "channel=email"} <= {word["word"] for word in words}
    card = (run / "model" / "README.md").read_text()
    assert "Reads the columns `channel`, `size` beside the text" in card
    for file in (run / "eval").rglob("*"):
        if file.suffix in {".json", ".jsonl", ".html", ".csv", ".md"}:
            assert "\x1e" not in file.read_text()
            assert "\\u001e" not in file.read_text()


def test_pairs_of_words_are_looked_up_in_rows(run):
    classifier = load_classifier(run)
    given = [{key: row[key] for key in ("text", *FEATURES)} for row in rows(50, seed=1)]
    texts = [row["text"] for row in given]

    found = classifier.top_features("right", texts=given, top_k=200)

    assert found == classifier.top_features("right", texts=texts, top_k=200)
    assert any(" " in each.ngram for each in found)


def test_a_table_to_correct_labels_has_the_columns_of_rows_that_cannot_be_read_again(tmp_path):
    row = row_text([("text", "yes sir")], {"channel": "email", "size": 3})
    doubtful = LabelRow(
        "test", "gone.csv:2", readable(row), "wrong", "right", 0.9, "wrong", "k", row
    )

    [table] = label_records([doubtful], data=config_of(tmp_path).data)

    assert table.columns[:4] == ["text", "channel", "size", "label"]
    written = [table.records[0][name] for name in table.columns[:4]]
    assert written == ["yes sir", "email", "3", "wrong"]


def test_a_text_of_a_model_without_columns_is_never_a_row(cli, tmp_path):
    run_all(config_of(tmp_path, features=[]), tmp_path / "plain")
    spelled = "\x1eyes\x1fno\x1dyes sir"
    (tmp_path / "spelled.txt").write_text(spelled)
    classifier = load_classifier(tmp_path / "plain")

    command = ("predict", "--model", tmp_path / "plain", "--format", "jsonl")
    printed = {
        succeed(cli, *command, *given).out
        for given in (["yes no yes sir"], [spelled], ["--input", tmp_path / "spelled.txt"])
    }

    assert len(printed) == 1
    assert classifier.predict([spelled]) == classifier.predict(["yes no yes sir"])


def test_a_continued_run_keeps_the_columns_and_their_edges(run, tmp_path):
    write_csv(tmp_path / "rows.csv", rows(60, seed=2))
    continued = {"from_run": str(run)}
    config = config_of(tmp_path).model_copy(update=continued)

    prepared = prepare(config)

    assert row_form(prepared.tokenizer) == row_form(load_classifier(run).tokenizer)
    other = config_of(tmp_path, features=["channel"]).model_copy(update=continued)
    with pytest.raises(ConfigError, match=r"data\.features"):
        prepare(other)


def test_columns_that_are_empty_an_id_or_numbers_with_a_comma_are_warned_of(tmp_path):
    written = [
        row | {"empty": "", "id": f"t{number}", "price": f"{number % 20},50"}
        for number, row in enumerate(rows(60))
    ]
    write_csv(tmp_path / "rows.csv", written)
    config = config_of(tmp_path, features=[*FEATURES, "empty", "id", "price"])

    warnings = [line for line in run_warnings(prepare(config)) if "data.features" in line]

    assert "no value of 'empty', 'id' is in two rows" in warnings[0]
    assert "numbers in 'price' are written with a comma" in warnings[1]
    assert len(warnings) == 2


def test_features_leave_room_for_words(tmp_path):
    config = config_of(tmp_path)
    short = config.model_copy(update={"model": config.model.model_copy(update={"max_seq_len": 32})})

    with pytest.raises(ConfigError, match=r"max_seq_len: 32 tokens .* set at least 36"):
        prepare(short)


def test_the_cache_keeps_which_tokens_are_features(tmp_path):
    config = config_of(tmp_path, cache=str(tmp_path / "cache"))

    first, second = prepare(config), prepare(config)

    assert first.texts.kinds.any()
    np.testing.assert_array_equal(first.texts.kinds, second.texts.kinds)


def test_a_run_with_an_encoder_reads_columns_by_every_engine(tmp_path, encoder_joins):
    run_all(quick_encoder(config_of(tmp_path, encoder=True)), tmp_path / "run")

    classifiers = [
        load_classifier(RunDir(tmp_path / "run").model, engine=engine)
        for engine in ("numpy", "torch")
    ]

    texts = prepare(config_of(tmp_path)).dataset.validation.texts[:20]
    assert set(classifiers[0].parts) == {"linear", "encoder"}
    found, expected = (each.logits(each.tokenize(texts)) for each in classifiers)
    np.testing.assert_allclose(found, expected, atol=1e-4)
