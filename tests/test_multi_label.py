"""Several labels a text, from data to predictions: train, eval, predict and serve."""

from __future__ import annotations

import copy
import csv
import json
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from support.browser import needs_axe, violations
from support.events import Validated, recorded
from support.local_servers import wait_until
from support.programs import assert_failed, succeed

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.config.loading import config_of, load_config
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.errors import EncoderClsError, StoppedError
from encoder_cls.labelling.review_session import open_review
from encoder_cls.run.checkpoint_files import load_newest
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.serving.request_queue import Batcher
from encoder_cls.serving.requests import PredictRequest
from encoder_cls.system.stop import stopping_at
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.prepare import prepare
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("blank_plots")

WORDS = {
    "food": ["soup", "bread", "salt"],
    "sport": ["ball", "goal", "team"],
    "weather": ["rain", "snow", "wind"],
}
FILLERS = ["the", "a", "of", "and", "with", "for"]
ENCODER = {
    "model.d_model": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.max_seq_len": 16,
    "model.char_ngram_buckets": 64,
    "model.bigram_buckets": 64,
    "pretrain.epochs": 0,
    "train.epochs": 2,
    "train.log_every": 1,
}
EVAL_KEYS = [
    "task",
    "micro_f1",
    "macro_f1",
    "samples_f1",
    "subset_accuracy",
    "mean_average_precision",
    "num_examples",
]


def rows(number: int, seed: int) -> list[tuple[str, list[str]]]:
    """Texts with words of each of their labels; a quarter has none."""
    draw = random.Random(seed)
    found = []
    for index in range(number):
        labels = []
        if index % 4:
            num_labels = draw.choice([1, 1, 2])
            labels = sorted(draw.sample(list(WORDS), num_labels))

        words = []
        for label in labels:
            words += draw.sample(WORDS[label], 2)
        words += draw.sample(FILLERS, 2)
        words.append(f"n{index}")
        found.append((" ".join(words), labels))
    return found


def write(path: Path, texts: list[tuple[str, list[str]]]) -> Path:
    """Write texts with lists of labels as JSON lines."""
    lines = []
    for text, labels in texts:
        lines.append(json.dumps({"text": text, "label": labels}))
    path.write_text("\n".join([*lines, ""]))
    return path


def json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def trained(folder: Path, texts: list[tuple[str, list[str]]], **settings: object) -> RunDir:
    """A finished run on texts, in a folder."""
    return train_on(write(folder / "train.jsonl", texts), **settings)


def train_on(source: Path, **settings: object) -> RunDir:
    """A finished run on a file, beside it."""
    values = {"name": "several", "data.train": str(source), "model.encoder": False, **settings}
    run = RunDir(source.parent / "run")
    train(prepare(config_of(values, source="test")), run, device=torch.device("cpu"))
    return run


