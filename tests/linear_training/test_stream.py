"""The linear model from a stream is as good as the one that needs all texts at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from support.small_runs import WITH_LINEAR, make_config
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training import cost, features
from encoder_cls.linear_training import stream as linear_stream
from encoder_cls.linear_training.calibration import Calibration
from encoder_cls.linear_training.cost import StreamWork, reporting_progress
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.linear_training.stream import StreamFit, fit_linear_from_stream
from encoder_cls.metrics.log_loss import cross_entropy, one_hot
from encoder_cls.metrics.logits import softmax
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training import plan
from encoder_cls.training.linear_stage import fit_linear_classifier
from encoder_cls.training.prepare import prepare

NUM_CLASSES = 3
EQUAL = (1.0,) * NUM_CLASSES

Labels = NDArray[np.integer]


class Corpus(NamedTuple):
    """Texts to learn from, sorted by class, and others of the kind to test with."""

    texts: TokenizedTexts
    labels: Labels
    test_texts: TokenizedTexts
    test_labels: Labels


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Each text has one word of a class, mostly of its own, among eight words of any class."""
    random = np.random.default_rng(0)
    labels = np.sort(np.arange(1500) % NUM_CLASSES)
    texts = []
    for label in labels:
        common_words = random.integers(0, 300, size=8)
        word_class = label
        if random.random() >= 0.9:
            word_class = random.integers(0, NUM_CLASSES)
        class_word = 300 + 40 * word_class + random.integers(0, 40)
        texts.append(text_of(random.permutation([*common_words, class_word])))

    tokens = tokenized(texts)
    rows = random.permutation(len(texts))
    test_rows = rows[:300]
    train_rows = np.sort(rows[300:])
    return Corpus(
        texts=tokens.take(train_rows),
        labels=labels[train_rows],
        test_texts=tokens.take(test_rows),
        test_labels=labels[test_rows],
    )


def text_of(words: Labels) -> str:
    """A text of numbered words."""
    return " ".join(f"w{word}" for word in words)


def tokenized(texts: list[str]) -> TokenizedTexts:
    tokenizer = train_tokenizer(texts, TokenizerConfig())
    return tokenize(tokenizer, texts, max_seq_len=16)


@pytest.fixture(autouse=True)
def several_batches(monkeypatch):
    """The texts of a test are more than one batch."""
    monkeypatch.setattr(linear_stream, "TEXTS_PER_CHUNK", 500)


def words_with(class_weights: tuple[float, ...]) -> LinearOptions:
    """Options for features of words and pairs alone."""
    return LinearOptions(
        max_tokens=16, char_ngrams=False, class_weights=np.array(class_weights, dtype=np.float32)
    )


def fit_stream(
    texts: TokenizedTexts,
    labels: Labels,
    class_weights: tuple[float, ...] = EQUAL,
    *,
    char_ngrams: bool = False,
) -> LinearModel:
    """Fit a linear model, where each text is a group."""
    labelled = LabelledTexts(texts=texts, labels=labels, split_groups=np.arange(len(labels)))
    options = words_with(class_weights)._replace(char_ngrams=char_ngrams)
    return fit_linear_from_stream(labelled, options).linear


def predicted_classes(linear: LinearModel, texts: TokenizedTexts) -> Labels:
    return linear.logits(texts).argmax(axis=1)


def test_it_is_nearly_as_good_as_the_classifier_that_needs_all_texts_at_once(corpus):
    streamed = fit_stream(corpus.texts, corpus.labels)
    whole, _ = fit_linear(CountedTexts.of(corpus.texts, corpus.labels, words_with(EQUAL)))

    def accuracy(linear: LinearModel) -> float:
        return (predicted_classes(linear, corpus.test_texts) == corpus.test_labels).mean()

    def loss(linear: LinearModel) -> float:
        probabilities = softmax(linear.logits(corpus.test_texts))
        return cross_entropy(probabilities, one_hot(corpus.test_labels, NUM_CLASSES))

    assert accuracy(whole) > 0.81
    assert accuracy(streamed) >= accuracy(whole) - 0.01
    assert loss(streamed) < 1.1 * loss(whole)


