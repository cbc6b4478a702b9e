"""The sums from which a linear model predicts equal sums over the TF-IDF values of all features."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.linear import feature_index, feature_sums, linear_model
from encoder_cls.linear.feature_index import FeatureIndex
from encoder_cls.linear.feature_sums import MIN_EVIDENCE
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import (
    CHAR_NGRAM_IDS,
    CHAR_NGRAM_KIND,
    DISTANCES,
    HASHES,
    KIND_STARTS,
    NUM_FEATURE_IDS,
    TEMPLATE_IDS,
    count_features,
    find,
    tfidf,
)
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import PAIR_MULTIPLIER, UNK_ID, TokenizedTexts
from encoder_cls.weights import compress

MAX_TOKENS = 64
TEXTS = (
    "the singer sings the song of the singing singers",
    "aaaaaaaa aaaa",
    "a " * 60,
    "",
    "who is she",
    "unseen wörter 日本語",
    "the price of bread is the price of flour",
)
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig())


def tokenized(*texts: str) -> TokenizedTexts:
    return tokenize(TOKENIZER, texts, max_seq_len=MAX_TOKENS)


def model_of(num_classifiers: int, *, use_char_ngrams: bool = True) -> LinearModel:
    """Make a model with random weights for about two thirds of the features of the texts."""
    random = np.random.default_rng(num_classifiers)
    (counts,) = count_features(
        tokenized(*TEXTS),
        max_tokens=MAX_TOKENS,
        frequent_token_ids=FREQUENT,
        use_char_ngrams=use_char_ngrams,
    )
    feature_ids = counts.ids[random.random(len(counts.ids)) < 2 / 3]

    idf = random.uniform(1, 4, len(feature_ids)).astype(np.float32)
    weights = random.normal(size=(len(feature_ids), num_classifiers)).astype(np.float32)
    biases = random.normal(size=num_classifiers).astype(np.float32)
    return LinearModel(
        max_tokens=MAX_TOKENS,
        frequent_token_ids=FREQUENT,
        feature_ids=feature_ids,
        idf=idf,
        weights=compress(weights, "float32"),
        biases=biases,
        task=MULTI_LABEL if num_classifiers == 2 else SINGLE_LABEL,
    )


FREQUENT = np.array(sorted(TOKENIZER.token_to_id(word) for word in ("the", "of")), dtype=np.int32)


def expected(
    model: LinearModel, texts: TokenizedTexts
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute margins and familiarity features from the TF-IDF values of all features."""
    (counts,) = model.count_features(texts)
    indices = find(counts.ids, model.feature_ids)
    idf = np.where(indices < 0, 0, model.idf[indices])
    weights = model.weights.take(indices)
    values = tfidf(counts, counts.ids, idf).values
    is_unfamiliar = (idf == 0) | np.isin(counts.ids, ids_with_unknown_words())
    rarities = np.where(is_unfamiliar, model.idf.max(), idf)

    margins = []
    features = []
    for start, end in zip(counts.offsets[:-1], counts.offsets[1:], strict=True):
        columns = counts.columns[start:end]
        ids = counts.ids[columns]
        values_here = values[start:end]
        margin = model.biases + values_here @ weights[columns]

        effects = values_here * weights[columns, margin.argmax()]
        # A single classifier separates two classes: negative effects speak for the first class.
        if len(margin) == 1 and margin[0] < 0:
            effects = -effects
        is_positive = effects > 0
        share = (values_here[is_positive] ** 2).sum() / max((values_here**2).sum(), 1e-9)
        evidence = [-np.log(MIN_EVIDENCE + effects[is_positive].sum()), -share]

        kinds = np.searchsorted(KIND_STARTS, ids, side="right") - 1
        means = []
        for numbers in (rarities[columns], is_unfamiliar[columns]):
            for kind in range(CHAR_NGRAM_KIND + 1):
                is_kind = kinds == kind
                means.append(numbers[is_kind].mean() if is_kind.any() else 0)

        margins.append(margin)
        features.append([*evidence, *means])
    return np.array(margins), np.array(features)


