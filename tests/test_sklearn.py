"""The estimator of scikit-learn: what its tools ask of an estimator holds for this one."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_class_weight
from support.programs import succeed
from support.small_runs import NO_TECHNIQUES
from support.usual_c import trying_usual_c_alone
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from encoder_cls import load_classifier
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.sklearn import TextClassifier
from encoder_cls.system import terminal_reporter
from encoder_cls.training.train import train

pytestmark = pytest.mark.usefixtures("usual_c")
ROOT = Path(__file__).parent.parent
TOPICS = {
    "food": ["soup", "bread", "salt", "pan", "oven", "garlic"],
    "sport": ["ball", "goal", "team", "coach", "race", "medal"],
    "weather": ["rain", "snow", "cloud", "storm", "wind", "frost"],
}
LINEAR_SETTINGS = {f"train.{name}": value for name, value in NO_TECHNIQUES.items()}
TINY = LINEAR_SETTINGS | {
    "model.d_model": 8,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.d_ff": 16,
    "model.max_seq_len": 8,
    "model.char_ngram_buckets": 64,
    "model.bigram_buckets": 64,
    "pretrain.epochs": 0,
    "train.batch_size": 12,
    "train.precision": "float32",
    "data.validation_fraction": 0.2,
}


def examples(names: dict[str, object] | None = None) -> tuple[list[str], list[object]]:
    """Texts, each of words of one class, in random order, and their labels.

    `names` gives the classes other labels.
    """
    draw = random.Random(0)
    rows = []
    for label, words in TOPICS.items():
        for _ in range(12):
            rows.append((" ".join(draw.sample(words, 3)), label))
    draw.shuffle(rows)

    texts = [text for text, _ in rows]
    labels = [label for _, label in rows]
    if names:
        labels = [names[label] for label in labels]
    return texts, labels


TEXTS, LABELS = examples()


def tiny(**arguments: object) -> TextClassifier:
    """A small estimator, with other arguments."""
    defaults = {"epochs": 2, "learning_rate": 0.01, "settings": TINY}
    return TextClassifier(**defaults | arguments)


@pytest.fixture(scope="module")
def fitted() -> TextClassifier:
    with trying_usual_c_alone():
        return tiny().fit(TEXTS, LABELS)


# One text of each class, in the order of the classes.
UNSEEN = ["soup with bread", "the race", "rain and snow"]


def test_it_learns_and_predicts_the_labels_that_it_was_given(fitted):
    assert fitted.classes_.tolist() == ["food", "sport", "weather"]
    assert fitted.predict(UNSEEN).tolist() == ["food", "sport", "weather"]
    assert fitted.predict(np.array(UNSEEN)).tolist() == ["food", "sport", "weather"]
    assert fitted.score(TEXTS, LABELS) > 0.9


def test_probabilities_are_in_the_order_of_the_classes(fitted):
    probabilities = fitted.predict_proba(UNSEEN)
    assert probabilities.shape == (3, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.argmax(axis=1).tolist() == [0, 1, 2]

    assert fitted.predict_proba([]).shape == (0, 3)


@pytest.mark.parametrize("values", [["10", "9", "-1"], list(np.array([10, 9, -1]))])
def test_labels_come_back_as_they_were(values):
    """Integers stay integers, and digits texts. Classes are in NumPy's order."""
    names = dict(zip(TOPICS, values, strict=True))
    texts, labels = examples(names)
    model = tiny(epochs=1).fit(texts, np.array(labels))
    assert model.classes_.tolist() == sorted(set(labels))

    unseen = ["soup bread salt", "goal race team", "rain snow wind"]
    predictions = model.predict(unseen)
    assert predictions.tolist() == values
    assert predictions.dtype == np.array(labels).dtype

    most_probable = model.predict_proba(unseen).argmax(axis=1)
    assert model.classes_[most_probable].tolist() == values


def test_the_random_numbers_of_the_caller_do_not_change():
    torch.manual_seed(5)
    expected = torch.rand(1).item()

    torch.manual_seed(5)
    tiny(epochs=1).fit(TEXTS, LABELS)

    assert torch.rand(1).item() == expected


