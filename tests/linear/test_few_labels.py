"""Few labels beside many texts without: what is tried, and what is kept."""

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
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.linear.self_training import (
    PSEUDO_LABEL_WEIGHT,
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
    """Texts of two words of their class and three of any class: few labels show few words."""
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
) -> tuple[LinearModel, FewLabels]:
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
    names = ("xylophone", "zeppelin")
    texts = [" ".join(ALL_WORDS[row : row + 5]) for row in range(40)]
    for row in (0, 1):
        texts[row] += f" {names[0]} {names[1]}"
    tokenizer = train_tokenizer(texts, TokenizerConfig())
    read = functools.partial(tokenize, tokenizer, max_seq_len=MAX_SEQ_LEN)

    def leads_of_words(class_names: tuple[str, str], **config) -> NDArray:
        """How far each of both words speaks for the second class."""
        classifier, _ = fit_linear_from_few_labels(
            read(texts),
            np.arange(40) % 2,
            read(names_as_texts(class_names)),
            reading(2),
            config=TrainConfig(**config),
            together=np.arange(40),
        )
        return np.diff(classifier.logits(read(names)), axis=1)[:, 0]

    first, second = leads_of_words(names)
    by_numbers = leads_of_words(("1", "2"))

    assert first < 0 < second
    assert by_numbers == pytest.approx(leads_of_words(names, label_names_as_texts=False))
    assert np.ptp(by_numbers) < (second - first) / 2


def test_where_self_training_does_not_help_the_labels_alone_are_learned(monkeypatch):
    """It is the classifier of `fit_linear`, with the penalty that the same folds choose."""

    def chance(margins: NDArray, _: NDArray) -> NDArray:
        return np.random.default_rng(0).random(margins.shape)

    monkeypatch.setattr(self_training, "align_margins", chance)
    monkeypatch.setattr(self_training, "PSEUDO_LABEL_WEIGHT", 5.0)

    classifier, result = fit(2)

    assert result.kept == ALONE
    assert result.accuracy == result.accuracy_before
    _, test_texts = tokenized(2)
    signs = np.sign(classifier.logits(test_texts))
    expected = np.sign(plain(2).logits(test_texts))
    assert (signs == expected).mean() > 0.9


def right(first: int, end: int) -> NDArray:
    """1 for the texts of a range that are answered correctly, of a hundred."""
    rows = np.arange(100)
    return ((first <= rows) & (rows < end)).astype(float)


@pytest.mark.parametrize(
    ("mean", "alone", "expected"),
    [
        (right(0, 70), right(2, 73), LAST),
        (right(0, 60), right(0, 70), LAST),
        (right(0, 80), right(0, 75), MEAN),
        (right(0, 80), right(0, 85), ALONE),
    ],
    ids=["less than a standard error", "equal", "mean of rounds", "labels alone"],
)
def test_another_kind_needs_more_right_predictions_than_chance_would_give(mean, alone, expected):
    assert choose_kind({LAST: right(0, 70), MEAN: mean, ALONE: alone}) == expected


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("kept", [LAST, MEAN])
@pytest.mark.parametrize("values", [NO_TECHNIQUES, {}], ids=["SVM alone", "everything"])
def test_a_teacher_predicts_texts_held_out_as_cross_validation_does(
    monkeypatch, num_classes, kept, values
):
    """Its logits are about those out of fold; a second fit gives the same classifier."""
    monkeypatch.setattr(few_labels, "choose_kind", lambda *_: kept)
    held_out = np.arange(10)
    texts, _ = corpus(num_classes)
    names = tuple(texts[:num_classes])

    first, result = fit(num_classes, names=names, held_out=held_out, **values)
    second, _ = fit(num_classes, names=names, held_out=held_out, **values)

    for array, same in zip(arrays(first), arrays(second), strict=True):
        assert np.array_equal(array, same)
    assert result.rows[:10].tolist() == held_out.tolist()
    assert sorted(result.rows) == list(range(LABELLED))

    # Cross-validation holds out some texts without labels, too.
    train_texts, _ = tokenized(num_classes)
    logits = result.teacher.logits(train_texts.take(held_out))
    assert np.corrcoef(logits.ravel(), result.logits[:10].ravel())[0, 1] > 0.9


