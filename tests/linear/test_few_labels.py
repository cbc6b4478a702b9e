"""Few labels beside many texts without: what is tried, what is kept, and that a reader sees a linear classifier."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray
from support.small_runs import NO_TECHNIQUES
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig, TrainConfig
from encoder_cls.data.label_names import names_as_texts
from encoder_cls.linear import corpus as feature_corpus
from encoder_cls.linear import few_labels, self_training
from encoder_cls.linear import nb_svm as svm
from encoder_cls.linear.effort import ROUNDS
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.few_labels import (
    ALONE,
    FEWEST_EXTRAPOLATED,
    LAST,
    MEAN,
    FewLabels,
    choose_kind,
    extrapolate_accuracy,
    fit_linear_from_few_labels,
    leads,
)
from encoder_cls.linear.folds import NO_TEXTS
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.linear.self_training import (
    PSEUDO_LABEL_WEIGHT,
    align_margins,
    choose_surest,
    shrunk_shares,
)
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

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
        " ".join(
            random.permutation(
                [*random.choice(own_words(num_classes)[label], 2), *random.choice(ALL_WORDS, 3)]
            )
        )
        for label in labels
    ]
    return tuple(texts), labels


@functools.cache
def tokenized(num_classes: int) -> tuple[TokenizedTexts, TokenizedTexts]:
    """Texts to learn from, and texts to test with."""
    texts, _ = corpus(num_classes)
    tokenizer = train_tokenizer(texts[:-TEST], TokenizerConfig())
    return tuple(
        tokenize(tokenizer, some, max_seq_len=MAX_SEQ_LEN)
        for some in (texts[:-TEST], texts[-TEST:])
    )


def reading(num_classes: int) -> LinearOptions:
    return LinearOptions(MAX_SEQ_LEN, True, np.ones(num_classes, dtype=np.float32))


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
        with_teacher=True,
    )


def plain(num_classes: int, labels=None):
    labels = corpus(num_classes)[1][:LABELLED] if labels is None else labels
    texts = tokenized(num_classes)[0][:LABELLED]
    return fit_linear(CountedTexts.of(texts, labels, reading(num_classes)))[0]


def accuracy(classifier, num_classes: int) -> float:
    logits = classifier.logits(tokenized(num_classes)[1])
    return float((logits.argmax(axis=1) == corpus(num_classes)[1][-TEST:]).mean())


def arrays(classifier) -> list[NDArray]:
    return [classifier.feature_ids, classifier.idf, classifier.weights.dense(), classifier.biases]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_texts_without_labels_help(num_classes):
    """More unseen texts are right, as out-of-fold answers foretold."""
    classifier, result = fit(num_classes)
    assert result.kept != ALONE
    assert result.accuracy > result.accuracy_before
    assert accuracy(classifier, num_classes) > accuracy(plain(num_classes), num_classes) + 0.03


def test_a_name_is_learned_from_unless_it_is_a_number(monkeypatch):
    """A word that one text of each class has belongs to the class whose name it is."""
    monkeypatch.setattr(few_labels, "choose_kind", lambda *_: LAST)
    names, labels = ("xylophone", "zeppelin"), np.arange(40) % 2
    texts = [
        " ".join([*ALL_WORDS[row : row + 5], *(names if row < 2 else ())]) for row in range(40)
    ]
    tokenizer = train_tokenizer(texts, TokenizerConfig())
    read = functools.partial(tokenize, tokenizer, max_seq_len=MAX_SEQ_LEN)

    def leads(some_names, **config) -> NDArray:
        classifier, _ = fit_linear_from_few_labels(
            read(texts),
            labels,
            read(names_as_texts(some_names)),
            reading(2),
            config=TrainConfig(**config),
            together=np.arange(40),
        )
        return np.diff(classifier.logits(read(names)), axis=1)[:, 0]

    first, second = leads(names)
    assert first < 0 < second
    assert leads(("1", "2")) == pytest.approx(leads(names, label_names_as_texts=False))
    assert np.ptp(leads(("1", "2"))) < (second - first) / 2


def test_where_self_training_does_not_help_the_labels_alone_are_learned(monkeypatch):
    """It is the classifier of `fit_linear`, with the penalty that the same folds choose."""
    monkeypatch.setattr(
        self_training,
        "align_margins",
        lambda margins, _: np.random.default_rng(0).random(margins.shape),
    )
    monkeypatch.setattr(self_training, "PSEUDO_LABEL_WEIGHT", 5.0)
    classifier, result = fit(2)
    assert result.kept == ALONE
    assert result.accuracy == result.accuracy_before
    assert (
        np.mean(
            np.sign(classifier.logits(tokenized(2)[1])) == np.sign(plain(2).logits(tokenized(2)[1]))
        )
        > 0.9
    )


def test_another_way_needs_more_right_answers_than_chance_would_give():
    """By more than a standard error; of equals the last round."""

    def right(first: int, end: int) -> NDArray:
        return np.array([float(first <= row < end) for row in range(100)])

    def best(mean: NDArray, alone: NDArray) -> str:
        return choose_kind({LAST: right(0, 70), MEAN: mean, ALONE: alone})

    assert best(right(0, 70), right(2, 73)) == best(right(0, 60), right(0, 70)) == LAST
    assert best(right(0, 80), right(0, 75)) == MEAN
    assert best(right(0, 80), right(0, 85)) == ALONE


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("kept", [LAST, MEAN])
@pytest.mark.parametrize("values", [NO_TECHNIQUES, {}], ids=["SVM alone", "everything"])
def test_a_reader_sees_one_weight_a_feature_and_class(monkeypatch, num_classes, kept, values):
    """The teacher's logits of texts held out are about those out of fold; a second time the same classifier."""
    monkeypatch.setattr(few_labels, "choose_kind", lambda *_: kept)
    held_out, names = np.arange(10), tuple(corpus(num_classes)[0][:num_classes])
    (first, result), (second, _) = (
        fit(num_classes, names=names, held_out=held_out, **values) for _ in range(2)
    )
    assert all(map(np.array_equal, arrays(first), arrays(second)))
    assert result.rows[:10].tolist() == held_out.tolist()
    assert sorted(result.rows) == list(range(LABELLED))
    logits = result.teacher.logits(tokenized(num_classes)[0].take(held_out))
    # Cross-validation holds out some texts without labels, too.
    assert np.corrcoef(logits.ravel(), result.logits[:10].ravel())[0, 1] > 0.9


