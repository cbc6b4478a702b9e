"""The linear model equals one written out with scikit-learn, and classifies texts it never saw."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.svm import LinearSVC
from support.syllables import MAX_SEQ_LEN, Reader, corpus, fit, options_for

from encoder_cls.linear import ngrams
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training import features as feature_matrix
from encoder_cls.linear_training import model_selection, nb_svm
from encoder_cls.linear_training.calibration import fit_inverse_temperature, fit_platt
from encoder_cls.linear_training.features import CountedTexts
from encoder_cls.linear_training.nb_svm import NB_RATIO_POWER, fit_one_vs_rest
from encoder_cls.metrics.log_loss import cross_entropy, one_hot
from encoder_cls.metrics.logits import Logits, log_sigmoid, softmax
from encoder_cls.metrics.tasks import SINGLE_LABEL

Floats = NDArray[np.float64]

# Texts with unknown words, repeated words, many words or none.
UNSEEN = (
    "",
    "kori kobari",
    "zzzz",
    "zzzz ba yyyy bari",
    "ba ba ba ba ko",
    "bako " * 30,
    "日 本 🙂",
)


@functools.cache
def reader_and_linear(num_classes: int) -> tuple[Reader, LinearModel]:
    """A reader of the corpus and a linear model of all features, which no test may change."""
    texts, labels = corpus(num_classes)
    read = Reader(texts)
    return read, fit(read, texts, labels, char_ngrams=True)


class Reference:
    """NB-SVM as in the paper, except for `NB_RATIO_POWER`; features are strings, without hashing.

    The labels are class numbers, (texts,); each class has a classifier. With `use_char_ngrams`,
    templates are features, too.
    """

    def __init__(
        self,
        vocabulary: Collection[str],
        texts: Sequence[str],
        labels: NDArray[np.int64],
        *,
        num_classes: int,
        use_char_ngrams: bool,
    ) -> None:
        self.vocabulary = vocabulary
        self.frequent_words = self.find_frequent_words(texts)

        analyzers = [self.words_and_pairs]
        if use_char_ngrams:
            analyzers += [self.templates, self.char_ngrams]
        self.vectorizers = []
        self.tfidfs = []
        for analyzer in analyzers:
            vectorizer = CountVectorizer(analyzer=analyzer)
            counts = vectorizer.fit_transform(texts)
            self.vectorizers.append(vectorizer)
            self.tfidfs.append(TfidfTransformer(sublinear_tf=True).fit(counts))

        vectors = self.vectors(texts)
        self.ratios = []
        self.svms = []
        for number in range(num_classes):
            is_class = labels == number
            ratios = self.naive_bayes_ratios(vectors, is_class)
            scaled = vectors.multiply(ratios).tocsr()
            self.ratios.append(ratios)
            self.svms.append(LinearSVC(C=1.0, random_state=0).fit(scaled, is_class))

    def find_frequent_words(self, texts: Sequence[str]) -> set[str]:
        """The known words that templates keep; there must be other known words, too."""
        counts = Counter()
        for text in texts:
            counts.update(self.known_words(text))
        del counts["[UNK]"]

        frequent = set()
        for word, count in counts.items():
            if count * ngrams.MAX_FREQUENT >= counts.total():
                frequent.add(word)
        assert len(frequent) < len(counts)
        return frequent

    def naive_bayes_ratios(self, vectors: sp.csr_matrix, is_class: NDArray[np.bool_]) -> Floats:
        """How strongly each feature is linked to a class or to the others."""
        inside = 1 + (vectors[is_class] > 0).sum(axis=0).A1
        outside = 1 + (vectors[~is_class] > 0).sum(axis=0).A1

        log_ratios = np.log((inside / inside.sum()) / (outside / outside.sum()))
        return np.abs(log_ratios) ** NB_RATIO_POWER

    def words(self, text: str) -> list[str]:
        """The words of a text that are read; `[CLS]` is one more token."""
        return text.split()[: MAX_SEQ_LEN - 1]

    def known_words(self, text: str) -> list[str]:
        """The words of a text, unknown ones as `[UNK]`."""
        known = []
        for word in self.words(text):
            is_known = word in self.vocabulary
            known.append(word if is_known else "[UNK]")
        return known

    def words_and_pairs(self, text: str) -> list[str]:
        """Words, and pairs of them with and without a word between them."""
        words = self.known_words(text)
        with_start = ["[CLS]", *words]

        pairs = []
        for first, second in zip(with_start, words, strict=False):
            pairs.append(f"{first} {second}")
        for first, third in zip(with_start, words[1:], strict=False):
            pairs.append(f"{first} ... {third}")
        return words + pairs

    def templates(self, text: str) -> list[str]:
        """Two to six adjacent words, with wildcards for infrequent ones."""
        slots = ["[CLS]"]
        for word in self.known_words(text):
            is_frequent = word in self.frequent_words
            slots.append(word if is_frequent else "_")

        found = []
        for size in range(2, 7):
            for start in range(len(slots) - size + 1):
                found.append(" ".join(slots[start : start + size]))
        return found

    def char_ngrams(self, text: str) -> list[str]:
        """Two to five adjacent characters inside a word, whose ends are characters, too."""
        found = []
        for word in self.words(text):
            marked = f"<{word}>"
            for size in range(2, 6):
                for start in range(len(marked) - size + 1):
                    found.append(marked[start : start + size])
        return found

    def vectors(self, texts: Sequence[str]) -> sp.csr_matrix:
        """The TF-IDF values of all groups of features, each scaled to the norm of its group."""
        groups = []
        for number, vectorizer in enumerate(self.vectorizers):
            unit_vectors = self.tfidfs[number].transform(vectorizer.transform(texts))
            groups.append(unit_vectors * ngrams.GROUP_NORMS[number])
        return sp.csr_matrix(sp.hstack(groups))

    def margins(self, texts: Sequence[str]) -> Floats:
        """The decision value of each classifier, (texts, classes)."""
        vectors = self.vectors(texts)
        margins = []
        for ratios, classifier in zip(self.ratios, self.svms, strict=True):
            margins.append(classifier.decision_function(vectors.multiply(ratios).tocsr()))
        return np.stack(margins, axis=1)


def margins_of_logits(logits: Logits) -> Floats:
    """The margins of several classes, whose logits are logarithms of sigmoids of margins."""
    return logit(np.exp(logits.astype(np.float64)))


@pytest.mark.parametrize("use_char_ngrams", [False, True], ids=["words", "all"])
@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("max_vocab_size", [30_000, 30], ids=["all known", "many unknown"])
def test_scores_are_those_of_a_plain_nb_svm(
    monkeypatch, num_classes, use_char_ngrams, max_vocab_size
):
    """Counts, TF-IDF, ratios and margins are correct for training texts and for other texts.

    The logit of a class is the logarithm of a sigmoid of its margin, up to a scale and a shift; of
    two classes it is the margin, up to a scale.
    """
    monkeypatch.setattr(ngrams, "TOKENS_AT_ONCE", 40)
    monkeypatch.setitem(model_selection.C_VALUES, SINGLE_LABEL, (1.0,))
    monkeypatch.setattr(nb_svm, "TOLERANCE", 1e-4)
    # Some words of this small corpus must be infrequent.
    monkeypatch.setattr(ngrams, "MAX_FREQUENT", 20)

    texts, labels = corpus(num_classes)
    read = Reader(texts, max_vocab_size=max_vocab_size)
    reference = Reference(
        read.tokenizer.get_vocab(),
        texts,
        labels,
        num_classes=num_classes,
        use_char_ngrams=use_char_ngrams,
    )
    expected = reference.margins((*texts, *UNSEEN))

    linear = fit(read, texts, labels, char_ngrams=use_char_ngrams)
    found = linear.logits(read((*texts, *UNSEEN)))
    if num_classes > 2:
        found = margins_of_logits(found)

    # The scores are those of the reference, up to a scale and a shift.
    scale, shift = np.polyfit(expected.ravel(), found.ravel(), deg=1)
    np.testing.assert_allclose(found, scale * expected + shift, atol=1e-4 * scale)
    assert np.ptp(expected) > 1
    if num_classes == 2:
        assert shift == pytest.approx(0, abs=1e-4 * scale)

    # The best class is the same, where it is not a matter of rounding.
    is_clear = np.ptp(expected, axis=1) > 0.01
    best_classes = found.argmax(axis=1)
    expected_classes = expected.argmax(axis=1)
    assert np.array_equal(best_classes[is_clear], expected_classes[is_clear])


def features_of_texts(
    labels: NDArray[np.int64],
    *,
    num_classes: int,
    num_features: int,
    random: np.random.Generator,
) -> sp.csr_matrix:
    """Six features of each text, which are those of its class with a probability of 0.4 or so."""
    any_features = random.integers(0, num_features, (len(labels), 6))
    features_of_class = any_features - any_features % num_classes + labels[:, None]
    is_of_class = random.random(any_features.shape) < 0.3
    columns = np.where(is_of_class, features_of_class % num_features, any_features)

    values = np.full(columns.size, 0.4)
    row_starts = np.arange(0, columns.size + 1, 6)
    features = sp.csr_matrix(
        (values, columns.ravel(), row_starts),
        shape=(len(labels), num_features),
        dtype=np.float32,
    )
    features.sum_duplicates()
    return features


def test_predictions_for_more_texts_than_features_are_those_of_the_exact_solution(monkeypatch):
    """The loose tolerance stops no fit too early, although a third of the labels are wrong."""
    num_classes = 6
    num_texts = 3000
    random = np.random.default_rng(0)
    labels = random.integers(0, num_classes, num_texts)
    features = features_of_texts(labels, num_classes=num_classes, num_features=500, random=random)

    is_replaced = random.random(num_texts) < 0.4
    noisy_labels = np.where(is_replaced, random.integers(0, num_classes, num_texts), labels)

    def predict() -> NDArray[np.int64]:
        equal_weights = np.ones(num_classes, dtype=np.float32)
        classifiers = fit_one_vs_rest(features, noisy_labels, equal_weights, svm_c=1.0)
        return classifiers.margins(features).argmax(axis=1)

    predictions = predict()
    monkeypatch.setattr(nb_svm, "TOLERANCE", 1e-5)
    exact_predictions = predict()

    assert (exact_predictions == labels).mean() > 0.5
    assert (predictions == exact_predictions).mean() > 0.97


def test_of_many_classes_each_learns_from_the_texts_that_are_like_it(monkeypatch):
    """A sample of the others, half of them the hardest, is as good as all of them, and quicker."""
    num_classes = 40
    random = np.random.default_rng(0)
    labels = random.integers(0, num_classes, 4000)
    features = features_of_texts(labels, num_classes=num_classes, num_features=800, random=random)
    learned, unseen = slice(0, 3000), slice(3000, None)
    equal_weights = np.ones(num_classes, dtype=np.float32)
    numbers_of_texts = []
    fit_svm = nb_svm.fit_svm

    def counting_fit(texts: sp.csr_matrix, *arguments: Any, **options: Any) -> Any:
        numbers_of_texts.append(texts.shape[0])
        return fit_svm(texts, *arguments, **options)

    def accuracy() -> float:
        machines = fit_one_vs_rest(features[learned], labels[learned], equal_weights, svm_c=0.25)
        return (machines.margins(features[unseen]).argmax(axis=1) == labels[unseen]).mean()

    of_all = accuracy()
    monkeypatch.setattr(nb_svm, "MAX_WORK", 1000)
    monkeypatch.setattr(nb_svm, "MIN_OTHERS", 400)
    monkeypatch.setattr(nb_svm, "fit_svm", counting_fit)
    of_samples = accuracy()

    assert of_all > 0.4
    assert of_samples > of_all - 0.03
    of_class = np.bincount(labels[learned], minlength=num_classes)
    assert numbers_of_texts == [400 + number for number in of_class]


def test_a_drawn_text_counts_for_those_that_are_not():
    """The weights of the sample are those of all texts of other classes; the hardest are all in."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 1000)
    features = features_of_texts(labels, num_classes=10, num_features=200, random=random)
    is_class = labels == 3

    texts, shares = nb_svm.texts_to_learn(features, is_class, 100, seed=0)

    assert is_class[texts].sum() == is_class.sum()
    assert (shares[is_class[texts]] == 1).all()
    of_others = shares[~is_class[texts]]
    assert len(of_others) == 100
    assert (of_others == 1).sum() == 50
    assert (1 / of_others).sum() == pytest.approx((~is_class).sum())


