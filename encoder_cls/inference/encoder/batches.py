"""Compute something for many texts, padded to batches of similar length."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import PAD_ID, CharNgrams, TokenizedTexts, flat_indices

Indices = NDArray[np.int64]

# Lengths so near each other count as equal: neighbours are shuffled in each epoch, and padding stays a few percent.
LENGTH_TOLERANCE = 1 / 16


def compute_rows(
    texts: TokenizedTexts,
    compute: Callable[[Batch], NDArray[np.float32]],
    *,
    width: int,
    batch_tokens: int,
    share: Callable[[int], range] = range,
) -> NDArray[np.float32]:
    """Compute rows for all texts, (texts, width), from a batch to its rows, (B, width).

    `share` chooses among so many batches; the rows of the others are 0.
    """
    rows = np.zeros((len(texts), width), dtype=np.float32)
    pieces = by_length(texts.lengths, batch_tokens=batch_tokens)
    for piece in (pieces[number] for number in share(len(pieces))):
        rows[piece.indices] = compute(pad(texts, *piece))
        check_stop()
    return rows


class Piece(NamedTuple):
    """The indices of a batch's texts, and the length to which they are padded."""

    indices: Indices
    length: int


def by_length(lengths: NDArray[np.int64], *, batch_tokens: int) -> list[Piece]:
    """Plan batches of texts of similar length, the longest first: memory is at its peak at the start.

    Each length comes with one number of texts, and lengths are rounded up, since for each shape a CPU compiles kernels,
    which takes as long as using them once.
    """
    in_order = np.argsort(-lengths, kind="stable")
    rounded = np.minimum(round_up_lengths(lengths[in_order]), lengths.max(initial=0))
    pieces: list[Piece] = []
    start = 0
    while start < len(lengths):
        length = int(rounded[start])
        texts = max(1, batch_tokens // length)
        pieces.append(Piece(in_order[start : start + texts], length))
        start += texts
    return pieces


class Batch(NamedTuple):
    """Some texts, padded to one length.

    Attributes:
        input_ids: (B, T).
        attention_mask: (B, T), True on real tokens.
        words: (B, T), the index of each token's word among the distinct words; any on padding.
        char_ngrams: those of the distinct words.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.bool_]
    words: NDArray[np.int64]
    char_ngrams: CharNgrams


def pad(texts: TokenizedTexts, indices: Indices, length: int | None = None) -> Batch:
    """Make a batch of texts, padded to the longest of them or to `length`."""
    lengths = texts.lengths[indices]
    tokens = flat_indices(texts.offsets[indices], lengths)
    mask = np.arange(length or lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, PAD_ID, dtype=np.int64)
    distinct, rows = np.unique(texts.words[tokens], return_inverse=True)
    input_ids[mask] = texts.word_ids[distinct][rows]
    words = np.zeros(mask.shape, dtype=np.int64)
    words[mask] = rows
    return Batch(input_ids, mask, words, texts.char_ngrams.take(distinct))


def round_up_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths rounded up to the next of 1, 2, ..., 15, 16, 17, 18, ..., 32, 34, ..., each 1/16 apart."""
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(lengths * LENGTH_TOLERANCE, 1))).astype(np.int64))
    rounded: NDArray[np.int64] = -(-lengths // step) * step
    return rounded
