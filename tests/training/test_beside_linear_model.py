"""Training an encoder beside a linear model: what is fitted, validated and saved."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
from support.events import Event, Stepped, StepsDecided, Validated, recorded, train_until
from support.small_runs import (
    COLOURS,
    CPU,
    WITH_LINEAR,
    make_config,
    metric_rows,
    model_hash,
    run_all,
    write_data,
)

from encoder_cls.classifier import validation_result
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.encoder_training.distributed import ALONE
from encoder_cls.errors import StoppedError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.linear_training import linear_fit, many_labels
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.metrics.log_loss import cross_entropy, one_hot
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.run.evaluate import evaluate
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.stop import stopping_at
from encoder_cls.training import plan as training_plan
from encoder_cls.training.classification_task import ClassificationTask
from encoder_cls.training.linear_stage import (
    FittedLinear,
    broadcast_pseudo_labels,
    fit_linear_classifier,
)
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.train import train


def validations_of(events: list[Event]) -> list[Validated]:
    """Return the validations of a run."""
    return [event for event in events if isinstance(event, Validated)]


def validation_rows(run: RunDir) -> list[dict[str, object]]:
    """Return the metrics of a run's validations."""
    return [row for row in metric_rows(run.path) if row["split"] == "validation"]


# Which of the two is the model


@pytest.mark.usefixtures("encoder_joins")
def test_the_linear_model_is_the_model_from_the_start(tmp_path):
    """A run that is stopped before the encoder's first validation has a calibrated model."""
    config = make_config(tmp_path, **WITH_LINEAR, pretrain={"epochs": 1})
    run = RunDir(tmp_path / "run")
    setup = prepare(config)

    *_, event = train_until(lambda event: isinstance(event, Validated), setup, run, device=CPU)

    assert event.name == "model"
    assert event.step == 0
    assert event.is_best
    first = load_classifier(run.path)
    assert first.parts == ("linear",)
    assert first.mixture.weights != {"linear": 1.0}
    assert first.logits(setup.texts).shape == (48, 3)


@pytest.mark.usefixtures("encoder_joins")
def test_when_the_encoder_joins_only_the_file_of_weights_changes(tmp_path):
    config = make_config(tmp_path, **WITH_LINEAR, pretrain={"epochs": 1})
    run = RunDir(tmp_path / "run")
    train_until(lambda event: isinstance(event, Validated), prepare(config), run, device=CPU)
    config_before = (run.model / "config.json").read_bytes()

    run_all(config, run.path, resume=True)

    assert load_classifier(run.path).parts == ("encoder", "linear")
    assert (run.model / "config.json").read_bytes() == config_before
    assert [row["step"] for row in validation_rows(run)] == [0, 12, 18, 24]


def is_after_first_validation(event: Event) -> bool:
    """Return whether an event is the first step after the first validation of the encoder."""
    return isinstance(event, Stepped) and event.step == 7


def set_accuracies(monkeypatch, accuracies: list[float]) -> None:
    """Give these accuracies to the validations, one after another."""
    remaining = iter(accuracies)
    compute_metrics = validation_result.compute_metrics

    def compute_metrics_with_accuracy(*args):
        return replace(compute_metrics(*args), accuracy=next(remaining))

    monkeypatch.setattr(validation_result, "compute_metrics", compute_metrics_with_accuracy)


@pytest.mark.slow
@pytest.mark.usefixtures("encoder_joins")
def test_a_resumed_run_keeps_the_better_model(tmp_path, monkeypatch):
    """The linear model, which a resumed run fits again, does not replace a better model."""
    set_accuracies(monkeypatch, [0.4, 0.4, 0.5, 0.9, 0.5, 0.8, 0.7])
    config = make_config(tmp_path, linear=True, monitor="accuracy")
    run = RunDir(tmp_path / "run")
    train_until(is_after_first_validation, prepare(config), run, device=CPU)
    hash_before = model_hash(run.path)

    events = run_all(config, run.path, resume=True, with_report=False, with_tensorboard=False)

    last_two = validations_of(events)[-2:]
    assert [event.is_best for event in last_two] == [False, False]
    assert model_hash(run.path) == hash_before
    assert load_classifier(run.path).parts == ("encoder", "linear")


