"""Batches: every text once an epoch, within the budget, and a pure function of the step; variants of texts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls import batching
from encoder_cls.batching import (
    MOST_DELETED,
    MOST_SWAPPED,
    VARIANTS,
    Batch,
    BatchSchedule,
    by_length,
    drop_words,
    gather,
    pad,
    vary,
)
from encoder_cls.ngrams import spell
from encoder_cls.tokenizer import CLS_ID, PAD_ID, UNK_ID, TokenizedTexts

LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


def schedule(lengths=LENGTHS, *, batch_size=64, batch_tokens=1000, seed=0) -> BatchSchedule:
    return BatchSchedule(lengths, batch_size=batch_size, batch_tokens=batch_tokens, seed=seed)


def make_texts(lengths) -> TokenizedTexts:
    """Texts of these lengths whose tokens are all different, but for `[CLS]`; that of id 7 is spelt "word7"."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    input_ids = np.arange(4, 4 + offsets[-1], dtype=np.int32)
    input_ids[offsets[:-1]] = CLS_ID
    distinct, words = np.unique(input_ids, return_inverse=True)
    return TokenizedTexts(
        word_ids=distinct.astype(np.int32),
        words=words.astype(np.int32),
        spellings=spell([word_of(token) for token in distinct]),
        offsets=offsets,
        truncated=np.zeros(len(lengths), dtype=bool),
        unknown=np.zeros(len(lengths), dtype=np.int32),
    )


def word_of(token: int) -> str:
    return "" if token == CLS_ID else f"word{token}"


def assert_spelt_as_its_ids_say(batch: Batch) -> None:
    """Where the mask is True, the n-grams are those of the token's word; each word is there once."""
    words, ngrams, offsets = batch.spelling
    for token, word in zip(batch.input_ids[batch.attention_mask].tolist(), words[batch.attention_mask], strict=True):
        assert ngrams[offsets[word] : offsets[word + 1]].tolist() == spell([word_of(token)]).ngrams.tolist()
    assert words.shape == batch.input_ids.shape
    assert len(offsets) - 1 == len(batch.input_ids[batch.attention_mask].unique())
    assert 0 <= words.min() <= words.max() < len(offsets) - 1
    assert {tensor.dtype for tensor in (words, ngrams, offsets, batch.input_ids)} == {torch.int64}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=200),
    batch_size=st.integers(1, 40),
    batch_tokens=st.integers(1, 2000),
    epoch=st.integers(0, 3),
)
def test_each_epoch_holds_every_text_once_within_both_limits(lengths, batch_size, batch_tokens, epoch):
    """No text is lost or doubled; a batch over the budget is a single long text."""
    batches = schedule(np.array(lengths), batch_size=batch_size, batch_tokens=batch_tokens)
    first = epoch * batches.batches_per_epoch
    found = [batches.indices(first + i) for i in range(batches.batches_per_epoch)]
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    for batch in found:
        padded = max(lengths[i] for i in batch) * len(batch)
        assert len(batch) <= batch_size
        assert padded <= batch_tokens or len(batch) == 1


def test_a_batch_depends_on_its_number_alone():
    """Asked for in any order, by any schedule of the same settings, a batch is the same; seeds and epochs differ."""
    numbers = [0, 70, 3, 70, 0]
    forwards, fresh = schedule(), [schedule().indices(number) for number in numbers]
    assert all((forwards.indices(n) == batch).all() for n, batch in zip(numbers, fresh, strict=True))
    per_epoch = forwards.batches_per_epoch
    assert any(list(forwards.indices(i)) != list(forwards.indices(i + per_epoch)) for i in range(per_epoch))
    assert any(list(forwards.indices(i)) != list(schedule(seed=1).indices(i)) for i in range(per_epoch))


def test_padding_is_a_few_percent():
    """Texts of like length share a batch."""
    lengths = np.random.default_rng(0).lognormal(3, 0.6, size=5000).astype(int) + 1
    batches = schedule(lengths, batch_tokens=8192)
    padded = sum(lengths[b := batches.indices(i)].max() * len(b) for i in range(batches.batches_per_epoch))
    assert 1 - lengths.sum() / padded < 0.06


def test_neighbours_change_from_epoch_to_epoch():
    """Equal lengths are shuffled: few pairs that share a batch in one epoch share one in the next."""
    batches = schedule(np.full(1000, 10), batch_size=20)
    first, second = ({tuple(sorted(batches.indices(epoch * 50 + i))) for i in range(50)} for epoch in (0, 1))
    assert not first & second


def test_padding_and_mask():
    """Tokens are where the mask is True, in order; padding is elsewhere."""
    texts = make_texts([3, 1, 5])
    input_ids, mask, _ = pad(texts, np.array([2, 0]))
    assert input_ids.tolist() == [[CLS_ID, 9, 10, 11, 12], [CLS_ID, 5, 6, PAD_ID, PAD_ID]]
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=10), data=st.data())
def test_a_padded_batch_is_spelt_as_its_texts_are(lengths, data):
    """Any texts in any order, one of them twice: every token has the n-grams of its own word."""
    indices = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=12))
    texts = make_texts(lengths)
    batch = pad(texts, np.array(indices))
    assert_spelt_as_its_ids_say(batch)
    for row, index in enumerate(indices):
        expected = texts.input_ids(slice(*texts.offsets[index : index + 2]))
        assert batch.input_ids[row][batch.attention_mask[row]].tolist() == expected.tolist()


