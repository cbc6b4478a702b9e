"""A linear model of very many classes: naive Bayes and SVMs with sparse weights."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.naive_bayes import ComplementNB
from support.small_runs import LETTERS, config_of_many_topics, run_all

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.linear_training import cost, fit_data, linear_fit, many_classes, nb_svm
from encoder_cls.linear_training.cost import TooLittleTimeError
from encoder_cls.linear_training.features import CountedTexts, LinearOptions
from encoder_cls.linear_training.fit_data import FitData
from encoder_cls.linear_training.many_classes import naive_bayes
from encoder_cls.run.reference import read_reference
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import Reporter
from encoder_cls.training import linear_stage, plan
from encoder_cls.training.linear_stage import FittedLinear, fit_linear_classifier
from encoder_cls.training.prepare import prepare
from encoder_cls.weights import SparseTable, compress

NUM_CLASSES = 12
TEXTS_PER_CLASS = 25


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    """A run on texts of classes that count as very many, with two words of their class each."""
    monkeypatch.setattr(plan, "MANY_CLASSES", NUM_CLASSES)
    monkeypatch.setattr(nb_svm, "MAX_WORK", 1000)
    monkeypatch.setattr(many_classes, "MIN_VALIDATION", 10)

    return config_of_many_topics(tmp_path, classes=NUM_CLASSES, texts_per_class=TEXTS_PER_CLASS)


def keep_svms(monkeypatch: pytest.MonkeyPatch, *, kept: bool) -> None:
    """Keep SVMs in the sum whether they help or not, or keep none."""
    monkeypatch.setattr(many_classes, "MIN_GAIN", -1 if kept else 1)


@pytest.mark.parametrize("with_svms", [False, True])
def test_a_run_of_very_many_classes_has_sparse_weights(config, tmp_path, monkeypatch, with_svms):
    """The model that is saved predicts texts of each class correctly."""
    keep_svms(monkeypatch, kept=with_svms)

    events = run_all(config, tmp_path / "run")

    classifier = load_classifier(tmp_path / "run")
    table = classifier.linear.weights
    assert isinstance(table, SparseTable)
    assert (table.values < 0).any() == with_svms
    assert events[-1].report.evaluation.metrics.accuracy > 0.9
    texts = [f"topic{label}x1 topic{label}x2".translate(LETTERS) for label in range(NUM_CLASSES)]
    found = [prediction.label for prediction in classifier.predict(texts)]
    assert found == [f"class {label}" for label in range(NUM_CLASSES)]
    assert RunDir(tmp_path / "run").held_out_predictions.exists()


def test_the_features_and_weights_of_a_text_are_looked_up_as_in_a_whole_matrix(config, monkeypatch):
    """Also if the texts are predicted in several parts."""
    keep_svms(monkeypatch, kept=True)
    prepared = prepare(config)
    sparse = fit_linear_classifier(prepared).classifier.linear
    dense = replace(sparse, weights=compress(sparse.weights.dense(), "float32"))

    monkeypatch.setattr("encoder_cls.linear.linear_model.WEIGHTS_OF_SPARSE_PART", 2000)
    logits, familiarity = sparse.logits_and_familiarity(prepared.texts)
    expected_logits, expected_familiarity = dense.logits_and_familiarity(prepared.texts)

    np.testing.assert_allclose(logits, expected_logits, atol=1e-5)
    np.testing.assert_allclose(familiarity, expected_familiarity, atol=1e-5)


def test_all_work_is_reported_and_the_first_model_is_naive_bayes(config):
    shares: list[float] = []
    first: list[FittedLinear] = []

    class SharesReporter(Reporter):
        def progressed(self, share: float) -> None:
            shares.append(share)

    fit_linear_classifier(prepare(config), on_preliminary=first.append, reporter=SharesReporter())

    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    (fitted,) = first
    assert (fitted.classifier.linear.weights.values > 0).all()
    assert fitted.validation.scores["accuracy"] > 0.9


def test_without_time_for_svms_naive_bayes_is_the_model(config, monkeypatch):
    """A resumed run fits the same model again."""
    monkeypatch.setattr(cost, "affordable_effort", lambda efforts, *_, **__: efforts[-1])
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic() + 600)
    fitted = fit_linear_classifier(prepare(config))

    again = fit_linear_classifier(prepare(config), work=fitted.fit.work)

    assert fitted.fit.effort is cost.NAIVE_BAYES
    weights = fitted.classifier.linear.weights.values
    assert (weights > 0).all()
    assert again.classifier.linear.weights.values.tobytes() == weights.tobytes()


def test_svms_are_not_timed_if_there_is_surely_no_time_for_them(config, monkeypatch):
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic())
    monkeypatch.delattr(many_classes, "seconds_of_fit")

    fitted = fit_linear_classifier(prepare(config))

    assert fitted.fit.effort is cost.NAIVE_BAYES


def test_with_few_validation_texts_the_sum_is_chosen_on_training_texts(config, monkeypatch):
    """Those are held out, and learned from in the end."""
    monkeypatch.setattr(many_classes, "MIN_VALIDATION", 10_000)
    num_learned = []
    naive_bayes = many_classes.naive_bayes

    def counting(texts: CountedTexts) -> many_classes.SparseClassifiers:
        num_learned.append(len(texts))
        return naive_bayes(texts)

    monkeypatch.setattr(many_classes, "naive_bayes", counting)
    fitted = fit_linear_classifier(prepare(config))

    num_train = len(prepare(config).dataset.train)
    num_validation = len(prepare(config).dataset.known_validation)
    assert num_learned[0] < num_train
    assert num_learned[1:] == [num_train, num_train + num_validation]
    assert fitted.validation.scores["accuracy"] > 0.9


def test_naive_bayes_ranks_classes_as_that_of_scikit_learn(config):
    """A text of weight 2 counts twice."""
    prepared = prepare(config)
    train = prepared.dataset.train
    options = LinearOptions(64, False, np.ones(NUM_CLASSES, np.float32), sparse_weights=True)
    weights = np.random.default_rng(0).integers(1, 3, len(train)).astype(np.float32)
    counted = CountedTexts.of(prepared.texts, train.labels, options, weights)

    found = naive_bayes(counted).margins(counted.features)

    has_feature = (counted.features > 0).astype(np.float64)
    theirs = ComplementNB().fit(has_feature, train.labels, sample_weight=weights)
    # scikit-learn divides the counts of a class by their sum, and ours by the texts with a feature.
    complement = theirs.feature_count_.sum(axis=0) + 1 - theirs.feature_count_
    expected = counted.features @ -np.log(complement / (theirs.feature_all_ + 1)).T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (found.argmax(axis=1) == theirs.predict(counted.features)).mean() > 0.98


FEW_TEXTS = 5


@pytest.fixture
def few_labels_config(tmp_path) -> Config:
    """A run on few texts of each of several classes, which also learns from the class names."""
    config = config_of_many_topics(tmp_path, classes=NUM_CLASSES, texts_per_class=FEW_TEXTS)
    techniques = {"naive_bayes": True, "label_names_as_texts": True}
    return config.model_copy(update={"train": config.train.model_copy(update=techniques)})


@pytest.mark.parametrize("seconds", [600, 0])
def test_in_little_time_few_labels_of_many_classes_get_the_better_of_two_quick_fits(
    few_labels_config, monkeypatch, seconds
):
    """Naive Bayes needs fewer texts than passes do. A resumed run fits it again."""

    def too_little_time(*_: object, **__: object) -> None:
        raise TooLittleTimeError("no time")

    prepared = prepare(few_labels_config)
    monkeypatch.setattr(cost, "affordable_effort", too_little_time)
    monkeypatch.setattr(linear_stage, "_end_of_fit", lambda _: time.monotonic() + seconds)
    preliminary: list[FittedLinear] = []
    fitted = fit_linear_classifier(prepared, on_preliminary=preliminary.append)
    again = fit_linear_classifier(prepared, work=fitted.fit.work)

    words, *_, naive_bayes = preliminary
    assert words.fit.effort is not cost.NAIVE_BAYES
    assert fitted.fit.effort is naive_bayes.fit.effort is cost.NAIVE_BAYES
    assert fitted.validation.score.loss < words.validation.score.loss
    weights = fitted.classifier.linear.weights.values
    assert again.classifier.linear.weights.values.tobytes() == weights.tobytes()


def test_a_fit_to_few_labels_is_kept_unless_naive_bayes_is_surely_better(
    few_labels_config, monkeypatch
):
    """Also if there is time for it; the validation texts are those of its held-out predictions."""
    monkeypatch.setattr(fit_data, "MIN_COMPARED", 1)
    prepared = prepare(few_labels_config)
    fit_from_few_labels = linear_fit.fit_linear_from_few_labels

    def fit_badly(*arguments, **options):
        linear, result = fit_from_few_labels(*arguments, **options)
        return linear, result._replace(logits=-result.logits)

    good = fit_linear_classifier(prepared).fit
    monkeypatch.setattr(linear_fit, "fit_linear_from_few_labels", fit_badly)
    other = fit_linear_classifier(prepared).fit

    assert good.effort is cost.PLANNED
    assert other.effort is cost.NAIVE_BAYES
    assert other.is_surely_better_than_planned


def test_naive_bayes_of_few_labels_is_measured_on_validation_texts_alone(
    few_labels_config, tmp_path, monkeypatch
):
    """Other fits to few labels have predicted training texts in cross-validation."""
    monkeypatch.setattr(FitData, "is_surely_better", lambda *_: True)
    events = run_all(few_labels_config, tmp_path / "run")

    reference = read_reference(tmp_path / "run")
    metrics = events[-1].report.evaluation.metrics
    assert len(reference.is_right) == metrics.num_examples
    assert reference.is_right.mean() == metrics.accuracy