@pytest.mark.usefixtures("encoder_joins")
def test_an_encoder_that_does_not_help_is_left_out(tmp_path, monkeypatch):
    """The linear model stays the model, even if the encoder's best step was before a stop."""
    # The linear model is as good when a resumed run fits it again.
    set_accuracies(monkeypatch, [0.4, 0.4, 0.9, 0.5, 0.9, 0.8, 0.7])
    config = make_config(tmp_path, linear=True, monitor="accuracy")
    run = RunDir(tmp_path / "run")
    is_validated = False

    def note_validation(event: Event) -> None:
        nonlocal is_validated
        if isinstance(event, Validated) and event.step > 0:
            is_validated = True

    def stop_signal() -> int | None:
        if is_validated:
            return signal.SIGTERM
        return None

    with pytest.raises(StoppedError), stopping_at(stop_signal):
        recorded(prepare(config), run, on_event=note_validation, device=CPU)
    events = run_all(config, run.path, resume=True)

    assert [event.is_best for event in validations_of(events)] == [False, False]
    finished = events[-1]
    assert finished.best_step == 0
    assert finished.gain == ("accuracy", 0.9, 0.8)
    assert load_classifier(run.path).parts == ("linear",)


def test_without_time_for_an_encoder_the_linear_model_is_the_model(tmp_path):
    """Even a run with almost no time has a report, but no pictures."""
    config = make_config(tmp_path, linear=True, pretrain={"epochs": 1}, time_budget="0.001s")
    run = RunDir(tmp_path / "run")

    events = run_all(config, run.path)

    decided = [(event.name, event.steps) for event in events if isinstance(event, StepsDecided)]
    assert decided == [("pretraining", 0), ("model", 0)]
    assert not any(isinstance(event, Stepped) for event in events)
    assert events[-1].gain.with_encoder is None
    assert run.is_finished()
    assert (run.eval / "report.html").exists()
    assert not (run.eval / "confusion_matrix.png").exists()
    assert not any("confusion_matrix" in row for row in metric_rows(run.path))
    assert load_classifier(run.path).parts == ("linear",)


def test_too_much_text_for_a_linear_model_leaves_the_encoder_as_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(training_plan, "MAX_LINEAR_TEXT", 10)
    monkeypatch.setattr(training_plan, "MAX_STREAMED_WORK", 10)

    run_all(make_config(tmp_path, linear=True), tmp_path / "run")

    classifier = load_classifier(tmp_path / "run")
    assert classifier.linear is None
    assert len(classifier.mixture.weights) == 1
    for row in metric_rows(tmp_path / "run"):
        assert not any(key.startswith("linear") for key in row)


@pytest.mark.parametrize(
    ("module", "fit_name", "most_labelled"),
    [
        (many_labels, "fit_linear", 0),
        (linear_fit, "fit_linear_from_few_labels", 100),
    ],
)
def test_a_model_exists_while_the_linear_model_is_fitted(
    tmp_path, monkeypatch, module, fit_name, most_labelled
):
    """A quick, calibrated model is saved first. A resumed run keeps the model that it has."""
    monkeypatch.setattr(training_plan, "MAX_LABELLED", most_labelled)
    setup = prepare(make_config(tmp_path, linear=True))
    run = RunDir(tmp_path / "run")
    fit = getattr(module, fit_name)
    hashes = []
    labels = []

    def fit_after_a_look(*args, **options):
        (prediction,) = load_classifier(run.path).predict(["w1 red end"])
        hashes.append(model_hash(run.path))
        labels.append(prediction.label)
        return fit(*args, **options)

    monkeypatch.setattr(module, fit_name, fit_after_a_look)
    train_until(is_after_first_validation, setup, run, device=CPU)
    hash_before_resumption = model_hash(run.path)
    run_all(setup.config, run.path, resume=True, with_report=False, with_tensorboard=False)

    quick_hash, hash_in_resumption = hashes
    assert labels[0] == "red"
    assert quick_hash != hash_before_resumption
    assert hash_in_resumption == hash_before_resumption


