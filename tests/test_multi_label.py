"""Several labels a text from data to answers: train, eval, predict and serve, with and without an encoder."""

from __future__ import annotations

import copy
import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.browser import needs_axe, violations
from support.events import Validated, recorded
from support.programs import assert_failed

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.config.loading import config_of
from encoder_cls.errors import EncoderClsError, StoppedError
from encoder_cls.run.checkpoint import load_newest
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.serving.batching import Batcher
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
SHAPE = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_seq_len": 16}
ENCODER = {
    **{f"model.{key}": value for key, value in SHAPE.items()},
    "model.char_ngram_buckets": 64,
}
ENCODER |= {
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
        labels = [] if index % 4 == 0 else sorted(draw.sample(list(WORDS), draw.choice([1, 1, 2])))
        words = [word for label in labels for word in draw.sample(WORDS[label], 2)]
        found.append((" ".join([*words, *draw.sample(FILLERS, 2), f"n{index}"]), labels))
    return found


def write(path: Path, texts: list[tuple[str, list[str]]]) -> Path:
    path.write_text(
        "".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in texts)
    )
    return path


def trained(folder: Path, texts: list[tuple[str, list[str]]], **settings: object) -> RunDir:
    """A finished run on texts, in a folder."""
    source = write(folder / "train.jsonl", texts)
    values = {"name": "several", "data.train": str(source), "model.encoder": False, **settings}
    run = RunDir(folder / "run")
    train(prepare(config_of(values, source="test")), run, device=torch.device("cpu"))
    return run


@pytest.fixture(scope="module")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of the linear classifier alone, with a test split."""
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


def test_eval_has_the_measures_of_several_labels(cli, linear_run):
    """In the contract's keys, with a threshold a label; there is no accuracy, in JSON or on the terminal."""
    found = json.loads(cli("eval", linear_run.path, "--json").out)
    assert set(EVAL_KEYS) < set(found)
    assert "accuracy" not in found
    assert "confusion_matrix" not in found
    assert (found["task"], found["num_examples"]) == ("multi-label", 60)
    assert found["micro_f1"] > 0.9
    assert found["parts"]["combined"]["micro_f1"] == found["micro_f1"]
    low, high = found["parts"]["combined"]["micro_f1_interval"]
    assert low <= found["micro_f1"] <= high
    assert set(found["linear_reference"]) >= {"micro_f1", "macro_f1", "mean_average_precision"}
    assert found["linear_reference"]["micro_f1"] > 0.8
    assert all(0 < of_label["threshold"] < 1 for of_label in found["per_class"].values())
    text = cli("eval", linear_run.path).out
    assert "accuracy" not in text
    assert f"micro-F1 {found['micro_f1']:.4f}" in text
    assert not (linear_run.eval / "confusion_matrix.png").exists()
    page = (linear_run.eval / "report.html").read_text()
    assert f'<b class="big">{found["micro_f1"]:.1%}</b>' in page
    lines = [
        json.loads(line)
        for line in (linear_run.eval / "predictions.jsonl").read_text().splitlines()
    ]
    right = [set(line["labels"]) == set(line["predictions"]) for line in lines]
    assert np.mean(right) == pytest.approx(found["subset_accuracy"])
    with (linear_run.eval / "mistakes.csv").open(encoding="utf-8-sig", newline="") as file:
        assert len(list(csv.DictReader(file))) == right.count(False)
    assert f"micro-F1 {found['micro_f1']:.4f}" in linear_run.model_card.read_text()


def test_the_report_invites_to_no_corrections(cli, linear_run):
    """`data.corrections` is for one label a text: labels here are corrected in the data itself."""
    shutil.copytree(linear_run.model, "model")
    Path("test.csv").write_text("text,label\nsoup with salt,sport\n")

    cli(
        "eval",
        "model",
        "--data",
        "test.csv",
        "--report",
        "scored",
        "--set",
        "data.label_separator=;",
    )

    page = Path("scored", "report.html").read_text()
    assert "to correct the labels in the data itself" in page
    assert "in a spreadsheet" not in page