def test_a_word_that_occurs_often_is_spelt_once():
    """Unknown words have one id and letters of their own; the same word in two texts is one word."""
    texts = TokenizedTexts(
        words=np.array([0, 2, 1, 0, 2], dtype=np.int32),
        word_ids=np.array([CLS_ID, UNK_ID, UNK_ID, 7], dtype=np.int32),
        spellings=spell(["", "one", "another", "unused"]),
        offsets=np.array([0, 3, 5]),
        truncated=np.zeros(2, dtype=bool),
        unknown=np.array([2, 1], dtype=np.int32),
    )
    batch = pad(texts, np.array([0, 1]))
    assert batch.input_ids.tolist() == [[CLS_ID, UNK_ID, UNK_ID], [CLS_ID, UNK_ID, PAD_ID]]
    assert batch.spelling.words[batch.attention_mask].tolist() == [0, 2, 1, 0, 2]
    assert batch.spelling.ngrams.tolist() == spell(["", "one", "another"]).ngrams.tolist()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pieces=st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=9), min_size=1, max_size=6))
def test_any_tokens_make_a_batch(pieces):
    """Places out of order, across texts and repeated: ids, mask and spelling follow them."""
    texts = make_texts([4, 1, 9, 6])
    batch = gather(texts, np.concatenate(pieces), np.array([len(piece) for piece in pieces]))
    longest = max(map(len, pieces))
    assert batch.attention_mask.tolist() == [[t < len(piece) for t in range(longest)] for piece in pieces]
    expected = [texts.input_ids(piece).tolist() + [PAD_ID] * (longest - len(piece)) for piece in pieces]
    assert batch.input_ids.tolist() == expected
    assert_spelt_as_its_ids_say(batch)


def test_a_batch_moves_as_a_whole():
    """Ids, mask and all three parts of the spelling go to the device, and nothing else changes."""
    batch = pad(make_texts([3, 5]), np.array([0, 1]))
    moved = batch.to(torch.device("meta"))
    for here, there in zip((*batch[:2], *batch.spelling), (*moved[:2], *moved.spelling), strict=True):
        assert there.device.type == "meta"
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
    assert [tensor.tolist() for tensor in batch.to(torch.device("cpu")).spelling] == [
        tensor.tolist() for tensor in batch.spelling
    ]


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_inference_batches_hold_every_text_once_longest_first(batch_tokens):
    """Memory peaks in the first batch."""
    batches = by_length(LENGTHS, batch_tokens=batch_tokens)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    longest = [LENGTHS[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert by_length(np.zeros(0, dtype=np.int64), batch_tokens=8) == []


# ---------------------------------------------------------------- variants


def variants(texts: TokenizedTexts, indices, seed: int = 0) -> list[list[int]]:
    """The places of each variant."""
    places, lengths = vary(texts, np.array(indices), np.random.default_rng(seed))
    assert len(places) == lengths.sum()
    assert len(lengths) == len(indices)
    return [piece.tolist() for piece in np.split(places, np.cumsum(lengths)[:-1])]


def words_at(texts: TokenizedTexts, index: int) -> range:
    """The places of a text's tokens but `[CLS]`."""
    return range(texts.offsets[index] + 1, texts.offsets[index + 1])


def form(texts: TokenizedTexts, index: int, variant: list[int]) -> str:
    """Which of the five a variant looks like, the first that fits."""
    first, *words = variant
    assert first == texts.offsets[index]  # [CLS]
    own = words_at(texts, index)
    inside = [place for place in words if place in own]
    if words == list(own):
        return "whole"
    if all(right == left + 1 for left, right in itertools.pairwise(words)) and inside == words:
        return "part"
    if inside == words and sorted(set(words)) == words:
        return "shortened"
    # Two runs of neighbours, the first of this text.
    breaks = [i for i in range(1, len(words)) if words[i] != words[i - 1] + 1]
    cut_at = breaks[0] if breaks else next(i for i, place in enumerate(words) if place not in own)
    if len(breaks) <= 1 and (cut_at > 0 or not own) and set(words[:cut_at]) <= set(own):
        return "spliced"
    assert len(words) == len(own)
    return "swapped"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 2**32), data=st.data())
def test_a_variant_is_made_of_the_batch_s_words(lengths, seed, data):
    """`[CLS]` first and only there, none longer than the longest text of the batch, none without its own words."""
    indices = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=8))
    texts = make_texts(lengths)
    found = variants(texts, indices, seed)
    of_the_batch = {place for index in indices for place in words_at(texts, index)}
    for index, variant in zip(indices, found, strict=True):
        assert 1 <= len(variant) <= max(lengths[i] for i in indices)
        assert set(variant[1:]) <= of_the_batch
        form(texts, index, variant)  # asserts that it is one of the five