# What the models learn, and how they are scored


def test_the_encoder_prefers_a_class_of_more_weight_if_words_decide_nothing(tmp_path):
    # Each word occurs equally often in each class.
    texts = [f"w{number // 3 % 20}" for number in range(180)]
    lines = ["text,label"]
    lines += [f"{text},{COLOURS[number % 3]}" for number, text in enumerate(texts)]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")

    # Validate only at the end, because it is chance here which weights are best.
    config = make_config(tmp_path, class_weights={"red": 10.0}, validate_every=1000)
    run_all(config, tmp_path / "run")

    predictions = load_classifier(tmp_path / "run").predict(texts)
    share = np.mean([prediction.label == "red" for prediction in predictions])
    assert share > 0.9


def test_the_best_validation_has_the_scores_of_the_report(tmp_path):
    """Validations and the report weight all texts alike, even if training has class weights."""
    config = make_config(tmp_path, **WITH_LINEAR, class_weights={"red": 10.0})
    run = RunDir(tmp_path / "run")
    run_all(config, run.path)

    (best,) = [row for row in metric_rows(run.path) if row["split"] == "best_validation"]
    (validated,) = [row for row in validation_rows(run) if row["step"] == best["step"]]

    for name in ("loss", "accuracy", "macro_f1", "ece"):
        assert best[name] == pytest.approx(validated[name], abs=0.01), name


def words() -> list[str]:
    """Make a hundred words of three letters."""
    made = []
    for first in "bdfgklmnpr":
        for vowel in "aeiou":
            made += [f"{first}{vowel}x", f"{first}{vowel}z"]
    return made


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory) -> Prepared:
    """A run on 60 labelled and 200 unlabelled texts.

    Each text has two of the 30 words of its class, and a third word of any class.
    """
    folder = tmp_path_factory.mktemp("few")
    random = np.random.default_rng(1)
    shuffled = random.permutation(words())
    texts = []
    for number in range(260):
        first = 30 * (number % 3)
        own_words = random.choice(shuffled[first : first + 30], 2)
        any_word = random.choice(shuffled)
        texts.append(" ".join([*own_words, any_word]))

    lines = ["text,label"]
    lines += [f"{texts[number]},{COLOURS[number % 3]}" for number in range(60)]
    (folder / "train.csv").write_text("\n".join(lines))
    unlabelled = folder / "more.txt"
    unlabelled.write_text("\n".join(texts[60:]))

    config = make_config(
        folder,
        linear=True,
        epochs=2,
        data={"unlabelled": str(unlabelled)},
        model={"encoder": True},
    )
    return prepare(config)


@pytest.fixture(scope="module")
def fitted_to_few(few_and_many) -> FittedLinear:
    """The linear model fitted to few labels."""
    return fit_linear_classifier(few_and_many)


@pytest.fixture(scope="module")
def run_of_few(few_and_many, tmp_path_factory) -> RunDir:
    """The finished run on few labels."""
    run = RunDir(tmp_path_factory.mktemp("few") / "run")
    train(few_and_many, run, device=CPU)
    return run


def loss_of(logits: Logits, setup: Prepared) -> float:
    """Return the cross-entropy of the labels of the validation texts."""
    return cross_entropy(softmax(logits), one_hot(setup.dataset.known_validation.labels, 3))


