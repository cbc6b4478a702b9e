"""Few labels beside many texts without: what is tried, what is kept, and what is returned."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray
from small_runs import NO_TECHNIQUES
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig, TrainConfig
from encoder_cls.data.dataset import names_as_texts
from encoder_cls.linear import features as feature_corpus
from encoder_cls.linear import few_labels
from encoder_cls.linear import nb_svm as svm
from encoder_cls.linear.calibration import NO_TEXTS
from encoder_cls.linear.features import Reading
from encoder_cls.linear.few_labels import (
    ALONE,
    FEWEST_EXTRAPOLATED,
    LAST,
    MEAN,
    PSEUDO_LABEL_WEIGHT,
    ROUNDS,
    FewLabels,
    aligned,
    extrapolated,
    fit_linear_from_few_labels,
    shrunk_shares,
    surest,
)
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

MAX_SEQ_LEN = 12
LABELLED = 40
UNLABELLED = 400
TEST = 200
ALL_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "xzvw"]


@functools.cache
def own_words(num_classes: int) -> list[list[str]]:
    """Thirty words of each class."""
    words = np.random.default_rng(num_classes).permutation(ALL_WORDS).tolist()
    return [words[30 * label : 30 * label + 30] for label in range(num_classes)]


@functools.cache
def corpus(num_classes: int) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Texts of two words of their own class and three of any class; few labels show few words."""
    random = np.random.default_rng(num_classes)
    labels = random.integers(0, num_classes, LABELLED + UNLABELLED + TEST)
    labels[:num_classes] = np.arange(num_classes)

    texts = []
    for label in labels:
        class_words = random.choice(own_words(num_classes)[label], 2)
        any_words = random.choice(ALL_WORDS, 3)
        texts.append(" ".join(random.permutation([*class_words, *any_words])))
    return tuple(texts), labels


@functools.cache
def tokenized(num_classes: int) -> tuple[TokenizedTexts, TokenizedTexts]:
    """Texts to learn from, and texts to test with."""
    texts, _ = corpus(num_classes)
    tokenizer = train_tokenizer(texts[:-TEST], TokenizerConfig())
    learned = tokenize(tokenizer, texts[:-TEST], max_seq_len=MAX_SEQ_LEN)
    test = tokenize(tokenizer, texts[-TEST:], max_seq_len=MAX_SEQ_LEN)
    return learned, test


def reading(num_classes: int) -> Reading:
    return Reading(MAX_SEQ_LEN, True, np.ones(num_classes, dtype=np.float32))


def fit(
    num_classes: int, *, labels=None, names: tuple[str, ...] = (), held_out=NO_TEXTS, **config
) -> tuple[LinearClassifier, FewLabels]:
    texts, all_labels = corpus(num_classes)
    if labels is None:
        labels = all_labels[:LABELLED]
    if not names:
        names = ("1",) * num_classes

    tokenizer = train_tokenizer(texts[:-TEST], TokenizerConfig())
    learned, _ = tokenized(num_classes)
    return fit_linear_from_few_labels(
        learned[: LABELLED + UNLABELLED],
        labels,
        tokenize(tokenizer, names_as_texts(names), max_seq_len=MAX_SEQ_LEN),
        reading(num_classes),
        config=TrainConfig(**config),
        together=np.arange(len(labels)),
        held_out=held_out,
        with_teacher=True,
    )


def fit_labels_alone(num_classes: int) -> LinearClassifier:
    _, labels = corpus(num_classes)
    learned, _ = tokenized(num_classes)
    classifier, _ = fit_linear(learned[:LABELLED], labels[:LABELLED], reading(num_classes))
    return classifier


def answers(classifier: LinearClassifier, num_classes: int) -> NDArray[np.int64]:
    """The classes that a classifier gives to the test texts."""
    _, test = tokenized(num_classes)
    return classifier.logits(test).argmax(axis=1)


def accuracy(classifier: LinearClassifier, num_classes: int) -> float:
    _, labels = corpus(num_classes)
    return float((answers(classifier, num_classes) == labels[-TEST:]).mean())


def arrays(classifier) -> list[NDArray]:
    return [classifier.feature_ids, classifier.idf, classifier.weights.dense(), classifier.biases]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_texts_without_labels_help(num_classes):
    """More unseen texts are right, as out-of-fold answers foretold."""
    classifier, result = fit(num_classes)

    assert result.kept != ALONE
    assert result.accuracy > result.accuracy_before
    before = accuracy(fit_labels_alone(num_classes), num_classes)
    assert accuracy(classifier, num_classes) > before + 0.05