def ids_with_unknown_words() -> list[int]:
    """The ids of `[UNK]` and of its pairs with all tokens of the vocabulary."""
    ids = [UNK_ID]
    for token in range(TOKENIZER.get_vocab_size()):
        for first, second in ((token, UNK_ID), (UNK_ID, token)):
            pair = (first * PAIR_MULTIPLIER + second) % HASHES
            ids += [distance * HASHES + pair for distance in DISTANCES]
    return ids


@pytest.mark.parametrize("num_classifiers", [1, 2, 3, 12])
@pytest.mark.parametrize("weights_at_once", [1, 1 << 18])
def test_sums_equal_those_over_the_tfidf_values_of_all_features(
    monkeypatch, num_classifiers, weights_at_once
):
    """Words, and texts, have character n-grams several times."""
    monkeypatch.setattr(feature_sums, "WEIGHTS_AT_ONCE", weights_at_once)
    model = model_of(num_classifiers)
    texts = tokenized(*TEXTS)

    logits, features = model.logits_and_familiarity(texts)

    margins, expected_features = expected(model, texts)
    expected_logits = model.task.margins_to_logits(margins.astype(np.float32))
    np.testing.assert_allclose(logits, expected_logits, atol=1e-5)
    np.testing.assert_allclose(features, expected_features, atol=1e-5)


def test_a_model_without_character_ngrams_counts_none():
    model = model_of(3, use_char_ngrams=False)
    texts = tokenized(*TEXTS)

    logits, features = model.logits_and_familiarity(texts)

    assert model.feature_ids.max() < TEMPLATE_IDS
    margins, expected_features = expected(model, texts)
    expected_logits = model.task.margins_to_logits(margins.astype(np.float32))
    np.testing.assert_allclose(logits, expected_logits, atol=1e-5)
    np.testing.assert_allclose(features, expected_features, atol=1e-5)


def test_predictions_do_not_depend_on_the_texts_beside_a_text(monkeypatch):
    model = model_of(3)
    alone = [model.logits(tokenized(text)) for text in TEXTS]

    together = model.logits(tokenized(*TEXTS))
    np.testing.assert_array_equal(together, np.concatenate(alone))

    # Divide the texts into many parts, each with a list of distinct words of its own.
    monkeypatch.setattr(linear_model, "TOKENS_IN_PART", 10)
    np.testing.assert_array_equal(together, model.logits(tokenized(*TEXTS)))


def test_no_texts_have_no_logits():
    model = model_of(3)

    logits, features = model.logits_and_familiarity(tokenized())

    assert logits.shape == (0, 3)
    assert len(features) == 0


@pytest.mark.parametrize("num_features", [0, 1, 5_000])
def test_many_ids_are_found_as_few_are(monkeypatch, num_features):
    random = np.random.default_rng(0)
    ids = random.integers(0, NUM_FEATURE_IDS, num_features)
    # The last id has the last bit of the last block.
    feature_ids = np.unique([*ids, NUM_FEATURE_IDS - 1]).astype(np.int32)
    neighbours = np.concatenate([feature_ids, feature_ids - 1, [0, CHAR_NGRAM_IDS]])
    wanted = random.permutation(neighbours.astype(np.int32))

    monkeypatch.setattr(feature_index, "MIN_IDS", 0)
    indices = FeatureIndex(feature_ids).find(wanted)

    np.testing.assert_array_equal(indices, find(wanted, feature_ids))


def test_few_ids_at_a_time_are_found_in_the_bit_set_once_many_were_looked_up(monkeypatch):
    """The bit set is made once, for the ids that all calls look up together."""
    feature_ids = np.array([3, 64, 200], dtype=np.int32)
    wanted = np.array([64, 65, 200], dtype=np.int32)
    searched = []

    def recorded_find(ids, feature_ids):
        searched.append(len(ids))
        return find(ids, feature_ids)

    monkeypatch.setattr(feature_index, "MIN_IDS", 2 * len(wanted))
    monkeypatch.setattr(feature_index, "find", recorded_find)
    index = FeatureIndex(feature_ids)
    found = [index.find(wanted).tolist() for _ in range(4)]

    assert found == [[1, -1, 2]] * 4
    assert searched == [len(wanted)]
