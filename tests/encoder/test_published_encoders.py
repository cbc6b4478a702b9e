"""`Encoder` computes what five published encoders compute, and `Decoder` what a published one does.

They are written out here in plain tensors, with weights in the form in which their authors keep
them; `fold` turns these into the state dict of `Encoder`. Where they differ, the difference goes:

    embedding times sqrt(d_model)           -> into the embedding
    a score scale other than 1 / sqrt(d_k)  -> into the query projection
    fused or separate q, k, v               -> a reshape
    no bias                                 -> a zero bias
    one gain for all features               -> a constant vector
    the unbiased standard deviation         -> a factor sqrt((d - 1) / d) on the gain
    norm before or after, activation        -> `ModelConfig`

Where a norm adds its epsilon makes a difference below the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from torch import Tensor, nn

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.transformer import Decoder, Encoder, EncoderClassifier, InputEmbedding

# Sizes, with the letters of `transformer`: texts, tokens, d_model, heads.
B = 5
T = 11
D = 32
H = 4
# Tokens of the memory that a decoder attends to.
S = 7
# Layers.
L = 3
# The width of a head.
K = D // H
# The width inside the feed-forward network, which only E prescribes.
F = 4 * D

VOCAB_SIZE = 50
NUM_CLASSES = 7

# The standard deviation of the weights of linear maps: attention is far from uniform.
STD = 0.3
# The largest absolute difference, in float32.
TOLERANCE = 1e-5

WeightAndBias = tuple[Tensor, Tensor]
"""The weight and the bias of a linear map, or the gain and the bias of a norm."""

Weights = dict[str, Any]
"""Tensors or pairs of them by name; `layers` is a list of such dicts."""

Norm = Callable[[Tensor, WeightAndBias], Tensor]

Module = TypeVar("Module", bound=nn.Module)

with_every_seed = pytest.mark.parametrize("seed", range(2))


# --- The published encoders -----------------------------------------------------------------------


def layer_norm(x: Tensor, gain_and_bias: WeightAndBias) -> Tensor:
    """LayerNorm, with the biased variance, and epsilon inside the root; gain and bias are (D,)."""
    gain, bias = gain_and_bias
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return gain * centred / (variance + 1e-5).sqrt() + bias


def std_norm(correction: int) -> Norm:
    """The norm by a standard deviation, with epsilon outside the root."""

    def norm(x: Tensor, gain_and_bias: WeightAndBias) -> Tensor:
        """Normalize vectors; gain and bias are (D,) or (1,)."""
        gain, bias = gain_and_bias
        centred = x - x.mean(-1, keepdim=True)
        deviation = x.std(-1, keepdim=True, correction=correction)
        return gain * centred / (deviation + 1e-6) + bias

    return norm


@dataclass(frozen=True)
class Published:
    """The choices of a published encoder.

    Attributes:
        norm: the norm of vectors.
        is_pre_norm: whether norms come before the sublayers, and one more at the end.
        norm_size: the number of gains and of biases of a norm.
        gain_factor: turns a gain into that of a norm by the biased standard deviation.
        embedding_factor: the factor of the vectors of tokens.
        is_fused: whether one map gives q, k and v, those of each head side by side.
        has_bias: whether the maps of attention have a bias.
        score_width: scores are divided by its root.
        padding_score: the score of padding.
        activation: that of the feed-forward network.
    """

    norm: Norm = layer_norm
    is_pre_norm: bool = False
    norm_size: int = D
    gain_factor: float = 1.0
    embedding_factor: float = 1.0
    is_fused: bool = False
    has_bias: bool = True
    score_width: int = K
    padding_score: float = -1e9
    activation: str = "relu"

    def config(self) -> ModelConfig:
        """The config of `Encoder`, which has no tables of n-grams and pairs, as published ones."""
        return ModelConfig(
            d_model=D,
            num_heads=H,
            num_layers=L,
            d_ff=F,
            # Longer texts are allowed than there are.
            max_seq_len=2 * T,
            char_ngram_buckets=0,
            bigram_buckets=0,
            norm="pre" if self.is_pre_norm else "post",
            activation=self.activation,
        )


A = Published(
    norm=std_norm(1),
    is_pre_norm=True,
    norm_size=1,
    gain_factor=math.sqrt((D - 1) / D),
    embedding_factor=math.sqrt(D),
)
# C has a head on the mean of B's vectors.
B_AND_C = Published(padding_score=-math.inf)
# The sequence embedding of D has a token embedding of its own, which is read here as that of
# Vaswani et al. (2017).
FUSED_D = Published(
    norm=std_norm(0),
    embedding_factor=math.sqrt(D),
    is_fused=True,
    padding_score=-math.inf,
)
# As published, q and k are each divided by d_model^(1/4), and the GELU is the exact one.
E = Published(has_bias=False, score_width=D, padding_score=-math.inf, activation="gelu")


# --- Random weights and texts ---------------------------------------------------------------------


class Texts(NamedTuple):
    """Token ids, also on padding, and a mask that is True on real tokens, both (B, T)."""

    ids: Tensor
    mask: Tensor


class Draw:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int) -> Tensor:
        return STD * torch.randn(*shape, generator=self.generator)

    def linear(self, inputs: int, outputs: int, *, has_bias: bool = True) -> WeightAndBias:
        weight = self.tensor(outputs, inputs)
        bias = torch.zeros(outputs)
        if has_bias:
            bias = self.tensor(outputs)
        return weight, bias

    def norm(self, size: int) -> WeightAndBias:
        gain = 1 + self.tensor(size)
        bias = self.tensor(size)
        return gain, bias

    def attention(self, published: Published) -> Weights:
        output_sizes = {"q": D, "k": D, "v": D, "out": D}
        if published.is_fused:
            output_sizes = {"qkv": 3 * D, "out": D}

        weights: Weights = {}
        for name, size in output_sizes.items():
            weights[name] = self.linear(D, size, has_bias=published.has_bias)
        weights["attention_norm"] = self.norm(published.norm_size)
        return weights

    def layer(self, published: Published) -> Weights:
        """The weights of a layer; in a decoder, its self-attention has those named `own`."""
        weights = self.attention(published)
        weights["up"] = self.linear(D, F)
        weights["down"] = self.linear(F, D)
        weights["feed_forward_norm"] = self.norm(published.norm_size)
        weights["own"] = self.attention(published)
        return weights

    def model(self, published: Published) -> Weights:
        layers = [self.layer(published) for _ in range(L)]

        # The standard deviation of a new `nn.Embedding`. In vectors much smaller than that, it
        # would matter where a norm adds its epsilon.
        embedding = torch.randn(VOCAB_SIZE, D, generator=self.generator)
        return {
            "embedding": embedding,
            "layers": layers,
            "final_norm": self.norm(published.norm_size),
        }

    def texts(self) -> Texts:
        """Texts of which the first one is full and the others have 1 to T - 1 tokens."""
        ids = torch.randint(VOCAB_SIZE, (B, T), generator=self.generator)
        lengths = torch.randint(1, T, (B, 1), generator=self.generator)
        lengths[0] = T
        return Texts(ids, torch.arange(T) < lengths)


# --- What the published models compute ------------------------------------------------------------


def positions() -> Tensor:
    """Sinusoids, (T, D).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) is the cosine of the same.
    """
    table = torch.empty(T, D)
    for position in range(T):
        for pair in range(D // 2):
            angle = position / 10_000 ** (2 * pair / D)
            table[position, 2 * pair] = math.sin(angle)
            table[position, 2 * pair + 1] = math.cos(angle)
    return table


def linear(x: Tensor, weight_and_bias: WeightAndBias) -> Tensor:
    """A linear map, whose weight is (outputs, inputs)."""
    weight, bias = weight_and_bias
    return x @ weight.T + bias


def split_heads(x: Tensor) -> Tensor:
    """Split features among the heads, (B, H, T, K): head h has those from h * K on."""
    return torch.stack(x.split(K, dim=-1), dim=1)


def queries_keys_values(
    published: Published, layer: Weights, x: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of `x`, and keys and values of a memory, each (B, H, ., K)."""
    if published.is_fused:
        fused = linear(x, layer["qkv"]).reshape(B, T, H, 3 * K).transpose(1, 2)
        q, k, v = fused.split(K, dim=-1)
        return q, k, v

    q = split_heads(linear(x, layer["q"]))
    k = split_heads(linear(memory, layer["k"]))
    v = split_heads(linear(memory, layer["v"]))
    return q, k, v


