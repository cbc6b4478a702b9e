"""The estimator of scikit-learn: what its tools ask of an estimator holds for this one."""

from __future__ import annotations

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

from encoder_cls import load_classifier
from encoder_cls.run import terminal_reporter
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.sklearn import TextClassifier, _repeats
from encoder_cls.training.train import train

ROOT = Path(__file__).parent.parent
TOPICS = {
    "food": ["soup", "bread", "salt", "pan", "oven", "garlic"],
    "sport": ["ball", "goal", "team", "coach", "race", "medal"],
    "weather": ["rain", "snow", "cloud", "storm", "wind", "frost"],
}
TINY = {
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
    """Texts of words that each class has for itself, in no order; the labels by other names."""
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
    return TextClassifier(**{"epochs": 2, "learning_rate": 0.01, "settings": TINY} | arguments)


@pytest.fixture(scope="module")
def fitted() -> TextClassifier:
    return tiny().fit(TEXTS, LABELS)


def test_it_learns_and_predicts_the_labels_that_it_was_given(fitted):
    """Labels, probabilities in the order of `classes_`, and a score."""
    assert fitted.classes_.tolist() == ["food", "sport", "weather"]
    asked = ["soup with bread", "the race", "rain and snow"]
    assert fitted.predict(asked).tolist() == ["food", "sport", "weather"]
    probabilities = fitted.predict_proba(asked)
    assert probabilities.shape == (3, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.argmax(axis=1).tolist() == [0, 1, 2]
    assert fitted.score(TEXTS, LABELS) > 0.9
    assert fitted.predict(np.array(asked)).tolist() == fitted.predict(asked).tolist()
    assert fitted.predict_proba([]).shape == (0, 3)


@pytest.mark.parametrize("values", [["10", "9", "-1"], list(np.array([10, 9, -1]))])
def test_labels_come_back_as_they_were(values):
    """Integers stay integers, digits texts; `classes_` and the columns are in NumPy's order."""
    names = dict(zip(TOPICS, values, strict=True))
    texts, labels = examples(names)
    model = tiny(epochs=1).fit(texts, np.array(labels))
    assert model.classes_.tolist() == sorted(set(labels))
    asked = ["soup bread salt", "goal race team", "rain snow wind"]
    assert model.predict(asked).tolist() == values
    assert model.classes_[model.predict_proba(asked).argmax(axis=1)].tolist() == values
    assert model.predict(asked).dtype == np.array(labels).dtype


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    """No file stays, even of a fit that failed, and the caller's random numbers are the same."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    torch.manual_seed(5)
    expected = torch.rand(1).item()
    torch.manual_seed(5)
    tiny(epochs=1).fit(TEXTS, LABELS)
    assert torch.rand(1).item() == expected
    monkeypatch.setattr("encoder_cls.training.final_model.compact", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny(epochs=1).fit(TEXTS, LABELS)
    assert list(tmp_path.iterdir()) == []


def test_a_class_whose_texts_are_all_blank_is_none():
    """A warning tells the caller of `fit` that its rows are left out; no answer names it."""
    model = tiny(epochs=1, settings=TINY | {"data.empty_texts": "drop"})
    with pytest.warns(
        UserWarning, match=r"rows of train without a text.*: 2 \(texts\[36\]"
    ) as found:
        model.fit([*TEXTS, " ", ""], [*LABELS, "nothing", "nothing"])
    assert {Path(warning.filename) for warning in found} == {Path(__file__)}
    assert model.classes_.tolist() == ["food", "sport", "weather"]
    assert model.predict_proba(TEXTS[:2]).shape == (2, 3)
    assert set(model.predict(TEXTS)) <= set(model.classes_)


@pytest.mark.usefixtures("encoder_joins")
def test_the_seed_decides():
    """Equal seeds give equal probabilities, also in several threads; other seeds do not."""
    expected = tiny().fit(TEXTS, LABELS).predict_proba(TEXTS).tolist()
    with ThreadPoolExecutor(2) as pool:
        for model in pool.map(lambda _: tiny().fit(TEXTS, LABELS), range(2)):
            assert model.predict_proba(TEXTS).tolist() == expected
    assert tiny(seed=1).fit(TEXTS, LABELS).predict_proba(TEXTS).tolist() != expected


def test_arguments_are_values_of_the_config():
    """Each by its key, also as the numbers of NumPy that a search draws."""
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
    """It answers the same, `eval` reports as `report` does, and nothing is overwritten."""
    fitted.save(tmp_path / "run")
    saved = load_classifier(tmp_path / "run")
    np.testing.assert_allclose(
        saved.predict_proba(TEXTS), fitted.classifier_.predict_proba(TEXTS), atol=1e-6
    )
    assert cli("predict", "rain and snow", "--model", tmp_path / "run").out.startswith("weather ")
    scored = cli("eval", tmp_path / "run", "--json")
    assert "not finished" not in scored.err
    report = fitted.report()
    assert json.loads(scored.out)["accuracy"] == report.metrics.accuracy
    with pytest.raises(FileExistsError, match="not empty"):
        fitted.save(tmp_path / "run")


def test_a_pickle_holds_no_texts(tmp_path, fitted, cli):
    """It answers the same, is saved nevertheless, and scored on other texts."""
    content = pickle.dumps(fitted)
    assert not any(text.encode() in content for text in TEXTS)
    copied = pickle.loads(content)  # noqa: S301 - its own
    assert copied.predict_proba(TEXTS).tolist() == fitted.predict_proba(TEXTS).tolist()
    assert clone(copied).get_params() == fitted.get_params()
    with pytest.raises(ValueError, match="a pickle holds no texts"):
        copied.report()
    copied.save(tmp_path / "run")
    assert cli("predict", "rain and snow", "--model", tmp_path / "run").code == 0
    (tmp_path / "more.csv").write_text("text,label\nrain snow,weather\nsoup bread,food\n")
    evaluated = cli("eval", tmp_path / "run", "--data", tmp_path / "more.csv", "--json")
    assert json.loads(evaluated.out)["accuracy"] == 1


@pytest.mark.parametrize("form", ["lists", "matrix"])
def test_texts_may_have_several_labels(tmp_path, form, cli):
    """Answers have the form of what was given; a column that no text has stays one."""
    topics = sorted(TOPICS)
    texts = [*TEXTS, *(f"{one} {other}" for one, other in zip(TEXTS, reversed(TEXTS), strict=True))]
    both = zip(LABELS, reversed(LABELS), strict=True)
    lists = [*([it] for it in LABELS), *(sorted({one, other}) for one, other in both)]
    matrix = np.array([[*(topic in it for topic in topics), 0] for it in lists], dtype=int)
    model = tiny(epochs=6).fit(texts, lists if form == "lists" else matrix)
    assert model.classes_.tolist() == (topics if form == "lists" else [0, 1, 2, 3])
    found = model.predict(["rain snow wind", "soup bread salt"])
    expected = [["weather"], ["food"]] if form == "lists" else [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert (found if form == "lists" else found.tolist()) == expected
    assert model.predict_proba(texts[:2]).shape == (2, len(model.classes_))
    assert model.score(texts, lists if form == "lists" else matrix) > 0.5
    model.save(tmp_path / "run")
    evaluated = cli("eval", tmp_path / "run", "--json")
    assert json.loads(evaluated.out)["micro_f1"] == model.report().metrics.micro_f1


SMALL = {"model.encoder": False}


@pytest.mark.parametrize(
    ("of_fit", "of_score"),
    [
        ([0, 1, 2], [0.0, 1.0, 2.0]),
        ([0.0, 1.0, 2.0], [0, 1, 2]),
        ([False, True, True], [0, 1, 1]),
        (["a", "b", "c"], np.array(["a", "b", "c"], dtype=object)),
    ],
    ids=str,
)
def test_perfect_predictions_score_1_whatever_the_type_of_equal_labels(of_fit, of_score):
    texts, labels = examples(dict(zip(TOPICS, of_fit, strict=True)))
    model = tiny(settings=SMALL).fit(texts, labels)
    assert model.predict(texts).tolist() == labels
    others = examples(dict(zip(TOPICS, of_score, strict=True)))[1]
    assert model.score(texts, others) == 1


def test_texts_without_a_label_do_not_count_in_the_score():
    """NaN makes floats of whole numbers, which are the same classes."""
    texts, labels = examples({"food": 0, "sport": 1, "weather": 2})
    some = [np.nan if number % 6 == 0 else label for number, label in enumerate(labels)]
    model = tiny(settings=SMALL).fit(texts, np.array(some))
    assert model.classifier_.label_names == ("0", "1", "2")
    assert model.score(texts, labels) == model.score(texts, some) == 1
    wrong = [None if number % 2 else 1 - min(label, 1) for number, label in enumerate(labels)]
    assert model.score(texts, wrong) == 0
    assert model.score(texts[:2], [labels[0], None], sample_weight=[1, 5]) == 1
    with pytest.raises(ValueError, match="no text to score has a label"):
        model.score(texts[:2], [None, np.nan])


def test_columns_of_a_frame_are_compared_by_their_names():
    """In any order, with a matrix by position, and never with other columns."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    topics = sorted(TOPICS)
    indicator = np.array([[int(topic == label) for topic in topics] for label in LABELS])
    frame = pandas.DataFrame(indicator, columns=topics)
    model = tiny(settings=SMALL).fit(TEXTS, frame)
    perfect = pandas.DataFrame(model.predict(TEXTS), columns=topics)
    assert model.score(TEXTS, perfect) == 1
    assert model.score(TEXTS, perfect[topics[::-1]]) == 1
    assert model.score(TEXTS, perfect.to_numpy()) == 1
    with pytest.raises(ValueError, match=r"the labels have the columns 'a', 'b', 'c', and those"):
        model.score(TEXTS, perfect.set_axis(["a", "b", "c"], axis=1))
    by_position = tiny(settings=SMALL).fit(TEXTS, indicator)
    assert by_position.score(TEXTS, perfect) == 1


def test_texts_and_numbers_are_not_compared(fitted):
    with pytest.raises(ValueError, match="such as 0, are of another type than those of fit, such"):
        fitted.score(TEXTS[:2], [0, 1])


def test_arguments_have_the_names_of_scikit_learn(fitted):
    """Of every method that takes texts or labels."""
    copied = clone(fitted).set_params(settings=SMALL).fit(X=TEXTS, y=LABELS)
    assert copied.predict(X=TEXTS[:1]).shape == (1,)
    assert copied.predict_proba(X=TEXTS[:1]).shape == (1, 3)
    assert copied.score(X=TEXTS, y=LABELS) == 1


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_texts_without_a_label_are_unlabelled_ones(tmp_path, nothing):
    """As in the command, to which they are saved as such."""
    model = tiny(epochs=1).fit([*TEXTS, "fog and frost", "mist"], [*LABELS, nothing, nothing])
    assert model.classes_.tolist() == ["food", "sport", "weather"]
    model.save(tmp_path / "run")
    unlabelled = (tmp_path / "run" / "unlabelled.jsonl").read_text()
    assert unlabelled == '{"text": "fog and frost"}\n{"text": "mist"}\n'

    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    (data_row,) = [row for row in rows if row["split"] == "data"]
    assert data_row["unlabelled_texts"] == 2
    assert 0 < model.report().metrics.accuracy <= 1


def test_a_weight_counts_as_so_many_texts(recwarn):
    """Whole weights are repetitions, 0 leaves out; others are in proportion."""
    weights = [2 if label == "food" else 1 for label in LABELS]
    weighted = tiny(epochs=1).fit(TEXTS, LABELS, sample_weight=weights)
    assert not [warning for warning in recwarn if "repeat" in str(warning.message)]

    texts = []
    labels = []
    for text, label, weight in zip(TEXTS, LABELS, weights, strict=True):
        texts += [text] * weight
        labels += [label] * weight
    repeated = tiny(epochs=1).fit(texts, labels)
    assert weighted.predict_proba(TEXTS).tolist() == repeated.predict_proba(TEXTS).tolist()

    without_food = [0.0 if label == "food" else 1.0 for label in LABELS]
    model = tiny(epochs=1).fit(TEXTS, LABELS, sample_weight=without_food)
    assert model.classes_.tolist() == ["sport", "weather"]

    assert _repeats([0.5, 1.0, 1.5, 0.0]).tolist() == [3, 5, 8, 0]
    with pytest.raises(ValueError, match="sample_weight"):
        tiny().fit(TEXTS, LABELS, sample_weight=[-1.0] * len(TEXTS))


def test_verbose_prints_the_work(capsys, monkeypatch):
    """From the first second on, with each validation; else nothing is printed."""
    monkeypatch.setattr(terminal_reporter, "SECONDS_BEFORE_FIRST_LINE", 0.0)
    tiny(epochs=1).fit(TEXTS, LABELS)
    assert capsys.readouterr().err == ""
    tiny(epochs=1, verbose=True).fit(TEXTS, LABELS)
    said = capsys.readouterr().err
    assert "fitting the linear model" in said
    assert re.search(r"model +epoch +1\.0", said)
    assert "None" not in said


def test_a_clone_has_the_same_settings_and_nothing_learned(fitted):
    """By value: a change of the clone's settings is none of the original's."""
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert copied.get_params() == {
        "epochs": 2,
        "learning_rate": 0.01,
        "time_budget": None,
        "seed": 0,
        "settings": TINY,
        "verbose": False,
    }
    with pytest.raises(NotFittedError):
        copied.predict(["rain"])
    with pytest.raises(TypeError, match="in a list"):
        fitted.predict("rain")
    copied.set_params(epochs=7).settings["model.d_model"] = 4
    assert (fitted.epochs, fitted.settings["model.d_model"]) == (2, 8)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        copied.set_params(epoch=7)


def test_it_is_the_last_step_of_a_pipeline(fitted):
    """After a step that repairs texts; settings are reached through it."""
    repair = FunctionTransformer(lambda texts: [text.replace("_", " ") for text in texts])
    model = Pipeline([("repair", repair), ("model", tiny())]).set_params(model__epochs=2)
    underscored = [text.replace(" ", "_") for text in TEXTS]
    found = model.fit(underscored, LABELS).predict_proba(underscored)
    assert found.tolist() == fitted.predict_proba(TEXTS).tolist()
    assert model.score(underscored, LABELS) > 0.9


def test_a_grid_search_compares_models_that_differ(monkeypatch):
    """Each is trained with its own settings, and the best one is that which could learn."""
    trained = []

    def spy(setup, *arguments, **options):
        trained.append(
            (
                setup.config.model.d_model,
                setup.config.train.learning_rate,
                setup.config.model.linear,
            )
        )
        return train(setup, *arguments, **options)

    monkeypatch.setattr("encoder_cls.training.from_python.train_run", spy)
    settings = TINY | {"model.linear": False}
    grid = [
        {"learning_rate": [1e-9], "settings": [settings]},
        {"learning_rate": [0.02], "settings": [settings | {"model.d_model": 4}]},
    ]
    search = GridSearchCV(
        tiny(epochs=6), grid, cv=2, refit=False, scoring="neg_log_loss", error_score="raise"
    )
    search.fit(TEXTS, LABELS)
    assert trained == [
        candidate for candidate in [(8, 1e-9, False), (4, 0.02, False)] for _ in range(2)
    ]
    assert search.best_params_["learning_rate"] == 0.02


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
        ({"settings": {"model.": 8}}, r"TextClassifier: 'model.' is no key; .*"),
        (
            {"settings": {"train.epochs": 8}},
            r"settings: 'train.epochs': give it as TextClassifier\(epochs=...\)",
        ),
        (
            {"settings": {"data.test": "f.csv"}},
            r"settings: 'data.test': the texts and labels of fit take its place",
        ),
        (
            {"settings": ["model.d_model=8"]},
            r"settings: a mapping such as .* is expected, not list .*",
        ),
        ({"epochs": 0}, r"TextClassifier: train.epochs: .*"),
        ({"seed": -1}, r"TextClassifier: seed: .*"),
    ],
    ids=str,
)
def test_a_setting_that_is_none_is_refused_by_its_name(arguments, message):
    """In one line, before any work; as scikit-learn has it, when the model is fitted."""
    model = TextClassifier(**arguments)
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("texts", "labels", "error", "message"),
    [
        ("rain", ["a"], TypeError, "put a single one in a list"),
        ([*TEXTS[:2], None], ["a", "b", "a"], TypeError, r"texts\[2\] is nothing, not a text"),
        ([["a"]], ["a"], TypeError, r"texts\[0\] is list .*, not a text"),
        (np.array([["a", "b"]]), ["a"], ValueError, r"table of shape \(1, 2\); choose the column"),
        (TEXTS, LABELS[1:], ValueError, "inconsistent numbers of samples"),
        (TEXTS, None, ValueError, "each text needs a label"),
        (
            ["a", "b"],
            ["x", 1],
            ValueError,
            r"labels\[1\] is int '1'; labels are all texts, or all integers",
        ),
        (["a", "b"], [["x"], None], ValueError, r"labels\[1\] is nothing; .* an empty list"),
        (["a", "b"], np.array([[0, 2], [1, 0]]), ValueError, "an indicator matrix, of 0 and 1"),
        (["a", "b"], [None, None], ValueError, "no row has a label"),
        (["a", "b"], [1.0, 0.5], ValueError, r"labels\[1\] is float '0.5'"),
        (["a", "b"], ["x", "x"], ValueError, "at least two classes are needed"),
        (["a", "b"], ["x", " "], ValueError, r"labels\[1\] is empty; None means no label"),
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
    """With the place, by an error that scikit-learn's tools expect."""
    with pytest.raises(error, match=message):
        tiny().fit(texts, labels)


def test_nothing_of_training_is_loaded_before_it_is_needed(fitted, tmp_path):
    """The package does not load scikit-learn; a fitted estimator answers without PyTorch."""
    (tmp_path / "model").write_bytes(pickle.dumps(fitted))
    code = (
        "import sys, pickle, encoder_cls\n"
        "assert 'sklearn' not in sys.modules and 'encoder_cls.sklearn' not in sys.modules\n"
        "with open('model', 'rb') as file: print(pickle.load(file).predict(['rain snow'])[0])\n"
        "assert 'sklearn' in sys.modules\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment
    )
    assert ended.stdout == "weather\n"
    assert ended.stderr == ""
