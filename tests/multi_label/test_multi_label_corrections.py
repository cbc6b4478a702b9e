"""Several labels a text where people label: `suggest`, `review`, corrections and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.local_servers import wait_until
from support.programs import succeed
from support.several_labels import (
    csv_rows,
    json_objects,
    labelled_texts,
    train_on,
    trained,
    write_json_lines,
    write_lines,
)

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.extras.label.review_session import open_review
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training.prepare import prepare

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

# Texts to suggest, of which the model knows two labels each.
UNSURE = ["soup with a team", "rain or goal"]


# Suggestions


@pytest.fixture
def suggested(cli, linear_run) -> list[dict[str, str]]:
    """The rows of a table of suggestions from a pool whose other texts are sure."""
    sure = [text for text, labels in labelled_texts(40, seed=7) if labels]
    write_lines(Path("pool.txt"), [*sure, *UNSURE])
    command = ["suggest", linear_run.path, "--input", "pool.txt", "--n", 2]
    succeed(cli, *command, "--output", "suggested.csv")
    return csv_rows(Path("suggested.csv"))


def test_texts_of_which_not_all_labels_are_sure_are_suggested(linear_run, suggested):
    """The probability is that of all decisions."""
    classifier = load_classifier(linear_run.path)

    assert {row["text"] for row in suggested} == set(UNSURE)
    for row in suggested:
        (prediction,) = classifier.predict([row["text"]])
        probability = 1.0
        for name, label_probability in prediction.probabilities.items():
            if name in prediction.labels:
                probability *= label_probability
            else:
                probability *= 1 - label_probability
        assert float(row["probability"]) == pytest.approx(probability, abs=1e-5)


def test_suggested_labels_are_lists_in_json_and_joined_in_a_table(cli, linear_run, suggested):
    command = ["suggest", linear_run.path, "--input", "pool.txt", "--n", 2, "--json"]
    records = json_objects(succeed(cli, *command).out)

    for row, record in zip(suggested, records, strict=True):
        assert row["text"] == record["text"]
        assert row["suggested"] == "|".join(record["suggested"])
        assert row["label"] == ""
        assert record["label"] is None


def test_suggested_texts_that_are_filled_in_continue_a_run(cli, linear_run):
    write_lines(Path("pool.txt"), UNSURE)
    command = ["suggest", linear_run.path, "--input", "pool.txt", "--n", 2, "--output", "next.csv"]
    outcome = succeed(cli, *command)
    assert "an empty cell means that a text has none of the labels" in outcome.err

    lines = ["text,label"]
    for row in csv_rows(Path("next.csv")):
        lines.append(f"{row['text']},food|sport")
    write_lines(Path("next.csv"), lines)
    options = ["--set", "data.train=next.csv", "--set", "data.label_separator='|'"]
    succeed(cli, "train", "--from", linear_run.path, *options, "--run-dir", "new")

    dataset = prepare(RunDir(Path("new")).load_config()).dataset
    assert set(UNSURE) <= {*dataset.train.texts, *dataset.validation.texts}


def test_several_labels_have_the_separator_of_the_data(cli, tmp_path_factory):
    """A run is continued with suggested texts without a config: columns and separator are its."""
    folder = tmp_path_factory.mktemp("separated")
    lines = ["Comment;Labels"]
    for text, labels in labelled_texts(240, seed=0):
        lines.append(f"{text};{', '.join(labels)}")
    write_lines(folder / "data.csv", lines)
    settings = {
        "data.text_column": "Comment",
        "data.label_column": "Labels",
        "data.label_separator": ",",
    }
    run = train_on(folder / "data.csv", **settings)

    write_lines(Path("pool.csv"), ["Comment", *UNSURE])
    command = ["suggest", run.path, "--input", "pool.csv", "--n", 2, "--output", "next.csv"]
    outcome = succeed(cli, *command)
    rows = csv_rows(Path("next.csv"))
    assert {row["suggested"] for row in rows} == {"food,sport", "weather,sport"}
    assert "several labels of a text are joined: food,sport; an empty cell" in outcome.err

    lines = ["Comment,Labels"]
    for row in rows:
        lines.append(f'{row["Comment"]},"{row["suggested"]}"')
    write_lines(Path("next.csv"), lines)
    options = ["--set", "data.train=next.csv", "--dry-run"]
    continued = succeed(cli, "train", "--from", run.path, *options)
    assert "3 classes" in continued.err


# Reviews

# By the number of a training text, the labels that it has in place of its own.
WRONG_LABELS = {
    5: ["sport"],
    17: ["food", "sport", "weather"],
    30: [],
}


@pytest.fixture(scope="module")
def mislabelled_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of which three training texts have other labels than their words."""
    texts = labelled_texts(240, seed=0)
    for index, labels in WRONG_LABELS.items():
        text, _ = texts[index]
        texts[index] = (text, labels)
    folder = tmp_path_factory.mktemp("mislabelled")
    validation = write_json_lines(folder / "validation.jsonl", labelled_texts(60, seed=1))
    return trained(folder, texts, **{"data.validation": str(validation)})


