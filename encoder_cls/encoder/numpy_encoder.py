"""The encoder in NumPy, which computes a few texts itself and leaves many to PyTorch.

Suffixes of names are shapes: B batch, T tokens, D d_model, H heads, K width of a head, C classes, W distinct words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.encoder.architecture import Batch, Encoder, EncoderArchitecture, compute_rows, pad
from encoder_cls.errors import ConfigError
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.machine import is_installed, log, needs_torch
from encoder_cls.text.tokens import PAD_ID, PAIR_MULTIPLIER, CharNgrams, TokenizedTexts
from encoder_cls.weights import Weight, as_table, dense, is_table

if TYPE_CHECKING:
    from encoder_cls.encoder.torch_encoder import TorchEncoder

Array = NDArray[np.float32]

BATCH_TOKENS = 1024  # fit a processor's caches: with twice as many, a text takes a half longer
NORM_EPSILON = 1e-5  # that of torch.nn.LayerNorm
# Multiplications from which PyTorch is quicker, its import of one to two seconds included (docs/results.md).
BREAK_EVEN = 6e10
ENGINES = ("auto", "numpy", "torch")


class NumpyEncoder:
    """The encoder with its head; of tables, only rows in use are expanded.

    With a `torch_device`, PyTorch on that device computes the texts of a call that are much work, unless
    `choose_engine` has chosen the library for all calls. The work chooses, not what came before, so that equal calls
    have equal results. `batch_tokens` of its methods is the most tokens in a batch, padding included; by default a
    number that is fast on the device.

    Args:
        weights: as in `EncoderArchitecture.weight_shapes`.
    """

    def __init__(
        self,
        architecture: EncoderArchitecture,
        weights: Mapping[str, Weight],
        *,
        torch_device: str | None = None,
    ) -> None:
        self.architecture = architecture
        self._torch_device = torch_device
        self._torch: TorchEncoder | None = None
        self._chosen: str | None = None  # the library of all calls; None: each call has its own
        self._tables = {
            name: as_table(weight) for name, weight in weights.items() if is_table(name)
        }
        self._weights: dict[str, Array] = dense(
            {name: it for name, it in weights.items() if not is_table(name)}
        )
        self._positions = _positions(architecture, self._weights)

    @property
    def engine(self) -> str:
        """The library that was chosen for all calls; NumPy if none was."""
        return self._chosen or "numpy"

    def choose_engine(self, num_tokens: int) -> None:
        """Choose the library for a stream of texts, about so many tokens in all, which comes in several calls."""
        max_seq_len = self.architecture.max_seq_len
        lengths = np.full(math.ceil(num_tokens / max_seq_len), max_seq_len)
        self._chosen = self._engine_for(lengths)

    def named_weights(self) -> dict[str, Array]:
        """The weights by name."""
        return dense(self._tables) | self._weights

    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Logits, (texts, classes)."""
        if torch := self._torch_for(texts):
            return torch.logits(texts, batch_tokens=batch_tokens)

        def logits(batch: Batch) -> Array:
            return self._linear("head.linear", self._pooled(batch))

        width = len(self._weights["head.linear.bias"])
        return compute_rows(texts, logits, width=width, batch_tokens=batch_tokens or BATCH_TOKENS)

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Array:
        """The vectors that the head reads, (texts, d_model), always float32."""
        if torch := self._torch_for(texts):
            return torch.embed(texts, batch_tokens=batch_tokens)
        width = self.architecture.d_model
        return compute_rows(
            texts, self._pooled, width=width, batch_tokens=batch_tokens or BATCH_TOKENS
        )

    def attention_maps(self, texts: TokenizedTexts) -> Array:
        """The attention weights in one text, (layers, heads, T, T): [layer, head, looking, looked at]."""
        maps: list[Array] = []
        self._encode(pad(texts, np.array([0])), maps)
        return np.concatenate(maps)

    def torch(self) -> TorchEncoder:
        """This encoder in PyTorch; a `ConfigError` if the device does not exist."""
        from encoder_cls.encoder.torch_encoder import TorchEncoder

        if self._torch is None:  # without a lock: two threads may each make one, of equal answers
            device = self._torch_device or "cpu"
            log("debug", "engine: PyTorch")
            self._torch = TorchEncoder.from_weights(
                self.architecture, self.named_weights(), device=device
            )
        return self._torch

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its own from the weights.
        return self.__dict__ | {"_torch": None}

    def _engine_for(self, lengths: NDArray[np.int64]) -> str:
        """The library that is quicker for texts of these lengths, (texts,)."""
        work = multiplications(self.architecture, lengths)
        has_torch = self._torch_device is not None and is_installed("torch")
        return "torch" if has_torch and work > BREAK_EVEN else "numpy"

    def _torch_for(self, texts: TokenizedTexts) -> TorchEncoder | None:
        """The encoder in PyTorch, if that computes these texts."""
        engine = self._chosen or self._engine_for(texts.lengths)
        # A copy may have come to a machine without PyTorch.
        if engine == "torch" and is_installed("torch"):
            return self.torch()
        return None

    def _pooled(self, batch: Batch) -> Array:
        """The mean of the vectors on real tokens, (B, D)."""
        mask_BT = batch.attention_mask
        means_BD: Array = np.einsum("btd,bt->bd", self._encode(batch), mask_BT.astype(np.float32))
        means_BD /= mask_BT.sum(axis=1, keepdims=True).astype(np.float32)
        return means_BD

    def _encode(self, batch: Batch, maps: list[Array] | None = None) -> Array:
        """Vectors of tokens, (B, T, D); attention weights, (B, H, T, T), are appended to `maps`, if given."""
        x_BTD = self._embed(batch)
        pre_norm = self.architecture.norm == "pre"
        for number in range(self.architecture.num_layers):
            layer = f"encoder.layers.{number}"
            if pre_norm:
                x_BTD += self._attention(
                    layer, self._norm(f"{layer}.attention_norm", x_BTD), batch, maps
                )
                x_BTD += self._feed_forward(layer, self._norm(f"{layer}.feed_forward_norm", x_BTD))
            else:
                attended_BTD = self._attention(layer, x_BTD, batch, maps)
                x_BTD = self._norm(f"{layer}.attention_norm", x_BTD + attended_BTD)
                x_BTD = self._norm(
                    f"{layer}.feed_forward_norm", x_BTD + self._feed_forward(layer, x_BTD)
                )
        return self._norm("encoder.final_norm", x_BTD) if pre_norm else x_BTD

    def _embed(self, batch: Batch) -> Array:
        """Sum the vectors of the tokens, their character n-grams, neighbours and positions, (B, T, D)."""
        x_BTD: Array = self._rows("tokens", batch.input_ids)
        if self.architecture.char_ngram_buckets:
            x_BTD += self._mean_of_ngrams(batch.char_ngrams)[batch.words]
        if self.architecture.bigram_buckets:
            previous_BT = np.pad(batch.input_ids[:, :-1], ((0, 0), (1, 0)), constant_values=PAD_ID)
            pairs_BT = (
                previous_BT * PAIR_MULTIPLIER + batch.input_ids
            ) % self.architecture.bigram_buckets
            x_BTD += self._rows("bigrams.table", pairs_BT)
        if self._positions is not None:
            x_BTD += self._positions[: x_BTD.shape[1]]
        return x_BTD

    def _rows(self, table: str, indices: NDArray[np.int64]) -> Array:
        return self._tables[f"encoder.embedding.{table}.weight"].take(indices)

    def _mean_of_ngrams(self, char_ngrams: CharNgrams) -> Array:
        """The mean of the vectors of each word's character n-grams, (W, D); 0 of a word without any."""
        buckets = char_ngrams.ngrams.astype(np.int64) % self.architecture.char_ngram_buckets
        counts = np.diff(char_ngrams.offsets)
        means_WD = np.zeros((len(counts), self.architecture.d_model), dtype=np.float32)
        (filled,) = np.nonzero(counts)
        if len(filled):
            sums = np.add.reduceat(
                self._rows("char_ngrams.table", buckets), char_ngrams.offsets[filled], axis=0
            )
            means_WD[filled] = sums / counts[filled, None].astype(np.float32)
        return means_WD

    def _attention(self, layer: str, x_BTD: Array, batch: Batch, maps: list[Array] | None) -> Array:
        """Compute softmax(Q K^T / sqrt(K)) V of each head; padding has the weight 0 (Vaswani et al., 2017, 3.2)."""
        batch_size, tokens, _ = x_BTD.shape
        qkv = self._linear(f"{layer}.attention.qkv_proj", x_BTD)
        qkv_BT3HK = qkv.reshape(batch_size, tokens, 3, self.architecture.num_heads, -1)
        q_BHTK, k_BHTK, v_BHTK = qkv_BT3HK.transpose(2, 0, 3, 1, 4)
        scores_BHTT = q_BHTK @ k_BHTK.swapaxes(-2, -1)
        scores_BHTT *= np.float32(1 / math.sqrt(q_BHTK.shape[-1]))
        if not batch.attention_mask.all():
            scores_BHTT += np.where(batch.attention_mask, np.float32(0), np.float32(-np.inf))[
                :, None, None, :
            ]
        scores_BHTT -= scores_BHTT.max(axis=-1, keepdims=True)
        weights_BHTT = np.exp(scores_BHTT, out=scores_BHTT)
        weights_BHTT /= weights_BHTT.sum(axis=-1, keepdims=True)
        if maps is not None:
            maps.append(weights_BHTT)
        mixed_BTHK = (weights_BHTT @ v_BHTK).swapaxes(1, 2)
        return self._linear(f"{layer}.attention.out_proj", mixed_BTHK.reshape(x_BTD.shape))

    def _feed_forward(self, layer: str, x_BTD: Array) -> Array:
        inner = self._linear(f"{layer}.feed_forward.up_proj", x_BTD)
        inner = (
            np.maximum(inner, 0, out=inner)
            if self.architecture.activation == "relu"
            else _gelu(inner)
        )
        return self._linear(f"{layer}.feed_forward.down_proj", inner)

    def _linear(self, name: str, x: Array) -> Array:
        product: Array = x @ self._weights[f"{name}.weight"].T
        product += self._weights[f"{name}.bias"]
        return product

    def _norm(self, name: str, x: Array) -> Array:
        """Layer normalization (Ba et al., 2016, https://arxiv.org/abs/1607.06450) over the last axis."""
        centred: Array = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("...d,...d->...", centred, centred)[..., None] / np.float32(
            x.shape[-1]
        )
        centred /= np.sqrt(variance + np.float32(NORM_EPSILON))
        centred *= self._weights[f"{name}.weight"]
        centred += self._weights[f"{name}.bias"]
        return centred


