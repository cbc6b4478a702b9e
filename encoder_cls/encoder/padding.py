"""Padded batches of texts, for both encoders.

Texts of similar length share a batch, so that little of it is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import PAD_ID, CharNgrams, TokenizedTexts, flat_indices

Indices = NDArray[np.int64]
"""The indices of some of many texts."""


class PaddedTexts(NamedTuple):
    """Some texts, padded to one length. Shapes are those of `transformer`.

    Attributes:
        input_ids: token ids, (B, T).
        attention_mask: True on real tokens, (B, T).
        words: the index of each token's word among the distinct words, (B, T); any on padding.
        char_ngrams: the character n-grams of the distinct words.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.bool_]
    words: NDArray[np.int64]
    char_ngrams: CharNgrams


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> PaddedTexts:
    """Pad some of the texts to the longest of them, or to a `length`."""
    lengths = texts.lengths[indices]
    padded_length = length or lengths.max()
    attention_mask = np.arange(padded_length) < lengths[:, None]

    # The real tokens of all these texts, one text after the other.
    tokens = flat_indices(texts.offsets[indices], lengths)
    distinct_words, words_of_tokens = np.unique(texts.words[tokens], return_inverse=True)

    # A mask selects elements in the same order.
    input_ids = np.full(attention_mask.shape, PAD_ID, dtype=np.int64)
    input_ids[attention_mask] = texts.word_ids[distinct_words][words_of_tokens]
    words = np.zeros(attention_mask.shape, dtype=np.int64)
    words[attention_mask] = words_of_tokens

    return PaddedTexts(input_ids, attention_mask, words, texts.char_ngrams.take(distinct_words))


def compute_rows(
    texts: TokenizedTexts,
    compute: Callable[[PaddedTexts], NDArray[np.float32]],
    *,
    width: int,
    batch_tokens: int,
    share: Callable[[int], range] = range,
) -> NDArray[np.float32]:
    """Compute a row for each text, (texts, width).

    Args:
        texts: all texts.
        compute: takes a batch and returns its rows, (B, width).
        width: the number of values in a row.
        batch_tokens: the most tokens in a batch, padding included.
        share: the numbers of the batches to compute, of so many; rows of other batches are 0.
    """
    rows = np.zeros((len(texts), width), dtype=np.float32)
    batches = batches_by_length(texts.lengths, batch_tokens=batch_tokens)
    for number in share(len(batches)):
        indices, length = batches[number]
        rows[indices] = compute(pad(texts, indices, length))
        check_stop()
    return rows


def batches_by_length(
    lengths: NDArray[np.int64], *, batch_tokens: int
) -> list[tuple[Indices, int]]:
    """Plan batches of texts of similar length, each with the length to which its texts are padded.

    The longest texts come first, so that memory is at its peak at the start. Lengths are rounded
    up, and batches of one length have one number of texts, because a CPU compiles kernels for each
    shape, which takes as long as using them once.
    """
    order = np.argsort(-lengths, kind="stable")
    padded_lengths = np.minimum(round_up_lengths(lengths[order]), lengths.max(initial=0))

    batches: list[tuple[Indices, int]] = []
    start = 0
    while start < len(lengths):
        length = int(padded_lengths[start])
        num_texts = max(1, batch_tokens // length)
        batches.append((order[start : start + num_texts], length))
        start += num_texts
    return batches


# Rounding adds at most this part to a length: in training, texts of equal rounded length are
# shuffled in each epoch, while padding stays a few percent.
LENGTH_TOLERANCE = 1 / 16


def round_up_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round lengths up to 1, 2, ..., 15, 16, 17, 18, ..., 32, 34, ..., at most 1/16 apart."""
    # The highest power of two within the tolerance; 1 for short texts.
    exponents = np.floor(np.log2(np.maximum(lengths * LENGTH_TOLERANCE, 1)))
    steps = 2 ** exponents.astype(np.int64)

    # The floor of a negative number rounds its opposite up.
    rounded: NDArray[np.int64] = -(-lengths // steps) * steps
    return rounded