def right_labels() -> dict[str, list[str]]:
    """The labels that each training text should have."""
    return dict(labelled_texts(240, seed=0))


def wrong_labels() -> dict[str, list[str]]:
    """The labels that the mislabelled texts have in the data."""
    texts = list(right_labels())
    return {texts[index]: labels for index, labels in WRONG_LABELS.items()}


def labels_in(dataset: Dataset, text: str) -> str:
    """The labels of a training text of a dataset, as a text."""
    row = list(dataset.train.texts).index(text)
    return dataset.train.label_text(row, dataset.label_names)


def test_a_review_finds_wrong_and_missing_labels_first(cli, mislabelled_run):
    outcome = succeed(cli, "review", mislabelled_run.path, "--output", "review.csv")

    first_rows = csv_rows(Path("review.csv"))[:3]
    assert {row["text"] for row in first_rows} == set(wrong_labels())
    for row in first_rows:
        label = "|".join(wrong_labels()[row["text"]])
        assert row["label"] == label
        assert row["label_in_data"] == label
        assert row["suggested"] == "|".join(right_labels()[row["text"]])
        assert list(right_labels())[int(row["line"]) - 1] == row["text"]
        assert float(row["score"]) > 0.5
    assert "(no label)" in outcome.out
    assert "the labels of 300 texts checked: others are predicted for " in outcome.err


@pytest.fixture
def corrected_run(cli, mislabelled_run) -> RunDir:
    """A new run, for which the wrong labels are corrected in a table, in another order."""
    succeed(cli, "review", mislabelled_run.path, "--output", "review.csv")
    lines = ["key,label"]
    for row in csv_rows(Path("review.csv"))[:3]:
        labels = reversed(right_labels()[row["text"]])
        lines.append(f"{row['key']},{' | '.join(labels)}")
    write_lines(Path("fix.csv"), lines)

    options = ["--set", "data.corrections=fix.csv", "--run-dir", "new"]
    succeed(cli, "train", mislabelled_run.path / "config.yaml", *options)
    return RunDir(Path("new"))


def test_corrected_labels_are_trained_on_and_listed_again(cli, corrected_run):
    """A cell is corrected to all labels of its text, in any order, or to none."""
    dataset = load_dataset(corrected_run.load_config().data)
    assert len(dataset.labels_before_corrections) == 3
    for text in wrong_labels():
        assert labels_in(dataset, text) == ", ".join(right_labels()[text])

    succeed(cli, "review", corrected_run.path, "--output", "again.csv")
    labels_before = set()
    for row in csv_rows(Path("again.csv")):
        if row["label"] != row["label_in_data"]:
            labels_before.add(row["label_in_data"])
    assert labels_before == {"sport", "food|sport|weather", ""}


def test_several_labels_are_corrected_on_the_page(mislabelled_run):
    """Doubtful texts come first; some are corrected, one is kept, and a correction is undone."""
    opened = open_review(mislabelled_run.path, Path("page.csv"), {})
    session = opened.session
    corrected = []
    with opened.model:
        for _ in WRONG_LABELS:
            asked = session.state()["text"]
            key = asked["key"]
            guess = asked["guess"]
            corrected.append(asked["text"])
            assert guess["labels_now"] == wrong_labels()[asked["text"]]
            assert guess["labels"] == right_labels()[asked["text"]]

            # Words are shown for the classes in doubt alone.
            wait_until(lambda key=key: opened.model.words(key) is not None)
            in_doubt = set(guess["labels"]) ^ set(guess["labels_now"])
            assert {words["name"] for words in opened.model.words(key)} == in_doubt

            session.label(key, guess["labels"])

        # The last correction is undone, and its labels are kept.
        session.undo(3)
        asked = session.state()["text"]
        assert asked["text"] == corrected.pop()
        session.label(asked["key"], asked["guess"]["labels_now"])
        assert session.state()["model"]["accuracy"] == "changed: 2; kept: 1"

    # Another process continues, and asks nothing again.
    again = open_review(mislabelled_run.path, Path("page.csv"), {}).session
    assert again.state()["text"] is None

    settings = ["data.corrections=page.csv"]
    dataset = load_dataset(load_config(mislabelled_run.path / "config.yaml", settings).data)
    assert len(dataset.labels_before_corrections) == 2
    for text in corrected:
        assert labels_in(dataset, text) == ", ".join(right_labels()[text])