@pytest.fixture(scope="module")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of the linear model alone, with a test split."""
    folder = tmp_path_factory.mktemp("several")
    test = write(folder / "test.jsonl", rows(60, seed=1))
    return trained(folder, rows(240, seed=0), **{"data.test": str(test)})


@pytest.fixture(scope="module")
def several(linear_run) -> Classifier:
    return load_classifier(linear_run.path)


@needs_axe
def test_the_report_of_several_labels_is_accessible(cli, linear_run, browser):
    assert cli("eval", linear_run.path).code == 0
    with browser.opened((linear_run.eval / "report.html").as_uri()) as page:
        assert violations(page) == []


def eval_report(cli, run: RunDir) -> dict:
    """What `eval --json` prints of a run."""
    return json.loads(succeed(cli, "eval", run.path, "--json").out)


def test_eval_has_the_measures_of_several_labels(cli, linear_run):
    """There is no accuracy, and each label has a threshold."""
    report = eval_report(cli, linear_run)

    assert set(EVAL_KEYS) < set(report)
    assert "accuracy" not in report
    assert "confusion_matrix" not in report
    assert report["task"] == "multi-label"
    assert report["num_examples"] == 60
    for measured in report["per_class"].values():
        assert 0 < measured["threshold"] < 1


def test_eval_scores_the_model_and_the_baseline_by_micro_f1(cli, linear_run):
    report = eval_report(cli, linear_run)

    micro_f1 = report["micro_f1"]
    assert micro_f1 > 0.9
    combined = report["parts"]["combined"]
    assert combined["micro_f1"] == micro_f1
    low, high = combined["micro_f1_interval"]
    assert low <= micro_f1 <= high

    baseline = report["linear_reference"]
    assert set(baseline) >= {"micro_f1", "macro_f1", "mean_average_precision"}
    assert baseline["micro_f1"] > 0.8


def test_people_are_shown_the_share_of_right_texts_and_the_micro_f1(cli, linear_run):
    report = eval_report(cli, linear_run)
    micro_f1 = report["micro_f1"]

    text = cli("eval", linear_run.path).out
    assert "accuracy" not in text
    assert f"micro-F1 {micro_f1:.4f}" in text

    page = (linear_run.eval / "report.html").read_text()
    assert f'<b class="big">{report["subset_accuracy"]:.0%}</b>' in page
    assert f"<td>{micro_f1:.4f}" in page
    assert f"micro-F1 {micro_f1:.4f}" in linear_run.model_card.read_text()


def test_the_files_of_a_report_have_the_labels_of_each_text(cli, linear_run):
    report = eval_report(cli, linear_run)

    is_correct = []
    for line in json_lines(linear_run.eval / "predictions.jsonl"):
        is_correct.append(set(line["labels"]) == set(line["predictions"]))
    assert np.mean(is_correct) == pytest.approx(report["subset_accuracy"])

    with (linear_run.eval / "mistakes.csv").open(encoding="utf-8-sig", newline="") as file:
        mistakes = list(csv.DictReader(file))
    assert len(mistakes) == is_correct.count(False)
    assert not (linear_run.eval / "confusion_matrix.png").exists()


def test_the_report_of_a_table_invites_to_correct_its_labels(cli, linear_run):
    shutil.copytree(linear_run.model, "model")
    Path("test.csv").write_text("text,label\nsoup with salt,sport\n")

    options = ["--data", "test.csv", "--set", "data.label_separator=;", "--report", "scored"]
    succeed(cli, "eval", "model", *options)

    page = Path("scored", "report.html").read_text()
    assert "to correct labels in a spreadsheet" in page
    with Path("scored", "mistakes.csv").open(encoding="utf-8-sig", newline="") as file:
        (mistake,) = csv.DictReader(file)
    assert mistake["label"] == "sport"
    assert mistake["suggested"] == "food"
    assert mistake["key"] == key_of_text("soup with salt")


@pytest.fixture(scope="module")
def sure_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run with 300 validation texts; the words of food say nothing about its labels."""
    folder = tmp_path_factory.mktemp("sure")
    draw = random.Random(0)
    validation = []
    for text, labels in rows(300, seed=3):
        kept = [label for label in labels if label != "food" or draw.random() < 0.65]
        validation.append((text, kept))
    settings = {
        "data.validation": str(write(folder / "validation.jsonl", validation)),
        "data.test": str(write(folder / "test.jsonl", rows(60, seed=1))),
    }
    return trained(folder, rows(240, seed=0), **settings)


def test_a_precision_is_guaranteed_for_each_label(cli, sure_run):
    """A label that cannot have the precision is withheld from all texts."""
    command = ["predict", "--model", sure_run.path, "--format", "jsonl"]
    texts = [TWO_LABELS, "rain and snow", "the of and"]

    found = succeed(cli, *command, "--min-precision", 0.9, *texts)

    two, weather, none = [json.loads(line) for line in found.out.splitlines()]
    assert two["labels"] == ["sport"]
    assert weather["labels"] == ["weather"]
    assert none["labels"] == []
    withheld = [record["withheld_labels"] for record in (two, weather, none)]
    assert withheld == [["food"], [], []]
    note = "--min-precision 0.9: guaranteed for 2 of 3 labels ('sport', 'weather')"
    assert f"{note}; other labels are withheld" in found.err
    assert "1 with withheld labels (--min-precision 0.9)" in found.err

    # A lower precision can be guaranteed for all labels.
    found = succeed(cli, *command, "--min-precision", 0.3, TWO_LABELS)
    assert sorted(json.loads(found.out)["labels"]) == ["food", "sport"]
    assert found.err.count("guaranteed for") == 0


def test_a_precision_is_guaranteed_for_whole_texts(cli, sure_run):
    """Withheld texts have no list of labels; a text may surely have no label."""
    command = ["predict", "--model", sure_run.path, "--min-precision", 0.83, "--whole-texts"]
    texts = [TWO_LABELS, "rain and snow", "the of and", ""]

    found = succeed(cli, *command, "--format", "jsonl", *texts)

    two, weather, none, blank = [json.loads(line) for line in found.out.splitlines()]
    assert two["labels"] is None
    assert weather["labels"] == ["weather"]
    assert none["labels"] == blank["labels"] == []
    assert sorted(two["withheld_labels"]) == ["food", "sport"]
    assert weather["withheld_labels"] == blank["withheld_labels"] == []
    assert two["probability"] < weather["probability"]
    assert "1 withheld (--whole-texts --min-precision 0.83: probability below 0." in found.err

    lines = succeed(cli, *command, *texts).out.splitlines()
    assert lines[0].startswith("?  0.")
    assert lines[1].startswith("weather ")

    table = succeed(cli, *command, "--format", "csv", *texts).out.splitlines()
    table_rows = list(csv.DictReader(table))
    withheld = [row["withheld"] for row in table_rows]
    assert withheld == ["true", "false", "false", "false"]
    withheld_labels = [row["withheld_labels"] for row in table_rows]
    assert withheld_labels == ["|".join(two["withheld_labels"]), "", "", ""]


