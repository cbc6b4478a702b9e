"""Fits to few labels and many unlabelled texts: which models are tried, and which one is kept."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from support.small_runs import NO_TECHNIQUES
from support.tokenizer import train_tokenizer
from tokenizers import Tokenizer

from encoder_cls.config.schema import TokenizerConfig, TrainConfig
from encoder_cls.data.label_names import names_as_texts
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training import corpus as feature_corpus
from encoder_cls.linear_training import nb_svm, out_of_fold, self_training
from encoder_cls.linear_training.cost import (
    ALL_AS_PLANNED,
    ROUNDS,
    TWO_ROUNDS,
    EffortChoice,
    reporting_progress,
)
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear_training.few_labels import FewLabelsFit, fit_linear_from_few_labels
from encoder_cls.linear_training.folds import NO_TEXTS
from encoder_cls.linear_training.model_selection import fit_linear
from encoder_cls.linear_training.out_of_fold import (
    LABELS_ONLY,
    LAST_ROUND,
    MEAN_OF_ROUNDS,
    MIN_EXTRAPOLATED,
    choose_kind,
    extrapolate_accuracy,
    leads,
)
from encoder_cls.linear_training.self_training import PSEUDO_LABEL_WEIGHT
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

Labels = NDArray[np.int64]

MAX_SEQ_LEN = 12
NUM_LABELLED = 40
NUM_UNLABELLED = 400
NUM_TEST = 200
# Words of three letters.
ALL_WORDS = ["".join(letters) for letters in itertools.product("bdfgklmnprst", "aeiou", "xzvw")]
# Words that texts may have, so that there is something to learn from the names of classes.
CLASS_NAMES = [" ".join(ALL_WORDS[number : number + 5]) for number in (0, 80, 160)]


class Corpus(NamedTuple):
    """Training texts, of which the first ones are labelled, and other texts to test with.

    `labels` has the class of each training text, also of those that training treats as unlabelled.
    """

    tokenizer: Tokenizer
    texts: TokenizedTexts
    labels: Labels
    test_texts: TokenizedTexts
    test_labels: Labels

    @property
    def known_labels(self) -> Labels:
        return self.labels[:NUM_LABELLED]


def read(tokenizer: Tokenizer, texts: Sequence[str]) -> TokenizedTexts:
    return tokenize(tokenizer, texts, max_seq_len=MAX_SEQ_LEN)


@functools.cache
def corpus(num_classes: int) -> Corpus:
    """Texts of two words of their class and three of any class: few labels show few words."""
    shuffled_words = np.random.default_rng(num_classes).permutation(ALL_WORDS).tolist()

    random = np.random.default_rng(num_classes)
    labels = random.integers(0, num_classes, NUM_LABELLED + NUM_UNLABELLED + NUM_TEST)
    labels[:num_classes] = np.arange(num_classes)
    texts = []
    for label in labels:
        class_words = shuffled_words[30 * label : 30 * label + 30]
        words = [*random.choice(class_words, 2), *random.choice(ALL_WORDS, 3)]
        texts.append(" ".join(random.permutation(words)))

    train_texts = texts[:-NUM_TEST]
    tokenizer = train_tokenizer(train_texts, TokenizerConfig(min_frequency=1))
    return Corpus(
        tokenizer=tokenizer,
        texts=read(tokenizer, train_texts),
        labels=labels[:-NUM_TEST],
        test_texts=read(tokenizer, texts[-NUM_TEST:]),
        test_labels=labels[-NUM_TEST:],
    )


def options_for(num_classes: int) -> LinearOptions:
    equal_weights = np.ones(num_classes, dtype=np.float32)
    return LinearOptions(MAX_SEQ_LEN, char_ngrams=True, class_weights=equal_weights)


def fit(
    num_classes: int,
    *,
    labels: Labels | None = None,
    names: Sequence[str] = (),
    validation_rows: Labels = NO_TEXTS,
    effort_choice: EffortChoice = ALL_AS_PLANNED,
    **train_values: Any,
) -> tuple[LinearModel, FewLabelsFit]:
    """Fit to the corpus. By default, the names of the classes are numbers."""
    data = corpus(num_classes)
    if labels is None:
        labels = data.known_labels
    if not names:
        names = ["1"] * num_classes

    labelled = LabelledTexts(
        texts=data.texts,
        labels=labels,
        split_groups=np.arange(len(labels)),
        validation_rows=validation_rows,
    )
    return fit_linear_from_few_labels(
        labelled,
        read(data.tokenizer, names_as_texts(names)),
        options_for(num_classes),
        config=TrainConfig(**train_values),
        with_teacher=True,
        effort_choice=effort_choice,
    )


def fit_to_labels_alone(num_classes: int) -> LinearModel:
    """The linear model of the labelled texts of the corpus."""
    data = corpus(num_classes)
    texts = data.texts[:NUM_LABELLED]
    counted = CountedTexts.of(texts, data.known_labels, options_for(num_classes))
    linear, _ = fit_linear(counted)
    return linear


def accuracy_on_new_texts(linear: LinearModel, num_classes: int) -> float:
    data = corpus(num_classes)
    predictions = linear.logits(data.test_texts).argmax(axis=1)
    return float((predictions == data.test_labels).mean())


@pytest.mark.parametrize("num_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_texts_without_labels_help(num_classes):
    """The accuracy on new texts rises, as the out-of-fold accuracy does."""
    linear, result = fit(num_classes)

    assert result.kind != LABELS_ONLY
    assert result.accuracy > result.accuracy_before
    accuracy_before = accuracy_on_new_texts(fit_to_labels_alone(num_classes), num_classes)
    assert accuracy_on_new_texts(linear, num_classes) > accuracy_before + 0.03


def keep_always(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this kind of classifier, however accurate the others are."""
    monkeypatch.setattr(out_of_fold, "choose_kind", lambda *_: kind)


