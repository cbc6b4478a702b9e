"""A run that continues another run: joined data, new words and classes, exact resumption."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.blank_plots import PLOTS, blank_plot
from support.joining import encoders_joining
from support.programs import assert_failed
from support.small_runs import model_hash, result, run_all, stop_after
from support.tiny_encoder import SHAPE
from support.usual_c import trying_usual_c_alone

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.data_paths import absolute_sources
from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import NO_TEXTS, Dataset
from encoder_cls.data.load_dataset import load_data
from encoder_cls.errors import ConfigError, DataError, StoppedError
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.evaluation.changes_since_base import compare_with_base
from encoder_cls.training import run_progress
from encoder_cls.training.encoder_stage import start_from, untrained_encoder
from encoder_cls.training.plan import CONTINUED_EPOCHS, TRAINING_EPOCHS
from encoder_cls.training.prepare import prepare
from encoder_cls.training.run_warnings import run_warnings

# The numbers of training texts by class, of the base run and of the run that continues it.
OLD_SIZES = {"red": 20, "green": 20}
NEW_SIZES = {"green": 14, "blue": 20}

TRAIN_SECTION = {
    "epochs": 3,
    "batch_size": 8,
    "learning_rate": 0.01,
    "log_every": 2,
    "patience": None,
}
OLD_CONFIG = {
    "data": {"train": "old.csv", "test": "old_test.csv", "validation_fraction": 0.2},
    "model": SHAPE | {"linear": True},
    "tokenizer": {"min_frequency": 1},
    "pretrain": {"epochs": 0},
    "train": TRAIN_SECTION,
}
NEW_CONFIG = {
    "data": {"train": "new.csv", "test": "new_test.csv", "validation_fraction": 0.2},
    "train": TRAIN_SECTION,
}

Rows = Iterable[tuple[str, str]]
"""Texts with their labels."""


# The files of the tests


def write_rows(name: str, rows: Rows) -> None:
    """Write a file of labelled texts."""
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        writer.writerows(rows)


def append_rows(name: str, rows: Rows) -> None:
    """Append labelled texts to a file."""
    with Path(name).open("a", newline="") as file:
        csv.writer(file).writerows(rows)


def read_rows(name: str) -> list[dict[str, str]]:
    """Read the rows of a CSV file."""
    with Path(name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def texts_of(name: str) -> set[str]:
    """Return the texts of a file."""
    return {row["text"] for row in read_rows(name)}


def write_random(name: str, sizes: dict[str, int], *, seed: int, words: str = "w") -> None:
    """Write a file of random words, in which each text also has the name of its class."""
    random = np.random.default_rng(seed)
    rows = []
    for label, size in sizes.items():
        for number in range(size):
            others = [f"{words}{drawn}" for drawn in random.integers(0, 12, 3)]
            own_word = f"{words}{seed}x{number}"
            rows.append((" ".join([*others, label, own_word, "end"]), label))
    write_rows(name, rows)


def write_config(name: str, values: dict[str, object]) -> None:
    """Write a config file."""
    Path(name).write_text(yaml.safe_dump(values))


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory) -> Path:
    """A folder with a finished run `old`, a run `new` that continues it, and their data files."""
    folder = tmp_path_factory.mktemp("old")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in PLOTS:
            patch.setattr(matplotlib_figures, name, blank_plot)

        write_random("old.csv", OLD_SIZES, seed=0)
        write_random("old_test.csv", {"red": 6, "green": 6}, seed=1)
        write_random("new.csv", NEW_SIZES, seed=2, words="v")
        write_random("new_test.csv", {"blue": 6, "red": 3}, seed=3)
        write_config("old.yaml", OLD_CONFIG)
        write_config("new.yaml", NEW_CONFIG)

        with encoders_joining(), trying_usual_c_alone():
            run_all(load_config(Path("old.yaml")), folder / "old")
            run_all(new_config(), folder / "new")
    return folder


@pytest.fixture
def bare_trainings(blank_plots, monkeypatch):
    """Finish runs as for a user, with small weights."""
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture(autouse=True)
def _own_copy(finished_runs, tmp_path, monkeypatch):
    """Give each test a copy of the runs and their data files in its current folder."""
    folder = tmp_path / "work"
    shutil.copytree(finished_runs, folder)
    for config_file in folder.glob("*/config.yaml"):
        content = config_file.read_text().replace(str(finished_runs), str(folder))
        config_file.write_text(content)
    monkeypatch.chdir(folder)


def new_config(*overrides: str, base: str = "old") -> Config:
    """Return the config of a run that continues `old` or another base run."""
    return load_config(Path("new.yaml"), overrides, from_run=Path(base))


def old_data() -> Dataset:
    """Return the data of the run `old`."""
    return load_data(load_config(Path("old/config.yaml")))


# Joined data


@pytest.fixture
def joined() -> Dataset:
    """The data of both runs, with new files that also have texts of each split of the base run."""
    old = old_data()
    known_texts = [old.train.texts[0], old.validation.texts[0].upper(), old.test.texts[0]]
    append_rows("new.csv", [(text, "red") for text in known_texts])
    append_rows("new_test.csv", [(old.train.texts[1], "red")])
    return load_data(new_config())


def test_training_texts_of_the_base_run_come_first_and_once(joined):
    old = old_data()

    assert joined.label_names == ("green", "red", "blue")
    assert list(joined.train.texts)[: len(old.train)] == list(old.train.texts)
    assert len(set(joined.train.texts)) == len(joined.train)
    assert len(joined.train) <= 20 + 20 + 14 + 20


def test_each_text_of_the_base_run_stays_in_its_split(joined):
    """A text stays in its split of the base run, even if a new file has it as well."""
    old = old_data()
    learned = set(joined.train.texts)

    assert not learned & set(joined.validation.texts)
    assert not learned & set(joined.test.texts)
    assert old.validation.texts[0].upper() not in learned
    assert set(old.validation.texts) < set(joined.validation.texts)

    new_test_texts = texts_of("new_test.csv") - {old.train.texts[1]}
    assert set(joined.test.texts) == texts_of("old_test.csv") | new_test_texts
    note = "test: left out 1 of 10 new texts, equal or similar to texts of old"
    assert note in joined.notes


def test_joined_texts_keep_their_labels_and_places(joined):
    """Each text has the name of its class, and its place is the file that has it."""
    for split in (joined.train, joined.validation, joined.test):
        for text, label, where in zip(split.texts, split.labels, split.where, strict=True):
            file, _, _ = where.partition(":")
            assert joined.label_names[label] in text
            assert text in Path(file).read_text()


def words_beginning_with(letter: str) -> list[str]:
    """Make twenty words of three letters."""
    return ["".join(letters) for letters in product(letter, "bcdf", "aeiou")]


def write_alternating(name: str, texts: Iterable[str]) -> None:
    """Write texts whose labels alternate between green and red."""
    rows = []
    for number, text in enumerate(texts):
        label = "red" if number % 2 else "green"
        rows.append((text, label))
    write_rows(name, rows)


def test_texts_like_those_of_another_split_are_left_out():
    """Punctuation and digits do not make texts different."""
    train_texts = words_beginning_with("k")
    test_texts = words_beginning_with("m")
    new_texts = words_beginning_with("p")
    write_alternating("base_train.csv", train_texts)
    write_alternating("base_test.csv", test_texts)
    base_config = load_config(None, ["data.train=base_train.csv", "data.test=base_test.csv"])
    Path("base").mkdir()
    Path("base/config.yaml").write_text(base_config.to_yaml())

    base = load_data(base_config)
    like_held_out = f"{base.validation.texts[0]} - 42!!"
    like_tested = f"{base.test.texts[0]} - 42!!"
    like_learned = f"{base.train.texts[0]} - 42!!"
    write_alternating("more.csv", [like_held_out, like_tested, like_learned, *new_texts])
    write_alternating("more_test.csv", [like_learned])
    overrides = ["data.train=more.csv", "data.test=more_test.csv"]
    dataset = load_data(load_config(None, overrides, from_run=Path("base")))

    texts = [*dataset.train.texts, *dataset.validation.texts]
    assert sorted(texts) == sorted([*train_texts, like_learned, *new_texts])
    assert like_learned in dataset.train.texts
    assert list(dataset.test.texts) == test_texts
    note = "train: left out 2 of 23 new texts, equal or similar to texts of base"
    assert note in dataset.notes


def test_new_data_has_the_columns_of_the_base_run_unless_they_are_set():
    overrides = ["data.text_column=body", "data.label_column=class", "data.encoding=utf-16"]
    base = load_config(Path("old.yaml"), overrides)
    Path("base").mkdir()
    Path("base/config.yaml").write_text(base.to_yaml())

    config = load_config(
        None, ["data.train=more.csv", "data.label_column=topic"], from_run=Path("base")
    )

    assert config.data.text_column == ("body",)
    assert config.data.label_column == "topic"
    assert config.data.encoding == "utf-8"


GROUP_SETTINGS = ["data.group_column=customer", "model.encoder=false"]


@pytest.fixture
def grouped_run() -> Path:
    """A run on texts of twelve customers, and the files `b.csv` and `c.csv` with more texts."""
    for name, first in {"a.csv": 0, "b.csv": 60, "c.csv": 120}.items():
        lines = ["text,label,customer\n"]
        for row in range(first, first + 60):
            lines.append(f"w{row} {row % 2},{row % 2},c{row % 12}\n")
        Path(name).write_text("".join(lines))

    overrides = ["data.train=a.csv", "data.validation_fraction=0.2", *GROUP_SETTINGS]
    run_all(load_config(None, overrides), Path("grouped"))
    return Path("grouped")


def test_groups_stay_in_their_splits(grouped_run):
    """New rows of a group that is in another split of the base run are dropped, with a note."""
    overrides = ["data.train=b.csv", "data.test=c.csv", *GROUP_SETTINGS]

    dataset = load_data(load_config(None, overrides, from_run=grouped_run))

    train_groups = set(dataset.train.groups.tolist())
    validation_groups = set(dataset.validation.groups.tolist())
    test_groups = set(dataset.test.groups.tolist())
    assert train_groups
    assert not train_groups & validation_groups
    assert not train_groups & test_groups
    assert not validation_groups & test_groups

    note = "new texts, in groups that are in another split of grouped"
    assert any(note in found for found in dataset.notes)


def test_new_data_without_the_column_of_groups_has_a_note(grouped_run):
    dataset = load_data(load_config(None, ["data.train=b.csv"], from_run=grouped_run))

    note = "the data of grouped has groups; name the column with the groups of the new data"
    assert note in " ".join(dataset.notes)


def test_a_continued_run_can_be_continued():
    """The third run also has the data of the first run."""
    write_random("third.csv", {"blue": 8, "black": 8}, seed=9)
    write_config("third.yaml", {"data": {"train": "third.csv", "validation_fraction": 0.2}})

    dataset = load_data(load_config(Path("third.yaml"), from_run=Path("new")))

    assert dataset.label_names == ("green", "red", "blue", "black")
    assert texts_of("old.csv") <= {*dataset.train.texts, *dataset.validation.texts}
    assert dataset.unlabelled == NO_TEXTS


def test_a_link_to_the_base_run_is_recorded_as_the_run_that_it_points_to():
    """A nightly job trains from a link, and then moves the link to the new run."""
    Path("live").symlink_to("old")
    config = absolute_sources(new_config(base="live"))
    Path("live").unlink()
    Path("live").symlink_to("new")

    assert config.from_run == str(Path("old").resolve())


def test_a_run_that_continues_from_itself_is_refused():
    """Earlier versions recorded the link."""
    Path("live").symlink_to("new")
    config = new_config(base="live")
    Path("new/config.yaml").write_text(config.to_yaml())

    with pytest.raises(ConfigError, match="live: continues from itself"):
        load_data(load_config(Path("new/config.yaml")))


def test_labelled_texts_are_left_out_of_the_unlabelled_ones_of_the_base_run():
    """Unlabelled texts that are like newly labelled texts are dropped, with a note."""
    texts = [f"pool text {letter}" for letter in "abcdefgh"]
    Path("pool.csv").write_text("\n".join(["text", *texts]) + "\n")
    base = load_config(Path("old.yaml"), ["data.unlabelled=pool.csv"])
    Path("with_pool").mkdir()
    Path("with_pool/config.yaml").write_text(base.to_yaml())
    assert list(load_data(base).unlabelled.texts) == texts

    labelled = [(texts[0], "red"), (texts[1].upper(), "green"), (f"{texts[2]} - 1!", "red")]
    write_rows("more.csv", labelled)
    dataset = load_data(more_config(base="with_pool"))

    assert list(dataset.unlabelled.texts) == texts[3:]
    note = "left out 3 of 8 texts without labels"
    assert any(note in found for found in dataset.notes)


# The validation texts that are held out of new data


MORE_CONFIG = {"data": {"train": "more.csv"}, "train": {"epochs": 1}}


def more_config(*overrides: str, base: str = "old") -> Config:
    """Return the config of a run of one epoch that adds `more.csv` to the data of a base run."""
    write_config("more.yaml", MORE_CONFIG)
    return load_config(Path("more.yaml"), overrides, from_run=Path(base))


def held_out_as_black() -> list[tuple[str, str]]:
    """Return the texts that the run `old` held out for validation, with a new label."""
    return [(text, "black") for text in old_data().validation.texts]


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_a_new_class_whose_texts_the_base_run_held_out_is_refused(class_weights):
    """None of the texts of such a class can be learned from."""
    others = [(f"v{number} red something", "red") for number in range(9)]
    write_rows("more.csv", [*held_out_as_black(), *others])

    with pytest.raises(DataError, match="no text of these new classes can be learned from"):
        prepare(more_config(f"train.class_weights={class_weights}"))


def test_a_new_class_with_one_text_to_learn_from_is_a_class():
    write_rows("more.csv", [*held_out_as_black(), ("a text of the new class", "black")])

    dataset = prepare(more_config("train.class_weights=balanced")).dataset

    counts = dataset.train.class_counts(len(dataset.label_names))
    assert counts[dataset.label_names.index("black")] == 1


@pytest.mark.parametrize("split_seed", range(2))
def test_a_new_class_is_never_held_out_as_a_whole(split_seed):
    """Rows of the base run are dropped first; at least one new row stays in training."""
    text = "the only new text of the class"
    write_rows("more.csv", [*held_out_as_black(), (text, "black")])
    overrides = [f"data.split_seed={split_seed}", "data.validation_fraction=0.5"]

    dataset = load_data(more_config(*overrides))

    assert text in dataset.train.texts


def test_a_row_of_each_class_is_enough_to_continue_a_run():
    """No new text must be held out, because the base run has validation texts."""
    write_rows("more.csv", [("a single text of it", "red"), ("another text of it", "green")])

    dataset = load_data(more_config())

    old = old_data()
    assert list(dataset.validation.texts) == list(old.validation.texts)
    assert len(dataset.train) == len(old.train) + 2


def test_a_text_like_one_that_the_base_run_learned_is_not_held_out():
    """The text would be scored as new, although the base run has learned it."""
    old = old_data()
    alike = [text.upper() for text in old.train.texts[:12]]
    others = [f"v words {letter}" for letter in "abcd"]
    write_rows("more.csv", [(text, "black") for text in [*alike, *others]])

    dataset = load_data(more_config("data.validation_fraction=0.5"))

    assert set(alike) <= set(dataset.train.texts)
    assert len(dataset.validation) == len(old.validation) + 2


# The encoder and its training


def test_old_words_and_classes_keep_their_weights():
    """Old words also keep their ids; new words and new classes get random weights."""
    setup = prepare(new_config())
    base = load_classifier(Path("old"), engine="numpy")
    old_words = base.tokenizer.get_vocab()
    words = setup.tokenizer.get_vocab()
    assert old_words.items() < words.items()
    assert "v3" in words.keys() - old_words.keys()

    model = untrained_encoder(setup, setup.config.seed)
    start_from(base, model, label_names=setup.dataset.label_names)
    first_weights = model.state_dict()

    random_weights = untrained_encoder(setup, setup.config.seed).state_dict()
    base_weights = base.encoder.named_weights()
    assert set(base_weights) == set(first_weights)
    base_classes = [base.label_names.index("green"), base.label_names.index("red")]
    for name, weight in first_weights.items():
        old_weight = np.asarray(base_weights[name])
        if name == "encoder.embedding.tokens.weight":
            num_old = len(old_words)
        elif name.startswith("head.linear."):
            num_old = len(base_classes)
            old_weight = old_weight[base_classes]
        else:
            assert np.array_equal(weight, old_weight), name
            continue

        assert np.array_equal(weight[:num_old], old_weight), name
        assert np.array_equal(weight[num_old:], random_weights[name][num_old:]), name


def test_automatic_epochs_are_fewer_than_those_of_a_new_run():
    write_config("new.yaml", {"data": {"train": "new.csv"}})

    continued = prepare(new_config())
    from_nothing = prepare(load_config(Path("new.yaml")))

    assert continued.plan.pretraining is None
    assert continued.plan.training.epochs < from_nothing.plan.training.epochs
    assert continued.config.model.d_model == SHAPE["d_model"]
    assert CONTINUED_EPOCHS[1] < TRAINING_EPOCHS[1]


def test_if_the_base_run_has_no_encoder_a_new_one_is_trained():
    """The new encoder has the epochs of a new run; the words of the base run keep their ids."""
    run_all(load_config(Path("old.yaml"), ["model.encoder=false"]), Path("linear"))
    write_config("new.yaml", {"data": {"train": "new.csv"}})

    setup = prepare(new_config("model.encoder=true", base="linear"))

    warning = "linear has no encoder, so a new one is trained from scratch"
    assert warning in " ".join(run_warnings(setup))
    assert setup.plan.training.epochs > CONTINUED_EPOCHS[1]

    base_vocabulary = load_classifier(Path("linear")).tokenizer.get_vocab()
    assert base_vocabulary.items() <= setup.tokenizer.get_vocab().items()

    overrides = ["model.encoder=true", "train.epochs=1", "pretrain.epochs=0"]
    run_all(new_config(*overrides, base="linear"), Path("encoder"))
    vocabulary = load_classifier(Path("encoder")).tokenizer.get_vocab()
    assert base_vocabulary.items() <= vocabulary.items()


@pytest.mark.slow
@pytest.mark.usefixtures("encoder_joins")
def test_a_stopped_continued_run_resumes_exactly():
    with pytest.raises(StoppedError):
        run_all(new_config(), Path("stopped"), stop_signal=stop_after(9))
    run_all(new_config(), Path("stopped"), resume=True)

    assert result(Path("stopped")) == result(Path("new"))
    assert model_hash(Path("new")) != model_hash(Path("old"))


# What is reported


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and of its subfolders."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def report_of_new() -> dict[str, object]:
    """Return the report of the run `new`."""
    return json.loads(Path("new/eval/report.json").read_text())


def test_train_continues_a_run_and_leaves_the_base_run_as_it_is(cli):
    """The command says on which texts the two runs are compared, and the new run is finished."""
    before = contents_of(Path("old"))
    shutil.rmtree("new")

    trained = cli("train", "new.yaml", "--from", "old", "--run-dir", "new")

    assert trained.code == 0, trained.err
    assert "on 12 texts of the test split of old, " in trained.out
    assert contents_of(Path("old")) == before
    resumed = cli("train", "--run-dir", "new", "--resume")
    assert "this run is finished" in resumed.err


def test_the_report_compares_predictions_with_those_of_the_base_run():
    """The report counts the compared texts, and lists the texts whose predictions differ."""
    rows = read_rows("old_test.csv")
    texts = [row["text"] for row in rows]
    labels_before = [prediction.label for prediction in predict("old", texts)]
    labels_now = [prediction.label for prediction in predict("new", texts)]

    changed = []
    num_correct_before = 0
    num_correct_now = 0
    for row, before, now in zip(rows, labels_before, labels_now, strict=True):
        num_correct_before += before == row["label"]
        num_correct_now += now == row["label"]
        if before != now:
            changed.append((row["text"], before, now))

    listed = read_rows("new/eval/changed_predictions.csv")
    assert [(row["text"], row["before"], row["now"]) for row in listed] == changed

    former = report_of_new()["former"]
    assert former["split"] == "test"
    assert former["texts"] == 12
    assert former["changed"] == len(changed)
    difference = (num_correct_before - num_correct_now) / 12
    assert former["accuracy_difference"] == pytest.approx(difference)
    assert not [key for key in former if "macro_f1" in key]


def predict(run: str, texts: list[str]) -> list[object]:
    """Return the predictions of a run's classifier."""
    return load_classifier(Path(run)).predict(texts)