def test_a_name_is_learned_from_unless_it_is_a_number(monkeypatch):
    """A word that one text of each class has belongs to the class whose name it is."""
    monkeypatch.setattr(few_labels, "_best", lambda *_: LAST)
    names = ("xylophone", "zeppelin")
    labels = np.arange(40) % 2
    texts = [" ".join(ALL_WORDS[row : row + 5]) for row in range(40)]
    for row in range(2):
        texts[row] += " " + " ".join(names)
    tokenizer = train_tokenizer(texts, TokenizerConfig())
    read = functools.partial(tokenize, tokenizer, max_seq_len=MAX_SEQ_LEN)

    def leads(some_names: tuple[str, ...], **config: bool) -> NDArray:
        """By how much the second class leads over the first for each of the words."""
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

    with_numbers = leads(("1", "2"))
    assert with_numbers == pytest.approx(leads(names, label_names_as_texts=False))
    assert np.ptp(with_numbers) < (second - first) / 2


def test_where_self_training_does_not_help_the_labels_alone_are_learned(monkeypatch):
    """The classifier is that of `fit_linear`, with the penalty that the same folds choose."""

    def guess_at_random(margins: NDArray, _: NDArray) -> NDArray:
        return np.random.default_rng(0).random(margins.shape)

    monkeypatch.setattr(few_labels, "aligned", guess_at_random)
    monkeypatch.setattr(few_labels, "PSEUDO_LABEL_WEIGHT", 5.0)
    classifier, result = fit(2)

    assert result.kept == ALONE
    assert result.accuracy == result.accuracy_before
    is_same = answers(classifier, 2) == answers(fit_labels_alone(2), 2)
    assert is_same.mean() > 0.9


def test_another_kind_needs_more_right_answers_than_chance_would_give():
    """It must be better by more than a standard error; otherwise the last round is kept."""

    def right(first: int, end: int) -> NDArray:
        return np.array([float(first <= row < end) for row in range(100)])

    def best(mean: NDArray, alone: NDArray) -> str:
        return few_labels._best({LAST: right(0, 70), MEAN: mean, ALONE: alone})

    assert best(right(0, 70), right(2, 73)) == LAST
    assert best(right(0, 60), right(0, 70)) == LAST
    assert best(right(0, 80), right(0, 75)) == MEAN
    assert best(right(0, 80), right(0, 85)) == ALONE


