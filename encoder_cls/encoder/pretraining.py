"""Pretraining on texts without their labels: masked language modelling, or denoising.

In both, an encoder learns to guess tokens that are hidden from it. Shapes are those of
`transformer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.encoder.batches import is_word
from encoder_cls.encoder.padding import batches_by_length
from encoder_cls.encoder.torch_encoder import Batch, make_batch
from encoder_cls.encoder.transformer import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class GuessedTokens(ABC):
    """A batch of texts with tokens to guess.

    Attributes:
        inputs: the texts.
        is_guessed: True on the tokens whose vectors guess a token, (B, T).
        guessed: the tokens to guess, (M,), in the order of `is_guessed`.
        candidates: the distinct tokens of the batch, (V,), increasing. The softmax is over these
            few of all tokens, which are a sample by frequency.
    """

    inputs: Batch
    is_guessed: Tensor
    guessed: Tensor
    candidates: Tensor

    @abstractmethod
    def vectors(self, model: Any) -> Tensor:
        """The vectors of tokens from which a model guesses, (B, T, D)."""

    @property
    def normalizer(self) -> Tensor:
        """The number of guessed tokens, at least 1, (); the loss divided by it is the mean loss."""
        return self.is_guessed.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """The losses of all guessed tokens, summed, ()."""
        x_MD = self.vectors(model)[self.is_guessed]
        scores_MV = model.encoder.embedding.token_scores(x_MD, self.candidates)

        # The index of each token among the candidates.
        targets_M = torch.searchsorted(self.candidates, self.guessed)
        return functional.cross_entropy(scores_MV.float(), targets_M, reduction="sum")


# --- Masked language modelling --------------------------------------------------------------------


class MaskedTokens(GuessedTokens):
    """Texts with masked tokens, each guessed from the encoder's vector of its `[MASK]`."""

    def vectors(self, model: EncoderClassifier) -> Tensor:
        """See `GuessedTokens`."""
        x_BTD: Tensor = model.encoder(*self.inputs)
        return x_BTD


def mask_tokens(batch: Batch, candidates: Tensor, *, fraction: float) -> GuessedTokens:
    """Replace a random part of the words by `[MASK]`, to be guessed from their contexts.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019),
    https://arxiv.org/abs/1810.04805; there some become other words or stay, which is not needed
    (Wettig et al., 2023, https://arxiv.org/abs/2202.08005).
    """
    ids_BT = batch.input_ids
    is_masked_BT = torch.rand(ids_BT.shape, device=ids_BT.device) < fraction
    is_masked_BT &= is_word(ids_BT)

    # `[MASK]` is one more distinct word, without character n-grams, which would give the word away.
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
        is_guessed=is_masked_BT,
        guessed=ids_BT[is_masked_BT],
        candidates=candidates,
    )


# --- Denoising ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NextTokens(GuessedTokens):
    """Whole texts, in which a decoder guesses each next token.

    Attributes:
        corrupted: what the encoder reads of the texts.
    """

    corrupted: Batch

    def vectors(self, model: DenoisingAutoencoder) -> Tensor:
        """See `GuessedTokens`."""
        x_BTD = model.encoder.embedding(self.inputs.input_ids, self.inputs.char_ngrams)
        memory_BSD = model.encoder(*self.corrupted)
        decoded_BTD: Tensor = model.decoder(
            x_BTD, self.inputs.attention_mask, memory_BSD, self.corrupted.attention_mask
        )
        return decoded_BTD


def denoise(batch: Batch, candidates: Tensor, *, fraction: float) -> GuessedTokens:
    """Delete a random part of the words that the encoder reads; a decoder guesses all of them.

    Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979; there the decoder sees one vector of the text, here all
    vectors of the encoder.
    """
    corrupted = delete_tokens(batch, fraction=fraction)

    # Each token but the first is guessed from the one before it.
    has_next_BT = batch.attention_mask.roll(-1, dims=1)
    has_next_BT[:, -1] = False
    next_ids = batch.input_ids[:, 1:][has_next_BT[:, :-1]]

    return NextTokens(
        inputs=batch,
        is_guessed=has_next_BT,
        guessed=next_ids,
        candidates=candidates,
        corrupted=corrupted,
    )


def delete_tokens(batch: Batch, *, fraction: float) -> Batch:
    """Delete a random part of the words; the texts become shorter."""
    ids_BT = batch.input_ids
    is_spared_BT = torch.rand(ids_BT.shape, device=ids_BT.device) >= fraction
    is_kept_BT = batch.attention_mask & (is_spared_BT | (ids_BT == CLS_ID))

    # Move the tokens that are kept to the front of each text, and cut off the rest.
    most_kept = is_kept_BT.sum(dim=1).max()
    positions = (~is_kept_BT).sort(dim=1, stable=True).indices[:, :most_kept]
    mask = is_kept_BT.gather(1, positions)
    input_ids = ids_BT.gather(1, positions).masked_fill(~mask, PAD_ID)
    words = batch.char_ngrams.words.gather(1, positions)

    return Batch(input_ids, mask, batch.char_ngrams._replace(words=words))


# --- Validation -----------------------------------------------------------------------------------


def summed_loss(
    model: EncoderClassifier,
    texts: TokenizedTexts,
    objective: Callable[[Batch, Tensor], GuessedTokens],
    *,
    batch_tokens: int,
    share: Callable[[int], range],
) -> tuple[float, float]:
    """Sum the losses of the guessed tokens in texts, without dropout.

    Args:
        model: stays in its mode.
        texts: all texts.
        objective: hides tokens of a batch; also takes the candidates.
        batch_tokens: the most tokens in a batch, padding included.
        share: the numbers of the batches whose losses this process adds up, of so many.

    Returns:
        The sum of the losses, and the number of guessed tokens.
    """
    device = next(model.parameters()).device
    batches = batches_by_length(texts.lengths, batch_tokens=batch_tokens)
    mine = share(len(batches))
    loss = 0.0
    weight = 0.0

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for number, (indices, length) in enumerate(batches):
                # Tokens are hidden in all processes, because that draws random numbers.
                inputs = make_batch(texts, indices, length).to(device)
                batch = objective(inputs, torch.unique(inputs.input_ids))
                if number in mine:
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    check_stop()
    finally:
        model.train(was_training)
    return loss, weight