@pytest.mark.parametrize(
    "limit", ["MAX_FEATURES", pytest.param("MAX_BYTES", marks=pytest.mark.slow)]
)
def test_it_has_more_features_than_a_model_fitted_in_memory(corpus, monkeypatch, limit):
    """Fewer where there is little time; not with character n-grams."""
    bytes_of_feature = 4 * (2 + NUM_CLASSES)
    monkeypatch.setattr(
        features, limit, {"MAX_FEATURES": 50, "MAX_BYTES": 50 * bytes_of_feature}[limit]
    )
    monkeypatch.setattr(features, "ALWAYS_FEATURES", 0)

    whole = CountedTexts.of(corpus.texts, corpus.labels, words_with(EQUAL))
    streamed = fit_stream(corpus.texts, corpus.labels)
    with_characters = fit_stream(corpus.texts, corpus.labels, char_ngrams=True)
    in_little_time = fit_within(corpus, Clock(), monkeypatch, end=0.0)

    assert len(whole.vocabulary.feature_ids) == 50
    assert len(streamed.feature_ids) == 4 * 50
    assert len(with_characters.feature_ids) == 50
    assert len(in_little_time.linear.feature_ids) == 2 * 50


def test_two_classes_have_one_machine(corpus):
    labels = np.minimum(corpus.labels, 1)
    test_labels = np.minimum(corpus.test_labels, 1)

    linear = fit_stream(corpus.texts, labels, (1, 1))

    assert linear.biases.shape == (1,)
    assert (predicted_classes(linear, corpus.test_texts) == test_labels).mean() > 0.85


def test_several_labels_have_a_machine_each(corpus):
    labels = one_hot(corpus.labels, NUM_CLASSES).astype(np.int8)
    test_labels = one_hot(corpus.test_labels, NUM_CLASSES)

    linear = fit_stream(corpus.texts, labels)

    assert linear.biases.shape == (NUM_CLASSES,)
    assert ((linear.logits(corpus.test_texts) > 0) == test_labels).mean() > 0.9


def test_words_that_many_texts_of_a_label_have_are_counted():
    """Labels of a multi-label task are int8, which cannot count beyond 127."""
    colours = ["blue", "red"] * 600
    texts = [f"{colour} the w{number % 7}" for number, colour in enumerate(colours)]
    is_red = np.arange(1200) % 2
    labels = np.stack([is_red, 1 - is_red], axis=1).astype(np.int8)
    tokens = tokenized(texts)

    linear = fit_stream(tokens, labels, (1, 1))

    assert np.array_equal(linear.logits(tokens) > 0, labels > 0)


def test_heavier_classes_are_predicted_more_often(corpus):
    random = np.random.default_rng(1)
    is_noisy = random.random(len(corpus.labels)) < 0.5
    noise = random.integers(0, NUM_CLASSES, len(corpus.labels))
    labels = np.where(is_noisy, noise, corpus.labels)

    plain = fit_stream(corpus.texts, labels)
    heavier = fit_stream(corpus.texts, labels, (1, 1, 20))

    num_plain = (predicted_classes(plain, corpus.test_texts) == 2).sum()
    num_heavier = (predicted_classes(heavier, corpus.test_texts) == 2).sum()
    assert num_heavier > num_plain


def test_repeated_texts_are_not_held_out_from_themselves():
    """Labels are chance and each text occurs four times: nothing can be learned of a new text."""
    random = np.random.default_rng(0)
    texts = [text_of(random.integers(0, 300, size=8)) for _ in range(600)]
    tokens = tokenized(texts * 4)
    labels = np.tile(random.integers(0, 2, 600), 4)

    def mean_logit(split_groups: Labels) -> float:
        labelled = LabelledTexts(texts=tokens, labels=labels, split_groups=split_groups)
        fit = fit_linear_from_stream(labelled, words_with((1, 1)))
        return np.abs(fit.linear.logits(tokens)).mean()

    each_row_is_a_group = np.arange(2400)
    equal_texts_are_a_group = np.arange(2400) % 600
    assert mean_logit(each_row_is_a_group) > 3 * mean_logit(equal_texts_are_a_group)


def fit_within(corpus: Corpus, clock: Clock, monkeypatch, **options: object) -> StreamFit:
    """Fit to the corpus by another clock."""
    monkeypatch.setattr(linear_stream.time, "monotonic", clock)
    labelled = LabelledTexts(
        texts=corpus.texts,
        labels=corpus.labels,
        split_groups=np.arange(len(corpus.labels)),
    )
    return fit_linear_from_stream(labelled, words_with(EQUAL), **options)