def _positions(architecture: EncoderArchitecture, weights: Mapping[str, Array]) -> Array | None:
    """The vectors of positions, (max_seq_len, D): learned, or those of Vaswani et al. (2017), section 3.5, scaled."""
    if architecture.positions == "learned":
        return weights["encoder.embedding.positions.weight"]
    if architecture.positions == "none":
        return None
    frequency = np.exp(
        np.arange(0, architecture.d_model, 2) * (-math.log(10_000) / architecture.d_model)
    )
    angles = np.arange(architecture.max_seq_len)[:, None] * frequency
    table_TD = (
        np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        .reshape(len(angles), -1)
        .astype(np.float32)
    )
    return np.asarray(table_TD * weights["encoder.embedding.positions.scale"], dtype=np.float32)


def _gelu(x: Array) -> Array:
    """X times the probability that a normal variable is below it (Hendrycks and Gimpel, 2016, arXiv 1606.08415).

    The error function is formula 7.1.26 of Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), whose
    error is 1.5e-7 at most.
    """
    z = np.abs(x)
    z *= np.float32(1 / math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    polynomial = np.full_like(t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial *= t
        polynomial += np.float32(coefficient)
    polynomial *= t
    np.multiply(z, z, out=z)
    np.negative(z, out=z)
    polynomial *= np.exp(z, out=z)  # 1 - erf(|x| / sqrt(2))
    # x * Phi(x) is x / 2 + |x| erf / 2: one formula for both signs.
    result = np.asarray(0.5 - polynomial * np.float32(0.5), dtype=np.float32)
    result *= np.abs(x)
    result += np.float32(0.5) * x
    return result


def new_encoder(
    architecture: EncoderArchitecture, weights: Mapping[str, Weight], *, engine: str, device: str
) -> Encoder:
    """Make an encoder for one of the `ENGINES`; a `ConfigError` if the device or the library is missing."""
    is_cpu = device in {"auto", "cpu"}
    if engine == "numpy":
        if not is_cpu:
            raise ConfigError(f"--device {device}: the engine numpy computes on the cpu")
        return NumpyEncoder(architecture, weights)
    if engine == "auto" and is_cpu:
        return NumpyEncoder(architecture, weights, torch_device=device)
    if not is_installed("torch"):
        raise ConfigError(f"--engine {engine} --device {device}: {needs_torch()}")
    from encoder_cls.encoder.torch_encoder import TorchEncoder

    return TorchEncoder.from_weights(architecture, weights, device=device)


def multiplications(architecture: EncoderArchitecture, lengths: NDArray[np.int64]) -> float:
    """The number of multiplications of the layers for texts of these lengths, (texts,)."""
    by_token = sum(map(math.prod, architecture.linear_maps().values()))
    by_pair = 2 * architecture.d_model  # of tokens: scores, and their weighted sum
    tokens = lengths.astype(np.float64)
    return float(architecture.num_layers * (by_token * tokens.sum() + by_pair * (tokens**2).sum()))