def test_no_file_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tiny(epochs=1).fit(TEXTS, LABELS)
    assert list(tmp_path.iterdir()) == []

    def fail(*_arguments, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr("encoder_cls.training.final_model.compact", fail)
    with pytest.raises(ZeroDivisionError):
        tiny(epochs=1).fit(TEXTS, LABELS)
    assert list(tmp_path.iterdir()) == []


def test_a_class_whose_texts_are_all_blank_is_no_class():
    """The caller of `fit` is warned that these rows are left out."""
    model = tiny(epochs=1, settings=TINY | {"data.empty_texts": "drop"})

    message = r"rows of train without a text.*: 2 \(texts\[36\]"
    with pytest.warns(UserWarning, match=message) as warnings:
        model.fit([*TEXTS, " ", ""], [*LABELS, "nothing", "nothing"])

    assert {Path(warning.filename) for warning in warnings} == {Path(__file__)}
    assert model.classes_.tolist() == ["food", "sport", "weather"]
    assert model.predict_proba(TEXTS[:2]).shape == (2, 3)
    assert set(model.predict(TEXTS)) <= set(model.classes_)


@pytest.mark.usefixtures("encoder_joins")
def test_equal_seeds_give_equal_probabilities():
    """They do in several threads, too."""

    def fitted_probabilities(seed: int) -> list[list[float]]:
        model = tiny(epochs=1, seed=seed).fit(TEXTS, LABELS)
        return model.predict_proba(TEXTS).tolist()

    expected = fitted_probabilities(0)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(fitted_probabilities, [0, 0])) == [expected, expected]
    assert fitted_probabilities(1) != expected


def test_arguments_are_values_of_the_config():
    """They may be numbers of NumPy, which a search draws."""
    arguments = {
        "epochs": np.int64(3),
        "learning_rate": np.float64(0.5),
        "time_budget": 2,
        "seed": np.int32(7),
    }
    config = tiny(**arguments)._config()
    assert config.train.epochs == 3
    assert config.train.learning_rate == 0.5
    assert config.train.time_budget == 2.0
    assert config.seed == 7
    assert config.model.d_model == 8
    assert TextClassifier()._config().train.epochs == "auto"


def test_it_is_saved_as_a_run_that_every_command_takes(tmp_path, fitted, cli):
    run = tmp_path / "run"
    fitted.save(run)

    expected = fitted.classifier_.predict_proba(TEXTS)
    np.testing.assert_allclose(load_classifier(run).predict_proba(TEXTS), expected, atol=1e-6)
    assert cli("predict", "rain and snow", "--model", run).out.startswith("weather ")

    scored = cli("eval", run, "--json")
    assert "not finished" not in scored.err
    assert json.loads(scored.out)["accuracy"] == fitted.report().metrics.accuracy

    with pytest.raises(FileExistsError, match="not empty"):
        fitted.save(run)


def test_a_pickle_predicts_the_same_and_holds_no_texts(fitted):
    content = pickle.dumps(fitted)
    assert not any(text.encode() in content for text in TEXTS)

    copied = pickle.loads(content)  # noqa: S301 - its own
    assert copied.predict_proba(TEXTS).tolist() == fitted.predict_proba(TEXTS).tolist()
    assert clone(copied).get_params() == fitted.get_params()
    with pytest.raises(ValueError, match="a pickle, which has no texts"):
        copied.report()


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_texts(fitted, make_copy):
    copied = make_copy(fitted)

    assert copied.report().metrics.accuracy == fitted.report().metrics.accuracy
    assert clone(copied).get_params() == fitted.get_params()


def test_a_program_without_standard_error_can_ask_for_progress(monkeypatch):
    """As under `pythonw`, where `sys.stderr` is None."""
    monkeypatch.setattr(sys, "stderr", None)
    TextClassifier(verbose=True, settings={"model.encoder": False}).fit(TEXTS, LABELS)


def test_a_pickle_can_be_saved_and_scored_on_other_texts(tmp_path, fitted, cli):
    copied = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - its own
    run = tmp_path / "run"
    copied.save(run)
    succeed(cli, "predict", "rain and snow", "--model", run)

    (tmp_path / "more.csv").write_text("text,label\nrain snow,weather\nsoup bread,food\n")
    scored = succeed(cli, "eval", run, "--data", tmp_path / "more.csv", "--json")
    assert json.loads(scored.out)["accuracy"] == 1