def test_what_is_for_one_label_a_text_is_refused(cli, linear_run):
    Path("pool.jsonl").write_text(json.dumps({"text": "a", "label": []}) + "\n")
    run = str(linear_run.path)
    for arguments in (
        ["predict", "text", "--model", run, "--min-precision", "0.9"],
        ["predict", "text", "--model", run, "--coverage", "0.9"],
        ["review", run, "--output", "review.csv"],
        ["suggest", run, "--input", "pool.jsonl", "--n", "1"],
        ["eval", run, "--against", run],
    ):
        outcome = cli(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), arguments
        assert "one label a text" in outcome.err.splitlines()[-1]
        assert "several" in outcome.err.splitlines()[-1]
    assert [path.name for path in Path().iterdir()] == ["pool.jsonl"]


def test_a_copied_model_scores_a_table_whose_cells_have_several_labels(cli, linear_run):
    """With what separates them set, else the error names that setting; other data of the same texts has its scores."""
    shutil.copytree(linear_run.model, "model")
    for cell in ("", "food;sport"):
        Path("test.csv").write_text(f"text,label\na,{cell}\n")
        assert_failed(
            cli("eval", "model", "--data", "test.csv"), 3, "--set data.label_separator='|'"
        )
    Path("test.csv").write_text(
        "text,label\n" + "".join(f"{text},{';'.join(it)}\n" for text, it in rows(60, seed=1))
    )
    outcome = cli(
        "eval", "model", "--data", "test.csv", "--set", "data.label_separator=;", "--json"
    )
    assert outcome.code == 0, outcome.err
    expected = json.loads((linear_run.eval / "report.json").read_text())
    assert json.loads(outcome.out)["micro_f1"] == expected["micro_f1"]
    Path("test.csv").write_text("text,tags\na,food\n")
    missing = cli("eval", "model", "--data", "test.csv")
    assert "no column 'label'; it has 'text', 'tags'" in missing.err
    assert "label_separator" not in missing.err


def test_predict_gives_the_labels_that_are_as_probable_as_their_thresholds(
    cli, linear_run, several
):
    """As JSON, most probable first, each among `top`; `--threshold` takes one for all; a blank text has none."""
    texts = ["soup with salt, goal of the team", "the of and", ""]

    def predicted(*arguments) -> list[dict]:
        lines = cli(
            "predict", "--model", linear_run.path, "--format", "jsonl", *arguments
        ).out.splitlines()
        return [json.loads(line) for line in lines]

    found = predicted(*texts)
    assert list(found[0]) == [
        "labels",
        "top",
        "truncated",
        "unknown_words",
        "answered_by",
        "unfamiliar",
    ]
    assert not found[0]["unfamiliar"]
    assert predicted("zzz qqq xxx")[0]["unfamiliar"]
    assert sorted(found[0]["labels"]) == ["food", "sport"]
    assert [it["label"] for it in found[0]["top"]] == found[0]["labels"]
    assert (found[1]["labels"], len(found[1]["top"])) == ([], 1)
    assert (found[2]["labels"], found[2]["top"], found[2]["reason"]) == ([], [], "blank")
    probabilities = several.predict_proba(texts[:1])[0]
    given = [
        name
        for name, p, t in zip(several.label_names, probabilities, several.thresholds, strict=True)
        if p >= t
    ]
    assert sorted(found[0]["labels"]) == given
    (all_of_them,) = predicted("--threshold", 1e-9, texts[0])
    assert len(all_of_them["labels"]) == len(all_of_them["top"]) == 3
    text = cli("predict", "--model", linear_run.path, "--explain", *texts)
    first_words = [line.split(" ")[0] for line in text.out.splitlines()]
    assert first_words[1:] == ["no", "?"]
    assert "1 without a label, 1 blank" in text.err
    page = cli("predict", "--model", linear_run.path, "--format", "html", *texts).out
    assert "runner-up" not in page
    assert page.count("(words for and against ") == 2  # not of the blank text


def test_answers_beside_their_rows_have_lists_or_cells_with_several_labels(cli, linear_run):
    """CSV separates them as `data.label_separator` can read them; Parquet has lists."""
    import pyarrow.parquet

    Path("in.csv").write_text('id,text\n1,"soup salt goal team"\n2,the of\n')
    assert (
        cli("predict", "--model", linear_run.path, "--input", "in.csv", "--output", "out.csv").code
        == 0
    )
    with Path("out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (sorted(first["labels"].split("|")), second["labels"], second["id"]) == (
        ["food", "sport"],
        "",
        "2",
    )
    assert len(first["probabilities"].split("|")) == 2
    asked = ("--input", "in.csv", "--output", "out.parquet", "--top-k", 2)
    assert cli("predict", "--model", linear_run.path, *asked).code == 0
    table = pyarrow.parquet.read_table("out.parquet").to_pydict()
    assert [sorted(labels) for labels in table["labels"]] == [["food", "sport"], []]
    assert table["label_1"][0] == table["labels"][0][0]


