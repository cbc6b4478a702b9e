"""Padded batches of texts, for the encoders in NumPy and in PyTorch.

Texts of similar length share a batch, so that little of it is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import FEATURE, PAD_ID, CharNgrams, TokenizedTexts, flat_indices

Indices = NDArray[np.int64]
"""The indices of some of many texts."""


class PaddedTexts(NamedTuple):
    """B texts, padded to T tokens; `input_ids` is (B, T).

    Attributes:
        attention_mask: True on real tokens, (B, T).
        words: the index of each token among the distinct words, (B, T); arbitrary on padding.
        positions: of each token, -1 for one of a feature, (B, T); None if no text has features, and
            positions are 0, 1, 2, ...
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.bool_]
    words: NDArray[np.int64]
    char_ngrams: CharNgrams
    positions: NDArray[np.int64] | None = None


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> PaddedTexts:
    """Make a batch of these texts, padded to `length`; None for that of the longest one."""
    lengths = texts.lengths[indices]
    padded_length = length or lengths.max()
    attention_mask = np.arange(padded_length) < lengths[:, None]

    # Collect the real tokens of all texts of the batch, one text after the other.
    tokens = flat_indices(texts.offsets[indices], lengths)
    distinct_words, words_of_tokens = np.unique(texts.words[tokens], return_inverse=True)

    # Put the tokens at their places. The elements of a mask are numbered in the same order.
    input_ids = np.full(attention_mask.shape, PAD_ID, dtype=np.int64)
    input_ids[attention_mask] = texts.word_ids[distinct_words][words_of_tokens]
    words = np.zeros(attention_mask.shape, dtype=np.int64)
    words[attention_mask] = words_of_tokens

    # Words have the positions that they would have without features.
    positions = None
    kinds = texts.kinds_of(tokens)
    if kinds is not None:
        is_feature = np.zeros(attention_mask.shape, dtype=bool)
        is_feature[attention_mask] = kinds == FEATURE
        positions = np.where(is_feature, -1, np.cumsum(~is_feature, axis=1) - 1)

    char_ngrams = texts.char_ngrams.take(distinct_words)
    return PaddedTexts(input_ids, attention_mask, words, char_ngrams, positions)


def compute_rows(
    texts: TokenizedTexts,
    compute: Callable[[PaddedTexts], NDArray[np.float32]],
    *,
    width: int,
    batch_tokens: int,
    share: Callable[[int], range] = range,
) -> NDArray[np.float32]:
    """Compute a row of values for each text, batch by batch, (texts, width).

    Args:
        compute: returns the rows of a batch of B texts, (B, width).
        batch_tokens: the most tokens in a batch, padding included.
        share: the indices of the batches to compute, from the number of all; rows of all others are
            0.
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
    """Divide texts into batches of similar length, each with the length to pad to.

    The longest come first, so that most memory is used at the start. There are few shapes, of
    rounded lengths and equal numbers of texts: a CPU compiles a kernel for each, which takes as
    long as using it once.
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


# Rounding adds at most this fraction to a length. In training, texts of equal rounded length are
# shuffled in each epoch: rounding gives them other neighbours, and adds a few percent of padding.
LENGTH_TOLERANCE = 1 / 16


def round_up_lengths(
    lengths: NDArray[np.int64], *, tolerance: float = LENGTH_TOLERANCE
) -> NDArray[np.int64]:
    """Round lengths up to one of few numbers, in steps of at most the tolerance times a length.

    For 1/16, they are 1, 2, ..., 32, 34, 36, ..., 64, 68, ...
    """
    # A step is the highest power of two within the tolerance; it is 1 for short texts.
    exponents = np.floor(np.log2(np.maximum(lengths * tolerance, 1)))
    steps = 2 ** exponents.astype(np.int64)

    # Divide and round up: `//` rounds down, so the negative of a length is divided.
    rounded: NDArray[np.int64] = -(-lengths // steps) * steps
    return rounded