class Clock:
    """A clock that goes on by a second at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


def test_a_fit_that_runs_out_of_time_keeps_what_it_has_learned(corpus, monkeypatch):
    complete = fit_within(corpus, Clock(), monkeypatch)
    stopped = fit_within(corpus, Clock(), monkeypatch, end=12.0)

    assert stopped.work.chunks_learned < complete.work.chunks_learned
    assert 0 < stopped.num_texts <= complete.num_texts
    predictions = predicted_classes(stopped.linear, corpus.test_texts)
    assert (predictions == corpus.test_labels).mean() > 0.6


def test_the_progress_of_a_fit_rises_to_its_end(corpus, monkeypatch):
    """It counts the features of each chunk, then the passes over it."""
    monkeypatch.setattr(cost, "MAX_PASSES", 3)
    shares: list[float] = []

    with reporting_progress(shares.append):
        fit_within(corpus, Clock(), monkeypatch)

    num_chunks = 3
    assert len(shares) == 4 * num_chunks
    assert shares == sorted(shares)
    assert shares[num_chunks - 1] == pytest.approx(1 / 4)
    assert shares[-1] == pytest.approx(1)


def test_the_progress_of_a_fit_with_too_little_time_is_that_of_the_time(corpus, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(linear_stream.time, "monotonic", clock)
    shares: list[float] = []

    with reporting_progress(shares.append, end=30.0):
        fit_within(corpus, clock, monkeypatch, end=30.0)

    assert shares == sorted(shares)
    assert shares[-1] > 0.8


def test_however_little_time_there_is_something_is_learned(corpus, monkeypatch):
    fit = fit_within(corpus, Clock(), monkeypatch, end=0.0)
    assert fit.work == StreamWork(chunks_counted=1, times_features=2, chunks_learned=1)


def test_equal_work_makes_an_equal_model(corpus, monkeypatch):
    stopped = fit_within(corpus, Clock(), monkeypatch, end=12.0)
    again = fit_within(corpus, Clock(), monkeypatch, work=stopped.work)

    assert again.work == stopped.work
    assert np.array_equal(
        again.linear.logits(corpus.test_texts), stopped.linear.logits(corpus.test_texts)
    )


def test_a_first_model_comes_before_the_end_of_the_first_pass(corpus, monkeypatch):
    monkeypatch.setattr(linear_stream, "TEXTS_PER_CHUNK", 100)
    first_models = []

    fit = fit_within(corpus, Clock(), monkeypatch, on_first=first_models.append)

    (first,) = first_models
    assert fit.work.chunks_counted > linear_stream.FIRST_CHUNKS
    assert (predicted_classes(first, corpus.test_texts) == corpus.test_labels).mean() > 0.5


def test_a_run_with_much_text_has_a_linear_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "MAX_LINEAR_TEXT", 10)
    prepared = prepare(make_config(tmp_path, texts=300, **WITH_LINEAR))
    assert prepared.plan.linear_fit == "stream"

    predictions = fit_linear_classifier(prepared).validation_logits.argmax(axis=1)

    assert (predictions == prepared.dataset.known_validation.labels).mean() > 0.9


def fit_with_losses(corpus: Corpus, losses: list[float], monkeypatch) -> StreamFit:
    """Fit where one calibration after the other has one of the losses.

    The first calibration has two sets of classifiers, so it takes two of the losses.
    """
    next_losses = iter(losses)
    calibrate = linear_stream.calibrate

    def calibrate_with_loss(*args: object) -> Calibration:
        return calibrate(*args)._replace(loss=next(next_losses))

    monkeypatch.setattr(linear_stream, "calibrate", calibrate_with_loss)
    return fit_within(corpus, Clock(), monkeypatch)


def test_a_fit_ends_where_the_loss_of_held_out_texts_no_longer_falls(corpus, monkeypatch):
    """The model of the pass before is kept."""
    monkeypatch.setattr(linear_stream, "TEXTS_PER_CHUNK", 5000)
    with monkeypatch.context() as patches:
        fit = fit_with_losses(corpus, [3.0, 2.0, 1.0, 1.5], patches)
    with monkeypatch.context() as patches:
        patches.setattr(linear_stream, "num_passes", lambda _: 2)
        of_two_passes = fit_with_losses(corpus, [3.0, 2.0, 1.0], patches)

    assert fit.work.chunks_learned == 3
    assert of_two_passes.work.chunks_learned == 2
    logits = fit.linear.logits(corpus.test_texts)
    assert np.array_equal(logits, of_two_passes.linear.logits(corpus.test_texts))


def test_a_fit_does_not_end_within_a_pass(corpus, monkeypatch):
    """The loss is measured after each pass of three chunks, and not after the fourth chunk."""
    monkeypatch.setattr(linear_stream, "TEXTS_PER_CHUNK", 400)

    fit = fit_with_losses(corpus, [2.0, 2.0, 1.0, 1.5], monkeypatch)

    assert fit.work == StreamWork(chunks_counted=3, times_features=4, chunks_learned=9)


def test_machines_without_ratios_are_kept_where_ratios_do_not_help(corpus, monkeypatch):
    monkeypatch.setattr(
        linear_stream, "naive_bayes_ratios", lambda inside, _: np.zeros_like(inside, np.float32)
    )

    linear = fit_stream(corpus.texts, corpus.labels)

    assert (predicted_classes(linear, corpus.test_texts) == corpus.test_labels).mean() > 0.7