def test_people_see_which_labels_are_withheld(cli, sure_run):
    """A line for people names the withheld labels, beside kept labels and in their place."""
    command = ["predict", "--model", sure_run.path, "--min-precision", 0.9]
    texts = [TWO_LABELS, "soup with salt", "the of and"]

    two, food, none = succeed(cli, *command, *texts).out.splitlines()

    assert two.startswith("sport 0.")
    assert "(withheld: food 0." in two
    assert food.startswith("?  'soup with salt'  (withheld: food 0.")
    assert none.startswith("no label  'the of and'")
    assert "withheld" not in none

    page = succeed(cli, *command, "--format", "html", *texts).out
    assert page.count("withheld: food 0.") == 2


@pytest.mark.parametrize("output_format", ["csv", "parquet"])
def test_tables_have_a_column_of_withheld_labels(cli, sure_run, output_format):
    """The column is a list in Parquet."""
    command = ["predict", "--model", sure_run.path, "--min-precision", 0.9]
    Path("texts.csv").write_text(f'text\n"{TWO_LABELS}"\nrain and snow\n')
    output = f"predictions.{output_format}"

    succeed(cli, *command, "--input", "texts.csv", "--output", output)

    if output_format == "parquet":
        withheld = pyarrow.parquet.read_table(output)["withheld_labels"].to_pylist()
        assert withheld == [["food"], []]
    else:
        with Path(output).open(encoding="utf-8-sig", newline="") as file:
            withheld = [row["withheld_labels"] for row in csv.DictReader(file)]
        assert withheld == ["food", ""]


def test_sets_have_all_labels_of_as_many_texts_as_guaranteed(cli, sure_run):
    options = ["--format", "jsonl", "--coverage", 0.9]
    texts = [text for text, _ in rows(60, seed=1)]

    found = succeed(cli, "predict", "--model", sure_run.path, *options, *texts)

    num_covered = 0
    for line, (_, labels) in zip(found.out.splitlines(), rows(60, seed=1), strict=True):
        num_covered += set(labels) <= set(json.loads(line)["set"])
    assert num_covered >= 0.85 * 60


def test_a_report_says_what_can_be_guaranteed(cli, sure_run):
    report = eval_report(cli, sure_run)["guarantees"]

    highest = report["labels"]["highest_precisions"]
    assert highest["food"] < 0.75 < 0.9 < highest["sport"]
    assert report["labels"]["num_labels"] == 2
    assert report["labels"]["precision"] > 0.9
    assert 0 < report["labels"]["answered_fraction"] < 1
    assert report["guaranteed_precision"] > 0.5
    assert 0 < report["answered_fraction"] <= 1
    assert report["coverage"] > 0.85

    text = cli("eval", sure_run.path).out
    assert "each label: --min-precision 0.95: guaranteed for 2 of 3 labels, got " in text
    assert "whole texts: --whole-texts --min-precision 0." in text
    assert "whole texts: --coverage 0.9: guaranteed 0.9, got " in text


def test_what_cannot_be_guaranteed_of_any_label_is_refused(cli, linear_run, trained_run):
    """A run with few held-out texts guarantees little; --whole-texts needs several labels."""
    command = ["predict", "text", "--model", linear_run.path]
    refused = cli(*command, "--min-precision", "0.999")
    assert_failed(refused, 2, "--min-precision 0.999: cannot be guaranteed", "the highest that can")

    refused = cli(*command, "--whole-texts")
    assert_failed(refused, 2, "--whole-texts: needs --min-precision")

    command = ["predict", "text", "--model", trained_run.path, "--whole-texts"]
    refused = cli(*command, "--min-precision", "0.1")
    assert_failed(refused, 2, "--whole-texts: is for models that predict several labels a text")


def test_eval_against_another_run_compares_micro_f1(cli, linear_run, tmp_path):
    """The other model knows one label fewer, so it never predicts this label."""
    texts = []
    for text, labels in rows(120, seed=2):
        texts.append((text, [label for label in labels if label != "weather"]))
    other = trained(tmp_path, texts)

    report = json.loads(
        succeed(cli, "eval", linear_run.path, "--against", other.path, "--json").out
    )

    against = report["against"]
    difference = against["micro_f1"] - report["micro_f1"]
    assert against["micro_f1_difference"] == pytest.approx(difference)
    low, high = against["micro_f1_difference_interval"]
    assert low <= difference <= high < 0
    assert against["p_value"] < 0.05
    assert "macro_f1_difference_interval" in against

    text = cli("eval", linear_run.path, "--against", other.path).out
    assert "randomization test: p" in text


def test_a_model_of_one_label_a_text_is_not_compared(cli, linear_run, trained_run):
    refused = cli("eval", linear_run.path, "--against", trained_run.path)
    assert_failed(refused, 2, "may predict several labels a text, and", "predicts one")


