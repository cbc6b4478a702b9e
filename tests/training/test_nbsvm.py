"""The linear classifier: the same as one written out with scikit-learn, and right on words it never saw."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.svm import LinearSVC
from tokenizers import Tokenizer

from encoder_cls.config import TokenizerConfig
from encoder_cls.evaluation.metrics import cross_entropy, one_hot
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, log_sigmoid, softmax
from encoder_cls.inference.weights import as_table
from encoder_cls.text import ngrams as features
from encoder_cls.text.ngrams import CHAR_NGRAM_IDS, NUM_FEATURE_IDS, TEMPLATE_IDS
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_tokenizer
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear import features as feature_matrix
from encoder_cls.training.linear import machines, svm
from encoder_cls.training.linear.calibration import calibrate, fit_inverse_temperature, fit_platt
from encoder_cls.training.linear.features import Reading, bytes_at_most, feature_bytes
from encoder_cls.training.linear.machines import NB_RATIO_POWER
from encoder_cls.training.linear.svm import fit_linear

MAX_SEQ_LEN = 12
SYLLABLES = ["ba", "ko", "ri", "tu", "en", "sol", "mir", "da", "pe", "lo"]


@functools.cache
def corpus(num_classes: int, size: int = 90) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Texts in which each class prefers words and orders of its own, with much noise; some are empty."""
    random = np.random.default_rng(num_classes)
    words = ["".join(random.choice(SYLLABLES, size=random.integers(1, 4))) for _ in range(60)]
    labels = np.arange(size) % num_classes
    texts = []
    for label in labels:
        own = random.choice(words[label * 5 : label * 5 + 8], size=2)
        others = random.choice(words, size=random.integers(0, 5))
        texts.append(" ".join(random.permutation([*own, *others])) if random.random() > 0.04 else "")
    return tuple(texts), labels


UNSEEN = ("", "kori kobari", "zzzz", "zzzz ba yyyy bari", "ba ba ba ba ko", "bako " * 30, "日 本 🙂")


def tokenizer_of(texts: tuple[str, ...], max_vocab_size: int = 30_000) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig(max_vocab_size=max_vocab_size))


def read(tokenizer: Tokenizer, texts) -> TokenizedTexts:
    return tokenize(tokenizer, texts, max_seq_len=MAX_SEQ_LEN)


def fit(
    texts: TokenizedTexts,
    labels,
    *,
    num_classes: int,
    use_char_ngrams: bool,
    weights=None,
    max_tokens: int = MAX_SEQ_LEN,
) -> LinearClassifier:
    return fit_linear(texts, labels, reading_of(num_classes, use_char_ngrams, weights, max_tokens=max_tokens))[0]


def reading_of(num_classes: int, char_ngrams: bool, weights=None, *, max_tokens: int = MAX_SEQ_LEN) -> Reading:
    weights = np.ones(num_classes) if weights is None else np.array(weights)
    return Reading(max_tokens, char_ngrams, weights.astype(np.float32))


def content(classifier: LinearClassifier) -> dict[str, object]:
    """All that it consists of."""
    return vars(classifier) | {"weights": classifier.weights.dense()}


@functools.cache
def trained(num_classes: int, use_char_ngrams: bool) -> tuple[Tokenizer, LinearClassifier]:
    """A classifier of the corpus. Not to be changed."""
    texts, labels = corpus(num_classes)
    tokenizer = tokenizer_of(texts)
    return tokenizer, fit(read(tokenizer, texts), labels, num_classes=num_classes, use_char_ngrams=use_char_ngrams)


# ---------------------------------------------------------------- a reference