def test_a_name_is_learned_from_unless_it_is_a_number(monkeypatch):
    """A word that one text of each class has is linked to the class that it names."""
    keep_always(LAST_ROUND, monkeypatch)
    names = ["xylophone", "zeppelin"]
    texts = [" ".join(ALL_WORDS[row : row + 5]) for row in range(40)]
    for row in (0, 1):
        texts[row] += f" {names[0]} {names[1]}"
    tokenizer = train_tokenizer(texts, TokenizerConfig())

    def leads_of_names(class_names: list[str], **train_values: Any) -> NDArray[np.float32]:
        """How much each of the two words speaks for the second class."""
        labelled = LabelledTexts(
            texts=read(tokenizer, texts), labels=np.arange(40) % 2, split_groups=np.arange(40)
        )
        linear, _ = fit_linear_from_few_labels(
            labelled,
            read(tokenizer, names_as_texts(class_names)),
            options_for(2),
            config=TrainConfig(**train_values),
        )
        logits = linear.logits(read(tokenizer, names))
        return logits[:, 1] - logits[:, 0]

    first, second = leads_of_names(names)
    leads_with_numbers = leads_of_names(["1", "2"])
    leads_without_names = leads_of_names(names, label_names_as_texts=False)

    assert first < 0 < second
    assert leads_with_numbers == pytest.approx(leads_without_names)
    assert np.ptp(leads_with_numbers) < (second - first) / 2