def test_a_second_fit_gives_the_same_classifier():
    first, _ = fit(3)
    second, _ = fit(3)

    for one, other in zip(arrays(first), arrays(second), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("kept", [LAST, MEAN])
@pytest.mark.parametrize("values", [NO_TECHNIQUES, {}], ids=["SVM alone", "everything"])
def test_one_weight_per_feature_and_class_gives_the_answers(monkeypatch, num_classes, kept, values):
    """The teacher's logits of texts held out are those out of fold, computed from all parts."""
    monkeypatch.setattr(few_labels, "_best", lambda *_: kept)
    texts, _ = corpus(num_classes)
    held_out = np.arange(10)
    _, result = fit(num_classes, names=texts[:num_classes], held_out=held_out, **values)

    assert result.rows[:10].tolist() == held_out.tolist()
    assert sorted(result.rows) == list(range(LABELLED))
    learned, _ = tokenized(num_classes)
    logits = result.teacher.logits(learned.take(held_out))
    assert logits == pytest.approx(result.logits[:10], abs=1e-3)


def test_answers_out_of_fold_have_not_seen_the_label():
    """Random labels are answered no better than chance, though the classifier has learned them."""
    labels = np.random.default_rng(5).integers(0, 2, LABELLED)
    classifier, result = fit(2, labels=labels)

    learned, _ = tokenized(2)
    own_answers = classifier.logits(learned[:LABELLED]).argmax(axis=1)
    own_accuracy = (own_answers == labels).mean()
    accuracy_out_of_fold = (result.logits.argmax(axis=1) == labels[result.rows]).mean()
    assert own_accuracy > 0.8
    assert accuracy_out_of_fold < 0.7


def test_shares_are_drawn_to_equal_ones_as_far_as_chance_explains_their_differences():
    """Equal counts and nearly equal ones give equal shares; counts far apart hardly change."""
    assert shrunk_shares(np.array([10, 10, 10])) == pytest.approx([1 / 3] * 3)
    assert shrunk_shares(np.array([11, 10, 9])) == pytest.approx([1 / 3] * 3)
    assert shrunk_shares(np.array([900, 90, 10])) == pytest.approx([0.9, 0.09, 0.01], abs=0.01)
    chi_square = (15**2 + 5**2 + 10**2) / 20
    expected = 2 / chi_square / 3 + (1 - 2 / chi_square) * 35 / 60
    assert shrunk_shares(np.array([35, 15, 10]))[0] == pytest.approx(expected)


def test_margins_are_shifted_until_answers_have_the_shares():
    margins = np.random.default_rng(0).normal([0.8, 0, 0], size=(3000, 3))
    shares = np.array([0.2, 0.3, 0.5])
    shifted = aligned(margins, shares)
    assert np.bincount(shifted.argmax(axis=1)) / 3000 == pytest.approx(shares, abs=0.03)
    assert (shifted - margins).std(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_a_round_learns_from_the_surest_texts_of_each_class():
    """At least one text of each class is chosen; the surest lead most over the second class."""
    margins = np.array([[0.1, 0, 0], [5, 4.9, 0], [1, 0, 0], [2, 0, 1.5], [0, 0.2, 0], [0, 0.1, 0]])

    chosen, guesses = surest(margins, 0.5)
    assert sorted(chosen) == [2, 3, 4]
    assert sorted(guesses) == [0, 0, 1]

    fewest, _ = surest(margins, 0.01)
    assert sorted(fewest) == [2, 4]

    everything, _ = surest(margins, 1.0)
    assert sorted(everything) == list(range(6))


def test_rounds_grow_to_all_texts(monkeypatch):
    """Texts whose class is guessed count less than those with a label."""
    num_labelled = FEWEST_EXTRAPOLATED - 1
    labelled = []
    guessed = []
    real = svm.fit_svm

    def recorded(features, labels, *, sample_weight, **options):
        labelled.append(int((sample_weight == 1).sum()))
        guessed.append(int((sample_weight == PSEUDO_LABEL_WEIGHT).sum()))
        return real(features, labels, sample_weight=sample_weight, **options)

    monkeypatch.setattr(svm, "fit_svm", recorded)
    _, labels = corpus(3)
    fit(3, labels=labels[:num_labelled])

    # The last fit is that of all labels: a round without guesses and then the others, each with
    # three machines of the same texts.
    num_rounds = 1 + len(ROUNDS)
    labelled = labelled[-3 * num_rounds :: 3]
    guessed = guessed[-3 * num_rounds :: 3]
    num_others = LABELLED + UNLABELLED - num_labelled
    assert labelled == [num_labelled] * num_rounds
    assert guessed == pytest.approx([0, *(share * num_others for share in ROUNDS)], abs=3)


@pytest.mark.parametrize(("most_tokens", "num_others"), [(60, 10), (1, 1)])
def test_of_many_texts_without_labels_some_are_read(monkeypatch, most_tokens, num_others):
    """Texts have six tokens each. All labelled texts are read, and at least one other."""
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", most_tokens)
    learned, _ = tokenized(2)
    rows = feature_corpus.sample_rows(learned, LABELLED, MAX_SEQ_LEN)

    assert rows[:LABELLED].tolist() == list(range(LABELLED))
    assert len(rows) == LABELLED + num_others


def test_errors_fall_as_a_power_of_the_number_of_labels():
    """An error that halved with twice the labels halves again; one that grew stays."""
    assert extrapolated(0.9, 0.8) == pytest.approx(0.95)
    assert extrapolated(0.6, 0.8) == pytest.approx(0.6)
    assert extrapolated(1.0, 0.9) == pytest.approx(1.0)


def test_the_accuracy_with_twice_the_labels_is_known_from_forty_labels_on():
    _, labels = corpus(3)

    _, enough = fit(3, **NO_TECHNIQUES)
    assert enough.accuracy <= enough.accuracy_with_twice <= 1

    _, too_few = fit(3, labels=labels[: LABELLED - 1], **NO_TECHNIQUES)
    assert too_few.accuracy_with_twice is None