class Reference:
    """NB-SVM as in the paper but for `NB_RATIO_POWER`, with strings for columns, nothing hashed."""

    def __init__(self, vocabulary, texts, labels, *, num_classes: int, use_char_ngrams: bool) -> None:
        self.vocabulary = vocabulary
        words = Counter(word for text in texts for word in self.known(text))
        del words["[UNK]"]
        self.frequent = {word for word, count in words.items() if count * features.MOST_FREQUENT >= words.total()}
        assert len(self.frequent) < len(words)
        analyzers = [self.words_and_pairs] + [self.templates, self.char_ngrams] * use_char_ngrams
        self.vectorizers = [CountVectorizer(analyzer=analyzer) for analyzer in analyzers]
        self.tfidfs = [TfidfTransformer(sublinear_tf=True) for _ in analyzers]
        for vectorizer, tfidf in zip(self.vectorizers, self.tfidfs, strict=True):
            tfidf.fit(vectorizer.fit_transform(texts))
        vectors = self.vectors(texts)
        self.svms = []
        for number in range(num_classes):
            inside, outside = (
                1 + (vectors[labels == number] > 0).sum(axis=0).A1,
                1 + (vectors[labels != number] > 0).sum(axis=0).A1,
            )
            ratio = np.abs(np.log((inside / inside.sum()) / (outside / outside.sum()))) ** NB_RATIO_POWER
            svm = LinearSVC(C=1.0, random_state=0).fit(vectors.multiply(ratio).tocsr(), labels == number)
            self.svms.append((ratio, svm))

    def known(self, text: str) -> list[str]:
        return [word if word in self.vocabulary else "[UNK]" for word in text.split()[: MAX_SEQ_LEN - 1]]

    def words_and_pairs(self, text: str) -> list[str]:
        words = self.known(text)
        begun = ["[CLS]", *words]
        neighbours = [f"{one} {two}" for one, two in zip(begun, words, strict=False)]
        return words + neighbours + [f"{one} ... {two}" for one, two in zip(begun, words[1:], strict=False)]

    def templates(self, text: str) -> list[str]:
        slots = ["[CLS]", *(word if word in self.frequent else "_" for word in self.known(text))]
        return [" ".join(slots[i : i + n]) for n in range(2, 7) for i in range(len(slots) - n + 1)]

    def char_ngrams(self, text: str) -> list[str]:
        words = [f"<{word}>" for word in text.split()[: MAX_SEQ_LEN - 1]]
        return [w[i : i + n] for w in words for n in range(2, 6) for i in range(len(w) - n + 1)]

    def vectors(self, texts) -> sp.csr_matrix:
        blocks = [t.transform(v.transform(texts)) for v, t in zip(self.vectorizers, self.tfidfs, strict=True)]
        scaled = [block * length for block, length in zip(blocks, features.GROUP_NORMS, strict=False)]
        return sp.csr_matrix(sp.hstack(scaled))

    def margins(self, texts) -> NDArray[np.float64]:
        vectors = self.vectors(texts)
        columns = [svm.decision_function(vectors.multiply(ratio).tocsr()) for ratio, svm in self.svms]
        return np.stack(columns, axis=1)


@pytest.mark.parametrize("use_char_ngrams", [False, True], ids=["words", "all"])
@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("max_vocab_size", [30_000, 30], ids=["all known", "many unknown"])
def test_scores_are_those_of_a_plain_nb_svm(monkeypatch, num_classes, use_char_ngrams, max_vocab_size):
    """Counts, TF-IDF, ratios and margins written out with scikit-learn, on texts seen and unseen.

    The score of a class is the logarithm of a sigmoid of its margin, up to a scale and a shift; of two classes it is
    the margin, up to a scale.
    """
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 40)
    monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, (1.0,))
    monkeypatch.setattr(machines, "TOLERANCE", 1e-4)
    monkeypatch.setattr(features, "MOST_FREQUENT", 20)  # of so few words, not all
    texts, labels = corpus(num_classes)
    tokenizer = tokenizer_of(texts, max_vocab_size)
    options = {"num_classes": num_classes, "use_char_ngrams": use_char_ngrams}
    classifier = fit(read(tokenizer, texts), labels, **options)
    reference = Reference(tokenizer.get_vocab(), texts, labels, **options)
    asked = (*texts, *UNSEEN)
    found, expected = classifier.logits(read(tokenizer, asked)), reference.margins(asked)
    if num_classes > 2:
        found = logit(np.exp(found.astype(np.float64)))
    scale, shift = np.polyfit(expected.ravel(), found.ravel(), deg=1)
    np.testing.assert_allclose(found, scale * expected + shift, atol=1e-4 * scale)
    assert num_classes > 2 or shift == pytest.approx(0, abs=1e-4 * scale)
    assert (found.argmax(axis=1) == expected.argmax(axis=1))[np.ptp(expected, axis=1) > 0.01].all()
    assert np.ptp(expected) > 1


# ---------------------------------------------------------------- what it learns