def test_the_final_fit_to_few_labels_includes_the_validation_texts(
    few_and_many, fitted_to_few, run_of_few
):
    """The saved model has learned from validation texts; the encoder's teacher has not."""
    texts = few_and_many.validation_texts
    saved_logits = load_classifier(run_of_few.model).linear.logits(texts)
    fitted_logits = fitted_to_few.classifier.linear.logits(texts)
    teacher_logits = fitted_to_few.fit.few_labels.teacher.logits(texts)

    # The saved weights are rounded to a small type.
    assert np.array_equal(saved_logits.argmax(axis=1), fitted_logits.argmax(axis=1))
    assert loss_of(saved_logits, few_and_many) < loss_of(teacher_logits, few_and_many)

    # The teacher learns from more unlabelled texts than the model that predicts out of fold.
    held_out_logits = fitted_to_few.validation_logits
    correlations = np.corrcoef(held_out_logits.ravel(), teacher_logits.ravel())
    assert correlations[0, 1] > 0.9


def test_few_labels_are_scored_by_cross_validation(few_and_many, fitted_to_few, run_of_few):
    """The validations, the report and `eval` all use the held-out predictions."""
    labels = few_and_many.dataset.known_validation.labels

    table = HeldOutPredictions.of_run(run_of_few.held_out_predictions)
    assert sorted(table.train.rows) == list(range(len(few_and_many.dataset.train)))
    assert table.validation.rows.tolist() == list(range(len(labels)))
    assert np.array_equal(table.validation.logits, fitted_to_few.validation_logits)
    accuracy = (table.validation.logits.argmax(axis=1) == labels).mean()

    # The first validation scores the linear model alone.
    alone, with_encoder, *_ = validation_rows(run_of_few)
    assert alone["accuracy"] == accuracy
    assert with_encoder["linear_accuracy"] == accuracy

    report = json.loads((run_of_few.eval / "report.json").read_bytes())
    evaluated = evaluate(run_of_few.path)
    assert report["parts"]["linear"]["accuracy"] == accuracy
    assert evaluated.evaluation.parts["linear"]["accuracy"] == accuracy
    assert evaluated.metrics.accuracy == report["accuracy"]

    assert len(labels) > 1
    assert report["num_refitted"] == len(labels)
    assert evaluated.run_facts.num_refitted == len(labels)
    line = f"also trained on {len(labels)} validation texts; the scores here are from before"
    assert line in str(evaluated)
    assert line in (run_of_few.eval / "report.html").read_text(encoding="utf-8")


def test_the_final_fit_includes_the_validation_texts(tmp_path, monkeypatch):
    """The run saves held-out predictions for validation texts before the final fit."""
    monkeypatch.setattr(training_plan, "MAX_LABELLED", 0)
    setup = prepare(make_config(tmp_path, linear=True))
    run = RunDir(tmp_path / "run")
    train(setup, run, device=CPU)
    texts = setup.validation_texts

    # The held-out predictions are those of a fit to the training texts alone.
    train_split = setup.dataset.train
    options = LinearOptions(setup.plan.linear_max_tokens, True, np.ones(3, np.float32))
    counted = CountedTexts.of(setup.train_texts, train_split.labels, options)
    before, _ = fit_linear(counted, split_groups=train_split.split_groups)
    kept_logits = HeldOutPredictions.of_run(run.held_out_predictions).validation.logits
    assert np.allclose(kept_logits, before.logits(texts), atol=1e-4)

    # The saved model has also learned from the validation texts.
    saved = load_classifier(run.model).linear
    assert loss_of(saved.logits(texts), setup) < loss_of(kept_logits, setup)
    assert len(saved.feature_ids) > len(before.feature_ids)
    sentence = "the linear model in the end also on the 12 held out for validation"
    assert sentence in run.model_card.read_text()


def fit_of_continued_run(folder, base_config: Config) -> tuple[Prepared, FittedLinear]:
    """Train a base run, prepare a run that continues it, and fit its linear model."""
    run_all(base_config, folder / "former")

    (folder / "new").mkdir()
    config = make_config(folder / "new", linear=True, texts=90)
    setup = prepare(config.model_copy(update={"from_run": str(folder / "former")}))
    return setup, fit_linear_classifier(setup)


def assert_not_refitted(setup: Prepared, fitted: FittedLinear) -> None:
    """Assert that the linear model has not learned from the validation texts."""
    logits = fitted.classifier.linear.logits(setup.validation_texts)
    assert np.array_equal(logits, fitted.validation_logits)


