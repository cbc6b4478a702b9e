"""The encoder in NumPy, for prediction.

It computes the same as `transformer.EncoderClassifier`, from weights of the same names. Shapes are
suffixes of names, with the letters that `transformer` lists: B texts, T tokens, D features, H heads
of K features, W distinct words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.padding import PaddedTexts, compute_rows, pad
from encoder_cls.metrics.logits import Logits
from encoder_cls.text.tokens import CLS_ID, PAD_ID, PAIR_MULTIPLIER, CharNgrams, TokenizedTexts
from encoder_cls.weights import Weight, as_table, dense, is_table

Array = NDArray[np.float32]

# The maximum number of tokens in a batch, including padding. Such a batch fits into the caches of a
# processor; with twice as many tokens, a text takes 50% longer.
BATCH_TOKENS = 1024

# The number of words whose vectors are computed at a time. The vectors of their n-grams stay in the
# cache of a processor; many more words take twice as long.
WORDS_AT_ONCE = 64

# A small number that is added to a variance, which could be zero, as in torch.nn.LayerNorm.
NORM_EPSILON = 1e-5


class NumpyEncoder:
    """The encoder with its head; tables may be of a smaller type than float32."""

    engine = "numpy"
    uses_gpu = False

    def __init__(self, architecture: EncoderArchitecture, weights: Mapping[str, Weight]) -> None:
        self.architecture = architecture

        # Tables stay in the type in which they are stored; all other weights become float32.
        tables = {}
        other_weights = {}
        for name, weight in weights.items():
            if is_table(name):
                tables[name] = as_table(weight)
            else:
                other_weights[name] = weight
        self._tables = tables
        self._weights: dict[str, Array] = dense(other_weights)

        self._positions_TD = _positions(architecture, self._weights)

    def named_weights(self) -> dict[str, Array]:
        """See `PredictingEncoder`."""
        return dense(self._tables) | self._weights

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """See `PredictingEncoder`."""
        num_classes = len(self._weights["head.linear.bias"])

        def compute(batch: PaddedTexts) -> Array:
            return self._linear("head.linear", self._pooled(batch))

        return compute_rows(
            texts, compute, width=num_classes, batch_tokens=batch_tokens or BATCH_TOKENS
        )

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Array:
        """See `PredictingEncoder`."""
        return compute_rows(
            texts,
            self._pooled,
            width=self.architecture.d_model,
            batch_tokens=batch_tokens or BATCH_TOKENS,
        )

    def attention_maps(self, texts: TokenizedTexts) -> Array:
        """See `PredictingEncoder`."""
        maps: list[Array] = []
        self._encode(pad(texts, np.array([0])), maps)
        return np.concatenate(maps)

    def _pooled(self, batch: PaddedTexts) -> Array:
        x_BTD = self._encode(batch)
        mask_BT = batch.attention_mask

        # The tokenizer puts `[CLS]` first in every text.
        if self.architecture.pooling == "cls":
            return x_BTD[:, 0]

        if self.architecture.pooling == "max":
            real_BTD = np.where(mask_BT[:, :, None], x_BTD, np.float32(-np.inf))
            maxima_BD: Array = real_BTD.max(axis=1)
            return maxima_BD

        means_BD: Array = np.einsum("btd,bt->bd", x_BTD, mask_BT.astype(np.float32))
        means_BD /= mask_BT.sum(axis=1, keepdims=True).astype(np.float32)
        return means_BD

    def _encode(self, batch: PaddedTexts, maps: list[Array] | None = None) -> Array:
        """The vectors of tokens, (B, T, D); `maps` receives attention weights, (B, H, T, T)."""
        mask_BT = batch.attention_mask
        x_BTD = self._embed(batch)

        for number in range(self.architecture.num_layers):
            layer = f"encoder.layers.{number}"
            attention_norm = f"{layer}.attention_norm"
            feed_forward_norm = f"{layer}.feed_forward_norm"

            # The norm of a sublayer comes before it, or after the sum with its input.
            if self.architecture.norm == "pre":
                x_BTD += self._attention(layer, self._norm(attention_norm, x_BTD), mask_BT, maps)
                x_BTD += self._feed_forward(layer, self._norm(feed_forward_norm, x_BTD))
            else:
                x_BTD = x_BTD + self._attention(layer, x_BTD, mask_BT, maps)
                x_BTD = self._norm(attention_norm, x_BTD)
                x_BTD = x_BTD + self._feed_forward(layer, x_BTD)
                x_BTD = self._norm(feed_forward_norm, x_BTD)

        if self.architecture.norm == "pre":
            x_BTD = self._norm("encoder.final_norm", x_BTD)
        return x_BTD

    def _embed(self, batch: PaddedTexts) -> Array:
        input_ids_BT = batch.input_ids
        positions_BT = batch.positions
        x_BTD = self._rows("tokens", input_ids_BT)

        if self.architecture.char_ngram_buckets:
            vectors_WD = self._word_vectors(batch.char_ngrams)
            x_BTD += vectors_WD[batch.words]

        if self.architecture.bigram_buckets:
            # The first token makes a pair with `[PAD]`.
            previous_BT = np.pad(input_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=PAD_ID)
            if positions_BT is not None:
                # The token at position 1 makes a pair with `[CLS]`, before the features.
                previous_BT = np.where(positions_BT == 1, CLS_ID, previous_BT)
            hashes_BT = previous_BT * PAIR_MULTIPLIER + input_ids_BT
            pairs_BTD = self._rows("bigrams.table", hashes_BT % self.architecture.bigram_buckets)
            x_BTD += _without_features(pairs_BTD, positions_BT)

        if self._positions_TD is not None and positions_BT is None:
            num_tokens = x_BTD.shape[1]
            x_BTD += self._positions_TD[:num_tokens]
        elif self._positions_TD is not None:
            x_BTD += _without_features(self._positions_TD[positions_BT], positions_BT)
        return x_BTD

    def _word_vectors(self, char_ngrams: CharNgrams) -> Array:
        """The mean vector of each word's character n-grams, (W, D); 0 without n-grams."""
        blocks = [np.zeros((0, self.architecture.d_model), dtype=np.float32)]
        for first in range(0, len(char_ngrams), WORDS_AT_ONCE):
            words = np.arange(first, min(first + WORDS_AT_ONCE, len(char_ngrams)))
            blocks.append(self._means_of_ngrams(char_ngrams.take(words)))
        return np.concatenate(blocks)

    def _means_of_ngrams(self, char_ngrams: CharNgrams) -> Array:
        num_ngrams = np.diff(char_ngrams.offsets)
        means_WD = np.zeros((len(num_ngrams), self.architecture.d_model), dtype=np.float32)

        (words_with_ngrams,) = np.nonzero(num_ngrams)
        if len(words_with_ngrams):
            buckets = char_ngrams.ngrams.astype(np.int64) % self.architecture.char_ngram_buckets
            vectors = self._rows("char_ngrams.table", buckets)
            sums = np.add.reduceat(vectors, char_ngrams.offsets[words_with_ngrams], axis=0)
            counts = num_ngrams[words_with_ngrams, None].astype(np.float32)
            means_WD[words_with_ngrams] = sums / counts
        return means_WD

    def _attention(
        self, layer: str, x_BTD: Array, mask_BT: NDArray[np.bool_], maps: list[Array] | None
    ) -> Array:
        """softmax(Q K^T / sqrt(K)) V in each head (Vaswani et al., 2017, section 3.2)."""
        batch_size, num_tokens, _ = x_BTD.shape
        num_heads = self.architecture.num_heads

        # Compute the queries, keys and values of each head.
        qkv = self._linear(f"{layer}.attention.qkv_proj", x_BTD)
        qkv_BT3HK = qkv.reshape(batch_size, num_tokens, 3, num_heads, -1)
        q_BHTK, k_BHTK, v_BHTK = qkv_BT3HK.transpose(2, 0, 3, 1, 4)

        scores_BHTT = q_BHTK @ k_BHTK.swapaxes(-2, -1)
        scores_BHTT *= np.float32(1 / math.sqrt(q_BHTK.shape[-1]))

        # The softmax gives a weight of exactly 0 to a score of -inf.
        if not mask_BT.all():
            masked_BT = np.where(mask_BT, np.float32(0), np.float32(-np.inf))
            scores_BHTT += masked_BT[:, None, None, :]

        # Compute the softmax in place. The maximum is subtracted so that no exponential overflows.
        scores_BHTT -= scores_BHTT.max(axis=-1, keepdims=True)
        weights_BHTT = np.exp(scores_BHTT, out=scores_BHTT)
        weights_BHTT /= weights_BHTT.sum(axis=-1, keepdims=True)
        if maps is not None:
            maps.append(weights_BHTT)

        # Compute the weighted mean of the values, and join the features of all heads.
        mixed_BTHK = (weights_BHTT @ v_BHTK).swapaxes(1, 2)
        return self._linear(f"{layer}.attention.out_proj", mixed_BTHK.reshape(x_BTD.shape))

    def _feed_forward(self, layer: str, x_BTD: Array) -> Array:
        inner = self._linear(f"{layer}.feed_forward.up_proj", x_BTD)
        if self.architecture.activation == "relu":
            inner = np.maximum(inner, 0, out=inner)
        else:
            inner = _gelu(inner)
        return self._linear(f"{layer}.feed_forward.down_proj", inner)

    def _rows(self, table: str, indices: NDArray[np.int64]) -> Array:
        return self._tables[f"encoder.embedding.{table}.weight"].take(indices)

    def _linear(self, name: str, x: Array) -> Array:
        weight = self._weights[f"{name}.weight"]

        # NumPy multiplies a tensor of three axes matrix by matrix, which takes three times as long
        # as multiplying a single matrix that has the rows of all of them.
        rows = x.reshape(-1, x.shape[-1])
        product: Array = rows @ weight.T
        product += self._weights[f"{name}.bias"]
        return product.reshape(*x.shape[:-1], len(weight))

    def _norm(self, name: str, x: Array) -> Array:
        """Ba et al., "Layer Normalization" (2016), https://arxiv.org/abs/1607.06450."""
        centered: Array = x - x.mean(axis=-1, keepdims=True)

        sums_of_squares = np.einsum("...d,...d->...", centered, centered)[..., None]
        variance = sums_of_squares / np.float32(x.shape[-1])
        centered /= np.sqrt(variance + np.float32(NORM_EPSILON))

        centered *= self._weights[f"{name}.weight"]
        centered += self._weights[f"{name}.bias"]
        return centered