@pytest.mark.parametrize("use_char_ngrams", [False, True])
def test_it_learns_words(use_char_ngrams):
    """Texts of words that only one class has."""
    texts, labels = ("rain wind", "ball goal", "snow rain", "goal team", "wind snow", "team ball"), np.arange(6) % 2
    tokenizer = tokenizer_of(texts)
    classifier = fit(read(tokenizer, texts), labels, num_classes=2, use_char_ngrams=use_char_ngrams)
    asked = ["snow wind", "the goal", "team goal rain", "rain ball snow"]
    assert classifier.logits(read(tokenizer, asked)).argmax(axis=1).tolist() == [0, 1, 1, 0]


def test_it_learns_the_order_of_neighbours():
    """The same words in another order, as in "not good, bad" and "not bad, good"."""
    texts = ("it is not good but bad", "it is not bad but good") * 3
    tokenizer = tokenizer_of(texts)
    classifier = fit(read(tokenizer, texts), np.arange(6) % 2, num_classes=2, use_char_ngrams=False)
    asked = ["is not good", "is not bad", "not good", "not bad"]
    assert classifier.logits(read(tokenizer, asked)).argmax(axis=1).tolist() == [0, 1, 0, 1]


TOPICS = {
    "cooking": ["garlic", "kitchen", "breakfast", "simmering"],
    "sport": ["football", "champion", "tournament", "goalkeeper"],
    "weather": ["hurricane", "snowfall", "temperature", "forecast"],
}