def test_predictions_out_of_fold_have_not_seen_the_label():
    """Labels of chance are answered by chance, though the classifier knows them by heart."""
    labels = np.random.default_rng(5).integers(0, 2, LABELLED)
    classifier, result = fit(2, labels=labels)
    train_texts, _ = tokenized(2)

    predictions = classifier.logits(train_texts[:LABELLED]).argmax(axis=1)
    out_of_fold = result.logits.argmax(axis=1)

    accuracy_on_known = (predictions == labels).mean()
    accuracy_out_of_fold = (out_of_fold == labels[result.rows]).mean()
    assert accuracy_on_known > 0.8
    assert accuracy_out_of_fold < 0.7


def test_labels_of_hard_texts_do_not_lower_the_estimate():
    """Texts that a first classifier was unsure of get labels, as by `suggest`; they count less."""
    train_texts, _ = tokenized(2)
    texts = train_texts[: LABELLED + UNLABELLED]
    _, labels = corpus(2)
    first, _ = fit(2)
    by_lead = np.argsort(leads(first.logits(texts[LABELLED:])))
    unsure = LABELLED + by_lead[: 2 * LABELLED]
    labelled = np.concatenate([np.arange(LABELLED), unsure])
    others = np.setdiff1d(np.arange(len(texts)), labelled)

    _, result = fit_linear_from_few_labels(
        texts.take(np.concatenate([labelled, others])),
        labels[labelled],
        train_texts[:0],
        reading(2),
        config=TrainConfig(label_names_as_texts=False),
        together=np.arange(len(labelled)),
    )

    is_right = result.logits.argmax(axis=1) == labels[labelled][result.rows]
    low, high = result.interval
    assert result.accuracy > is_right.mean() + 0.01
    assert low < result.accuracy < high


def test_rounds_grow_to_all_texts(monkeypatch):
    """Texts whose class is guessed count less than those with a label."""
    fits = []
    real = svm.fit_svm

    def recorded(features, labels, *, sample_weight, **options):
        num_labelled = int((sample_weight == 1).sum())
        num_guessed = int((sample_weight == PSEUDO_LABEL_WEIGHT).sum())
        fits.append((num_labelled, num_guessed))
        return real(features, labels, sample_weight=sample_weight, **options)

    monkeypatch.setattr(svm, "fit_svm", recorded)
    num_labels = FEWEST_EXTRAPOLATED - 1
    _, labels = corpus(3)
    fit(3, labels=labels[:num_labels])

    # The last fit is that of all labelled texts, with an SVM for each of three classes.
    num_others = LABELLED + UNLABELLED - num_labels
    last_rounds = fits[-3 * (1 + len(ROUNDS)) :: 3]
    assert [num_labelled for num_labelled, _ in last_rounds] == [num_labels] * len(last_rounds)
    expected = [0, *(share * num_others for share in ROUNDS)]
    assert [num_guessed for _, num_guessed in last_rounds] == pytest.approx(expected, abs=3)


def test_of_many_texts_without_labels_some_are_read(monkeypatch):
    """Texts have six tokens each here; the labelled ones are read in any case."""
    texts, _ = tokenized(2)
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", 60)

    rows = feature_corpus.sample_rows(texts, LABELLED, MAX_SEQ_LEN)

    assert rows[:LABELLED].tolist() == list(range(LABELLED))
    assert len(rows) == LABELLED + 10


def test_one_text_without_a_label_is_read_at_the_least(monkeypatch):
    texts, _ = tokenized(2)
    monkeypatch.setattr(feature_corpus, "MOST_TOKENS", 1)

    assert len(feature_corpus.sample_rows(texts, LABELLED, MAX_SEQ_LEN)) == LABELLED + 1


def test_an_error_that_halves_with_twice_the_labels_does_so_again():
    assert extrapolate_accuracy(0.9, 0.8) == pytest.approx(0.95)
    assert extrapolate_accuracy(1.0, 0.9) == pytest.approx(1.0)


def test_an_accuracy_that_falls_is_expected_to_stay():
    assert extrapolate_accuracy(0.6, 0.8) == pytest.approx(0.6)


def test_accuracy_is_extrapolated_from_forty_labels_on():
    _, labels = corpus(3)
    _, result = fit(3, **NO_TECHNIQUES)
    _, result_of_fewer = fit(3, labels=labels[: LABELLED - 1], **NO_TECHNIQUES)

    assert result.accuracy <= result.accuracy_with_twice <= 1
    assert result_of_fewer.accuracy_with_twice is None