def _without_features(x_BTD: Array, positions_BT: NDArray[np.int64] | None) -> Array:
    """Set the vectors of features, whose position is -1, to 0."""
    if positions_BT is None:
        return x_BTD
    return x_BTD * (positions_BT >= 0)[:, :, None]


def _positions(architecture: EncoderArchitecture, weights: Mapping[str, Array]) -> Array | None:
    """The vectors of positions, as in `transformer.PositionalEncoding`, if there are any."""
    if architecture.positions == "none":
        return None
    if architecture.positions == "learned":
        return weights["encoder.embedding.positions.weight"]

    # One frequency for each pair of features, from 1 down to nearly 1 / 10,000.
    features = np.arange(0, architecture.d_model, 2)
    frequencies = np.exp(features * (-math.log(10_000) / architecture.d_model))

    # Features alternate: the sine of an angle, then its cosine.
    angles = np.arange(architecture.max_seq_len)[:, None] * frequencies
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    table_TD = pairs.reshape(len(angles), -1).astype(np.float32)

    scale = weights["encoder.embedding.positions.scale"]
    return np.asarray(table_TD * scale, dtype=np.float32)


# The coefficients of an approximation of the error function: formula 7.1.26 of Abramowitz and
# Stegun, "Handbook of Mathematical Functions" (1964). Its error is at most 1.5e-7.
ERROR_FUNCTION_SCALE = 0.3275911
ERROR_FUNCTION_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