def test_eval_compares_with_the_base_run_again(cli):
    former = report_of_new()["former"]

    evaluated = cli("eval", "new")

    assert evaluated.code == 0, evaluated.err
    former_again = report_of_new()["former"]
    # The base run is the same, but its path is absolute only in the config of the run.
    assert former_again | {"run": ""} == former | {"run": ""}


def test_recall_that_fell_is_named():
    """The sentence about the recall is the last one."""
    base = load_classifier(Path("old"))
    base_dataset = prepare(new_config()).dataset.base

    # Exchange two classes of the classifier, so that all correct predictions are wrong.
    worse = load_classifier(Path("old"))
    worse.label_names = tuple(reversed(worse.label_names))
    found = compare_with_base(worse, base, base_dataset, run="old")

    assert found.num_texts == 12
    assert len(found.changed) == 12
    assert found.lost_recall
    assert all(now < before for before, now in found.lost_recall.values())
    *_, last_sentence = found.sentences()
    assert last_sentence.startswith("recall fell: ")


def test_a_classifier_differs_in_nothing_from_itself():
    base = load_classifier(Path("old"))
    base_dataset = prepare(new_config()).dataset.base

    assert not compare_with_base(base, base, base_dataset, run="old").changed


# Refused configs and base runs


def change_old_data() -> None:
    """Write other training texts of the run `old`."""
    write_random("old.csv", OLD_SIZES, seed=7)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        pytest.param(
            lambda: Path("old/model/README.md").unlink(),
            ConfigError,
            "old: is not a finished run",
            id="unfinished",
        ),
        pytest.param(
            lambda: Path("old.csv").unlink(),
            DataError,
            r"old: data\.train: .*old\.csv: no such file or folder",
            id="missing data",
        ),
        pytest.param(
            change_old_data,
            DataError,
            "old: its training data .* has changed since it was trained",
            id="changed data",
        ),
        pytest.param(
            lambda: shutil.rmtree("old"),
            ConfigError,
            r"old/config\.yaml: cannot read the config",
            id="missing run",
        ),
    ],
)
def test_an_incomplete_base_run_is_refused(change, error, message):
    change()

    with pytest.raises(error, match=message):
        prepare(new_config())


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (
            ["data.train=old.csv", "data.test=null"],
            DataError,
            r"nothing is left to learn from: train: left out 40 of 40",
        ),
        (["model=3"], ConfigError, "model: "),
        (["model.d_model=32"], ConfigError, "model: the encoder of old has another shape"),
        (["tokenizer.lowercase=false"], ConfigError, "tokenizer: differs from that of old"),
        (
            ["data.label_separator='|'"],
            ConfigError,
            "a text may have one label there, and several labels in the new data",
        ),
    ],
)
def test_a_config_that_does_not_fit_the_base_run_is_refused(overrides, error, message):
    with pytest.raises(error, match=message):
        prepare(new_config(*overrides))