def test_letters_help_with_words_misspelt():
    """Words alone know nothing of a misspelt word; with letters nearly all are put where they belong."""
    rows = [(f"{one} {two}", label) for label, words in enumerate(TOPICS.values()) for one in words for two in words]
    texts, labels = tuple(text for text, _ in rows), np.array([label for _, label in rows])
    tokenizer = tokenizer_of(texts)
    words, letters = (
        fit(read(tokenizer, texts), labels, num_classes=3, use_char_ngrams=also) for also in (False, True)
    )
    misspelt = [word[:place] + word[place + 1 :] for words in TOPICS.values() for word in words for place in (1, 4)]
    asked = read(tokenizer, misspelt)
    assert asked.unknown.sum() == len(misspelt)
    assert (letters.logits(asked).argmax(axis=1) == np.arange(len(misspelt)) // 8).mean() > 0.9
    assert np.ptp(words.logits(asked), axis=0).max() == 0


# ---------------------------------------------------------------- scores


def test_two_classes_have_opposite_scores():
    """One SVM tells them apart, and its margin is the score of the second class."""
    tokenizer, classifier = trained(2, True)
    texts, labels = corpus(2)
    found = classifier.logits(read(tokenizer, texts))
    assert found.shape == (len(texts), 2)
    assert found[:, 0].tolist() == (-found[:, 1]).tolist()
    assert (found.argmax(axis=1) == labels).mean() > 0.9


@pytest.mark.parametrize("num_classes", [3, 5])
def test_many_classes_have_a_column_each(num_classes):
    """In the order of their numbers, each against the rest."""
    tokenizer, classifier = trained(num_classes, True)
    texts, labels = corpus(num_classes)
    found = classifier.logits(read(tokenizer, texts))
    assert found.shape == (len(texts), num_classes)
    assert found.dtype == np.float32
    assert (found.argmax(axis=1) == labels).mean() > 0.9


@pytest.mark.parametrize("use_char_ngrams", [False, True])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_unknown_words_are_all_the_same(num_classes, use_char_ngrams):
    """Not seen, they say nothing; that there are rare words, and where, may say something."""
    tokenizer, classifier = trained(num_classes, use_char_ngrams)
    found = classifier.logits(read(tokenizer, ["zzz qqq", "qqq xxx", "\0\0 ωψ", ""]))
    assert np.isfinite(found).all()
    assert (found[:3] == found[0]).all()
    assert (found[3] == found[0]).all() == (not use_char_ngrams)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_text_s_scores_do_not_depend_on_its_company(num_classes):
    """Bit for bit, alone or with others before and after it: no pair crosses from one text into the next."""
    tokenizer, classifier = trained(num_classes, True)
    asked = [*corpus(num_classes)[0][:20], *UNSEEN]
    together, rarity = classifier.read(read(tokenizer, asked))
    for row, text in enumerate(asked):
        alone, alone_rarity = classifier.read(read(tokenizer, [text]))
        np.testing.assert_array_equal(together[row], alone[0])
        np.testing.assert_array_equal(rarity[row], alone_rarity[0])


def test_training_twice_gives_the_same_scores():
    """Bit by bit."""
    texts, labels = corpus(3)
    tokenizer, classifier = trained(3, True)
    again = fit(read(tokenizer, texts), labels, num_classes=3, use_char_ngrams=True)
    asked = read(tokenizer, (*texts, *UNSEEN))
    assert again.logits(asked).tolist() == classifier.logits(asked).tolist()


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("weight", [1.0, 5.0], ids=["equal", "weighted"])
def test_scores_are_the_logits_of_texts_never_seen(num_classes, weight):
    """On fresh texts, which count alike whatever their weights in training, no other scale or shift is much better."""
    texts, labels = corpus(num_classes, 2000)
    trained_on, asked = slice(0, 1000), slice(1000, None)
    weights = np.where(np.arange(num_classes) == 0, weight, 1.0)
    tokenizer = tokenizer_of(texts[trained_on])
    classifier = fit(
        read(tokenizer, texts[trained_on]),
        labels[trained_on],
        num_classes=num_classes,
        use_char_ngrams=False,
        weights=weights,
    )
    scores = classifier.logits(read(tokenizer, texts[asked]))
    assert fit_inverse_temperature(scores, labels[asked]) == pytest.approx(1, abs=0.15)
    if num_classes > 2:
        margins = logit(np.exp(scores.astype(np.float64)))
        (scale,), shift = fit_platt([margins], labels[asked], num_classes)
        of_both = [scores, log_sigmoid(margins * scale + shift)]
        found, best = (cross_entropy(softmax(it), one_hot(labels[asked], num_classes)) for it in of_both)
        assert found < best + 0.008


def test_a_class_of_one_text_can_be_learnt():
    """Where that is held out, the others know nothing of it."""
    texts, labels = (*("ba ko", "ba ri", "ba tu", "ko ri") * 5, "sol mir"), np.array([0] * 20 + [1])
    tokenizer = tokenizer_of(texts)
    scores, of_the_other = (
        fit(read(tokenizer, texts), classes, num_classes=2, use_char_ngrams=False).logits(read(tokenizer, texts))
        for classes in (labels, 1 - labels)
    )
    assert scores.argmax(axis=1).tolist() == labels.tolist()
    np.testing.assert_allclose(scores, of_the_other[:, ::-1], rtol=0.01)  # as far as the solver goes


def test_the_weight_of_a_class_moves_its_score():
    """Words that tell nothing: the heavier class is preferred, of two classes and of more."""
    texts = ("same words",) * 12
    tokenizer = tokenizer_of(texts)
    for num_classes in (2, 3):
        labels = np.arange(12) % num_classes
        for heavy in range(num_classes):
            weights = np.where(np.arange(num_classes) == heavy, 9.0, 1.0)
            classifier = fit(
                read(tokenizer, texts), labels, num_classes=num_classes, use_char_ngrams=False, weights=weights
            )
            assert classifier.logits(read(tokenizer, texts[:1])).argmax() == heavy


# ---------------------------------------------------------------- features


@pytest.mark.parametrize("use_char_ngrams", [False, True])
def test_feature_ids_are_in_order(use_char_ngrams):
    """Words come first, templates and character n-grams are there where they are wanted, and no id is there twice."""
    _, classifier = trained(3, use_char_ngrams)
    ids = classifier.feature_ids
    assert ids.dtype == np.int32
    assert (np.diff(ids) > 0).all()
    assert ids[0] >= 0
    assert ids[-1] < NUM_FEATURE_IDS
    assert (ids >= TEMPLATE_IDS).any() == (ids >= CHAR_NGRAM_IDS).any() == use_char_ngrams
    assert {len(classifier.idf), len(classifier.weights.values)} == {len(ids)}
    assert (len(classifier.frequent_token_ids) == 0) == (not use_char_ngrams)


@pytest.mark.parametrize("limit", ["MOST_FEATURES", "MOST_BYTES"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_of_too_many_features_the_most_frequent_are_kept(monkeypatch, num_classes, limit):
    """As many as fit, and none of those left out occurs in more texts than one that is kept."""
    texts, labels = corpus(num_classes)
    tokenizer, whole = trained(num_classes, True)
    monkeypatch.setattr(feature_matrix, limit, 50 if limit == "MOST_FEATURES" else 50 * feature_bytes(num_classes) + 3)
    small = fit(read(tokenizer, texts), labels, num_classes=num_classes, use_char_ngrams=True)
    assert len(small.feature_ids) == 50 < len(whole.feature_ids)
    kept = np.isin(whole.feature_ids, small.feature_ids)
    assert kept.sum() == 50
    assert whole.idf[kept].max() <= whole.idf[~kept].min()  # the more texts have it, the lower
    assert sum(array.nbytes for array in (small.feature_ids, small.idf, small.weights.values)) == 50 * feature_bytes(
        num_classes
    )
    assert (small.logits(read(tokenizer, texts)).argmax(axis=1) == labels).mean() > 0.6


@pytest.mark.parametrize("use_char_ngrams", [False, True])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_weights_take_no_more_than_was_foretold(monkeypatch, num_classes, use_char_ngrams):
    """Nor ten times less; and never more than the limit."""
    texts, labels = corpus(num_classes)
    tokenized = read(tokenizer_of(texts), texts)
    options = {"num_classes": num_classes, "use_char_ngrams": use_char_ngrams}
    classifier = fit(tokenized, labels, **options)
    found = sum(array.nbytes for array in (classifier.feature_ids, classifier.idf, classifier.weights.values))
    assert found <= bytes_at_most(tokenized, **options) < 10 * found
    assert bytes_at_most(tokenized, num_classes=num_classes, use_char_ngrams=not use_char_ngrams) != bytes_at_most(
        tokenized, **options
    )
    limited = 20 * feature_bytes(num_classes)
    monkeypatch.setattr(feature_matrix, "MOST_BYTES", limited + 3)
    assert bytes_at_most(tokenized, **options) == limited
    monkeypatch.setattr(feature_matrix, "MOST_FEATURES", 10)
    assert bytes_at_most(tokenized, **options) == limited / 2


def test_texts_without_words_are_told_apart_by_nothing():
    """There is nothing to learn but which class is the more frequent, and that is no error."""
    tokenizer = tokenizer_of(("some words",))
    classifier = fit(read(tokenizer, ["", "", ""]), np.array([1, 0, 1]), num_classes=2, use_char_ngrams=True)
    assert classifier.logits(read(tokenizer, ["", "words"])).argmax(axis=1).tolist() == [1, 1]


def test_no_texts_have_no_scores():
    """An empty list has a row for none."""
    tokenizer, classifier = trained(3, True)
    assert classifier.logits(read(tokenizer, ())).shape == (0, 3)


@pytest.mark.parametrize("use_char_ngrams", [False, True])
def test_texts_are_read_as_far_as_max_tokens(use_char_ngrams):
    """In training and after: what lies beyond changes nothing, also where texts are kept further."""
    texts, labels = ("good a a tail", "bad a a tail") * 40, np.arange(80) % 2
    changed = ("good a a other", "bad a a more") * 40
    tokenizer = tokenizer_of((*texts, *changed))
    fitted = [
        fit(
            tokenize(tokenizer, some, max_seq_len=2),
            labels,
            num_classes=2,
            use_char_ngrams=use_char_ngrams,
            max_tokens=4,
        )
        for some in (texts, changed)
    ]
    assert all(np.array_equal(content(fitted[0])[name], content(fitted[1])[name]) for name in content(fitted[0]))
    further = fit(
        tokenize(tokenizer, changed, max_seq_len=2),
        labels,
        num_classes=2,
        use_char_ngrams=use_char_ngrams,
        max_tokens=5,
    )
    assert len(further.feature_ids) > len(fitted[0].feature_ids)
    ends = tokenize(tokenizer, ["a a a good", "a a a a good other"], max_seq_len=2)
    nothing, something = (model.logits(ends) for model in (fitted[0], further))
    assert np.array_equal(nothing[0], nothing[1])
    assert not np.array_equal(something[0], something[1])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_penalty_is_the_one_with_the_lowest_loss_on_held_out_texts(monkeypatch, num_classes):
    """An SVM that may not learn loses where labels are clear, one that overfits where many are wrong."""
    texts, clear = corpus(num_classes)
    random = np.random.default_rng(0)
    noisy = np.where(random.random(len(clear)) < 0.2 * num_classes, random.integers(0, num_classes, len(clear)), clear)
    tokenizer = tokenizer_of(texts)

    def fitted(labels, *penalties) -> list[list[float]]:
        monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, penalties)
        return fit(
            read(tokenizer, texts), labels, num_classes=num_classes, use_char_ngrams=True
        ).weights.values.tolist()

    timid, bold = 1e-4, 10.0
    assert fitted(clear, timid, bold) == fitted(clear, bold)
    assert fitted(clear, bold) != fitted(clear, timid)
    careful = 0.03
    monkeypatch.setattr(svm, "LEAST_GAIN", 0)
    assert fitted(noisy, careful, bold) == fitted(noisy, careful, bold, 100.0) == fitted(noisy, careful)
    assert fitted(noisy, careful) != fitted(noisy, bold)


def test_texts_held_out_choose_where_they_are_enough(monkeypatch):
    """Then a first classifier comes early; texts that are not enough change nothing."""
    texts, labels = corpus(3)
    tokenized, first = read(tokenizer_of(texts), texts), []
    held_out, rest = (tokenized.take(np.arange(30)), labels[:30]), tokenized.take(np.arange(30, 90))
    reading = reading_of(3, False)
    monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, (1e-4, 0.01, 2.0))

    def fitted(**options) -> tuple[LinearClassifier, float]:
        classifier, choice = fit_linear(rest, labels[30:], reading, on_first=first.append, **options)
        return classifier.logits(tokenized).tolist(), choice

    monkeypatch.setitem(svm.ENOUGH_HELD_OUT, SINGLE_LABEL, 31)
    by_folds, _ = fitted(held_out=held_out)
    assert by_folds == fitted()[0]
    assert first == []
    monkeypatch.setitem(svm.ENOUGH_HELD_OUT, SINGLE_LABEL, 30)
    by_held_out, choice = fitted(held_out=held_out)
    assert by_held_out != by_folds
    assert choice.penalty == 2.0
    assert len(first) == 1
    assert first[0].logits(tokenized).tolist() != by_held_out
    assert fitted(choice=choice)[0] == by_held_out


def test_a_quick_classifier_is_of_words_and_pairs_alone():
    """Calibrated on texts held out, however few: no temperature makes it much better."""
    texts, labels = corpus(3)
    tokenized = read(tokenizer_of(texts), texts)
    asked, their_labels = tokenized.take(np.arange(30)), labels[:30]
    rest = tokenized.take(np.arange(30, 90))
    quick, _ = fit_linear(rest, labels[30:], reading_of(3, False), held_out=(asked, their_labels), is_quick=True)
    assert quick.feature_ids.max() < TEMPLATE_IDS
    logits = quick.logits(asked)
    assert (logits.argmax(axis=1) == their_labels).mean() > 0.6
    losses = [cross_entropy(softmax(logits * scale), one_hot(their_labels, 3)) for scale in (1, 0.5, 2)]
    assert losses[0] == min(losses)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_classes_count_by_their_weights_in_the_choice_of_a_penalty(num_classes):
    """But not in the calibration."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % num_classes
    weights = np.array([1.0, 5.0, 0.5][:num_classes], dtype=np.float32)
    margins = random.normal(size=(60, 1 if num_classes == 2 else 3)).astype(np.float32)
    plain, weighted = (calibrate(margins, labels, it) for it in (np.ones_like(weights), weights))
    assert (plain.scale, plain.shift) == (weighted.scale, weighted.shift)
    losses = -np.log(softmax(weighted.logits)[np.arange(60), labels])
    assert weighted.loss == pytest.approx(np.average(losses, weights=weights[labels]), rel=1e-5)
    assert plain.loss == pytest.approx(losses.mean(), rel=1e-5)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_evidence_is_for_the_best_class_whatever_its_number(num_classes):
    """It stays where the classes change places, and where a text is read alone."""
    tokenizer, linear = trained(num_classes, True)
    texts = read(tokenizer, corpus(num_classes)[0][:20])
    weights, biases = linear.weights.dense(), linear.biases
    others = (-weights, -biases) if num_classes == 2 else (weights[:, ::-1].copy(), biases[::-1].copy())
    numbers = linear.read(texts)[1]
    assert len(set(linear.logits(texts).argmax(axis=1))) == num_classes
    swapped = replace(linear, weights=as_table(others[0]), biases=others[1])
    assert swapped.read(texts)[1] == pytest.approx(numbers, abs=1e-6)
    assert np.array_equal(np.concatenate([linear.read(texts[i : i + 1])[1] for i in range(20)]), numbers)