# The number of values whose GELU is computed at a time. They stay in the cache of a processor from
# one step to the next; many more values take three times as long.
GELU_BLOCK = 1 << 15


def _gelu(x: Array) -> Array:
    """GELU: x * Phi(x), by Hendrycks and Gimpel (2016), https://arxiv.org/abs/1606.08415."""
    values = x.reshape(-1)
    result = np.empty_like(values)
    for start in range(0, len(values), GELU_BLOCK):
        block = slice(start, start + GELU_BLOCK)
        result[block] = _gelu_of_block(values[block])
    return result.reshape(x.shape)


def _gelu_of_block(x: Array) -> Array:
    # Compute 1 - erf(z) for z = |x| / sqrt(2): it is a polynomial of t = 1 / (1 + p z), where p is
    # the scale above, times exp(-z^2). Arrays are changed in place, because to allocate new ones
    # would take most of the time.
    magnitude = np.abs(x)
    t = magnitude * np.float32(ERROR_FUNCTION_SCALE * math.sqrt(0.5))
    t += 1
    np.divide(1, t, out=t)

    first, *other_coefficients = ERROR_FUNCTION_COEFFICIENTS
    complement = t * np.float32(first)
    for coefficient in other_coefficients:
        complement += np.float32(coefficient)
        complement *= t

    exponential = np.multiply(x, x, out=t)
    exponential *= np.float32(-0.5)
    complement *= np.exp(exponential, out=exponential)

    # x * Phi(x) is max(x, 0) - |x| * (1 - erf(z)) / 2, for both signs of x.
    complement *= magnitude
    complement *= np.float32(-0.5)
    complement += np.maximum(x, 0, out=magnitude)
    return complement
