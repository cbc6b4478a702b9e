"""Few labels beside many texts without: what is tried, what is kept, and that a reader sees a linear classifier."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray
from small_runs import NO_TECHNIQUES

from encoder_cls.config import TokenizerConfig, TrainConfig
from encoder_cls.data.labels import names_as_texts
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_tokenizer
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear import features as feature_corpus
from encoder_cls.training.linear import techniques as few_labels
from encoder_cls.training.linear.features import Reading
from encoder_cls.training.linear.folds import NO_TEXTS
from encoder_cls.training.linear.svm import fit_linear
from encoder_cls.training.linear.techniques import FewLabels, Techniques, fit_linear_from_few_labels

MAX_SEQ_LEN = 12
LABELLED, UNLABELLED, TEST = 40, 400, 200
ALL_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "xzvw"]


@functools.cache
def own_words(num_classes: int) -> list[list[str]]:
    """Thirty words of each class."""
    words = np.random.default_rng(num_classes).permutation(ALL_WORDS).tolist()
    return [words[30 * label : 30 * label + 30] for label in range(num_classes)]


@functools.cache
def corpus(num_classes: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Texts of two words of their class's thirty, and three of anybody's: few labels show few of the words."""
    random = np.random.default_rng(num_classes)
    labels = random.integers(0, num_classes, LABELLED + UNLABELLED + TEST)
    labels[:num_classes] = np.arange(num_classes)
    texts = [
        " ".join(random.permutation([*random.choice(own_words(num_classes)[label], 2), *random.choice(ALL_WORDS, 3)]))
        for label in labels
    ]
    return tuple(texts), labels


@functools.cache
def tokenized(num_classes: int) -> tuple[TokenizedTexts, TokenizedTexts]:
    """Texts to learn from, and texts to test with."""
    texts, _ = corpus(num_classes)
    tokenizer = train_tokenizer(texts[:-TEST], TokenizerConfig())
    return tuple(tokenize(tokenizer, some, max_seq_len=MAX_SEQ_LEN) for some in (texts[:-TEST], texts[-TEST:]))


def reading(num_classes: int) -> Reading:
    return Reading(MAX_SEQ_LEN, True, np.ones(num_classes, dtype=np.float32))


def fit(
    num_classes: int, *, labels=None, names: tuple[str, ...] = (), held_out=NO_TEXTS, **config
) -> tuple[LinearClassifier, FewLabels]:
    texts, of_texts = corpus(num_classes)
    labels = of_texts[:LABELLED] if labels is None else labels
    tokenizer = train_tokenizer(texts[:-TEST], TokenizerConfig())
    return fit_linear_from_few_labels(
        tokenized(num_classes)[0][: LABELLED + UNLABELLED],
        labels,
        tokenize(tokenizer, names_as_texts(names or ("1",) * num_classes), max_seq_len=MAX_SEQ_LEN),
        reading(num_classes),
        config=TrainConfig(**config),
        together=np.arange(len(labels)),
        held_out=held_out,
    )


def plain(num_classes: int, labels=None):
    labels = corpus(num_classes)[1][:LABELLED] if labels is None else labels
    return fit_linear(tokenized(num_classes)[0][:LABELLED], labels, reading(num_classes))[0]


def accuracy(classifier, num_classes: int) -> float:
    logits = classifier.logits(tokenized(num_classes)[1])
    return float((logits.argmax(axis=1) == corpus(num_classes)[1][-TEST:]).mean())


def arrays(classifier) -> list[NDArray]:
    return [classifier.feature_ids, classifier.idf, classifier.weights.dense(), classifier.biases]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_texts_without_labels_help(num_classes):
    """More texts are right that nobody has seen, as cross-validation foretold."""
    classifier, result = fit(num_classes)
    assert result.kept.naive_bayes_em
    assert result.accuracy > result.accuracy_before
    assert accuracy(classifier, num_classes) > accuracy(plain(num_classes), num_classes) + 0.02


def test_a_name_that_says_something_is_learned_from():
    """Without further texts: most texts of a class have the word that is its name; a number says nothing."""
    random, names = np.random.default_rng(0), tuple(ALL_WORDS[:10])
    labels = np.arange(40) % len(names)
    others = [random.choice(ALL_WORDS[10:], 5).tolist() for _ in labels]
    texts = [
        " ".join([names[label], *few] if random.random() < 0.8 else few)
        for label, few in zip(labels, others, strict=True)
    ]
    tokenizer = train_tokenizer(texts, TokenizerConfig())

    def kept(some_names, **config) -> Techniques:
        _, result = fit_linear_from_few_labels(
            tokenize(tokenizer, texts, max_seq_len=MAX_SEQ_LEN),
            labels,
            tokenize(tokenizer, names_as_texts(some_names), max_seq_len=MAX_SEQ_LEN),
            reading(len(names)),
            config=TrainConfig(**config),
            together=np.arange(len(labels)),
        )
        return result.kept

    assert kept(names) == Techniques(label_names=True)
    assert (
        kept([str(number) for number in range(len(names))]) == kept(names, label_names_as_texts=False) == Techniques()
    )


def test_what_does_not_help_is_not_kept():
    """Labels that have nothing to do with the texts: the classifier is the one that the labels alone give."""
    labels = np.random.default_rng(5).integers(0, 2, LABELLED)
    classifier, result = fit(2, labels=labels)
    assert result.kept == Techniques()
    assert result.accuracy == result.accuracy_before
    assert all(map(np.array_equal, arrays(classifier), arrays(plain(2, labels))))


