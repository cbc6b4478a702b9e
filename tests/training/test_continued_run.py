"""A run that goes on from another: joined data, a grown vocabulary and head, exact resume, and what has changed."""

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
from support.small_runs import model_hash, result, run_all, stop_after
from support.tiny_encoder import SHAPE

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import load_config
from encoder_cls.data.dataset import NO_TEXTS
from encoder_cls.data.load_dataset import load_all_data
from encoder_cls.errors import ConfigError, DataError, StoppedError
from encoder_cls.evaluation import figures
from encoder_cls.evaluation.comparisons import compare_with_base
from encoder_cls.run.run_folder import RunDir
from encoder_cls.training import progress
from encoder_cls.training.encoder import start_from
from encoder_cls.training.plan import CONTINUED_EPOCHS
from encoder_cls.training.prepare import prepare

OLD, NEW = {"red": 20, "green": 20}, {"green": 14, "blue": 20}
TRAIN = "train: {epochs: 3, batch_size: 8, learning_rate: 0.01, log_every: 2, patience: null}"


def write(
    name: str, sizes: dict[str, int], *, seed: int, words: str = "w"
) -> list[tuple[str, str]]:
    """A file of texts that name their class among other words."""
    random = np.random.default_rng(seed)
    rows = []
    for label, size in sizes.items():
        for number in range(size):
            others = [f"{words}{i}" for i in random.integers(0, 12, 3)]
            rows.append((" ".join([*others, label, f"{words}{seed}x{number}", "end"]), label))
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return rows


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    """A folder with a finished run, `old`, one that goes on from it, `new`, and the data and configs of both."""
    folder = tmp_path_factory.mktemp("old")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in PLOTS:
            patch.setattr(figures, name, blank_plot)
        write("old.csv", OLD, seed=0)
        write("old_test.csv", {"red": 6, "green": 6}, seed=1)
        write("new.csv", NEW, seed=2, words="v")
        write("new_test.csv", {"blue": 6, "red": 3}, seed=3)
        shape = json.dumps(SHAPE | {"linear": True})
        Path("old.yaml").write_text(
            f"data: {{train: old.csv, test: old_test.csv, validation_fraction: 0.2}}\nmodel: {shape}\n"
            f"tokenizer: {{min_frequency: 1}}\npretrain: {{epochs: 0}}\n{TRAIN}\n"
        )
        Path("new.yaml").write_text(
            f"data: {{train: new.csv, test: new_test.csv, validation_fraction: 0.2}}\n{TRAIN}\n"
        )
        with encoders_joining():
            run_all(load_config(Path("old.yaml")), folder / "old")
            run_all(config(), folder / "new")
    return folder