def test_answers_out_of_fold_have_not_seen_the_label():
    """Labels of chance are answered no better than chance, though the classifier knows them by heart."""
    labels = np.random.default_rng(5).integers(0, 2, LABELLED)
    classifier, result = fit(2, labels=labels)
    own = classifier.logits(tokenized(2)[0][:LABELLED]).argmax(axis=1)
    assert (
        (own == labels).mean()
        > 0.8
        > (result.logits.argmax(axis=1) == labels[result.rows]).mean() + 0.1
    )


def test_labels_of_hard_texts_do_not_lower_the_estimate():
    """As after `suggest`: texts that a first classifier was unsure of get labels, and count less."""
    texts, labels = tokenized(2)[0][: LABELLED + UNLABELLED], corpus(2)[1]
    first, _ = fit(2)
    unsure = LABELLED + np.argsort(leads(first.logits(texts[LABELLED:])))[: 2 * LABELLED]
    labelled = np.concatenate([np.arange(LABELLED), unsure])
    order = np.concatenate([labelled, np.setdiff1d(np.arange(len(texts)), labelled)])
    _, result = fit_linear_from_few_labels(
        texts.take(order),
        labels[labelled],
        tokenized(2)[0][:0],
        reading(2),
        config=TrainConfig(label_names_as_texts=False),
        together=np.arange(len(labelled)),
    )
    of_labelled = np.mean(result.logits.argmax(axis=1) == labels[labelled][result.rows])
    assert result.accuracy > of_labelled + 0.01
    assert result.interval[0] < result.accuracy < result.interval[1]