def attend(
    published: Published, layer: Weights, x: Tensor, memory: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Let `x` attend to a memory.

    Returns:
        The mixed values, (B, T, D), and the attention maps, (B, H, T, .). The mask is (B, 1, ., .).
    """
    q, k, v = queries_keys_values(published, layer, x, memory)

    scores = q @ k.mT / math.sqrt(published.score_width)
    maps = scores.masked_fill(mask == 0, published.padding_score).softmax(-1)

    heads = (maps @ v).unbind(1)
    return linear(torch.cat(heads, dim=-1), layer["out"]), maps


def feed_forward(published: Published, layer: Weights, x: Tensor) -> Tensor:
    hidden = linear(x, layer["up"])
    if published.activation == "relu":
        activated = hidden.clamp(min=0)
    else:
        activated = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return linear(activated, layer["down"])


def encode(published: Published, weights: Weights, texts: Texts) -> tuple[Tensor, Tensor]:
    """The vectors of tokens, (B, T, D), and the attention maps, (L, B, H, T, T)."""
    norm = published.norm
    mask = texts.mask[:, None, None, :]

    x = weights["embedding"][texts.ids] * published.embedding_factor + positions()
    maps_of_layers = []
    for layer in weights["layers"]:
        attention_norm = layer["attention_norm"]
        feed_forward_norm = layer["feed_forward_norm"]

        if published.is_pre_norm:
            normed = norm(x, attention_norm)
            attended, maps = attend(published, layer, normed, normed, mask)
            x = x + attended
            x = x + feed_forward(published, layer, norm(x, feed_forward_norm))
        else:
            attended, maps = attend(published, layer, x, x, mask)
            x = norm(x + attended, attention_norm)
            x = norm(x + feed_forward(published, layer, x), feed_forward_norm)
        maps_of_layers.append(maps)

    if published.is_pre_norm:
        x = norm(x, weights["final_norm"])
    return x, torch.stack(maps_of_layers)


def decode_e(weights: Weights, texts: Texts, memory: Tensor, memory_mask: Tensor) -> Tensor:
    """The vectors of the decoder of E, (B, T, D).

    Causal self-attention is followed by a block of E that attends to the encoder's vectors.

    As published, the residual sum of the second attention adds its key: the encoder's vectors,
    which would have to be as many, in place of the decoder's own. Here it adds the query. A map to
    tokens follows, which has the weights of the embedding here, and its own ones as published.
    """
    causal_mask = torch.ones(T, T).tril() * texts.mask[:, None, None, :]

    x = weights["embedding"][texts.ids] + positions()
    for layer in weights["layers"]:
        own = layer["own"]
        attended, _ = attend(E, own, x, x, causal_mask)
        x = layer_norm(x + attended, own["attention_norm"])

        attended, _ = attend(E, layer, x, memory, memory_mask[:, None, None, :])
        x = layer_norm(x + attended, layer["attention_norm"])

        x = layer_norm(x + feed_forward(E, layer, x), layer["feed_forward_norm"])
    return x


# --- Their weights as those of `Encoder` ----------------------------------------------------------


def named(path: str, weight_and_bias: WeightAndBias) -> dict[str, Tensor]:
    weight, bias = weight_and_bias
    return {f"{path}.weight": weight, f"{path}.bias": bias}


def fold_norm(published: Published, gain_and_bias: WeightAndBias) -> WeightAndBias:
    """Make gain and bias, (D,) or (1,), those of a LayerNorm, (D,)."""
    gain, bias = gain_and_bias
    return published.gain_factor * gain.expand(D), bias.expand(D)


def join_fused(tensor: Tensor) -> Tensor:
    """Order rows by q, k, v and then by head; they come by head and then by q, k, v."""
    return tensor.unflatten(0, (H, 3, K)).transpose(0, 1).flatten(0, 2)


def fold_queries_keys_values(published: Published, layer: Weights) -> WeightAndBias:
    """Join q, k and v to one map of (3D, D), whose scores are divided by sqrt(d_k)."""
    if published.is_fused:
        weight, bias = layer["qkv"]
        return join_fused(weight), join_fused(bias)

    query_factor = math.sqrt(K / published.score_width)
    q_weight, q_bias = layer["q"]
    k_weight, k_bias = layer["k"]
    v_weight, v_bias = layer["v"]
    weight = torch.cat([query_factor * q_weight, k_weight, v_weight])
    bias = torch.cat([query_factor * q_bias, k_bias, v_bias])
    return weight, bias


def fold_attention(published: Published, layer: Weights, path: str) -> dict[str, Tensor]:
    norm = fold_norm(published, layer["attention_norm"])
    state = named(f"{path}.qkv_proj", fold_queries_keys_values(published, layer))
    state |= named(f"{path}.out_proj", layer["out"])
    return state | named(f"{path}_norm", norm)


def fold_feed_forward(published: Published, layer: Weights, path: str) -> dict[str, Tensor]:
    norm = fold_norm(published, layer["feed_forward_norm"])
    state = named(f"{path}.up_proj", layer["up"])
    state |= named(f"{path}.down_proj", layer["down"])
    return state | named(f"{path}_norm", norm)


def fold_embedding(published: Published, weights: Weights) -> dict[str, Tensor]:
    # The published sinusoids are added at full size, which is the scale 1.
    return {
        "tokens.weight": published.embedding_factor * weights["embedding"],
        "positions.scale": torch.tensor(1.0),
    }


def with_prefix(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def fold(published: Published, weights: Weights) -> dict[str, Tensor]:
    """The state dict of `Encoder`."""
    state = with_prefix("embedding", fold_embedding(published, weights))
    for number, layer in enumerate(weights["layers"]):
        state |= fold_attention(published, layer, f"layers.{number}.attention")
        state |= fold_feed_forward(published, layer, f"layers.{number}.feed_forward")
    if published.is_pre_norm:
        state |= named("final_norm", fold_norm(published, weights["final_norm"]))
    return state


def loaded(module: Module, state: dict[str, Tensor]) -> Module:
    """Load all weights of a module, and switch dropout off."""
    module.load_state_dict(state, strict=True)
    return module.eval()


# --- The tests ------------------------------------------------------------------------------------


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


@with_every_seed
@pytest.mark.parametrize("published", [A, B_AND_C, FUSED_D, E], ids=["a", "b", "d", "e"])
@torch.no_grad()
def test_the_encoder_equals_published_ones(seed: int, published: Published) -> None:
    """The vectors of real tokens are equal, and what they attend to."""
    draw = Draw(seed)
    weights = draw.model(published)
    texts = draw.texts()
    expected_vectors, expected_maps = encode(published, weights, texts)

    encoder = loaded(Encoder(published.config(), vocab_size=VOCAB_SIZE), fold(published, weights))
    vectors = encoder(*texts)
    maps = encoder.attention_maps(*texts)

    assert_equal(vectors[texts.mask], expected_vectors[texts.mask])
    # Select the tokens that attend, in the third dimension of maps.
    maps_of_tokens = maps.transpose(2, 3)[:, texts.mask]
    assert_equal(maps_of_tokens, expected_maps.transpose(2, 3)[:, texts.mask])


@with_every_seed
@torch.no_grad()
def test_the_classifier_equals_c(seed: int) -> None:
    """C has the mean over the real tokens, a linear map and a log-softmax."""
    draw = Draw(seed)
    weights = draw.model(B_AND_C)
    head = draw.linear(D, NUM_CLASSES)
    texts = draw.texts()

    vectors, _ = encode(B_AND_C, weights, texts)
    means = torch.stack([vectors[row, texts.mask[row]].mean(0) for row in range(B)])
    expected_logits = linear(means, head)
    expected = expected_logits - expected_logits.exp().sum(-1, keepdim=True).log()

    state = with_prefix("encoder", fold(B_AND_C, weights)) | named("head.linear", head)
    classifier = EncoderClassifier(B_AND_C.config(), vocab_size=VOCAB_SIZE, num_classes=NUM_CLASSES)
    logits = loaded(classifier, state)(*texts)

    assert_equal(logits.log_softmax(dim=-1), expected)


@with_every_seed
@torch.no_grad()
def test_the_decoder_equals_that_of_e(seed: int) -> None:
    """It gives the same vectors and scores of tokens; the encoder's vectors have other lengths."""
    draw = Draw(seed)
    weights = draw.model(E)
    texts = draw.texts()
    memory = torch.randn(B, S, D, generator=draw.generator)
    memory_mask = torch.arange(S) < torch.arange(1, B + 1)[:, None]
    expected = decode_e(weights, texts, memory, memory_mask)[texts.mask]

    state: dict[str, Tensor] = {}
    for number, layer in enumerate(weights["layers"]):
        state |= fold_attention(E, layer["own"], f"layers.{number}.attention")
        state |= fold_attention(E, layer, f"layers.{number}.cross_attention")
        state |= fold_feed_forward(E, layer, f"layers.{number}.feed_forward")
    decoder = loaded(Decoder(E.config(), num_layers=L), state)
    embedding = loaded(
        InputEmbedding(E.config(), vocab_size=VOCAB_SIZE), fold_embedding(E, weights)
    )

    x = embedding(texts.ids, None)
    vectors = decoder(x, texts.mask, memory, memory_mask)[texts.mask]
    scores = embedding.token_scores(vectors, torch.arange(VOCAB_SIZE))

    assert_equal(vectors, expected)
    # A score is the sum of D products, whose rounding adds up.
    expected_scores = expected @ weights["embedding"].T
    assert_equal(scores / D, expected_scores / D)