@pytest.fixture
def bare_trainings(blank_plots, monkeypatch):
    """Here runs end as they do for a user, with small weights."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_CHECKPOINTS", 0)


@pytest.fixture(autouse=True)
def _here(old, tmp_path, monkeypatch):
    """Each test has files of its own."""
    work = tmp_path / "work"
    shutil.copytree(old, work)
    for recorded in work.glob("*/config.yaml"):
        recorded.write_text(recorded.read_text().replace(str(old), str(work)))
    monkeypatch.chdir(tmp_path / "work")


def config(*overrides: str):
    return load_config(Path("new.yaml"), overrides, from_run=Path("old"))


def texts_of(name: str) -> set[str]:
    with Path(name).open(newline="") as file:
        return {row["text"] for row in csv.DictReader(file)}


def test_data_is_joined_and_each_text_stays_on_its_side():
    """New rows that the base run held out, or was tested on, teach nothing; what it learned from is not doubled."""
    former = load_all_data(load_config(Path("old/config.yaml")))
    known = [former.train.texts[0], former.validation.texts[0].upper(), former.test.texts[0]]
    with Path("new.csv").open("a") as file:
        file.writelines(f"{text},red\n" for text in known)
    with Path("new_test.csv").open("a") as file:
        file.write(f"{former.train.texts[1]},red\n")
    dataset = load_all_data(config())
    assert dataset.label_names == ("green", "red", "blue")
    assert [*dataset.train.texts][: len(former.train)] == [*former.train.texts]
    learned = set(dataset.train.texts)
    assert len(learned) == len(dataset.train) <= 20 + 20 + 14 + 20
    assert not learned & {*known[1:], *dataset.validation.texts, *dataset.test.texts}
    assert set(former.validation.texts) < set(dataset.validation.texts)
    assert set(dataset.test.texts) == texts_of("old_test.csv") | texts_of("new_test.csv") - {
        former.train.texts[1]
    }
    for split in (dataset.train, dataset.validation, dataset.test):
        assert all(
            dataset.label_names[label] in text
            for text, label in zip(split.texts, split.labels, strict=True)
        )
        assert all(
            text in Path(where.split(":")[0]).read_text()
            for text, where in zip(split.texts, split.where, strict=True)
        )
    assert (
        "test: 1 of 10 new texts are left out, which old has already, or texts like them"
        in dataset.notes
    )


def test_texts_like_those_of_another_split_are_left_out():
    """Punctuation and digits do not count, as in what is held out; what is like a learned text is learned."""

    def table(name: str, texts: Iterable[str]) -> str:
        rows = (f"{text},{'red' if row % 2 else 'green'}\n" for row, text in enumerate(texts))
        Path(name).write_text("text,label\n" + "".join(rows))
        return name

    one, two, three = (
        ["".join(word) for word in product(letter, "bcdf", "aeiou")] for letter in "kmp"
    )
    Path("base").mkdir()
    base = load_config(
        None, [f"data.train={table('one.csv', one)}", f"data.test={table('two.csv', two)}"]
    )
    Path("base/config.yaml").write_text(base.to_yaml())
    former = load_all_data(base)
    held_out, tested, learned = (
        f"{it.texts[0]} - 42!!" for it in (former.validation, former.test, former.train)
    )
    new = [
        f"data.train={table('new.csv', [held_out, tested, learned, *three])}",
        f"data.test={table('t.csv', [learned])}",
    ]
    dataset = load_all_data(load_config(None, new, from_run=Path("base")))
    assert sorted([*dataset.train.texts, *dataset.validation.texts]) == sorted(
        [*one, learned, *three]
    )
    assert learned in dataset.train.texts
    assert [*dataset.test.texts] == two
    assert (
        "train: 2 of 23 new texts are left out, which base has already, or texts like them"
        in dataset.notes
    )


def test_groups_stay_on_their_side(tmp_path):
    """New rows of groups that are in another split of the base run are left out, and this is noted."""

    def table(name: str, first: int) -> None:
        rows = (f"w{row} {row % 2},{row % 2},c{row % 12}\n" for row in range(first, first + 60))
        Path(name).write_text("text,label,customer\n" + "".join(rows))

    table("a.csv", 0), table("b.csv", 60), table("c.csv", 120)
    keys = ["data.group_column=customer", "model.encoder=false"]
    run = RunDir(Path("grouped"))
    run_all(
        load_config(None, ["data.train=a.csv", "data.validation_fraction=0.2", *keys]), run.path
    )
    new = ["data.train=b.csv", "data.test=c.csv", *keys]
    dataset = load_all_data(load_config(None, new, from_run=run.path))
    splits = [
        set(split.groups.tolist()) for split in (dataset.train, dataset.validation, dataset.test)
    ]
    assert sum(map(len, splits)) == len(set.union(*splits)) > 0, splits
    assert any(
        "new texts are left out, whose groups grouped has in another split" in note
        for note in dataset.notes
    )
    forgotten = load_all_data(load_config(None, [new[0]], from_run=run.path))
    assert "grouped keeps groups together; name their column of the new data, too" in " ".join(
        forgotten.notes
    )


def test_old_words_and_classes_keep_their_weights():
    """Numbers of old words stay, since pairs of words are found by them; new words and classes begin as they would."""
    setup = prepare(config())
    former = load_classifier(Path("old"), engine="numpy")
    old_words, words = former.tokenizer.get_vocab(), setup.tokenizer.get_vocab()
    assert old_words.items() < words.items()
    assert "v3" in words.keys() - old_words.keys()
    fresh = setup.new_model(setup.config.seed).state_dict()
    model = setup.new_model(setup.config.seed)
    start_from(former, model, label_names=setup.dataset.label_names)
    started, weights = model.state_dict(), former.encoder.named_weights()
    assert set(weights) == set(started)
    for name, weight in started.items():
        if name == "encoder.embedding.tokens.weight":
            assert np.array_equal(weight[: len(old_words)], weights[name])
            assert np.array_equal(weight[len(old_words) :], fresh[name][len(old_words) :])
        elif name.startswith("head.linear."):
            order = [former.label_names.index("green"), former.label_names.index("red")]
            assert np.array_equal(weight[:2], np.asarray(weights[name])[order])
            assert np.array_equal(weight[2:], fresh[name][2:])
        else:
            assert np.array_equal(weight, weights[name])


def test_what_is_auto_is_shorter_than_from_nothing():
    Path("new.yaml").write_text("data: {train: new.csv}\n")
    setup = prepare(config())
    assert setup.plan.pretraining is None
    assert setup.plan.training.epochs < prepare(load_config(Path("new.yaml"))).plan.training.epochs
    assert setup.config.model.d_model == SHAPE["d_model"]
    assert CONTINUED_EPOCHS[1] < 8


def test_where_the_base_run_has_no_encoder_a_new_one_starts():
    """With the epochs of a run from nothing; the words of the base run keep their numbers."""
    run_all(load_config(Path("old.yaml"), ["model.encoder=false"]), Path("linear"))
    Path("new.yaml").write_text("data: {train: new.csv}\n")
    continued = load_config(Path("new.yaml"), ["model.encoder=true"], from_run=Path("linear"))
    prepared = prepare(continued)
    assert "linear has no encoder, so a new one is trained from scratch" in "".join(
        prepared.warnings()
    )
    assert prepared.plan.training.epochs > CONTINUED_EPOCHS[1]
    short = ["model.encoder=true", "train.epochs=1", "pretrain.epochs=0"]
    run_all(load_config(Path("new.yaml"), short, from_run=Path("linear")), Path("encoder"))
    vocabularies = [
        load_classifier(Path(run)).tokenizer.get_vocab() for run in ("linear", "encoder")
    ]
    assert vocabularies[0].items() <= vocabularies[1].items()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_goes_on_and_reports_what_has_changed(cli):
    """By the command; the base run stays as it is, byte for byte, and `eval` says the same again."""
    before = files_of(Path("old"))
    shutil.rmtree("new")
    trained = cli("train", "new.yaml", "--from", "old", "--run-dir", "new")
    assert trained.code == 0, trained.err
    assert files_of(Path("old")) == before
    assert "on 12 texts of the test split of old, " in trained.out
    report = json.loads(Path("new/eval/report.json").read_text())
    former = report["former"]
    assert (former["split"], former["texts"]) == ("test", 12)
    assert not [key for key in former if "macro_f1" in key]
    with Path("new/eval/changed_predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        changed = list(csv.DictReader(file))
    old, new = load_classifier(Path("old")), load_classifier(Path("new"))
    with Path("old_test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    predictions = [
        [it.label for it in model.predict([row["text"] for row in rows])] for model in (old, new)
    ]
    expected = [
        (row["text"], *pair)
        for row, pair in zip(rows, zip(*predictions, strict=True), strict=True)
        if len({*pair}) > 1
    ]
    assert [(row["text"], row["before"], row["now"]) for row in changed] == expected
    assert former["changed"] == len(expected)
    right = [
        sum(a == row["label"] for a, row in zip(of_model, rows, strict=True))
        for of_model in predictions
    ]
    assert former["accuracy_difference"] == pytest.approx((right[0] - right[1]) / 12)
    evaluated = cli("eval", "new")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(Path("new/eval/report.json").read_text())["former"] | {
        "run": ""
    } == former | {"run": ""}
    again = cli("train", "--run-dir", "new", "--resume")
    assert "this run is finished" in again.err


def test_recall_that_fell_is_named():
    """A class that is answered less often is named, the worst first."""
    setup = prepare(config())
    former = load_classifier(Path("old"))
    worse = load_classifier(Path("old"))
    worse.label_names = tuple(reversed(worse.label_names))  # all that was right is wrong
    found = compare_with_base(worse, former, setup.dataset.base, run="old")
    assert len(found.changed) == found.num_texts == 12
    recalls = {name: (now, before) for name, (before, now) in found.lost_recall.items()}
    assert all(now < before for now, before in recalls.values())
    assert list(found.sentences())[-1].startswith("recall fell: ") == bool(recalls)
    assert not compare_with_base(former, former, setup.dataset.base, run="old").changed


@pytest.mark.usefixtures("encoder_joins")
@pytest.mark.parametrize("steps", [1, 9])
def test_a_stopped_run_goes_on_exactly(steps):
    with pytest.raises(StoppedError):
        run_all(config(), Path("stopped"), stop_signal=stop_after(steps))
    run_all(config(), Path("stopped"), resume=True)
    assert result(Path("stopped")) == result(Path("new"))
    assert model_hash(Path("new")) != model_hash(Path("old"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda: Path("old/model/README.md").unlink(), ConfigError, "old: is not a finished run"),
        (
            lambda: Path("old.csv").unlink(),
            DataError,
            r"old: data\.train: .*old\.csv: no such file or folder",
        ),
        (
            lambda: write("old.csv", OLD, seed=7),
            DataError,
            "old: its training data .* has changed since it was trained",
        ),
        (
            "data.train=old.csv data.test=null",
            DataError,
            r"nothing is left to learn from: train: 40 of 40",
        ),
        (lambda: shutil.rmtree("old"), ConfigError, r"old/config\.yaml: cannot read the config"),
        ("model=3", ConfigError, "model: "),
        ("model.d_model=32", ConfigError, "model: the encoder of old has another shape"),
        ("tokenizer.lowercase=false", ConfigError, "tokenizer: old has another"),
        (
            "data.label_separator='|'",
            ConfigError,
            "a text may have one label there, and several labels in the new data",
        ),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused(change, error, message):
    if callable(change):
        change()
    with pytest.raises(error, match=message):
        prepare(config(*(change.split() if isinstance(change, str) else [])))


def test_without_the_base_run_a_finished_one_is_whole(cli):
    """It answers and is scored on other data; its own data, and with it any training, is refused with exit 3."""
    shutil.rmtree("old")
    assert "this run is finished" in cli("train", "--run-dir", "new", "--resume").err
    assert cli("eval", "new", "--data", "new_test.csv").code == 0
    for arguments in (
        ("eval", "new"),
        ("train", "--config", "new/config.yaml", "--run-dir", "again"),
    ):
        outcome = cli(*arguments)
        assert (outcome.code, "old/config.yaml: no such file" in outcome.err) == (3, True), (
            outcome.err
        )


def test_the_new_data_is_to_be_named(cli):
    """By a config or by an override; the bundled example, which is what there is without, is none of it."""
    outcome = cli("train", "--from", "old")
    assert (outcome.code, "--set data.train=PATH" in outcome.err) == (2, True)
    outcome = cli("train", "--from", "old", "--set", "data.train=new.csv", "--dry-run")
    assert (outcome.code, yaml.safe_load(outcome.out)["data"]["train"]) == (0, "new.csv"), (
        outcome.err
    )
    assert "3 classes" in outcome.err


def test_runs_go_on_one_after_the_other():
    """The third has the data of the first."""
    write("third.csv", {"blue": 8, "black": 8}, seed=9)
    Path("third.yaml").write_text("data: {train: third.csv, validation_fraction: 0.2}\n")
    dataset = load_all_data(load_config(Path("third.yaml"), from_run=Path("new")))
    assert dataset.label_names == ("green", "red", "blue", "black")
    assert texts_of("old.csv") <= {*dataset.train.texts, *dataset.validation.texts}
    assert dataset.unlabelled == NO_TEXTS


def held_out_texts() -> list[str]:
    """The texts that the run `old` held out for validation."""
    return [*load_all_data(load_config(Path("old/config.yaml"))).validation.texts]


def write_new(rows: Iterable[tuple[str, str]]) -> None:
    with Path("more.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


MORE = "data: {train: more.csv}\ntrain: {epochs: 1}\n"


def more(*overrides: str):
    """The config of a run that adds `more.csv` to the data of `old`."""
    Path("more.yaml").write_text(MORE)
    return load_config(Path("more.yaml"), overrides, from_run=Path("old"))


def test_a_new_class_whose_texts_are_all_held_out_is_refused(cli):
    """By the base run, so that none can be learned from; with one more text it is a class."""
    rows = [(text, "black") for text in held_out_texts()]
    rows += [(f"v{number} red something", "red") for number in range(9)]
    write_new(rows)
    for weights in ("none", "balanced"):
        with pytest.raises(DataError, match="no text of these new classes can be learned from"):
            prepare(more(f"train.class_weights={weights}"))

    write_new([*rows, ("a text of the new class", "black")])
    dataset = prepare(more("train.class_weights=balanced")).dataset
    counts = dataset.train.class_counts(len(dataset.label_names))
    assert dict(zip(dataset.label_names, counts, strict=True))["black"] == 1


def test_a_new_class_is_never_held_out_as_a_whole():
    """Rows that the base run has are left out first, then others are held out, of each class all but one at most."""
    for number in range(8):
        few = [("the only new text of it", "black")]
        write_new([*((text, "black") for text in held_out_texts()), *few])
        dataset = load_all_data(more(f"data.split_seed={number}", "data.validation_fraction=0.5"))
        assert "the only new text of it" in {*dataset.train.texts}


def test_a_row_of_each_class_is_enough_for_a_night():
    """The base run has validation texts."""
    write_new([("a single text of it", "red"), ("another text of it", "green")])
    dataset = load_all_data(more())
    former = load_all_data(load_config(Path("old/config.yaml")))
    assert [*dataset.validation.texts] == [*former.validation.texts]
    assert len(dataset.train) == len(former.train) + 2


def test_a_text_beside_one_that_the_base_run_learned_is_not_held_out():
    """It would be scored as new."""
    former = load_all_data(load_config(Path("old/config.yaml")))
    alike = [text.upper() for text in former.train.texts[:12]]
    rows = [(text, "black") for text in alike]
    write_new([*rows, *((f"v words {letter}", "black") for letter in "abcd")])
    dataset = load_all_data(more("data.validation_fraction=0.5"))
    assert {*alike} <= {*dataset.train.texts}
    assert len(dataset.validation) == len(former.validation) + 2


def test_a_night_without_new_rows_has_an_exit_code_of_its_own(cli):
    """Also where all rows are known; a file that cannot be read has that of broken data."""
    for content, code in (
        ("text,label\n", 6),
        (Path("old.csv").read_text(), 6),
        ("text\nno labels\n", 3),
    ):
        Path("more.csv").write_text(content)
        Path("more.yaml").write_text(MORE)
        outcome = cli("train", "more.yaml", "--from", "old", "--run-dir", "night")
        assert (outcome.code, outcome.err.count("error: ")) == (code, 1), outcome.err
    Path("more.csv").write_text("text,label\n")
    # There is no run to go on from.
    assert cli("train", "more.yaml", "--run-dir", "night").code == 3


def test_labelled_texts_are_left_out_of_the_pool_of_the_base_run():
    """A pool of which some texts were labelled: the new run guesses no class of a text that it learns or is scored on."""
    pool = [f"pool text {letter}" for letter in "abcdefgh"]
    Path("pool.csv").write_text("\n".join(["text", *pool]) + "\n")
    base = load_config(Path("old.yaml"), ["data.unlabelled=pool.csv"])
    Path("with_pool").mkdir()
    Path("with_pool/config.yaml").write_text(base.to_yaml())
    assert [*load_all_data(base).unlabelled.texts] == pool

    write_new([(pool[0], "red"), (pool[1].upper(), "green"), (f"{pool[2]} - 1!", "red")])
    Path("more.yaml").write_text(MORE)
    dataset = load_all_data(load_config(Path("more.yaml"), from_run=Path("with_pool")))
    assert [*dataset.unlabelled.texts] == pool[3:]
    assert any("3 of 8 texts without labels are left out" in note for note in dataset.notes)