def test_all_five_kinds_of_variants_occur_as_often_as_they_should():
    """Of many long texts, in which they can hardly be mistaken for one another."""
    texts = make_texts(np.random.default_rng(0).integers(60, 80, size=1200))
    forms = [form(texts, i, variant) for i, variant in enumerate(variants(texts, range(1200)))]
    assert {kind: forms.count(kind) / 1200 for kind in VARIANTS} == pytest.approx(VARIANTS, abs=0.04)
    assert sum(VARIANTS.values()) == pytest.approx(1)


def test_a_swapped_text_keeps_most_of_its_words_where_they_are(monkeypatch):
    """Each one has another part of strangers, up to `MOST_SWAPPED`, from all of the batch and never a `[CLS]`."""
    monkeypatch.setattr(batching, "VARIANTS", {"swapped": 1.0})
    texts = make_texts([401] * 120)
    found = np.array([variant[1:] for variant in variants(texts, range(120))])
    swapped = found != np.arange(120)[:, None] * 401 + np.arange(1, 401)
    assert swapped.mean() == pytest.approx(MOST_SWAPPED / 2, abs=0.05)
    assert swapped.mean(axis=1).min() < 0.05
    assert MOST_SWAPPED - 0.1 < swapped.mean(axis=1).max() < MOST_SWAPPED + 0.08
    strangers = found[swapped]
    assert (strangers % 401 > 0).all()
    assert np.histogram(strangers, bins=10)[0] / len(strangers) == pytest.approx(np.full(10, 0.1), abs=0.01)


def test_a_shortened_text_keeps_most_of_its_words(monkeypatch):
    """Each one loses a part of its own, from nothing up to `MOST_DELETED`, spread over the whole text."""
    monkeypatch.setattr(batching, "VARIANTS", {"shortened": 1.0})
    texts = make_texts([401] * 120)
    found = variants(texts, range(120))
    deleted = np.array([1 - (len(variant) - 1) / 400 for variant in found])
    assert deleted.mean() == pytest.approx(MOST_DELETED / 2, abs=0.05)
    assert deleted.min() < 0.1
    assert MOST_DELETED - 0.1 < deleted.max() < MOST_DELETED + 0.05
    kept = np.concatenate([np.array(variant[1:]) % 401 for variant in found])
    assert np.histogram(kept, bins=10)[0] / len(kept) == pytest.approx(np.full(10, 0.1), abs=0.01)


def test_parts_begin_and_end_anywhere(monkeypatch):
    """Of a text of three words, all six parts occur: a single word, the first, the last, and all of them."""
    monkeypatch.setattr(batching, "VARIANTS", {"part": 1.0})
    texts = make_texts([4] * 600)
    found = [tuple(place % 4 for place in variant[1:]) for variant in variants(texts, range(600))]
    assert set(found) == {(1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)}
    assert min(found.count(part) for part in set(found)) > 30


def test_splices_take_from_any_text_of_the_batch():
    """Each text lends words to others, also those that come before it and much longer ones."""
    texts = make_texts([30, 5, 90, 30])
    lenders = set()
    for seed in range(60):
        for index, variant in enumerate(variants(texts, range(4), seed)):
            lenders |= {(index, int(np.searchsorted(texts.offsets, place, side="right")) - 1) for place in variant}
    assert lenders == {(one, other) for one in range(4) for other in range(4)}


def test_variants_depend_on_the_random_state_alone():
    """The same seed makes the same variants, another one others."""
    texts = make_texts([9, 20, 1, 15])
    assert variants(texts, [3, 1, 0], seed=5) == variants(texts, [3, 1, 0], seed=5)
    assert len({str(variants(texts, [3, 1, 0], seed)) for seed in range(10)}) == 10


def test_texts_without_words_stay_as_they_are():
    """`[CLS]` alone has no parts, and a batch of such texts is a batch."""
    texts = make_texts([1, 1, 1])
    for seed in range(20):
        assert variants(texts, [2, 0, 1], seed) == [[2], [0], [1]]
    places, lengths = vary(texts, np.array([2, 0, 1]), np.random.default_rng(0))
    assert gather(texts, places, lengths).input_ids.tolist() == [[CLS_ID]] * 3


# ---------------------------------------------------------------- words dropped


def test_word_dropout_replaces_words_only():
    """About the wanted part of the words becomes [UNK]; [CLS] and padding stay."""
    torch.manual_seed(0)
    input_ids = torch.full((100, 50), 7)
    input_ids[:, 0], input_ids[:, 40:] = CLS_ID, PAD_ID
    dropped = drop_words(input_ids, fraction=0.3)
    assert (dropped[:, 0] == CLS_ID).all()
    assert (dropped[:, 40:] == PAD_ID).all()
    assert (dropped[:, 1:40] == UNK_ID).float().mean() == pytest.approx(0.3, abs=0.02)
    assert drop_words(input_ids, fraction=0) is input_ids