def test_validation_texts_of_a_base_run_are_not_learned_from(tmp_path, monkeypatch):
    """The tests of the plan have the other cases without a refit."""
    monkeypatch.setattr(training_plan, "MAX_LABELLED", 0)
    base_config = make_config(tmp_path, **WITH_LINEAR, epochs=1)

    setup, fitted = fit_of_continued_run(tmp_path, base_config)

    assert_not_refitted(setup, fitted)


def test_validation_texts_of_a_file_are_not_learned_from_though_labels_are_few(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    lines = write_data(other, texts=60).read_text().replace(" end,", " the end,")
    (other / "train.csv").write_text(lines)
    data = {"validation": str(other / "train.csv")}
    base_config = make_config(tmp_path, **WITH_LINEAR, epochs=1, data=data)

    setup, fitted = fit_of_continued_run(tmp_path, base_config)

    assert_not_refitted(setup, fitted)


def test_the_encoder_learns_a_teachers_predictions_for_unlabelled_texts(
    few_and_many, fitted_to_few
):
    """The targets of labelled texts are their labels, those of other texts are probabilities."""
    setup = few_and_many
    num_labelled = len(setup.dataset.train)
    rows = setup.encoder_rows
    assert len(rows) == len(setup.texts) == num_labelled + 200
    assert setup.where(rows[num_labelled]).endswith("more.txt:1")

    pseudo_labels = broadcast_pseudo_labels(setup, fitted_to_few, ALONE)
    task = ClassificationTask(setup, group=ALONE, pseudo_labels=pseudo_labels)
    targets = task.targets.probabilities_of(np.arange(len(rows))).numpy()

    labels = np.eye(3)[setup.dataset.train.labels]
    assert np.array_equal(targets[:num_labelled], labels)
    probabilities = softmax(fitted_to_few.fit.few_labels.teacher.logits(setup.texts))
    assert np.allclose(targets[num_labelled:], probabilities[num_labelled:], atol=1e-6)


def test_without_pseudo_labels_the_encoder_learns_from_labelled_texts_alone(few_and_many):
    """The encoder then has fewer texts and more epochs, and no teacher is fitted."""
    config = few_and_many.config

    def prepared(*, pseudo_labels: bool) -> Prepared:
        changes = {"epochs": "auto", "pseudo_labels": pseudo_labels}
        train_section = config.train.model_copy(update=changes)
        return prepare(config.model_copy(update={"train": train_section}))

    with_pseudo_labels = prepared(pseudo_labels=True)
    without = prepared(pseudo_labels=False)

    num_labelled = len(few_and_many.dataset.train)
    assert len(with_pseudo_labels.encoder_texts) == num_labelled + 200
    assert len(without.encoder_texts) == num_labelled
    assert with_pseudo_labels.plan.training.epochs < without.plan.training.epochs
    assert fit_linear_classifier(without).fit.few_labels.teacher is None


def test_texts_that_were_learned_from_are_no_measure_of_what_is_familiar(tmp_path, few_and_many):
    """New texts of the same kind are familiar, even though some of their words are new."""
    # Hold out half of the labelled texts, to have enough of them to measure familiarity.
    config = few_and_many.config
    data = config.data.model_copy(update={"validation_fraction": 0.5, "unlabelled": None})
    model = config.model.model_copy(update={"encoder": False})
    run = RunDir(tmp_path / "run")
    train(prepare(config.model_copy(update={"data": data, "model": model})), run, device=CPU)

    classifier = load_classifier(run.model)
    assert classifier.familiarity

    new_texts = list(few_and_many.dataset.unlabelled.texts)[:100]
    predictions = classifier.predict(new_texts)
    assert np.mean([prediction.unfamiliar for prediction in predictions]) < 0.2

    odd_predictions = classifier.predict(["zzz yyy xxx qqq", "qqq zzz"])
    assert all(prediction.unfamiliar for prediction in odd_predictions)
