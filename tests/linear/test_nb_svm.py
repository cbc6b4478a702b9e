"""The linear model: the same as one written out with scikit-learn, and right on words it never saw."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.svm import LinearSVC
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear import features as feature_matrix
from encoder_cls.linear import nb_svm as svm
from encoder_cls.linear import ngrams as features
from encoder_cls.linear.calibration import fit_inverse_temperature, fit_platt
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.nb_svm import NB_RATIO_POWER, fit_linear
from encoder_cls.metrics.classification import cross_entropy, one_hot
from encoder_cls.metrics.logits import SINGLE_LABEL, log_sigmoid, softmax
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

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
        texts.append(
            " ".join(random.permutation([*own, *others])) if random.random() > 0.04 else ""
        )
    return tuple(texts), labels


UNSEEN = (
    "",
    "kori kobari",
    "zzzz",
    "zzzz ba yyyy bari",
    "ba ba ba ba ko",
    "bako " * 30,
    "日 本 🙂",
)


def reading_of(
    num_classes: int, char_ngrams: bool = False, weights=None, *, max_tokens: int = MAX_SEQ_LEN
) -> LinearOptions:
    weights = np.ones(num_classes) if weights is None else np.array(weights)
    return LinearOptions(max_tokens, char_ngrams, weights.astype(np.float32))


def reader_of(texts, *, max_vocab_size: int = 30_000) -> Callable[[Sequence[str]], TokenizedTexts]:
    """Tokenizes texts by the words of some texts."""
    tokenizer = train_tokenizer(texts, TokenizerConfig(max_vocab_size=max_vocab_size))
    return functools.partial(tokenize, tokenizer, max_seq_len=MAX_SEQ_LEN)


def fit(read, texts, labels, *options, **more) -> LinearModel:
    """Options as of `reading_of`."""
    linear_options = reading_of(len(set(labels)), *options, **more)
    classifier, _ = fit_linear(CountedTexts.of(read(texts), labels, linear_options))
    return classifier


@functools.cache
def trained(num_classes: int) -> tuple[Callable[[Sequence[str]], TokenizedTexts], LinearModel]:
    """A classifier of the corpus. Not to be changed."""
    texts, labels = corpus(num_classes)
    return reader_of(texts), fit(reader_of(texts), texts, labels, True)


class Reference:
    """NB-SVM as in the paper but for `NB_RATIO_POWER`, with strings for columns, nothing hashed."""

    def __init__(
        self, vocabulary, texts, labels, *, num_classes: int, use_char_ngrams: bool
    ) -> None:
        self.vocabulary = vocabulary
        words = Counter(word for text in texts for word in self.known(text))
        del words["[UNK]"]
        self.frequent = {
            word for word, count in words.items() if count * features.MOST_FREQUENT >= words.total()
        }
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
            ratio = (
                np.abs(np.log((inside / inside.sum()) / (outside / outside.sum())))
                ** NB_RATIO_POWER
            )
            svm = LinearSVC(C=1.0, random_state=0).fit(
                vectors.multiply(ratio).tocsr(), labels == number
            )
            self.svms.append((ratio, svm))

    def known(self, text: str) -> list[str]:
        return [
            word if word in self.vocabulary else "[UNK]" for word in text.split()[: MAX_SEQ_LEN - 1]
        ]

    def words_and_pairs(self, text: str) -> list[str]:
        words = self.known(text)
        begun = ["[CLS]", *words]
        neighbours = [f"{one} {two}" for one, two in zip(begun, words, strict=False)]
        return (
            words
            + neighbours
            + [f"{one} ... {two}" for one, two in zip(begun, words[1:], strict=False)]
        )

    def templates(self, text: str) -> list[str]:
        slots = ["[CLS]", *(word if word in self.frequent else "_" for word in self.known(text))]
        return [" ".join(slots[i : i + n]) for n in range(2, 7) for i in range(len(slots) - n + 1)]

    def char_ngrams(self, text: str) -> list[str]:
        words = [f"<{word}>" for word in text.split()[: MAX_SEQ_LEN - 1]]
        return [w[i : i + n] for w in words for n in range(2, 6) for i in range(len(w) - n + 1)]

    def vectors(self, texts) -> sp.csr_matrix:
        blocks = [
            t.transform(v.transform(texts))
            for v, t in zip(self.vectorizers, self.tfidfs, strict=True)
        ]
        scaled = [
            block * length for block, length in zip(blocks, features.GROUP_NORMS, strict=False)
        ]
        return sp.csr_matrix(sp.hstack(scaled))

    def margins(self, texts) -> NDArray[np.float64]:
        vectors = self.vectors(texts)
        columns = [
            svm.decision_function(vectors.multiply(ratio).tocsr()) for ratio, svm in self.svms
        ]
        return np.stack(columns, axis=1)


@pytest.mark.parametrize("use_char_ngrams", [False, True], ids=["words", "all"])
@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("max_vocab_size", [30_000, 30], ids=["all known", "many unknown"])
def test_scores_are_those_of_a_plain_nb_svm(
    monkeypatch, num_classes, use_char_ngrams, max_vocab_size
):
    """Counts, TF-IDF, ratios and margins written out with scikit-learn, on texts seen and unseen.

    The score of a class is the logarithm of a sigmoid of its margin, up to a scale and a shift; of two classes it is
    the margin, up to a scale.
    """
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 40)
    monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, (1.0,))
    monkeypatch.setattr(svm, "TOLERANCE", 1e-4)
    monkeypatch.setattr(features, "MOST_FREQUENT", 20)  # of so few words, not all
    texts, labels = corpus(num_classes)
    read = reader_of(texts, max_vocab_size=max_vocab_size)
    classifier = fit(read, texts, labels, use_char_ngrams)
    vocabulary = read.args[0].get_vocab()
    reference = Reference(
        vocabulary, texts, labels, num_classes=num_classes, use_char_ngrams=use_char_ngrams
    )
    asked = (*texts, *UNSEEN)
    found, expected = classifier.logits(read(asked)), reference.margins(asked)
    if num_classes > 2:
        found = logit(np.exp(found.astype(np.float64)))
    scale, shift = np.polyfit(expected.ravel(), found.ravel(), deg=1)
    np.testing.assert_allclose(found, scale * expected + shift, atol=1e-4 * scale)
    assert num_classes > 2 or shift == pytest.approx(0, abs=1e-4 * scale)
    assert (found.argmax(axis=1) == expected.argmax(axis=1))[np.ptp(expected, axis=1) > 0.01].all()
    assert np.ptp(expected) > 1


@pytest.mark.parametrize("use_char_ngrams", [False, True])
def test_texts_are_read_as_far_as_max_tokens(use_char_ngrams):
    """In training and after: what lies beyond changes nothing, also where texts are kept further."""
    texts, changed = ("good a a tail", "bad a a tail") * 40, ("good a a other", "bad a a more") * 40
    read = functools.partial(reader_of((*texts, *changed)), max_seq_len=2)
    near, same, further = (
        fit(read, some, np.arange(80) % 2, use_char_ngrams, max_tokens=most)
        for some, most in ((texts, 4), (changed, 4), (changed, 5))
    )
    of_both = [vars(it) | {"weights": it.weights.dense()} for it in (near, same)]
    assert all(np.array_equal(of_both[0][name], of_both[1][name]) for name in of_both[0])
    assert len(further.feature_ids) > len(near.feature_ids)
    nothing, something = (
        it.logits(read(["a a a good", "a a a a good other"])) for it in (near, further)
    )
    assert np.array_equal(nothing[0], nothing[1])
    assert not np.array_equal(something[0], something[1])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_text_s_scores_do_not_depend_on_its_company(num_classes):
    """Bit for bit, alone or with others before and after it: no pair crosses from one text into the next."""
    read, classifier = trained(num_classes)
    asked = [*corpus(num_classes)[0][:20], *UNSEEN]
    together = classifier.read(read(asked))
    for row, text in enumerate(asked):
        for of_all, alone in zip(together, classifier.read(read([text])), strict=True):
            np.testing.assert_array_equal(of_all[row], alone[0])


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("weight", [1.0, 5.0], ids=["equal", "weighted"])
def test_scores_are_the_logits_of_texts_never_seen(num_classes, weight):
    """On fresh texts, which count alike whatever their weights in training, no other scale or shift is much better."""
    texts, labels = corpus(num_classes, 2000)
    read, asked = reader_of(texts[:1000]), labels[1000:]
    weights = np.where(np.arange(num_classes) == 0, weight, 1.0)
    scores = fit(read, texts[:1000], labels[:1000], False, weights).logits(read(texts[1000:]))
    assert fit_inverse_temperature(scores, asked) == pytest.approx(1, abs=0.15)
    if num_classes > 2:
        margins = logit(np.exp(scores.astype(np.float64)))
        scale, shift = fit_platt(margins, asked)
        of_both = [scores, log_sigmoid(margins * scale + shift)]
        found, best = (cross_entropy(softmax(it), one_hot(asked, num_classes)) for it in of_both)
        assert found < best + 0.008


def test_a_class_of_one_text_can_be_learnt():
    """Where that is held out, the others know nothing of it."""
    texts, labels = (*("ba ko", "ba ri", "ba tu", "ko ri") * 5, "sol mir"), np.array([0] * 20 + [1])
    read = reader_of(texts)
    scores, of_the_other = (
        fit(read, texts, classes).logits(read(texts)) for classes in (labels, 1 - labels)
    )
    assert scores.argmax(axis=1).tolist() == labels.tolist()
    # As far as the solver goes.
    np.testing.assert_allclose(scores, of_the_other[:, ::-1], rtol=0.01)


@pytest.mark.parametrize(("num_classes", "heavy"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_the_weight_of_a_class_moves_its_score(num_classes, heavy):
    """Words that tell nothing: the heavier class is preferred, of two classes and of more."""
    texts, weights = ("same words",) * 12, np.where(np.arange(num_classes) == heavy, 9.0, 1.0)
    read = reader_of(texts)
    assert (
        fit(read, texts, np.arange(12) % num_classes, False, weights)
        .logits(read(texts[:1]))
        .argmax()
        == heavy
    )


@pytest.mark.parametrize("limit", ["MOST_FEATURES", "MOST_BYTES"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_of_too_many_features_the_most_frequent_are_kept(monkeypatch, num_classes, limit):
    """As many as fit, and none of those left out occurs in more texts than one that is kept."""
    texts, labels = corpus(num_classes)
    (read, whole), most = (
        trained(num_classes),
        50 * 4 * (2 + SINGLE_LABEL.num_one_vs_rest(num_classes)),
    )
    monkeypatch.setattr(feature_matrix, limit, 50 if limit == "MOST_FEATURES" else most + 3)
    small = fit(read, texts, labels, True)
    assert len(small.feature_ids) == 50 < len(whole.feature_ids)
    kept = np.isin(whole.feature_ids, small.feature_ids)
    assert kept.sum() == 50
    assert whole.idf[kept].max() <= whole.idf[~kept].min()  # the more texts have it, the lower
    assert sum(it.nbytes for it in (small.feature_ids, small.idf, small.weights.values)) == most
    assert (small.logits(read(texts)).argmax(axis=1) == labels).mean() > 0.6


def test_texts_without_words_are_of_the_most_frequent_class():
    """There is nothing to learn but which class is the more frequent, and that is no error."""
    read = reader_of(("some words",))
    classifier = fit(read, ["", "", ""], np.array([1, 0, 1]), True)
    assert classifier.logits(read(["", "words"])).argmax(axis=1).tolist() == [1, 1]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_penalty_is_the_one_with_the_lowest_loss_on_held_out_texts(monkeypatch, num_classes):
    """An SVM that may not learn loses where labels are clear, one that overfits where many are wrong."""
    texts, clear = corpus(num_classes)
    random = np.random.default_rng(0)
    noisy = np.where(
        random.random(len(clear)) < 0.2 * num_classes,
        random.integers(0, num_classes, len(clear)),
        clear,
    )
    read = reader_of(texts)

    def fitted(labels, *penalties) -> list[list[float]]:
        monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, penalties)
        return fit(read, texts, labels, True).weights.values.tolist()

    timid, bold = 1e-4, 10.0
    assert fitted(clear, timid, bold) == fitted(clear, bold)
    assert fitted(clear, bold) != fitted(clear, timid)
    careful = 0.03
    monkeypatch.setattr(svm, "LEAST_GAIN", 0)
    assert (
        fitted(noisy, careful, bold)
        == fitted(noisy, careful, bold, 100.0)
        == fitted(noisy, careful)
    )
    assert fitted(noisy, careful) != fitted(noisy, bold)


def test_texts_held_out_choose_where_they_are_enough(monkeypatch):
    """Then a first classifier comes early; texts that are not enough change nothing."""
    texts, labels = corpus(3)
    tokenized, first = reader_of(texts)(texts), []
    held_out, rest, reading = (tokenized[:30], labels[:30]), tokenized[30:], reading_of(3)
    monkeypatch.setitem(svm.PENALTIES, SINGLE_LABEL, (1e-4, 0.01, 2.0))

    def fitted(**options) -> tuple[LinearModel, float]:
        classifier, choice = fit_linear(
            CountedTexts.of(rest, labels[30:], reading), on_first=first.append, **options
        )
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


def test_a_quick_classifier_is_calibrated_on_texts_held_out_however_few():
    """No temperature makes it much better."""
    texts, labels = corpus(3)
    tokenized = reader_of(texts)(texts)
    asked, their_labels = tokenized[:30], labels[:30]
    quick, _ = fit_linear(
        CountedTexts.of(tokenized[30:], labels[30:], reading_of(3)),
        held_out=(asked, their_labels),
        is_quick=True,
    )
    logits = quick.logits(asked)
    assert (logits.argmax(axis=1) == their_labels).mean() > 0.6
    losses = [
        cross_entropy(softmax(logits * scale), one_hot(their_labels, 3)) for scale in (1, 0.5, 2)
    ]
    assert losses[0] == min(losses)