def test_a_server_answers_as_predict_does(several):
    batcher = Batcher()
    request = PredictRequest(texts=["soup salt goal team", "the of"], explain=True)
    first, second = batcher.submit(request, several).result(30)
    batcher.stop()
    assert sorted(first.record["labels"]) == sorted(first.labels) == ["food", "sport"]
    assert list(second.record["labels"]) == list(second.labels) == []
    words = {word["word"]: word["weight"] for word in first.record["explanation"]}
    assert (
        min(words[word] for word in WORDS[first.record["top"][0]["label"]] if word in words) > 0.1
    )


def test_an_explanation_is_of_the_label_alone(several):
    """Its log odds fall by the weight of a word, whatever the other labels are."""
    texts = ["soup goal team", "goal team"]
    label = several.label_names.index("food")
    ((first, *_),) = several.explain(texts[:1], labels=["food"])
    whole, without = several.logits(several.tokenize(texts))[:, label]
    assert first.weight == pytest.approx(whole - without, abs=1e-4)


@pytest.mark.parametrize(
    "labels_of",
    [
        lambda index: ["x"] if index % 2 else [],
        lambda index: ["all", "x"] if index % 2 else ["all"],
        lambda index: ["x", "y"] if index % 3 else [],
        lambda index: ["x", *(["once"] if index == 7 else [])],
    ],
    ids=["one class", "a label of all", "always together", "a label once"],
)
def test_unusual_labels_are_learned(tmp_path, labels_of):
    """Numbers are finite, and two kinds of texts are distinguished where they differ."""
    texts = [
        (f"{'yes' if 'x' in labels_of(index) else 'no'} n{index}", labels_of(index))
        for index in range(60)
    ]
    classifier = load_classifier(trained(tmp_path, texts).path)
    yes, no = classifier.predict(["yes", "no"])
    assert "x" in yes.labels
    assert np.isfinite([*yes.probabilities.values(), *no.probabilities.values()]).all()
    if "x" not in labels_of(0):
        assert no.labels == tuple(labels_of(0))


@pytest.mark.usefixtures("encoder_joins")
def test_an_encoder_learns_several_labels_too(tmp_path):
    """Its loss falls, its weight is fitted, and answers from disk are those of the report."""
    run = trained(
        tmp_path,
        rows(160, seed=0),
        **{"model.encoder": True, "data.validation_fraction": 0.25} | ENCODER,
    )
    logged = read_metrics(run.metrics_file)
    losses = [row["loss"] for row in logged if row["split"] == "train"]
    assert losses[-1] < losses[0]
    last = [row for row in logged if row["split"] == "validation"][-1]
    assert {"micro_f1", "encoder_micro_f1", "linear_micro_f1", "linear_weight", "f1/food"} < set(
        last
    )
    report = json.loads((run.eval / "report.json").read_text())
    assert set(report["parts"]) == {"combined", "linear", "encoder"}
    assert report["comparison"]["interval"][0] <= report["comparison"]["combined_minus_linear"]
    classifier = load_classifier(run.path, engine="numpy")
    assert classifier.parts == ("encoder", "linear")
    lines = [json.loads(line) for line in (run.eval / "predictions.jsonl").read_text().splitlines()]
    answers = classifier.predict([line["text"] for line in lines])
    assert [list(answer.labels) for answer in answers] == [line["predictions"] for line in lines]


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
    write(
        Path("train.jsonl"), [("one", ["a", "b"]), ("two", ["b"]), ("three", []), ("four", ["a"])]
    )
    Path("a.yaml").write_text("data: {train: train.jsonl, validation: train.jsonl}\n")
    outcome = cli("train", "a.yaml", "--dry-run")
    assert outcome.code == 0
    assert (
        "multi-label (train.jsonl:1: labels in a list): 1.00 labels a text, several 25.0%, none 25.0%"
        in outcome.err
    )
    assert "4 training, 4 validation texts, 2 classes" in outcome.err


