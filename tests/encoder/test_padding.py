"""Padded batches of texts of similar length."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.encoder.padding import batches_by_length

LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_batches_hold_every_text_once_within_the_limit(batch_tokens):
    """A batch over the limit is a single long text."""
    batches = batches_by_length(LENGTHS, batch_tokens=batch_tokens)

    texts: list[int] = []
    for indices, length in batches:
        texts += indices.tolist()
        assert length >= LENGTHS[indices].max()
        if len(indices) > 1:
            assert len(indices) * length <= batch_tokens
    assert sorted(texts) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_the_longest_texts_come_first(batch_tokens):
    """Texts are padded to no more tokens than the model reads."""
    batches = batches_by_length(LENGTHS, batch_tokens=batch_tokens)

    padded_lengths = [length for _, length in batches]
    assert padded_lengths == sorted(padded_lengths, reverse=True)
    assert padded_lengths[0] == LENGTHS.max()


def test_no_texts_are_in_no_batches():
    assert batches_by_length(np.zeros(0, dtype=np.int64), batch_tokens=8) == []
