"""The linear classifier from a stream: as good as the one that needs all texts at once, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_runs import WITH_LINEAR, make_config
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear import stream as linear_stream
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.metrics.classification import cross_entropy, one_hot
from encoder_cls.metrics.logits import softmax
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.training import plan
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.prepare import prepare

NUM_CLASSES = 3


@pytest.fixture(scope="module")
def corpus():
    """Texts of words of which a third tell the class, sorted by class; and others of the kind, to judge by."""
    random = np.random.default_rng(0)
    texts, labels = [], np.sort(np.arange(1500) % NUM_CLASSES)
    for label in labels:
        words = random.integers(0, 300, size=8)
        said = label if random.random() < 0.9 else random.integers(0, NUM_CLASSES)
        own = 300 + 40 * said + random.integers(0, 40, size=1)
        texts.append(" ".join(f"w{word}" for word in random.permutation([*words, *own])))
    tokenized = tokenize(train_tokenizer(texts, TokenizerConfig()), texts, max_seq_len=16)
    rows = random.permutation(len(texts))
    return (
        tokenized.take(np.sort(rows[300:])),
        labels[np.sort(rows[300:])],
        tokenized.take(rows[:300]),
        labels[rows[:300]],
    )


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr(linear_stream, "TEXTS_AT_ONCE", 200)


def reading(*class_weights: float) -> LinearOptions:
    return LinearOptions(16, False, np.array(class_weights or [1] * NUM_CLASSES, dtype=np.float32))


def stream(texts, labels, *class_weights: float):
    return fit_linear_from_stream(
        texts, labels, reading(*class_weights), together=np.arange(len(labels))
    )


def loss_of(classifier, texts, labels) -> float:
    return cross_entropy(softmax(classifier.logits(texts)), one_hot(labels, NUM_CLASSES))


def test_is_nearly_as_good_as_the_classifier_that_needs_all_texts_at_once(corpus):
    texts, labels, others, their_labels = corpus
    streamed = stream(texts, labels)
    whole, _ = fit_linear(CountedTexts.of(texts, labels, reading()))
    accuracies = [
        (it.logits(others).argmax(axis=1) == their_labels).mean() for it in (streamed, whole)
    ]
    assert accuracies[0] >= accuracies[1] - 0.01 > 0.8
    assert loss_of(streamed, others, their_labels) < 1.1 * loss_of(whole, others, their_labels)


def test_same_texts_give_the_same_bits(corpus):
    texts, labels, others, _ = corpus
    first, second = (stream(texts, labels).logits(others) for _ in range(2))
    assert (first == second).all()


def test_two_classes_have_one_machine_and_several_labels_one_each(corpus):
    texts, labels, others, their_labels = corpus
    of_two = stream(texts, np.minimum(labels, 1), 1, 1)
    assert of_two.biases.shape == (1,)
    assert (of_two.logits(others).argmax(axis=1) == np.minimum(their_labels, 1)).mean() > 0.85
    several = one_hot(labels, NUM_CLASSES).astype(np.int8)
    of_labels = stream(texts, several)
    assert ((of_labels.logits(others) > 0) == one_hot(their_labels, NUM_CLASSES)).mean() > 0.9


def test_words_that_many_texts_of_a_label_have_are_counted():
    """Labels of several are int8, which cannot count beyond 127."""
    texts = [f"{'red' if i % 2 else 'blue'} the w{i % 7}" for i in range(1200)]
    tokenized = tokenize(train_tokenizer(texts, TokenizerConfig()), texts, max_seq_len=16)
    labels = np.stack([np.arange(1200) % 2, 1 - np.arange(1200) % 2], axis=1).astype(np.int8)
    classifier = stream(tokenized, labels, 1, 1)
    assert ((classifier.logits(tokenized) > 0) == labels).all()


def test_heavier_classes_are_answered_more_often(corpus):
    texts, labels, others, _ = corpus
    random = np.random.default_rng(1)
    labels = np.where(
        random.random(len(labels)) < 0.5, random.integers(0, NUM_CLASSES, len(labels)), labels
    )
    plain, heavier = (stream(texts, labels, 1, 1, weight).logits(others) for weight in (1, 20))
    assert (heavier.argmax(axis=1) == 2).sum() > (plain.argmax(axis=1) == 2).sum()


def test_repeated_texts_are_not_held_out_from_themselves():
    """Labels are drawn by lot, each text occurs four times: nothing can be learned that a text held out would show."""
    random = np.random.default_rng(0)
    texts = [
        " ".join(f"w{word}" for word in random.integers(0, 300, size=8)) for _ in range(600)
    ] * 4
    labels, tokenized = (
        np.tile(random.integers(0, 2, 600), 4),
        tokenize(train_tokenizer(texts, TokenizerConfig()), texts, max_seq_len=16),
    )
    alone, equal = (
        np.abs(
            fit_linear_from_stream(tokenized, labels, reading(1, 1), together=together).logits(
                tokenized
            )
        ).mean()
        for together in (np.arange(2400), np.arange(2400) % 600)
    )
    assert alone > 3 * equal


def test_a_run_with_much_text_has_a_linear_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "MOST_LINEAR_TEXT", 10)
    setup = prepare(make_config(tmp_path, texts=300, **WITH_LINEAR))
    assert setup.plan.linear_fit == "stream"
    answers = fit_linear_classifier(setup).validation_logits.argmax(axis=1)
    assert (answers == setup.dataset.selection.labels).mean() > 0.9
