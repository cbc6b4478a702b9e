"""Pretraining without labels: masked language modelling, or denoising.

Some words are hidden from the encoder, and the model learns to guess tokens.

Shapes are as in `transformer`; S is the length of a text without deleted words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.encoder.nested_tensors import on_device
from encoder_cls.encoder.padding import batches_by_length
from encoder_cls.encoder.torch_encoder import Batch, make_batch
from encoder_cls.encoder.transformer import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.encoder_training.graph_shapes import pad_end, pad_to_few_shapes, round_up_size
from encoder_cls.encoder_training.random_numbers import is_word
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, TokenizedTexts

# The target of a guess that does not count in the loss.
NOTHING_TO_GUESS = -100


@dataclass(frozen=True, kw_only=True)
class GuessedTokens(ABC):
    """A batch of texts with tokens to guess.

    Attributes:
        positions: of the tokens whose vectors guess a token, (M,), counted text after text, padding
            included. They are found on the CPU: one would have to wait for a GPU to know their
            number.
        target_ids: the tokens to guess, (M,); `PAD_ID` where there is none.
        candidates: the distinct tokens of the batch, increasing, (V,): a softmax over this sample
            of the vocabulary saves time.
        is_candidate: False where `candidates` repeats its last token, (V,); None if it does not.
    """

    inputs: Batch
    positions: Tensor
    target_ids: Tensor
    candidates: Tensor
    is_candidate: Tensor | None = None

    @abstractmethod
    def vectors(self, model: Any) -> Tensor:
        """The vectors from which tokens are guessed, (B, T, D)."""

    @property
    def normalizer(self) -> Tensor:
        """See `TrainingBatch`; at least 1."""
        num_targets = (self.target_ids != PAD_ID).sum()
        return num_targets.clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TrainingBatch`."""
        x_BTD = self.vectors(model)
        x_MD = x_BTD.flatten(0, 1).index_select(0, self.positions)
        scores_MV = model.encoder.embedding.token_scores(x_MD, self.candidates).float()
        if self.is_candidate is not None:
            scores_MV = scores_MV.masked_fill(~self.is_candidate, -torch.inf)

        # Find the index of each target among the candidates, which are sorted.
        targets_M = torch.searchsorted(self.candidates, self.target_ids)
        targets_M = targets_M.masked_fill(self.target_ids == PAD_ID, NOTHING_TO_GUESS)
        return functional.cross_entropy(
            scores_MV, targets_M, ignore_index=NOTHING_TO_GUESS, reduction="sum"
        )

    def padded(self, *, max_seq_len: int) -> Self:
        """See `TrainingBatch`."""
        inputs = pad_to_few_shapes(self.inputs, max_seq_len=max_seq_len)

        # In longer texts, tokens have other places.
        old_length = self.inputs.input_ids.shape[1]
        new_length = inputs.input_ids.shape[1]
        texts = self.positions // old_length
        tokens = self.positions % old_length
        positions = texts * new_length + tokens

        num_targets = round_up_size(len(self.target_ids))
        num_candidates = round_up_size(len(self.candidates))
        return replace(
            self,
            inputs=inputs,
            positions=pad_end(positions, num_targets, value=0),
            target_ids=pad_end(self.target_ids, num_targets, value=PAD_ID),
            candidates=pad_end(self.candidates, num_candidates, value=int(self.candidates[-1])),
            is_candidate=torch.arange(num_candidates) < len(self.candidates),
        )


# --- Masked language modelling --------------------------------------------------------------------


class MaskedTokens(GuessedTokens):
    """Texts with masked tokens, guessed from the encoder's vectors of `[MASK]`."""

    def vectors(self, model: EncoderClassifier) -> Tensor:
        """The encoder's vectors, (B, T, D)."""
        x_BTD: Tensor = model.encoder(*self.inputs)
        return x_BTD


def mask_tokens(
    batch: Batch,
    candidates: Tensor,
    *,
    fraction: float,
    generator: torch.Generator | None = None,
) -> GuessedTokens:
    """Replace some words by `[MASK]`, to be guessed from their contexts.

    As Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019),
    https://arxiv.org/abs/1810.04805, but without replaced or unchanged words, which are not needed
    (Wettig et al., 2023, https://arxiv.org/abs/2202.08005).
    """
    ids_BT = batch.input_ids
    is_masked_BT = torch.rand(ids_BT.shape, generator=generator) < fraction
    is_masked_BT &= is_word(ids_BT)

    # Add `[MASK]` as another distinct word. It has no character n-grams: those of the masked word
    # would show which word it is.
    char_ngrams = batch.char_ngrams
    mask_word = len(char_ngrams.offsets) - 1
    char_ngrams = char_ngrams._replace(
        words=char_ngrams.words.masked_fill(is_masked_BT, mask_word),
        offsets=torch.cat([char_ngrams.offsets, char_ngrams.offsets[-1:]]),
    )

    return MaskedTokens(
        inputs=batch._replace(
            input_ids=ids_BT.masked_fill(is_masked_BT, MASK_ID), char_ngrams=char_ngrams
        ),
        positions=_positions(is_masked_BT),
        target_ids=ids_BT[is_masked_BT],
        candidates=candidates,
    )