def test_a_finished_run_does_not_need_its_base_run(cli):
    """A finished run without its base run is complete, and can be scored on other data."""
    shutil.rmtree("old")

    assert "this run is finished" in cli("train", "--run-dir", "new", "--resume").err
    assert cli("eval", "new", "--data", "new_test.csv").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "new"],
        ["train", "--config", "new/config.yaml", "--run-dir", "again"],
    ],
)
def test_without_the_base_run_its_data_is_missing(cli, arguments):
    shutil.rmtree("old")

    assert_failed(cli(*arguments), 3, "old/config.yaml: no such file")


def test_the_new_data_has_to_be_named(cli):
    """The bundled example, which is the default, does not count as data of a continued run."""
    assert_failed(cli("train", "--from", "old"), 2, "--set data.train=PATH")

    outcome = cli("train", "--from", "old", "--set", "data.train=new.csv", "--dry-run")
    assert outcome.code == 0, outcome.err
    assert yaml.safe_load(outcome.out)["data"]["train"] == "new.csv"
    assert "3 classes" in outcome.err


def known_rows() -> str:
    """Return the rows of the base run as CSV."""
    return Path("old.csv").read_text()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(lambda: "text,label\n", 6, id="no rows"),
        pytest.param(known_rows, 6, id="known rows"),
        pytest.param(lambda: "text\nno labels\n", 3, id="broken data"),
    ],
)
def test_new_data_without_new_rows_has_an_exit_code_of_its_own(cli, content, code):
    write_config("more.yaml", MORE_CONFIG)
    Path("more.csv").write_text(content())

    outcome = cli("train", "more.yaml", "--from", "old", "--run-dir", "next")

    assert outcome.code == code
    assert outcome.err.count("error: ") == 1


def test_data_without_rows_is_an_error_without_a_base_run(cli):
    write_config("more.yaml", MORE_CONFIG)
    Path("more.csv").write_text("text,label\n")

    assert cli("train", "more.yaml", "--run-dir", "next").code == 3