# Several labels


def examples_with_several_labels() -> tuple[list[str], list[list[str]]]:
    """The texts of one class, then texts of two that are joined, with a list of labels each."""
    texts = list(TEXTS)
    lists = [[label] for label in LABELS]
    for number in range(len(TEXTS)):
        opposite = -1 - number
        texts.append(f"{TEXTS[number]} {TEXTS[opposite]}")
        lists.append(sorted({LABELS[number], LABELS[opposite]}))
    return texts, lists


def test_predictions_of_several_labels_are_lists_as_given(tmp_path, cli):
    texts, lists = examples_with_several_labels()

    model = tiny(settings=SMALL).fit(texts, lists)

    assert model.classes_.tolist() == ["food", "sport", "weather"]
    assert model.predict(["rain snow wind", "soup bread salt"]) == [["weather"], ["food"]]
    assert model.predict_proba(texts[:2]).shape == (2, 3)
    assert model.score(texts, lists) > 0.5

    model.save(tmp_path / "run")
    scored = cli("eval", tmp_path / "run", "--json")
    assert json.loads(scored.out)["micro_f1"] == model.report().metrics.micro_f1


def test_predictions_of_several_labels_are_a_matrix_as_given(tmp_path, cli):
    """A column that no text has stays one."""
    texts, lists = examples_with_several_labels()
    matrix = np.zeros((len(texts), 4), dtype=int)
    for row, labels in enumerate(lists):
        for column, topic in enumerate(("food", "sport", "weather")):
            matrix[row, column] = topic in labels

    model = tiny(settings=SMALL).fit(texts, matrix)

    assert model.classes_.tolist() == [0, 1, 2, 3]
    predictions = model.predict(["rain snow wind", "soup bread salt"])
    assert predictions.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert model.predict_proba(texts[:2]).shape == (2, 4)
    assert model.score(texts, matrix) > 0.5

    model.save(tmp_path / "run")
    scored = cli("eval", tmp_path / "run", "--json")
    assert json.loads(scored.out)["micro_f1"] == model.report().metrics.micro_f1


# Scores


SMALL = LINEAR_SETTINGS | {"model.encoder": False}


@pytest.mark.parametrize(
    ("fitted_labels", "scored_labels"),
    [
        ([0, 1, 2], [0.0, 1.0, 2.0]),
        ([0.0, 1.0, 2.0], [0, 1, 2]),
        ([False, True, True], [0, 1, 1]),
        (["a", "b", "c"], np.array(["a", "b", "c"], dtype=object)),
    ],
    ids=str,
)
def test_perfect_predictions_score_1_whatever_the_type_of_equal_labels(
    fitted_labels, scored_labels
):
    texts, labels = examples(dict(zip(TOPICS, fitted_labels, strict=True)))
    _, equal_labels = examples(dict(zip(TOPICS, scored_labels, strict=True)))

    model = tiny(settings=SMALL).fit(texts, labels)

    assert model.predict(texts).tolist() == labels
    assert model.score(texts, equal_labels) == 1


def test_texts_without_a_label_do_not_count_in_the_score():
    """NaN makes floats of whole numbers, which are the same classes."""
    texts, labels = examples({"food": 0, "sport": 1, "weather": 2})
    with_gaps = np.array(labels, dtype=float)
    with_gaps[::6] = np.nan

    model = tiny(settings=SMALL).fit(texts, with_gaps)

    assert model.classifier_.label_names == ("0", "1", "2")
    assert model.score(texts, labels) == 1
    assert model.score(texts, with_gaps) == 1
    assert model.score(texts[:2], [labels[0], None], sample_weight=[1, 5]) == 1

    wrong_with_gaps = []
    for number, label in enumerate(labels):
        wrong_label = 1 if label == 0 else 0
        wrong_with_gaps.append(None if number % 2 else wrong_label)
    assert model.score(texts, wrong_with_gaps) == 0

    with pytest.raises(ValueError, match="no text to score has a label"):
        model.score(texts[:2], [None, np.nan])