# --- Denoising ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NextTokens(GuessedTokens):
    """Whole texts, whose tokens a decoder guesses from those before.

    Attributes:
        shortened: what the encoder reads, without some words.
    """

    shortened: Batch

    def vectors(self, model: DenoisingAutoencoder) -> Tensor:
        """The decoder's vectors, (B, T, D)."""
        x_BTD = model.encoder.embedding(self.inputs.input_ids, self.inputs.char_ngrams)
        memory_BSD = model.encoder(*self.shortened)
        decoded_BTD: Tensor = model.decoder(
            x_BTD, self.inputs.attention_mask, memory_BSD, self.shortened.attention_mask
        )
        return decoded_BTD

    def padded(self, *, max_seq_len: int) -> Self:
        """See `TrainingBatch`."""
        shortened = pad_to_few_shapes(self.shortened, max_seq_len=max_seq_len)
        return replace(super().padded(max_seq_len=max_seq_len), shortened=shortened)


def denoise(
    batch: Batch,
    candidates: Tensor,
    *,
    fraction: float,
    generator: torch.Generator | None = None,
) -> GuessedTokens:
    """Hide some words from the encoder; a decoder guesses whole texts.

    As Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979, but the decoder attends to all vectors of the encoder, not to
    a single one.
    """
    shortened = delete_tokens(batch, fraction=fraction, generator=generator)

    # Every token except the first is guessed from the vector of the token before it.
    has_next_BT = batch.attention_mask.roll(-1, dims=1)
    has_next_BT[:, -1] = False
    next_ids = batch.input_ids[:, 1:][has_next_BT[:, :-1]]

    return NextTokens(
        inputs=batch,
        positions=_positions(has_next_BT),
        target_ids=next_ids,
        candidates=candidates,
        shortened=shortened,
    )


def delete_tokens(
    batch: Batch, *, fraction: float, generator: torch.Generator | None = None
) -> Batch:
    """Delete words other than `[CLS]`, with a probability of `fraction`."""
    ids_BT = batch.input_ids
    is_drawn_BT = torch.rand(ids_BT.shape, generator=generator) >= fraction
    is_kept_BT = batch.attention_mask & (is_drawn_BT | (ids_BT == CLS_ID))

    # Move the tokens that are kept to the front of each text, in their order: a stable sort puts
    # False before True. Cut off the rest.
    num_kept = is_kept_BT.sum(dim=1).max()
    positions = (~is_kept_BT).sort(dim=1, stable=True).indices[:, :num_kept]
    mask = is_kept_BT.gather(1, positions)
    input_ids = ids_BT.gather(1, positions).masked_fill(~mask, PAD_ID)
    words = batch.char_ngrams.words.gather(1, positions)

    # Number the tokens that are left, but not those of features.
    numbers = batch.char_ngrams.positions
    if numbers is not None:
        is_feature = numbers.gather(1, positions) < 0
        numbers = ((~is_feature).cumsum(dim=1) - 1).masked_fill(is_feature, -1)

    char_ngrams = batch.char_ngrams._replace(words=words, positions=numbers)
    return Batch(input_ids, mask, char_ngrams)


def _positions(mask_BT: Tensor) -> Tensor:
    """Where a mask is True, (M,), counted text after text."""
    return mask_BT.flatten().nonzero().squeeze(1)


# --- Validation -----------------------------------------------------------------------------------


def summed_loss(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    objective: Callable[[Batch, Tensor], GuessedTokens],
    *,
    batch_tokens: int,
    share: Callable[[int], range],
) -> tuple[float, float]:
    """The losses of all tokens to guess, without dropout, and their number.

    Args:
        objective: hides words, given a batch's candidates.
        share: as in `compute_rows`.
    """
    device = next(model.parameters()).device
    batches = batches_by_length(texts.lengths, batch_tokens=batch_tokens)
    my_batches = share(len(batches))
    loss = 0.0
    num_targets = 0.0

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for number, (indices, length) in enumerate(batches):
                # Hide tokens in the batches of all processes, because that draws random numbers: so
                # a batch has the same hidden tokens, whichever process sums its losses.
                inputs = make_batch(texts, indices, length)
                batch = objective(inputs, torch.unique(inputs.input_ids))
                if number in my_batches:
                    batch = on_device(batch, device)
                    loss += float(batch.loss(model))
                    num_targets += float(batch.normalizer)
                    check_stop()
    finally:
        model.train(was_training)
    return loss, num_targets