def test_shares_are_drawn_to_equal_ones_as_far_as_chance_explains_their_differences():
    """Equal counts and nearly equal ones give equal shares; of counts far apart little is left out."""
    assert shrunk_shares(np.array([10, 10, 10])) == pytest.approx([1 / 3] * 3)
    assert shrunk_shares(np.array([11, 10, 9])) == pytest.approx([1 / 3] * 3)
    assert shrunk_shares(np.array([900, 90, 10])) == pytest.approx([0.9, 0.09, 0.01], abs=0.01)
    chi_square = (15**2 + 5**2 + 10**2) / 20
    expected = 2 / chi_square / 3 + (1 - 2 / chi_square) * 35 / 60
    assert shrunk_shares(np.array([35, 15, 10]))[0] == pytest.approx(expected)


def test_margins_are_shifted_until_answers_have_the_shares():
    margins = np.random.default_rng(0).normal([0.8, 0, 0], size=(3000, 3))
    shares = np.array([0.2, 0.3, 0.5])
    shifted = align_margins(margins, shares)
    assert np.bincount(shifted.argmax(axis=1)) / 3000 == pytest.approx(shares, abs=0.03)
    assert (shifted - margins).std(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_a_round_learns_from_the_surest_texts_of_each_class():
    """The part of each, one text at least; surest are the largest leads over the second class."""
    margins = np.array([[0.1, 0, 0], [5, 4.9, 0], [1, 0, 0], [2, 0, 1.5], [0, 0.2, 0], [0, 0.1, 0]])
    chosen, guesses = choose_surest(margins, 0.5)
    assert (sorted(chosen), sorted(guesses)) == ([2, 3, 4], [0, 0, 1])
    assert sorted(choose_surest(margins, 0.01)[0]) == [2, 4]
    assert sorted(choose_surest(margins, 1.0)[0]) == list(range(6))


def test_rounds_grow_to_all_texts(monkeypatch):
    """Texts whose class is guessed count less than those with a label."""
    learned = []
    real = svm.fit_svm

    def recorded(features, labels, *, sample_weight, **options):
        learned.append(
            (int((sample_weight == 1).sum()), int((sample_weight == PSEUDO_LABEL_WEIGHT).sum()))
        )
        return real(features, labels, sample_weight=sample_weight, **options)

    monkeypatch.setattr(svm, "fit_svm", recorded)
    fit(3, labels=corpus(3)[1][: FEWEST_EXTRAPOLATED - 1])
    of_all = learned[-3 * (1 + len(ROUNDS)) :: 3]  # an SVM a class
    others = LABELLED + UNLABELLED - (FEWEST_EXTRAPOLATED - 1)
    assert [labelled for labelled, _ in of_all] == [FEWEST_EXTRAPOLATED - 1] * len(of_all)
    assert [guessed for _, guessed in of_all] == pytest.approx(
        [0, *(share * others for share in ROUNDS)], abs=3
    )


def test_of_many_texts_without_labels_some_are_read(monkeypatch):
    """So many tokens at most, here of six tokens each; the labelled texts always, and one other at least."""
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", 60)
    rows = feature_corpus.sample_rows(tokenized(2)[0], LABELLED, MAX_SEQ_LEN)
    assert rows[:LABELLED].tolist() == list(range(LABELLED))
    assert len(rows) == LABELLED + 10
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", 1)
    assert len(feature_corpus.sample_rows(tokenized(2)[0], LABELLED, MAX_SEQ_LEN)) == LABELLED + 1


def test_the_accuracy_with_twice_the_labels_is_extrapolated():
    """An error that halves with twice the labels does so again; one that grows is expected to stay; from forty on."""
    assert extrapolate_accuracy(0.9, 0.8) == pytest.approx(0.95)
    assert extrapolate_accuracy(0.6, 0.8) == pytest.approx(0.6)
    assert extrapolate_accuracy(1.0, 0.9) == pytest.approx(1.0)
    _, result = fit(3, **NO_TECHNIQUES)
    assert result.accuracy <= result.accuracy_with_twice <= 1
    assert (
        fit(3, labels=corpus(3)[1][: LABELLED - 1], **NO_TECHNIQUES)[1].accuracy_with_twice is None
    )