def test_weights_of_classes_find_more_of_the_heavier(tmp_path):
    """Those of a label count its examples; other labels are as they were."""
    texts = [
        (text, ["rare"] if index % 9 == 1 else labels)
        for index, (text, labels) in enumerate(rows(180, seed=3))
    ]
    source = write(tmp_path / "train.jsonl", texts)
    directions = []
    for weight in (1.0, 20.0):
        values = {"name": "a", "data.train": str(source), "train.class_weights": {"rare": weight}}
        setup = prepare(config_of(values | {"model.encoder": False}, source="test"))
        linear = fit_linear_classifier(setup).classifier.linear
        weights = linear.weights.take(np.arange(len(linear.feature_ids)))
        directions.append(weights / np.abs(weights).max(axis=0))
        assert setup.class_weights.tolist() == [1, weight, 1, 1]
    assert np.abs(directions[1] - directions[0])[:, 1].max() > 0.1


def test_a_validation_selects_by_the_score_that_is_monitored(tmp_path):
    source = write(tmp_path / "train.jsonl", rows(80, seed=0))
    values = {"name": "a", "data.train": str(source), "model.encoder": False}
    for monitor in ("micro_f1", "mean_average_precision"):
        setup = prepare(config_of({**values, "train.monitor": monitor}, source="test"))
        run = RunDir(tmp_path / monitor)
        events = recorded(setup, run, device=torch.device("cpu"), with_report=False)
        (scores,) = (event.scores for event in events if isinstance(event, Validated))
        state = load_newest(run.checkpoints)[0].state
        assert state.linear_score.monitored == scores[monitor]
        assert state.linear_score.loss == scores["loss"]
        assert len(load_classifier(run.path).thresholds) == 3


def test_the_loss_is_binary_cross_entropy_and_the_divergence_of_two_dropout_passes():
    """As PyTorch computes them for Bernoulli distributions; a label's weight counts where a text has it."""
    from torch.distributions import Bernoulli, kl_divergence

    from encoder_cls.encoder.training import MultiLabelBatch

    torch.manual_seed(0)
    logits, targets = torch.randn(4, 3), torch.tensor([[1.0, 0, 0], [0, 1, 1]]).repeat(2, 1)
    weights = torch.where(targets > 0, torch.tensor([2.0, 1.0, 3.0]), 1.0)
    batch = MultiLabelBatch(inputs=(), targets=targets, weights=weights, rdrop_weight=0.5)
    likelihoods = Bernoulli(logits=logits).log_prob(targets)
    first, second = (Bernoulli(logits=part) for part in logits.chunk(2))
    divergence = (kl_divergence(first, second) + kl_divergence(second, first)) / 2
    expected = -(weights * likelihoods).sum() + 0.5 * (weights[:2] * divergence).sum()
    assert float(batch.loss(lambda *_: logits)) == pytest.approx(float(expected), rel=1e-5)
    assert float(batch.normalizer) == 4


def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path):
    source = write(tmp_path / "train.jsonl", rows(100, seed=0))
    setup = prepare(config_of({"name": "a", "data.train": str(source), **ENCODER}, source="test"))
    whole, resumed = RunDir(tmp_path / "whole"), RunDir(tmp_path / "resumed")
    options = {"device": torch.device("cpu"), "with_report": False}
    train(setup, whole, **options)
    answers = iter([None] * 5)
    with pytest.raises(StoppedError), stopping_at(lambda: next(answers, 15)):
        train(setup, resumed, **options)
    train(setup, resumed, resume=True, **options)
    first, second = (load_classifier(run.path) for run in (whole, resumed))
    assert first.sha256 == second.sha256
    assert first.thresholds == second.thresholds != (0.5, 0.5, 0.5)


@pytest.mark.parametrize("thresholds", [(0.5, 0.5), (0.5, 0.5, 1.5), (0.5, float("nan"), 0.5)])
def test_malformed_thresholds_are_refused(several, tmp_path, thresholds):
    """As many as labels, each a probability; those that are come back from disk as they were."""
    changed = copy.copy(several)
    save_classifier(changed, tmp_path / "good")
    assert load_classifier(tmp_path / "good").thresholds == several.thresholds
    changed.thresholds = thresholds
    save_classifier(changed, tmp_path / "bad")
    with pytest.raises(EncoderClsError, match="thresholds: invalid value"):
        load_classifier(tmp_path / "bad")