def test_columns_of_a_frame_are_compared_by_their_names():
    """A matrix has no names: its columns are compared by position."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    topics = sorted(TOPICS)
    matrix = np.array([[int(topic == label) for topic in topics] for label in LABELS])
    model = tiny(settings=SMALL).fit(TEXTS, pandas.DataFrame(matrix, columns=topics))
    perfect = pandas.DataFrame(model.predict(TEXTS), columns=topics)

    assert model.score(TEXTS, perfect) == 1
    assert model.score(TEXTS, perfect[topics[::-1]]) == 1
    assert model.score(TEXTS, perfect.to_numpy()) == 1
    with pytest.raises(ValueError, match=r"the labels have the columns 'a', 'b', 'c', and those"):
        model.score(TEXTS, perfect.set_axis(["a", "b", "c"], axis=1))

    fitted_by_position = tiny(settings=SMALL).fit(TEXTS, matrix)
    assert fitted_by_position.score(TEXTS, perfect) == 1


def test_texts_and_numbers_are_not_compared(fitted):
    with pytest.raises(ValueError, match="such as 0, are of another type than those of fit, such"):
        fitted.score(TEXTS[:2], [0, 1])


def test_arguments_have_the_names_of_scikit_learn(fitted):
    """Texts are `X` and labels `y` in every method."""
    copied = clone(fitted).set_params(settings=SMALL).fit(X=TEXTS, y=LABELS)
    assert copied.predict(X=TEXTS[:1]).shape == (1,)
    assert copied.predict_proba(X=TEXTS[:1]).shape == (1, 3)
    assert copied.score(X=TEXTS, y=LABELS) == 1


def test_texts_without_a_label_are_unlabelled_ones(tmp_path):
    """They are saved in a file of their own, as the commands read them."""
    model = tiny(epochs=1).fit([*TEXTS, "fog and frost", "mist"], [*LABELS, None, np.nan])
    assert model.classes_.tolist() == ["food", "sport", "weather"]
    model.save(tmp_path / "run")
    unlabelled = (tmp_path / "run" / "unlabelled.jsonl").read_text()
    assert unlabelled == '{"text": "fog and frost"}\n{"text": "mist"}\n'

    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    data_rows = [row for row in rows if row["split"] == "data"]
    (data_row,) = data_rows
    assert data_row["unlabelled_texts"] == 2
    assert 0 < model.report().metrics.accuracy <= 1


def with_contradictions() -> tuple[list[str], list[str]]:
    """All texts with their labels, then all texts with the label of another class."""
    wrong = {"food": "sport", "sport": "weather", "weather": "food"}
    return [*TEXTS, *TEXTS], [*LABELS, *(wrong[label] for label in LABELS)]


@pytest.mark.filterwarnings("ignore:.*texts occur with other labels")
@pytest.mark.parametrize(
    "settings",
    [
        {"model.encoder": False},
        pytest.param(TINY | {"model.linear": False}, marks=pytest.mark.slow),
    ],
    ids=["linear", "encoder"],
)
def test_of_contradicting_labels_the_heavier_one_is_learned(settings):
    """By the linear model and by the encoder."""
    texts, labels = with_contradictions()
    heavy_first = [5.0] * len(TEXTS) + [1.0] * len(TEXTS)

    right = tiny(epochs=12, settings=settings).fit(texts, labels, sample_weight=heavy_first)
    wrong = tiny(epochs=12, settings=settings).fit(texts, labels, sample_weight=heavy_first[::-1])

    assert right.score(TEXTS, LABELS) > 0.9
    assert wrong.score(TEXTS, LABELS) < 0.1


def test_only_the_ratios_of_weights_matter(recwarn):
    """Equal weights are no weights, and weights are not repetitions, of which `fit` would warn."""
    weights = np.where(np.array(LABELS) == "food", 3.0, 1.0)

    unweighted = tiny(settings=SMALL).fit(TEXTS, LABELS)
    equal = tiny(settings=SMALL).fit(TEXTS, LABELS, sample_weight=[7.0] * len(TEXTS))
    weighted = tiny(settings=SMALL).fit(TEXTS, LABELS, sample_weight=weights)
    scaled = tiny(settings=SMALL).fit(TEXTS, LABELS, sample_weight=1e8 * weights)

    assert equal.predict_proba(TEXTS).tolist() == unweighted.predict_proba(TEXTS).tolist()
    assert weighted.predict_proba(TEXTS).tolist() != unweighted.predict_proba(TEXTS).tolist()
    assert scaled.predict_proba(TEXTS).tolist() == weighted.predict_proba(TEXTS).tolist()
    assert not any("repeat" in str(warning.message) for warning in recwarn)


def test_weights_are_saved_with_the_texts(tmp_path):
    weights = [0.0, 0.25, *[1.0] * (len(TEXTS) - 2)]
    model = tiny(settings=SMALL).fit(TEXTS, LABELS, sample_weight=weights)

    model.save(tmp_path / "run")

    lines = (tmp_path / "run" / "texts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["weight"] for row in rows] == weights[1:]
    assert "weight_column: weight" in (tmp_path / "run" / "config.yaml").read_text()
    assert 0 < model.report().metrics.accuracy <= 1


def test_a_weight_of_0_leaves_a_text_out():
    without_food = [0.0 if label == "food" else 1.0 for label in LABELS]
    model = tiny(epochs=1).fit(TEXTS, LABELS, sample_weight=without_food)
    assert model.classes_.tolist() == ["sport", "weather"]


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="sample_weight"):
        tiny().fit(TEXTS, LABELS, sample_weight=[-1.0] * len(TEXTS))


def test_class_weights_are_given_by_label():
    """By the labels of the caller, or as the word that scikit-learn has."""
    weighted = TextClassifier(class_weight={1: 2.5})._config([1, 2])
    balanced = TextClassifier(class_weight="balanced")._config()

    assert weighted.train.class_weights == {"1": 2.5}
    assert balanced.train.class_weights == "balanced"
    assert TextClassifier()._config().train.class_weights == "none"

    with pytest.raises(ValueError, match="no class is called 'fish'"):
        tiny(class_weight={"fish": 2.0}).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"train\.class_weights"):
        tiny(class_weight="equal").fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([1, 2, 2], ["1", "2"]),
        ([True, False, False], ["False", "True"]),
        (["1.0", "2.0", "2.0"], ["1.0", "2.0"]),
    ],
    ids=str,
)
def test_class_weights_are_found_as_scikit_learn_computes_them(labels, names):
    """Their keys are values of NumPy; a key that equals a label is this label."""
    classes = np.unique(labels)
    balanced = compute_class_weight("balanced", classes=classes, y=labels)
    weights = dict(zip(classes, balanced, strict=True))

    config = TextClassifier(class_weight=weights)._config(classes.tolist())
    assert list(config.train.class_weights) == names

    equal = TextClassifier(class_weight={1: 3})._config([True, False])
    assert equal.train.class_weights == {"True": 3}


def test_class_weights_may_name_a_class_that_a_fold_lacks():
    with pytest.warns(UserWarning, match="class_weight: no text has the label 'fish'"):
        config = TextClassifier(class_weight={"a": 2, "fish": 3})._config(["a", "b"])
    assert config.train.class_weights == {"a": 2}


LINEAR = {"model.encoder": False}


def test_labels_that_are_texts_stay_as_they_are_written():
    """Also in the run that is saved; in a file, 1.0 would be the class 1."""
    names = ["1.0", "1", "2"]
    name_of = dict(zip(sorted(set(LABELS)), names, strict=True))
    labels = [name_of[label] for label in LABELS]
    model = TextClassifier(settings=LINEAR).fit(TEXTS, labels)
    assert model.classes_.tolist() == sorted(names)
    assert model.score(TEXTS, labels) > 0.9
    assert model.report().metrics.num_examples


def test_columns_of_a_matrix_are_distinct_labels():
    """1.5 is not 1, and a text is not the number that it would be in a file."""
    pandas = pytest.importorskip("pandas")
    matrix = pandas.get_dummies(pandas.Series(LABELS))
    for names in ([1.0, 1.5, 2.0], ["1.0", "1", "2"]):
        columns = matrix.set_axis(names, axis="columns")
        model = TextClassifier(settings=LINEAR).fit(TEXTS, columns)
        assert len(model.classifier_.label_names) == 3
        assert model.score(TEXTS, columns) > 0.9

    with pytest.raises(ValueError, match="two columns of the labels are called '1'"):
        tiny().fit(TEXTS, matrix.set_axis([1, "1", 2], axis="columns"))


def test_lists_of_labels_may_be_arrays():
    """pandas reads a column of lists of Parquet so."""
    lists = [np.array([label, "urgent"][: 1 + row % 2]) for row, label in enumerate(LABELS)]
    model = TextClassifier(settings=LINEAR).fit(TEXTS, lists)
    assert model.classes_.tolist() == sorted({*LABELS, "urgent"})


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_missing_text_is_a_blank_one(fitted, nothing):
    """The caller of `fit` is warned, as the command line warns; a prediction is that of no text."""
    with pytest.warns(UserWarning, match=r"rows of train without a text.*: 1 \(texts\[36\]"):
        model = tiny(settings=SMALL).fit([*TEXTS, nothing], [*LABELS, "food"])

    assert model.predict_proba([nothing]).tolist() == model.predict_proba([""]).tolist()
    with pytest.raises(TypeError, match=r"texts\[1\] is float '3.5'"):
        fitted.predict(["rain", 3.5])


def test_words_of_a_class_are_found_by_the_label_of_the_caller(fitted):
    """Pairs are those of the texts of `fit`, which a pickle leaves out."""
    ngrams = [ngram.ngram for ngram in fitted.top_features("weather", top_k=40)]
    copied = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - its own

    assert {"rain", "snow"} <= set(ngrams)
    assert any(" " in ngram for ngram in ngrams)
    assert not any(" " in ngram.ngram for ngram in copied.top_features("weather", top_k=40))
    with pytest.raises(ValueError, match="no label of the classifier: 'fog'"):
        fitted.top_features("fog")


def test_each_fit_leaves_its_curves_in_a_folder_of_its_own(tmp_path):
    """Nothing else is left, and nothing at all of a fit that fails."""
    model = tiny(epochs=1, log_dir=tmp_path / "logs").fit(TEXTS, LABELS)
    model.fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(TEXTS[:2], ["x", "x"])

    folders = sorted((tmp_path / "logs").iterdir())
    assert [folder.name for folder in folders] == ["TextClassifier-1", "TextClassifier-2"]
    for folder in folders:
        events, metrics = sorted(folder.iterdir())
        assert metrics.name == "metrics.jsonl"
        tags = EventAccumulator(str(events)).Reload().Tags()["scalars"]
        assert {"accuracy in validation/combined", "loss/validation"} <= set(tags)


def test_verbose_prints_the_work(capsys, monkeypatch):
    """Otherwise nothing is printed."""
    monkeypatch.setattr(terminal_reporter, "SECONDS_BEFORE_FIRST_LINE", 0.0)
    tiny(epochs=1).fit(TEXTS, LABELS)
    assert capsys.readouterr().err == ""

    tiny(epochs=1, verbose=True).fit(TEXTS, LABELS)
    printed = capsys.readouterr().err
    assert "fitting the linear model" in printed
    assert re.search(r"model +epoch +1\.0", printed)
    assert "None" not in printed


def test_a_clone_has_the_same_settings_and_nothing_learned(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert copied.get_params(deep=False) == {
        "epochs": 2,
        "learning_rate": 0.01,
        "time_budget": None,
        "class_weight": None,
        "features": (),
        "seed": 0,
        "log_dir": None,
        "settings": TINY,
        "verbose": False,
    }
    with pytest.raises(NotFittedError):
        copied.predict(["rain"])


def test_the_settings_of_a_clone_are_its_own(fitted):
    copied = clone(fitted)
    copied.set_params(epochs=7).settings["model.d_model"] = 4
    assert fitted.epochs == 2
    assert fitted.settings["model.d_model"] == 8


def test_an_unknown_parameter_is_refused(fitted):
    with pytest.raises(ValueError, match=r"Invalid parameter 'epoch' .*; did you mean 'epochs'"):
        clone(fitted).set_params(epoch=7)
    with pytest.raises(ValueError, match=r"'model__d_modl' .*; did you mean 'd_model'"):
        clone(fitted).set_params(model__d_modl=7)


@pytest.mark.parametrize(
    "name", ["d_model", "model__d_model", "settings__model__d_model", "model.d_model"]
)
def test_a_value_of_the_config_is_set_by_its_name(name):
    """The settings of the caller and of other estimators stay as they are."""
    given = {"model.d_ff": 16}
    model = TextClassifier(settings=given)

    assert model.set_params(**{name: 256}) is model

    assert model.settings == {"model.d_ff": 16, "model.d_model": 256}
    assert given == {"model.d_ff": 16}
    assert model._config().model.d_model == 256
    assert model.get_params()["settings__model__d_model"] == 256
    assert clone(model).get_params() == model.get_params()


def test_a_key_that_is_an_argument_sets_the_argument():
    model = TextClassifier().set_params(train__learning_rate=0.5, epochs=3)

    assert (model.learning_rate, model.epochs) == (0.5, 3)
    assert model.settings is None


def test_a_name_that_several_sections_have_is_refused():
    with pytest.raises(ValueError, match="give pretrain__epochs or train__epochs"):
        TextClassifier().set_params(settings__epochs=1)


def test_a_single_text_is_refused(fitted):
    with pytest.raises(TypeError, match="in a list"):
        fitted.predict("rain")


def test_it_is_the_last_step_of_a_pipeline(fitted):
    """Its settings are reached through the pipeline."""

    def with_spaces(texts):
        return [text.replace("_", " ") for text in texts]

    pipeline = Pipeline([("repair", FunctionTransformer(with_spaces)), ("model", tiny())])
    pipeline.set_params(model__epochs=2)
    underscored = [text.replace(" ", "_") for text in TEXTS]

    pipeline.fit(underscored, LABELS)

    probabilities = pipeline.predict_proba(underscored)
    assert probabilities.tolist() == fitted.predict_proba(TEXTS).tolist()
    assert pipeline.score(underscored, LABELS) > 0.9


@pytest.mark.slow
def test_a_grid_reaches_values_of_the_config_through_a_pipeline():
    pipeline = Pipeline([("clf", tiny(epochs=1, settings=SMALL))])
    grid = {"clf__settings__train__naive_bayes": [True, False], "clf__seed": [3]}

    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS, LABELS)

    best = search.best_estimator_.named_steps["clf"]
    key = "clf__settings__train__naive_bayes"
    assert best.settings == SMALL | {"train.naive_bayes": search.best_params_[key]}
    assert best.seed == 3


@pytest.mark.slow
def test_a_grid_search_compares_models_that_differ(monkeypatch):
    """Each is trained with its own settings; the best one is that which could learn."""
    trained = []

    def recording_train(setup, *arguments, **options):
        config = setup.config
        trained.append((config.model.d_model, config.train.learning_rate, config.model.linear))
        return train(setup, *arguments, **options)

    monkeypatch.setattr("encoder_cls.training.from_python.train_run", recording_train)
    settings = TINY | {"model.linear": False}
    grid = [
        {"learning_rate": [1e-9], "settings": [settings]},
        {"learning_rate": [0.02], "settings": [settings | {"model.d_model": 4}]},
    ]
    search = GridSearchCV(
        tiny(epochs=6), grid, cv=2, refit=False, scoring="neg_log_loss", error_score="raise"
    )

    search.fit(TEXTS, LABELS)

    # Each candidate is trained on both folds.
    assert trained == [
        (8, 1e-9, False),
        (8, 1e-9, False),
        (4, 0.02, False),
        (4, 0.02, False),
    ]
    assert search.best_params_["learning_rate"] == 0.02


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"settings": {"model.d_modl": 8}},
            r"TextClassifier: model.d_modl: unknown key; did you mean d_model\?",
        ),
        ({"settings": {"modl.d_model": 8}}, r"TextClassifier: modl: unknown key; .*"),
        (
            {"settings": {"model.d_model": "wide"}},
            r"TextClassifier: model.d_model: .*integer.* \(found 'wide'\)",
        ),
        (
            {"settings": {"model": {"d_model": 8}}},
            r"settings: 'model': .* write it as section.key.*",
        ),
        ({"settings": {3: 8}}, r"settings: 3: .* write it as section.key.*"),
        ({"settings": {"model.": 8}}, r"TextClassifier: 'model.' is not a key; .*"),
        (
            {"settings": {"train.epochs": 8}},
            r"settings: 'train.epochs': give it as TextClassifier\(epochs=...\)",
        ),
        (
            {"settings": {"data.test": "f.csv"}},
            r"settings: 'data.test': cannot be set, because the texts and labels of fit replace it",
        ),
        (
            {"settings": ["model.d_model=8"]},
            r"settings: list .* is given; give a mapping such as .*",
        ),
        ({"epochs": 0}, r"TextClassifier: train.epochs: .*"),
        ({"seed": -1}, r"TextClassifier: seed: .*"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_by_its_name(arguments, message):
    """As scikit-learn asks for, it is refused when the model is fitted, not when it is made."""
    model = TextClassifier(**arguments)
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("texts", "labels", "error", "message"),
    [
        ("rain", ["a"], TypeError, "put a single one in a list"),
        ([*TEXTS[:2], 3], ["a", "b", "a"], TypeError, r"texts\[2\] is int '3', not a text"),
        ([["a"]], ["a"], TypeError, r"texts\[0\] is list .*, not a text"),
        (np.array([["a", "b"]]), ["a"], ValueError, r"table of shape \(1, 2\); choose the column"),
        (TEXTS, LABELS[1:], ValueError, "inconsistent numbers of samples"),
        (TEXTS, None, ValueError, "each text needs a label"),
        (
            ["a", "b"],
            ["x", 1],
            ValueError,
            r"labels\[1\] is int '1'; labels must be all strings or all integers",
        ),
        (["a", "b"], [["x"], None], ValueError, r"labels\[1\] is nothing; .* an empty list"),
        (["a", "b"], np.array([[0, 2], [1, 0]]), ValueError, "an indicator matrix, of 0 and 1"),
        (["a", "b"], [None, None], ValueError, "no row has a label"),
        (["a", "b"], [1.0, 0.5], ValueError, r"labels\[1\] is float '0.5'"),
        (["a", "b"], ["x", "x"], ValueError, "at least two classes are needed"),
        (
            ["a", "b"],
            ["x", " "],
            ValueError,
            r"labels\[1\] is empty; give None for a text without a label",
        ),
        (
            ["a", "b", " ", "", " "],
            ["x", "y", "x", "y", "x"],
            ValueError,
            r"texts\[2\]: the text is empty, as in 3 of",
        ),
        (
            ["a", "\ud800"],
            ["x", "y"],
            ValueError,
            r"texts\[1\]: the text holds half of a surrogate pair",
        ),
        ([], [], ValueError, "no rows with a text"),
    ],
    ids=str,
)
def test_data_that_cannot_be_learned_from_is_refused(texts, labels, error, message):
    """The message has the place of the fault; scikit-learn's tools expect these errors."""
    with pytest.raises(error, match=message):
        tiny().fit(texts, labels)


PREDICT_FROM_PICKLE = """
import pickle
import sys

import encoder_cls

assert "sklearn" not in sys.modules
assert "encoder_cls.sklearn" not in sys.modules

with open("model", "rb") as file:
    model = pickle.load(file)
print(model.predict(["rain snow"])[0])

assert "sklearn" in sys.modules
assert "torch" not in sys.modules
assert "pydantic" not in sys.modules
"""


def test_nothing_of_training_is_loaded_before_it_is_needed(fitted, tmp_path):
    """The package does not load scikit-learn; a fitted estimator predicts without PyTorch."""
    (tmp_path / "model").write_bytes(pickle.dumps(fitted))
    command = [sys.executable, "-c", PREDICT_FROM_PICKLE]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    assert ended.stdout == "weather\n"
    assert ended.stderr == ""