def test_where_self_training_does_not_help_the_labels_alone_are_learned(monkeypatch):
    """The result is that of `fit_linear`, with the C that the same folds choose."""

    def guess(margins: NDArray[np.float32], _shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.random.default_rng(0).random(margins.shape)

    monkeypatch.setattr(self_training, "align_margins", guess)
    monkeypatch.setattr(self_training, "PSEUDO_LABEL_WEIGHT", 5.0)

    linear, result = fit(2)

    assert result.kind == LABELS_ONLY
    assert result.accuracy == result.accuracy_before
    test_texts = corpus(2).test_texts
    predictions = linear.logits(test_texts).argmax(axis=1)
    expected = fit_to_labels_alone(2).logits(test_texts).argmax(axis=1)
    assert (predictions == expected).mean() > 0.9


def right(first: int, end: int) -> NDArray[np.float64]:
    """1 for the correct predictions, those from `first` to before `end`, of a hundred."""
    rows = np.arange(100)
    return ((first <= rows) & (rows < end)).astype(np.float64)


@pytest.mark.parametrize(
    ("mean", "alone", "expected"),
    [
        pytest.param(right(0, 70), right(2, 73), LAST_ROUND, id="less than a standard error"),
        pytest.param(right(0, 60), right(0, 70), LAST_ROUND, id="equal"),
        pytest.param(right(0, 80), right(0, 75), MEAN_OF_ROUNDS, id="mean of rounds"),
        pytest.param(right(0, 80), right(0, 85), LABELS_ONLY, id="labels alone"),
    ],
)
def test_another_kind_needs_more_correct_predictions_than_chance_would_give(mean, alone, expected):
    right_by_kind = {LAST_ROUND: right(0, 70), MEAN_OF_ROUNDS: mean, LABELS_ONLY: alone}

    assert choose_kind(right_by_kind, RowGroups.single(len(alone))) == expected


@pytest.mark.parametrize(
    ("num_classes", "kept", "techniques"),
    [
        pytest.param(3, LAST_ROUND, NO_TECHNIQUES, id="SVM alone"),
        pytest.param(3, LAST_ROUND, {}, id="everything"),
        pytest.param(2, MEAN_OF_ROUNDS, {}, id="mean of rounds"),
    ],
)
def test_a_teacher_predicts_texts_held_out_as_cross_validation_does(
    monkeypatch, num_classes, kept, techniques
):
    """The logits differ little: a fold also leaves out some unlabelled texts."""
    keep_always(kept, monkeypatch)
    validation_rows = np.arange(10)

    _, result = fit(
        num_classes,
        names=CLASS_NAMES[:num_classes],
        validation_rows=validation_rows,
        effort_choice=EffortChoice(TWO_ROUNDS),
        **techniques,
    )

    assert result.rows[:10].tolist() == validation_rows.tolist()
    assert sorted(result.rows) == list(range(NUM_LABELLED))

    logits = result.teacher.logits(corpus(num_classes).texts.take(validation_rows))
    assert np.corrcoef(logits.ravel(), result.logits[:10].ravel())[0, 1] > 0.9


def test_same_texts_give_the_same_bits(monkeypatch):
    """The mean of all rounds is kept, so it holds for all rounds."""
    keep_always(MEAN_OF_ROUNDS, monkeypatch)

    def weights() -> tuple[bytes, bytes, bytes, bytes]:
        linear, _ = fit(3, names=CLASS_NAMES, effort_choice=EffortChoice(TWO_ROUNDS))
        return (
            linear.feature_ids.tobytes(),
            linear.idf.tobytes(),
            linear.weights.dense().tobytes(),
            linear.biases.tobytes(),
        )

    assert weights() == weights()


def test_predictions_out_of_fold_have_not_seen_the_label():
    """Random labels are predicted by chance, although the final model has memorized them."""
    labels = np.random.default_rng(5).integers(0, 2, NUM_LABELLED)
    texts = corpus(2).texts[:NUM_LABELLED]

    linear, result = fit(2, labels=labels)

    predictions = linear.logits(texts).argmax(axis=1)
    out_of_fold = result.logits.argmax(axis=1)
    assert (predictions == labels).mean() > 0.8
    assert (out_of_fold == labels[result.rows]).mean() < 0.7


@pytest.mark.slow
def test_labels_of_hard_texts_do_not_lower_the_estimate():
    """The texts that a first model is least sure of are labelled, and then count less."""
    data = corpus(2)
    first, _ = fit(2)
    surest_last = np.argsort(leads(first.logits(data.texts[NUM_LABELLED:])))
    unsure = NUM_LABELLED + surest_last[: 2 * NUM_LABELLED]
    labelled = np.concatenate([np.arange(NUM_LABELLED), unsure])
    unlabelled = np.setdiff1d(np.arange(len(data.texts)), labelled)

    _, result = fit_linear_from_few_labels(
        LabelledTexts(
            texts=data.texts.take(np.concatenate([labelled, unlabelled])),
            labels=data.labels[labelled],
            split_groups=np.arange(len(labelled)),
        ),
        data.texts[:0],
        options_for(2),
        config=TrainConfig(label_names_as_texts=False),
    )

    is_right = result.logits.argmax(axis=1) == data.labels[labelled][result.rows]
    low, high = result.interval
    assert result.accuracy > is_right.mean() + 0.01
    assert low < result.accuracy < high


def test_the_progress_of_a_fit_rises_to_its_end():
    """It counts the folds, the rounds of self-training and the last fit."""
    shares: list[float] = []

    with reporting_progress(shares.append):
        fit(3)

    assert len(set(shares)) > 50
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1


def test_rounds_grow_to_all_texts(monkeypatch):
    """Texts with a predicted class have a lower weight than labelled texts."""
    fits = []
    fit_svm = nb_svm.fit_svm

    def recorded(features, labels, *, sample_weight, **options):
        num_labelled = int((sample_weight == 1).sum())
        num_predicted = int((sample_weight == PSEUDO_LABEL_WEIGHT).sum())
        fits.append((num_labelled, num_predicted))
        return fit_svm(features, labels, sample_weight=sample_weight, **options)

    monkeypatch.setattr(nb_svm, "fit_svm", recorded)
    # With so few labels, there is no extrapolation, and the last fit is that to all texts.
    num_labelled = MIN_EXTRAPOLATED - 1
    fit(3, labels=corpus(3).labels[:num_labelled])

    # Each round fits a classifier for each of three classes.
    last_rounds = fits[-3 * (1 + len(ROUNDS)) :: 3]
    assert [labelled for labelled, _ in last_rounds] == [num_labelled] * (1 + len(ROUNDS))

    num_others = NUM_LABELLED + NUM_UNLABELLED - num_labelled
    expected = [0]
    for share in ROUNDS:
        expected.append(share * num_others)
    assert [predicted for _, predicted in last_rounds] == pytest.approx(expected, abs=3)


def test_a_sample_of_many_unlabelled_texts_is_read(monkeypatch):
    """All labelled texts are read."""
    monkeypatch.setattr(feature_corpus, "MAX_TOKENS", 60)

    rows = feature_corpus.sample_rows(corpus(2).texts, NUM_LABELLED, MAX_SEQ_LEN)

    assert rows[:NUM_LABELLED].tolist() == list(range(NUM_LABELLED))
    # Texts have six tokens each.
    assert len(rows) == NUM_LABELLED + 10


def test_at_least_one_unlabelled_text_is_read(monkeypatch):
    monkeypatch.setattr(feature_corpus, "MAX_TOKENS", 1)

    rows = feature_corpus.sample_rows(corpus(2).texts, NUM_LABELLED, MAX_SEQ_LEN)

    assert len(rows) == NUM_LABELLED + 1


def test_an_error_that_halves_with_twice_the_labels_does_so_again():
    assert extrapolate_accuracy(0.9, 0.8) == pytest.approx(0.95)
    assert extrapolate_accuracy(1.0, 0.9) == pytest.approx(1.0)


def test_an_accuracy_that_falls_is_expected_to_stay():
    assert extrapolate_accuracy(0.6, 0.8) == pytest.approx(0.6)


def test_accuracy_is_extrapolated_from_forty_labels_on():
    labels_of_39 = corpus(3).labels[:39]

    _, with_forty = fit(3, **NO_TECHNIQUES)
    _, with_39 = fit(3, labels=labels_of_39, **NO_TECHNIQUES)

    assert with_forty.accuracy <= with_forty.accuracy_with_twice <= 1
    assert with_39.accuracy_with_twice is None
