"""Batches of few different shapes, so that a GPU can replay what it has recorded for a shape.

The padding changes neither the loss nor a gradient, except for rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.encoder.padding import round_up_lengths
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.transformer import CharNgramBatch
from encoder_cls.text.tokens import PAD_ID

# Rounding adds at most this fraction to the length of texts. There are 12 lengths from 17 to 128
# tokens. A tenth of a batch is then padding, which a GPU hardly notices.
LENGTH_BUCKET = 1 / 4

# Rounding adds at most this fraction to other sizes, which cost little.
SIZE_BUCKET = 1 / 2

# Unused words share the n-grams that fill up a batch, about this many for each. A GPU adds up the
# n-grams of a word one after the other.
NGRAMS_PER_UNUSED_WORD = 16


def round_up_size(size: int, *, tolerance: float = SIZE_BUCKET) -> int:
    """Round a size up to one of few: for a tolerance of 1/2, 1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    return int(round_up_lengths(np.array(size), tolerance=tolerance))


def pad_end(values: Tensor, size: int, *, value: int) -> Tensor:
    """Fill the last dimension up to a size."""
    return functional.pad(values, (0, size - values.shape[-1]), value=value)


def pad_to_few_shapes(batch: Batch, *, max_seq_len: int) -> Batch:
    """Pad a batch on the CPU to one of few shapes, of as many texts."""
    length = round_up_size(batch.input_ids.shape[1], tolerance=LENGTH_BUCKET)
    length = min(length, max_seq_len)

    char_ngrams = _add_unused_words(batch.char_ngrams)
    words_of_tokens = pad_end(char_ngrams.words, length, value=0)
    positions = char_ngrams.positions
    if positions is not None:
        positions = pad_end(positions, length, value=-1)
    return Batch(
        input_ids=pad_end(batch.input_ids, length, value=PAD_ID),
        attention_mask=pad_end(batch.attention_mask, length, value=False),
        char_ngrams=char_ngrams._replace(words=words_of_tokens, positions=positions),
    )


def _add_unused_words(char_ngrams: CharNgramBatch) -> CharNgramBatch:
    """Add words that no text has, with n-grams, so that there are few numbers of both."""
    num_ngrams = len(char_ngrams.ngrams)
    num_words = len(char_ngrams.offsets) - 1

    # There is at least one unused word, and more of them if many n-grams may be added.
    all_ngrams = round_up_size(num_ngrams)
    all_words = round_up_size(num_words + 1) + all_ngrams // NGRAMS_PER_UNUSED_WORD
    num_unused = all_words - num_words
    num_added = all_ngrams - num_ngrams

    # Add the n-grams of the batch once more, from the first one on. Their gradient in an unused
    # word is 0, so that the rows of the table are updated as without it. A batch without n-grams
    # gets none.
    added = char_ngrams.ngrams[torch.arange(num_added) % max(1, num_ngrams)]

    # Distribute them evenly over the unused words.
    ends = num_ngrams + torch.arange(1, num_unused + 1) * num_added // num_unused
    return char_ngrams._replace(
        ngrams=torch.cat([char_ngrams.ngrams, added]),
        offsets=torch.cat([char_ngrams.offsets, ends]),
    )