def test_a_run_continues_with_a_new_label_and_is_compared_with_its_base_run(cli, linear_run):
    """The base run never predicts the new label, which no text of its test split has."""
    new_texts = []
    for text, labels in rows(80, seed=5):
        new_texts.append((f"{text} drum", [*labels, "music"]))
    source = write(Path("new.jsonl"), new_texts)

    options = ["--from", linear_run.path, "--set", f"data.train={source}", "--run-dir", "new"]
    trained_on = succeed(cli, "train", *options)

    run = RunDir(Path("new"))
    assert "music" in load_classifier(run.path).label_names
    former = json.loads((run.eval / "report.json").read_text())["former"]
    assert former["texts"] == 60
    assert "micro_f1_difference" in former
    with (run.eval / "changed_predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        changed = list(csv.DictReader(file))
    assert len(changed) == former["changed"]
    assert "predictions differ: " in trained_on.out
    assert "randomization test" in trained_on.out


def test_texts_of_which_not_all_labels_are_sure_are_suggested(cli, linear_run):
    """Their labels are joined by a separator, and the probability is that of all decisions."""
    sure = [text for text, labels in rows(40, seed=7) if labels]
    Path("pool.txt").write_text("\n".join([*sure, "soup with a team", "rain or goal", ""]))

    table = succeed(cli, "suggest", linear_run.path, "--input", "pool.txt", "--n", 2)
    lines = succeed(cli, "suggest", linear_run.path, "--input", "pool.txt", "--n", 2, "--json")

    first, second = csv.DictReader(table.out.splitlines())
    assert {first["text"], second["text"]} == {"soup with a team", "rain or goal"}

    records = [json.loads(line) for line in lines.out.splitlines()]
    for row, record in zip((first, second), records, strict=True):
        assert row["label"] == ""
        assert record["label"] is None
        assert row["suggested"] == "|".join(record["suggested"])

        (prediction,) = load_classifier(linear_run.path).predict([row["text"]])
        probability = 1.0
        for name, label_probability in prediction.probabilities.items():
            is_predicted = name in prediction.labels
            probability *= label_probability if is_predicted else 1 - label_probability
        assert float(row["probability"]) == pytest.approx(probability, abs=1e-5)


def test_suggested_texts_that_are_filled_in_continue_a_run(cli, linear_run):
    Path("pool.txt").write_text("soup with a team\nrain or goal\n")
    command = ["suggest", linear_run.path, "--input", "pool.txt", "--n", 2, "--output", "next.csv"]
    suggested = succeed(cli, *command)
    assert "an empty cell means that a text has none of the labels" in suggested.err

    with Path("next.csv").open(encoding="utf-8-sig", newline="") as file:
        found = list(csv.DictReader(file))
    lines = ["text,label"]
    for row in found:
        lines.append(f"{row['text']},food|sport")
    Path("next.csv").write_text("\n".join([*lines, ""]))

    options = ["--set", "data.train=next.csv", "--set", "data.label_separator='|'"]
    succeed(cli, "train", "--from", linear_run.path, *options, "--run-dir", "new")

    dataset = prepare(RunDir(Path("new")).load_config()).dataset
    texts = [*dataset.train.texts, *dataset.validation.texts]
    assert {"soup with a team", "rain or goal"} <= set(texts)


def test_several_labels_have_the_separator_of_the_data(cli, tmp_path_factory):
    """A run is continued with suggested texts without a config: columns and separator are its."""
    folder = tmp_path_factory.mktemp("separated")
    lines = ["Comment;Labels"]
    for text, labels in rows(240, seed=0):
        lines.append(f"{text};{', '.join(labels)}")
    (folder / "data.csv").write_text("\n".join([*lines, ""]))
    columns = {"text_column": "Comment", "label_column": "Labels", "label_separator": ","}
    settings = {f"data.{key}": value for key, value in columns.items()}
    run = train_on(folder / "data.csv", **settings)
    Path("pool.csv").write_text("Comment\nsoup with a team\nrain or goal\n")

    command = ["suggest", run.path, "--input", "pool.csv", "--n", 2, "--output", "next.csv"]
    suggested = succeed(cli, *command)
    found = reviewed(Path("next.csv"))
    assert {row["suggested"] for row in found} == {"food,sport", "weather,sport"}
    assert "several labels of a text are joined: food,sport; an empty cell" in suggested.err

    labelled = [f'{row["Comment"]},"{row["suggested"]}"' for row in found]
    Path("next.csv").write_text("\n".join(["Comment,Labels", *labelled, ""]))
    options = ["--set", "data.train=next.csv", "--dry-run"]
    continued = succeed(cli, "train", "--from", run.path, *options)
    assert "3 classes" in continued.err


WRONG_LABELS = {5: ["sport"], 17: ["food", "sport", "weather"], 30: []}


@pytest.fixture(scope="module")
def mislabelled_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of which three training texts have other labels than their words."""
    texts = rows(240, seed=0)
    for index, labels in WRONG_LABELS.items():
        texts[index] = (texts[index][0], labels)
    folder = tmp_path_factory.mktemp("mislabelled")
    validation = write(folder / "validation.jsonl", rows(60, seed=1))
    return trained(folder, texts, **{"data.validation": str(validation)})


def reviewed(path: Path) -> list[dict[str, str]]:
    """The rows of a table of a review."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_review_finds_wrong_and_missing_labels_first(cli, mislabelled_run):
    done = succeed(cli, "review", mislabelled_run.path, "--output", "review.csv")

    found = reviewed(Path("review.csv"))
    texts = rows(240, seed=0)
    assert {row["text"] for row in found[:3]} == {texts[index][0] for index in WRONG_LABELS}
    for row in found[:3]:
        index = int(row["line"]) - 1
        assert row["label"] == row["label_in_data"] == "|".join(WRONG_LABELS[index])
        assert row["suggested"] == "|".join(texts[index][1])
        assert float(row["score"]) > 0.5
    assert "(no label)" in done.out
    assert "the labels of 300 texts checked: others are predicted for " in done.err


def test_corrected_labels_are_trained_on_and_listed_again(cli, mislabelled_run):
    """A cell is corrected to all labels of its text, in any order, or to none."""
    succeed(cli, "review", mislabelled_run.path, "--output", "review.csv")
    texts = dict(rows(240, seed=0))
    fix = ["key,label"]
    for row in reviewed(Path("review.csv"))[:3]:
        right_labels = reversed(texts[row["text"]])
        fix.append(f"{row['key']},{' | '.join(right_labels)}")
    Path("fix.csv").write_text("\n".join([*fix, ""]))

    config = mislabelled_run.path / "config.yaml"
    options = ["--set", "data.corrections=fix.csv", "--run-dir", "new"]
    succeed(cli, "train", config, *options)

    dataset = load_dataset(RunDir(Path("new")).load_config().data)
    assert len(dataset.labels_before_corrections) == 3
    for index in WRONG_LABELS:
        text, labels = rows(240, seed=0)[index]
        row = list(dataset.train.texts).index(text)
        assert dataset.train.label_text(row, dataset.label_names) == ", ".join(labels)

    succeed(cli, "review", "new", "--output", "again.csv")
    again = reviewed(Path("again.csv"))
    corrected = [row for row in again if row["label"] != row["label_in_data"]]
    assert {row["label_in_data"] for row in corrected} == {"sport", "food|sport|weather", ""}


def test_several_labels_are_corrected_on_the_page(mislabelled_run):
    """Doubtful texts come first; some are corrected, one is kept, and a correction is undone."""
    texts = dict(rows(240, seed=0))
    opened = open_review(mislabelled_run.path, Path("page.csv"), {})
    session = opened.session
    corrected = []
    with opened.model:
        for _ in WRONG_LABELS:
            text = session.state()["text"]
            corrected.append(text["text"])
            guess = text["guess"]
            assert guess["labels_now"] == WRONG_LABELS[index_of(text["text"])]
            assert guess["labels"] == texts[text["text"]]

            # Words are shown for the classes in doubt alone.
            wait_until(lambda key=text["key"]: opened.model.words(key) is not None)
            in_doubt = set(guess["labels"]) ^ set(guess["labels_now"])
            assert {words["name"] for words in opened.model.words(text["key"])} == in_doubt

            session.label(text["key"], guess["labels"])

        # The last correction is undone, and its labels are kept.
        session.undo(3)
        text = session.state()["text"]
        assert text["text"] == corrected.pop()
        session.label(text["key"], text["guess"]["labels_now"])
        assert session.state()["model"]["accuracy"] == "changed: 2; kept: 1"

    # Another process continues, and asks nothing again.
    again = open_review(mislabelled_run.path, Path("page.csv"), {}).session
    assert again.state()["text"] is None

    settings = ["data.corrections=page.csv"]
    dataset = load_dataset(load_config(mislabelled_run.path / "config.yaml", settings).data)
    assert len(dataset.labels_before_corrections) == 2
    for text in corrected:
        row = list(dataset.train.texts).index(text)
        assert dataset.train.label_text(row, dataset.label_names) == ", ".join(texts[text])


def index_of(text: str) -> int:
    """The number of a training text."""
    return [known for known, _ in rows(240, seed=0)].index(text)


def test_a_copied_model_scores_a_table_whose_cells_have_several_labels(cli, linear_run):
    """The table has the texts of the run's test split, so the scores are equal."""
    shutil.copytree(linear_run.model, "model")
    lines = ["text,label"]
    for text, labels in rows(60, seed=1):
        lines.append(f"{text},{';'.join(labels)}")
    Path("test.csv").write_text("\n".join([*lines, ""]))

    options = ["--data", "test.csv", "--set", "data.label_separator=;", "--json"]
    outcome = succeed(cli, "eval", "model", *options)

    expected = json.loads((linear_run.eval / "report.json").read_text())
    assert json.loads(outcome.out)["micro_f1"] == expected["micro_f1"]


@pytest.mark.parametrize("cell", ["", "food;sport"])
def test_a_cell_that_is_no_label_names_the_separator_s_setting(cli, linear_run, cell):
    shutil.copytree(linear_run.model, "model")
    Path("test.csv").write_text(f"text,label\na,{cell}\n")
    refused = cli("eval", "model", "--data", "test.csv")
    assert_failed(refused, 3, "--set data.label_separator='|'")


def test_a_missing_column_does_not_name_the_separator_s_setting(cli, linear_run):
    shutil.copytree(linear_run.model, "model")
    Path("test.csv").write_text("text,tags\na,food\n")
    refused = cli("eval", "model", "--data", "test.csv")
    assert "no column 'label'; it has 'text', 'tags'" in refused.err
    assert "label_separator" not in refused.err


TWO_LABELS = "soup with salt, goal of the team"


@pytest.fixture
def predict_json(cli, linear_run):
    """A function that predicts texts, with options before them, and returns the JSON objects."""

    def run(*arguments: object) -> list[dict]:
        options = ["--model", linear_run.path, "--format", "jsonl"]
        outcome = succeed(cli, "predict", *options, *arguments)
        return [json.loads(line) for line in outcome.out.splitlines()]

    return run


def test_predict_gives_the_labels_that_reach_their_thresholds(predict_json, several):
    """They are in `top`, too, with the most probable one first."""
    (prediction,) = predict_json(TWO_LABELS)
    assert sorted(prediction["labels"]) == ["food", "sport"]
    assert [entry["label"] for entry in prediction["top"]] == prediction["labels"]

    (probabilities,) = several.predict_proba([TWO_LABELS])
    for name, probability, threshold in zip(
        several.label_names, probabilities, several.thresholds, strict=True
    ):
        assert (name in prediction["labels"]) == (probability >= threshold)


def test_a_text_may_have_no_label(predict_json):
    """`top` has the most probable label all the same, except of a blank text."""
    without_label, blank = predict_json("the of and", "")

    assert without_label["labels"] == []
    assert len(without_label["top"]) == 1

    assert blank["labels"] == []
    assert blank["top"] == []
    assert blank["reason"] == "blank"


def test_predict_has_the_keys_of_several_labels(predict_json):
    usual, strange = predict_json(TWO_LABELS, "zzz qqq xxx")

    assert list(usual) == [
        "labels",
        "top",
        "truncated",
        "unknown_words",
        "answered_by",
        "unfamiliar",
    ]
    assert not usual["unfamiliar"]
    assert strange["unfamiliar"]


def test_one_threshold_replaces_those_of_all_labels(predict_json):
    (prediction,) = predict_json("--threshold", 1e-9, TWO_LABELS)
    assert len(prediction["labels"]) == 3
    assert len(prediction["top"]) == 3


def test_texts_without_a_label_are_named_for_people(cli, linear_run):
    texts = [TWO_LABELS, "the of and", ""]

    outcome = cli("predict", "--model", linear_run.path, "--explain", *texts)
    _, without_label, blank = outcome.out.splitlines()
    assert without_label.startswith("no ")
    assert blank.startswith("? ")
    assert "1 without a label, 1 blank" in outcome.err


def test_a_page_explains_texts_that_are_not_blank(cli, linear_run):
    texts = [TWO_LABELS, "the of and", ""]
    page = cli("predict", "--model", linear_run.path, "--format", "html", *texts).out
    assert "runner-up" not in page
    assert page.count("(words for and against ") == 2


def test_cells_of_csv_have_several_labels(cli, linear_run):
    """They are separated as `data.label_separator` can read them."""
    Path("in.csv").write_text('id,text\n1,"soup salt goal team"\n2,the of\n')
    files = ["--input", "in.csv", "--output", "out.csv"]
    succeed(cli, "predict", "--model", linear_run.path, *files)

    with Path("out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert sorted(first["labels"].split("|")) == ["food", "sport"]
    assert len(first["probabilities"].split("|")) == 2
    assert second["labels"] == ""
    assert second["id"] == "2"


def test_parquet_has_lists_of_labels(cli, linear_run):
    import pyarrow.parquet

    Path("in.csv").write_text('id,text\n1,"soup salt goal team"\n2,the of\n')
    files = ["--input", "in.csv", "--output", "out.parquet"]
    succeed(cli, "predict", "--model", linear_run.path, *files, "--top-k", 2)

    table = pyarrow.parquet.read_table("out.parquet").to_pydict()
    assert [sorted(labels) for labels in table["labels"]] == [["food", "sport"], []]
    assert table["label_1"][0] == table["labels"][0][0]


def test_a_server_predicts_as_predict_does(several):
    batcher = Batcher()
    request = PredictRequest(texts=["soup salt goal team", "the of"], explain=True)
    two_labels, none = batcher.submit(request, several).result(30)
    batcher.stop()

    assert sorted(two_labels.labels) == ["food", "sport"]
    assert sorted(two_labels.record["labels"]) == ["food", "sport"]
    assert list(none.labels) == []
    assert list(none.record["labels"]) == []

    # The words of the most probable label speak for it.
    best_label = two_labels.record["top"][0]["label"]
    for word in two_labels.record["explanation"]:
        if word["word"] in WORDS[best_label]:
            assert word["weight"] > 0.1


def test_an_explanation_is_of_the_label_alone(several):
    """Without a word, its log odds fall by the weight of the word."""
    (weights,) = several.explain(["soup goal team"], labels=["food"])
    soup = weights[0]

    logits = several.logits(several.tokenize(["soup goal team", "goal team"]))
    with_soup, without_soup = logits[:, several.label_names.index("food")]
    assert soup.weight == pytest.approx(with_soup - without_soup, abs=1e-4)


# By kind: the labels of most texts, the labels of the other texts, and the numbers of the others.
UNUSUAL_LABELS = {
    "one class": (["x"], [], range(0, 60, 2)),
    "a label of all": (["all", "x"], ["all"], range(0, 60, 2)),
    "always together": (["x", "y"], [], range(0, 60, 3)),
    "a label once": (["x"], ["x", "once"], [7]),
}


@pytest.mark.parametrize(
    ("labels", "other_labels", "others"), UNUSUAL_LABELS.values(), ids=UNUSUAL_LABELS.keys()
)
def test_unusual_labels_are_learned(tmp_path, labels, other_labels, others):
    """Numbers are finite, and the two kinds of texts are distinguished where they differ in x."""
    texts = []
    for index in range(60):
        labels_of_text = other_labels if index in others else labels
        word = "yes" if "x" in labels_of_text else "no"
        texts.append((f"{word} n{index}", labels_of_text))

    classifier = load_classifier(trained(tmp_path, texts).path)

    yes, no = classifier.predict(["yes", "no"])
    assert "x" in yes.labels
    assert np.isfinite(list(yes.probabilities.values())).all()
    assert np.isfinite(list(no.probabilities.values())).all()
    if "x" not in other_labels:
        assert no.labels == tuple(other_labels)


@pytest.mark.usefixtures("encoder_joins")
def test_an_encoder_learns_several_labels_too(tmp_path):
    """Its loss falls, its weight is fitted, and the saved model predicts what the report says."""
    settings = ENCODER | {"model.encoder": True, "data.validation_fraction": 0.25}
    run = trained(tmp_path, rows(160, seed=0), **settings)

    logged = read_metrics(run.metrics_file)
    losses = [row["loss"] for row in logged if row["split"] == "train"]
    assert losses[-1] < losses[0]
    validations = [row for row in logged if row["split"] == "validation"]
    assert set(validations[-1]) > {
        "micro_f1",
        "encoder_micro_f1",
        "linear_micro_f1",
        "linear_weight",
        "f1/food",
    }

    report = json.loads((run.eval / "report.json").read_text())
    assert set(report["parts"]) == {"combined", "linear", "encoder"}
    comparison = report["comparison"]
    assert comparison["interval"][0] <= comparison["combined_minus_linear"]

    classifier = load_classifier(run.path, engine="numpy")
    assert classifier.parts == ("encoder", "linear")
    lines = json_lines(run.eval / "predictions.jsonl")
    predictions = classifier.predict([line["text"] for line in lines])
    for line, prediction in zip(lines, predictions, strict=True):
        assert list(prediction.labels) == line["predictions"]


@pytest.mark.parametrize(
    ("texts", "monitor", "known"),
    [
        ([("one", ["a", "b"]), ("two", ["b"])], "accuracy", "loss, micro_f1, macro_f1"),
        ([("one", "a"), ("two", "b")], "micro_f1", "loss, accuracy, macro_f1"),
    ],
)
def test_a_score_of_the_other_task_cannot_be_monitored(cli, texts, monitor, known):
    write(Path("train.jsonl"), texts * 4)
    arguments = ["--set", "data.train=train.jsonl", "--set", "data.validation=train.jsonl"]
    refused = cli("train", "--dry-run", *arguments, "--set", f"train.monitor={monitor}")
    assert_failed(refused, 2, f"train.monitor: {monitor} is not a score of data in which", known)


def test_a_dry_run_has_a_line_about_texts_with_several_labels(cli):
    texts = [("one", ["a", "b"]), ("two", ["b"]), ("three", []), ("four", ["a"])]
    write(Path("train.jsonl"), texts)
    Path("a.yaml").write_text("data: {train: train.jsonl, validation: train.jsonl}\n")

    outcome = succeed(cli, "train", "a.yaml", "--dry-run")

    reason = "multi-label (train.jsonl:1: labels in a list)"
    assert f"{reason}: 1.00 labels a text, several 25.0%, none 25.0%" in outcome.err
    assert "4 training, 4 validation texts, 2 classes" in outcome.err


def test_weights_of_classes_find_more_of_the_heavier(tmp_path):
    """The weight of a label counts its examples; other labels are as they were."""
    texts = rows(180, seed=3)
    for index in range(1, len(texts), 9):
        text, _ = texts[index]
        texts[index] = (text, ["rare"])
    source = write(tmp_path / "train.jsonl", texts)

    def direction(weight: float) -> np.ndarray:
        """The weights of the linear model, relative to the largest of each label."""
        values = {
            "name": "a",
            "data.train": str(source),
            "train.class_weights": {"rare": weight},
            "model.encoder": False,
        }
        setup = prepare(config_of(values, source="test"))
        assert setup.class_weights.tolist() == [1, weight, 1, 1]
        linear = fit_linear_classifier(setup).classifier.linear
        weights = linear.weights.take(np.arange(len(linear.feature_ids)))
        return weights / np.abs(weights).max(axis=0)

    differences = np.abs(direction(20.0) - direction(1.0))
    assert differences[:, 1].max() > 0.1


def test_a_validation_selects_by_the_score_that_is_monitored(tmp_path):
    source = write(tmp_path / "train.jsonl", rows(80, seed=0))
    values = {"name": "a", "data.train": str(source), "model.encoder": False}
    for monitor in ("micro_f1", "mean_average_precision"):
        setup = prepare(config_of(values | {"train.monitor": monitor}, source="test"))
        run = RunDir(tmp_path / monitor)

        events = recorded(
            setup, run, device=torch.device("cpu"), with_report=False, with_tensorboard=False
        )

        (validated,) = [event for event in events if isinstance(event, Validated)]
        checkpoint, *_ = load_newest(run.checkpoints)
        linear_score = checkpoint.state.linear_score
        assert linear_score.monitored == validated.scores[monitor]
        assert linear_score.loss == validated.scores["loss"]
        assert len(load_classifier(run.path).thresholds) == 3


def test_the_loss_is_binary_cross_entropy_and_the_divergence_of_two_dropout_passes():
    """They are those of Bernoulli distributions; a label's weight counts where a text has it."""
    from torch.distributions import Bernoulli, kl_divergence

    from encoder_cls.encoder.labelled_batches import MultiLabelBatch

    torch.manual_seed(0)
    logits = torch.randn(4, 3)
    targets = torch.tensor([[1.0, 0, 0], [0, 1, 1]]).repeat(2, 1)
    weights = torch.where(targets > 0, torch.tensor([2.0, 1.0, 3.0]), 1.0)
    batch = MultiLabelBatch(inputs=(), targets=targets, weights=weights, rdrop_weight=0.5)

    likelihoods = Bernoulli(logits=logits).log_prob(targets)
    first = Bernoulli(logits=logits[:2])
    second = Bernoulli(logits=logits[2:])
    divergence = (kl_divergence(first, second) + kl_divergence(second, first)) / 2
    expected = -(weights * likelihoods).sum() + 0.5 * (weights[:2] * divergence).sum()
    assert float(batch.loss(lambda *_: logits)) == pytest.approx(float(expected), rel=1e-5)
    assert float(batch.normalizer) == 4


def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path):
    source = write(tmp_path / "train.jsonl", rows(100, seed=0))
    setup = prepare(config_of({"name": "a", "data.train": str(source), **ENCODER}, source="test"))
    whole = RunDir(tmp_path / "whole")
    resumed = RunDir(tmp_path / "resumed")
    options = {"device": torch.device("cpu"), "with_report": False, "with_tensorboard": False}
    train(setup, whole, **options)

    # The sixth time that it looks for a signal, there is one.
    signals = iter([None] * 5)
    with pytest.raises(StoppedError), stopping_at(lambda: next(signals, signal.SIGTERM)):
        train(setup, resumed, **options)
    train(setup, resumed, resume=True, **options)

    expected = load_classifier(whole.path)
    found = load_classifier(resumed.path)
    assert found.sha256 == expected.sha256
    assert found.thresholds == expected.thresholds
    assert found.thresholds != (0.5, 0.5, 0.5)


@pytest.mark.parametrize("thresholds", [(0.5, 0.5), (0.5, 0.5, 1.5), (0.5, float("nan"), 0.5)])
def test_malformed_thresholds_are_refused(several, tmp_path, thresholds):
    """There must be one for each label, and each must be a probability."""
    changed = copy.copy(several)
    changed.thresholds = thresholds
    save_classifier(changed, tmp_path / "bad")

    with pytest.raises(EncoderClsError, match="thresholds: invalid value"):
        load_classifier(tmp_path / "bad")


def test_thresholds_are_saved(several, tmp_path):
    save_classifier(several, tmp_path / "good")
    assert load_classifier(tmp_path / "good").thresholds == several.thresholds