def parts_of(linear: LinearModel) -> dict[str, Any]:
    """What a linear model consists of, by name."""
    return vars(linear) | {"weights": linear.weights.dense()}


@pytest.mark.parametrize("use_char_ngrams", [False, True])
def test_texts_are_read_as_far_as_max_tokens(use_char_ngrams):
    """Further tokens change nothing in training or prediction, even if the tokenizer keeps them."""
    texts = ("good a a tail", "bad a a tail") * 40
    changed = ("good a a other", "bad a a more") * 40
    labels = np.arange(80) % 2
    read = functools.partial(Reader((*texts, *changed)), max_seq_len=2)

    near = fit(read, texts, labels, char_ngrams=use_char_ngrams, max_tokens=4)
    near_of_changed = fit(read, changed, labels, char_ngrams=use_char_ngrams, max_tokens=4)
    further = fit(read, changed, labels, char_ngrams=use_char_ngrams, max_tokens=5)

    for name, part in parts_of(near).items():
        assert np.array_equal(parts_of(near_of_changed)[name], part), name
    assert len(further.feature_ids) > len(near.feature_ids)

    # Only the fifth token differs.
    with_tails = read(["a a a good", "a a a a good other"])
    near_logits = near.logits(with_tails)
    further_logits = further.logits(with_tails)
    assert np.array_equal(near_logits[0], near_logits[1])
    assert not np.array_equal(further_logits[0], further_logits[1])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_scores_of_a_text_do_not_depend_on_other_texts(num_classes):
    """Scores are equal to the bit in any company: no pair of words crosses into the next text."""
    read, linear = reader_and_linear(num_classes)
    texts = [*corpus(num_classes).texts[:20], *UNSEEN]

    logits, familiarity_features = linear.logits_and_familiarity(read(texts))

    for row, text in enumerate(texts):
        logits_alone, features_alone = linear.logits_and_familiarity(read([text]))
        assert np.array_equal(logits[row], logits_alone[0])
        assert np.array_equal(familiarity_features[row], features_alone[0])


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("first_weight", [1.0, 5.0], ids=["equal", "weighted"])
def test_scores_are_the_logits_of_texts_never_seen(num_classes, first_weight):
    """No other scale or shift is much better, with any class weights: new texts count alike."""
    texts, labels = corpus(num_classes, 2000)
    read = Reader(texts[:1000])
    class_weights = [first_weight] + [1.0] * (num_classes - 1)
    new_labels = labels[1000:]

    linear = fit(read, texts[:1000], labels[:1000], class_weights=class_weights)
    logits = linear.logits(read(texts[1000:]))

    assert fit_inverse_temperature(logits, new_labels) == pytest.approx(1, abs=0.15)
    if num_classes > 2:
        margins = margins_of_logits(logits)
        scale, shift = fit_platt(margins, new_labels)
        best_logits = log_sigmoid(margins * scale + shift)

        targets = one_hot(new_labels, num_classes)
        loss = cross_entropy(softmax(logits), targets)
        assert loss < cross_entropy(softmax(best_logits), targets) + 0.008