def test_what_is_switched_off_is_not_tried(monkeypatch):
    """Each by its value in the config."""
    monkeypatch.setattr(few_labels, "_is_better", lambda *_: True)
    names = tuple(corpus(3)[0][:3])
    values = {"naive_bayes_em": True, "label_names_as_texts": True, "lsa_dimensions": 5, "self_training": True}
    assert fit(3, names=names, **values)[1].kept == Techniques(True, True, True, True)
    for number, name in enumerate(values):
        kept = fit(3, names=names, **NO_TECHNIQUES | {name: values[name]})[1].kept
        assert kept == Techniques(*np.arange(4) == number), name
    assert fit(3, names=names, **NO_TECHNIQUES)[1].kept == Techniques()


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("name", [*NO_TECHNIQUES, "all"])
def test_a_reader_sees_one_weight_a_feature_and_class(monkeypatch, num_classes, name):
    """The teacher's logits of texts held out are those of all machines by themselves; a second time the same."""
    monkeypatch.setattr(few_labels, "_is_better", lambda *_: True)
    values = {"naive_bayes_em": True, "label_names_as_texts": True, "lsa_dimensions": 5, "self_training": True}
    config = values if name == "all" else NO_TECHNIQUES | {name: values[name]}
    held_out, names = np.arange(10), tuple(corpus(num_classes)[0][:num_classes])
    (first, result), (second, _) = (fit(num_classes, names=names, held_out=held_out, **config) for _ in range(2))
    assert all(map(np.array_equal, arrays(first), arrays(second)))
    logits = result.teacher.logits(tokenized(num_classes)[0].take(held_out))
    assert logits == pytest.approx(result.logits_held_out, abs=1e-4)


def test_weights_of_coordinates_are_folded_into_those_of_features(monkeypatch):
    """The margins of texts are those of features and coordinates beside each other, up to calibration."""
    monkeypatch.setattr(few_labels, "FEWEST_EXTRAPOLATED", LABELLED + 1)
    monkeypatch.setattr(few_labels, "_is_better", lambda *_: True)
    parts = []
    real = few_labels.fit_one_vs_rest

    def recorded(features, *args, coordinates, **options):
        learned = real(features, *args, coordinates=coordinates, **options)
        of_features, of_coordinates = np.split(learned.weights, [features.shape[1]])
        parts.append((features @ of_features + learned.biases, coordinates @ of_coordinates))
        return learned

    monkeypatch.setattr(few_labels, "fit_one_vs_rest", recorded)
    classifier, _ = fit(2, **NO_TECHNIQUES | {"lsa_dimensions": 5})
    of_features, of_coordinates = parts[-1]
    expected, logits = (of_features + of_coordinates)[:, 0], classifier.logits(tokenized(2)[0][:LABELLED])[:, 1]
    scale, shift = np.polyfit(expected, logits, deg=1)
    assert logits == pytest.approx(scale * expected + shift, abs=1e-4)
    assert np.abs(of_coordinates).max() > 0.1


def test_pseudo_labels_are_as_frequent_as_labels(monkeypatch):
    """Of each class the most confident, no more of all than a part of the texts."""
    monkeypatch.setattr(few_labels, "FEWEST_EXTRAPOLATED", LABELLED + 1)
    monkeypatch.setattr(few_labels, "MOST_PSEUDO_LABELLED", 50)
    monkeypatch.setattr(few_labels, "_is_better", lambda *_: True)
    chosen = []
    real = few_labels.fit_one_vs_rest

    def recorded(features, labels, *args, weights, **options):
        chosen.append(labels[weights < 1])
        return real(features, labels, *args, weights=weights, **options)

    monkeypatch.setattr(few_labels, "fit_one_vs_rest", recorded)
    fit(3, **NO_TECHNIQUES | {"self_training": True})
    shares = np.bincount(corpus(3)[1][:LABELLED], minlength=3) / LABELLED
    pseudo_labels = [labels for labels in chosen if len(labels)]
    assert len(pseudo_labels) == 6  # of each fold, and of all
    assert np.bincount(pseudo_labels[-1], minlength=3) == pytest.approx(50 * shares, abs=0.51)


def test_of_many_texts_without_labels_some_are_read(monkeypatch):
    """So many tokens at most, the labelled texts always."""
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", 60)
    rows = feature_corpus.sample_rows(tokenized(2)[0], LABELLED, MAX_SEQ_LEN)
    assert rows[:LABELLED].tolist() == list(range(LABELLED))
    assert len(rows) == LABELLED + 10  # of six tokens each


def test_what_twice_the_labels_would_bring_is_extrapolated():
    """An error that halves with twice the labels does so again; one that grows is expected to stay."""

    class Curve:
        def __init__(self, *errors: float) -> None:
            self.errors = dict(zip(few_labels.FRACTIONS, errors, strict=True))

        def accuracy_with(self, fraction: float) -> float:
            return 1 - self.errors[fraction]

    assert few_labels._accuracy_with_twice(Curve(0.1, 0.2, 0.4)) == pytest.approx(0.95)
    assert few_labels._accuracy_with_twice(Curve(0.4, 0.2, 0.1)) == pytest.approx(0.6)
    assert few_labels._accuracy_with_twice(Curve(0.0, 0.1, 0.1)) == pytest.approx(1.0)


def test_a_learning_curve_is_of_fewer_labels():
    """And from forty labels on."""
    _, result = fit(3, **NO_TECHNIQUES)
    assert result.accuracy <= result.accuracy_with_twice <= 1
    assert fit(3, labels=corpus(3)[1][: LABELLED - 1], **NO_TECHNIQUES)[1].accuracy_with_twice is None