def test_a_class_of_one_text_can_be_learned():
    """When that text is held out, the others have no text of its class."""
    texts = (*("ba ko", "ba ri", "ba tu", "ko ri") * 5, "sol mir")
    labels = np.array([0] * 20 + [1])
    read = Reader(texts)

    logits = fit(read, texts, labels).logits(read(texts))
    logits_of_swapped = fit(read, texts, 1 - labels).logits(read(texts))

    assert logits.argmax(axis=1).tolist() == labels.tolist()
    # The solver is not exact: it stops at `nb_svm.TOLERANCE`.
    np.testing.assert_allclose(logits, logits_of_swapped[:, ::-1], rtol=0.02)


@pytest.mark.parametrize(("num_classes", "heavy"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_the_heavier_class_is_preferred(num_classes, heavy):
    """All texts are equal, so only the weights of the classes decide."""
    texts = ("same words",) * 12
    labels = np.arange(12) % num_classes
    class_weights = [1.0] * num_classes
    class_weights[heavy] = 9.0
    read = Reader(texts)

    linear = fit(read, texts, labels, class_weights=class_weights)

    assert linear.logits(read(texts[:1])).argmax() == heavy


@pytest.mark.parametrize("limit", ["MAX_FEATURES", "MAX_BYTES"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_of_too_many_features_the_most_frequent_are_kept(monkeypatch, num_classes, limit):
    """The model has as many features as the limit allows, and predicts most texts correctly."""
    texts, labels = corpus(num_classes)
    read, whole = reader_and_linear(num_classes)
    # A feature has an id, an inverse document frequency, and a weight for each classifier.
    numbers_of_feature = 2 + SINGLE_LABEL.num_one_vs_rest(num_classes)
    most_bytes = 50 * 4 * numbers_of_feature
    # Three bytes more are not enough for one more feature.
    limits = {"MAX_FEATURES": 50, "MAX_BYTES": most_bytes + 3}
    monkeypatch.setattr(feature_matrix, limit, limits[limit])
    monkeypatch.setattr(feature_matrix, "ALWAYS_FEATURES", 0)

    small = fit(read, texts, labels, char_ngrams=True)

    assert len(small.feature_ids) == 50
    num_bytes = small.feature_ids.nbytes + small.idf.nbytes + small.weights.values.nbytes
    assert num_bytes == most_bytes
    is_right = small.logits(read(texts)).argmax(axis=1) == labels
    assert is_right.mean() > 0.6

    # The more texts have a feature, the lower is its inverse document frequency.
    is_kept = np.isin(whole.feature_ids, small.feature_ids)
    assert is_kept.sum() == 50
    assert not is_kept.all()
    assert whole.idf[is_kept].max() <= whole.idf[~is_kept].min()


def test_with_many_classes_a_model_is_larger_within_a_limit(monkeypatch):
    texts, labels = corpus(3)
    read = Reader(texts)
    monkeypatch.setattr(feature_matrix, "MAX_BYTES", 1)
    monkeypatch.setattr(feature_matrix, "ALWAYS_FEATURES", 60)

    large = fit(read, texts, labels, char_ngrams=True)
    monkeypatch.setattr(feature_matrix, "MAX_WEIGHTS", 50 * 3)
    within_limit = fit(read, texts, labels, char_ngrams=True)

    assert len(large.feature_ids) == 60
    assert len(within_limit.feature_ids) == 50


def test_texts_without_words_are_of_the_most_frequent_class():
    """Nothing else can be learned from such texts, and the fit does not fail."""
    read = Reader(("some words",))

    linear = fit(read, ["", "", ""], np.array([1, 0, 1]), char_ngrams=True)

    assert linear.logits(read(["", "words"])).argmax(axis=1).tolist() == [1, 1]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_text_of_weight_3_counts_as_three_texts(num_classes, monkeypatch):
    """In naive Bayes and in the SVM, up to the tolerance of its solver."""
    monkeypatch.setattr(nb_svm, "TOLERANCE", 1e-6)
    texts, labels = corpus(num_classes)
    counted = CountedTexts.of(Reader(texts)(texts), labels, options_for(num_classes))
    weights = np.where(labels == 0, 3, 1).astype(np.float32)
    repeated = np.repeat(np.arange(len(labels)), weights.astype(int))

    weighted = fit_one_vs_rest(counted.features, labels, counted.class_weights, weights, svm_c=0.5)
    expected = fit_one_vs_rest(
        counted.features[repeated], labels[repeated], counted.class_weights, svm_c=0.5
    )
    unweighted = fit_one_vs_rest(counted.features, labels, counted.class_weights, svm_c=0.5)

    np.testing.assert_allclose(weighted.weights, expected.weights, atol=1e-3)
    np.testing.assert_allclose(weighted.biases, expected.biases, atol=1e-3)
    assert np.abs(weighted.weights - unweighted.weights).max() > 0.05
