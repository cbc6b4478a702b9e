"""`Encoder` gives what each of five published encoders gives, and `Decoder` what the decoder of one of them gives.

They are written out here in plain tensors.

A reference (`encode_a` ...) takes weights in the form in which its authors keep them; a fold (`fold_a` ...)
turns them into the state dict of `Encoder`. Where the five differ, and where the difference goes:

    embedding times sqrt(d_model)           -> into the embedding
    a score scale other than 1 / sqrt(d_k)  -> into the query projection
    fused or separate q, k, v               -> a reshape
    no bias                                 -> a zero bias
    one gain for all features               -> a constant vector
    the unbiased standard deviation         -> a factor sqrt((d - 1) / d) on the gain
    norm before or after, activation        -> `ModelConfig`

Where a norm adds its epsilon is folded nowhere: it is lost in the tolerance.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from encoder_cls.config import ModelConfig
from encoder_cls.transformer import Decoder, Encoder, EncoderClassifier, InputEmbedding

B, T, D, H, L = 5, 11, 32, 4, 3  # batch, tokens, d_model, heads, layers
S = 7  # vectors that the decoder looks at
K = D // H  # width of a head
F = 4 * D  # width inside the feed-forward network; E fixes it, the others leave it open
VOCAB_SIZE, NUM_CLASSES = 50, 7
STD = 0.3  # of the linear maps' weights: large enough that attention is far from uniform
TOLERANCE = 1e-5  # absolute, in float32

Weights = dict[str, Any]  # name -> tensor or Pair; "layers" -> a list of such dicts
Pair = tuple[Tensor, Tensor]  # weight and bias of a linear map, or gain and bias of a norm

Module = TypeVar("Module", bound=nn.Module)

every_seed = pytest.mark.parametrize("seed", range(5))


class Draw:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int) -> Tensor:
        return STD * torch.randn(*shape, generator=self.generator)

    def linear(self, inputs: int, outputs: int) -> Pair:
        return self.tensor(outputs, inputs), self.tensor(outputs)

    def norm(self, size: int) -> Pair:
        return 1 + self.tensor(size), self.tensor(size)

    def separate(self) -> Weights:
        return {name: self.linear(D, D) for name in ("q", "k", "v", "out")}

    def model(self, attention: Callable[[], Weights], *, norm_size: int = D) -> Weights:
        """An embedding and layers, each with its own draw of `attention`."""
        layers = [
            attention()
            | {"up": self.linear(D, F), "down": self.linear(F, D)}
            | {"attention_norm": self.norm(norm_size), "feed_forward_norm": self.norm(norm_size)}
            for _ in range(L)
        ]
        # Standard deviation 1, as of a new nn.Embedding. In vectors much smaller than that, where a norm adds
        # its epsilon is no longer lost in the tolerance.
        embedding = torch.randn(VOCAB_SIZE, D, generator=self.generator)
        return {"embedding": embedding, "layers": layers}

    def texts(self) -> tuple[Tensor, Tensor]:
        """(B, T) ids, on padding too, and a mask: row 0 is full, the others have 1 to T - 1 real tokens."""
        ids = torch.randint(VOCAB_SIZE, (B, T), generator=self.generator)
        lengths = torch.randint(1, T, (B, 1), generator=self.generator)
        lengths[0] = T
        return ids, torch.arange(T) < lengths


def positions() -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos(the same), (T, D)."""
    table = torch.empty(T, D)
    for pos in range(T):
        for i in range(D // 2):
            angle = pos / 10_000 ** (2 * i / D)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table


def linear(x: Tensor, weight_and_bias: Pair) -> Tensor:
    weight, bias = weight_and_bias  # (out, in), (out,)
    return x @ weight.T + bias


def layer_norm(x: Tensor, gain_and_bias: Pair) -> Tensor:
    """LayerNorm: the biased variance, epsilon inside the root."""
    gain, bias = gain_and_bias  # (D,), (D,)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return gain * centred / (variance + 1e-5).sqrt() + bias


def std_norm(x: Tensor, gain_and_bias: Pair, *, unbiased: bool) -> Tensor:
    """The norm by a standard deviation, epsilon outside the root; gain and bias are (D,) or (1,)."""
    gain, bias = gain_and_bias
    std = x.std(-1, keepdim=True, correction=1 if unbiased else 0)
    return gain * (x - x.mean(-1, keepdim=True)) / (std + 1e-6) + bias


def heads(x: Tensor) -> Tensor:
    """(B, T, D) -> (B, H, T, K): head h has the features from h * K on."""
    return torch.stack(x.split(K, dim=-1), dim=1)


def mix(maps: Tensor, v: Tensor) -> Tensor:
    """(B, H, T, T) attention weights and (B, H, T, K) values -> (B, T, D), the heads side by side."""
    return torch.cat((maps @ v).unbind(1), dim=-1)


def draw_a(draw: Draw) -> Weights:
    return draw.model(draw.separate, norm_size=1) | {"final_norm": draw.norm(1)}


def encode_a(weights: Weights, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Embedding times sqrt(d_model), pre-norm and a final norm, scores on padding -1e9, ReLU."""
    x = weights["embedding"][ids] * math.sqrt(D) + positions()  # (B, T, D)
    all_maps = []
    for layer in weights["layers"]:
        normed = std_norm(x, layer["attention_norm"], unbiased=True)
        q, k, v = (heads(linear(normed, layer[name])) for name in ("q", "k", "v"))  # (B, H, T, K)
        scores = (q @ k.mT / math.sqrt(K)).masked_fill(mask[:, None, None, :] == 0, -1e9)
        maps = scores.softmax(-1)  # (B, H, T, T)
        x = x + linear(mix(maps, v), layer["out"])
        normed = std_norm(x, layer["feed_forward_norm"], unbiased=True)
        x = x + linear(linear(normed, layer["up"]).clamp(min=0), layer["down"])
        all_maps.append(maps)
    return std_norm(x, weights["final_norm"], unbiased=True), all_maps


def fold_a(weights: Weights) -> dict[str, Tensor]:
    def norm(gain_and_bias: Pair) -> Pair:
        gain, bias = gain_and_bias  # (1,), (1,)
        return math.sqrt((D - 1) / D) * gain.expand(D), bias.expand(D)

    layers = [
        side_by_side(layer) | {name: norm(layer[name]) for name in ("attention_norm", "feed_forward_norm")}
        for layer in weights["layers"]
    ]
    state = state_dict(math.sqrt(D) * weights["embedding"], layers)
    return state | named("final_norm", norm(weights["final_norm"]))


def draw_b(draw: Draw) -> Weights:
    return draw.model(draw.separate)


def encode_b(weights: Weights, ids: Tensor, mask: Tensor) -> Tensor:
    """Embedding as it is, LayerNorm after each residual sum, scores on padding -inf, ReLU."""
    x = weights["embedding"][ids] + positions()  # (B, T, D)
    for layer in weights["layers"]:
        q, k, v = (heads(linear(x, layer[name])) for name in ("q", "k", "v"))  # (B, H, T, K)
        scores = (q @ k.mT / math.sqrt(K)).masked_fill(mask[:, None, None, :] == 0, -math.inf)
        x = layer_norm(x + linear(mix(scores.softmax(-1), v), layer["out"]), layer["attention_norm"])
        hidden = linear(x, layer["up"]).clamp(min=0)
        x = layer_norm(x + linear(hidden, layer["down"]), layer["feed_forward_norm"])
    return x


def fold_b(weights: Weights) -> dict[str, Tensor]:
    return state_dict(weights["embedding"], [side_by_side(layer) for layer in weights["layers"]])


def draw_c(draw: Draw) -> Weights:
    return draw_b(draw) | {"head": draw.linear(D, NUM_CLASSES)}


def classify_c(weights: Weights, ids: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real tokens of B's vectors, a linear map and a log-softmax, (B, C)."""
    x = encode_b(weights, ids, mask)  # (B, T, D)
    means = torch.stack([x[row, mask[row]].mean(0) for row in range(B)])  # (B, D)
    logits = linear(means, weights["head"])
    return logits - logits.exp().sum(-1, keepdim=True).log()


def fold_c(weights: Weights) -> dict[str, Tensor]:
    encoder = {f"encoder.{name}": tensor for name, tensor in fold_b(weights).items()}
    return encoder | named("head.linear", weights["head"])


def draw_d(draw: Draw) -> Weights:
    return draw.model(lambda: {"qkv": draw.linear(D, 3 * D), "out": draw.linear(D, D)})


def encode_d(weights: Weights, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Post-norm by the biased standard deviation, a mask that is added to the scores, ReLU.

    D's sequence embedding brings its own token embedding. It is read here as that of Vaswani et al. (2017),
    which multiplies by sqrt(d_model); without that factor the same fold holds, less one multiplication.
    """
    x = weights["embedding"][ids] * math.sqrt(D) + positions()  # (B, T, D)
    additive_mask = torch.zeros(B, 1, 1, T).masked_fill(~mask[:, None, None, :], -math.inf)
    all_maps = []
    for layer in weights["layers"]:
        qkv = linear(x, layer["qkv"]).reshape(B, T, H, 3 * K).transpose(1, 2)  # (B, H, T, 3K)
        q, k, v = qkv.split(K, dim=-1)  # (B, H, T, K)
        maps = (q @ k.mT / math.sqrt(K) + additive_mask).softmax(-1)  # (B, H, T, T)
        x = std_norm(x + linear(mix(maps, v), layer["out"]), layer["attention_norm"], unbiased=False)
        hidden = linear(x, layer["up"]).clamp(min=0)
        x = std_norm(x + linear(hidden, layer["down"]), layer["feed_forward_norm"], unbiased=False)
        all_maps.append(maps)
    return x, all_maps


def fold_d(weights: Weights) -> dict[str, Tensor]:
    def q_k_v_first(qkv: Tensor) -> Tensor:
        """Rows by head, then q, k, v -> rows by q, k, v, then head."""
        return qkv.unflatten(0, (H, 3, K)).transpose(0, 1).flatten(0, 2)

    layers = [layer | {"qkv": tuple(map(q_k_v_first, layer["qkv"]))} for layer in weights["layers"]]
    return state_dict(math.sqrt(D) * weights["embedding"], layers)


def draw_e(draw: Draw) -> Weights:
    return draw.model(lambda: {name: draw.tensor(D, D) for name in ("q", "k", "v", "out")})


def encode_e(weights: Weights, ids: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Post-norm, q and k each over d_model^(1/4), no bias in attention, the exact GELU, d_ff = 4 d_model."""
    x = weights["embedding"][ids] + positions()  # (B, T, D)
    for layer in weights["layers"]:
        x = block_e(layer, x, x, mask[:, None, None, :])
    return x, []


def block_e(layer: Weights, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Attention from `x` to a memory, which is `x` itself in an encoder, then feed-forward."""
    x = layer_norm(x + attend_e(layer, x, memory, mask), layer["attention_norm"])
    hidden = linear(x, layer["up"])
    hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return layer_norm(x + linear(hidden, layer["down"]), layer["feed_forward_norm"])


def attend_e(layer: Weights, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    q, k, v = heads(x @ layer["q"].T), heads(memory @ layer["k"].T), heads(memory @ layer["v"].T)  # (B, H, ., K)
    scores = (q / D**0.25) @ (k / D**0.25).mT
    return mix(scores.masked_fill(mask == 0, -math.inf).softmax(-1), v) @ layer["out"].T


def fold_e(weights: Weights) -> dict[str, Tensor]:
    return state_dict(weights["embedding"], [side_by_side(with_bias(layer)) for layer in weights["layers"]])


def with_bias(layer: Weights) -> Weights:
    # Encoder divides the scores by sqrt(d_k); this factor makes it sqrt(d_model).
    factors = {"q": math.sqrt(K / D), "k": 1, "v": 1, "out": 1}
    return layer | {name: (factor * layer[name], torch.zeros(D)) for name, factor in factors.items()}


def draw_e_decoder(draw: Draw) -> Weights:
    weights = draw_e(draw)
    for layer in weights["layers"]:
        own = {name: draw.tensor(D, D) for name in ("q", "k", "v", "out")}
        layer["own"] = own | {"attention_norm": draw.norm(D)}
    return weights


def decode_e(weights: Weights, ids: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    """Causal self-attention, then a block of E from that to the encoder's vectors; a map to tokens follows.

    As published, the residual sum of the second attention adds its key: the encoder's vectors, which would have to be
    as many, in place of the decoder's own. Here it adds the query. The map has the embedding's weights (published: its
    own), as `Encoder` guesses masked tokens.
    """
    x = weights["embedding"][ids] + positions()  # (B, T, D)
    causal = torch.ones(T, T).tril() * mask[:, None, None, :]  # (B, 1, T, T)
    for layer in weights["layers"]:
        x = layer_norm(x + attend_e(layer["own"], x, x, causal), layer["own"]["attention_norm"])
        x = block_e(layer, x, memory, memory_mask[:, None, None, :])
    return x


def fold_e_decoder(weights: Weights) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The state dicts of the embedding and of `Decoder`."""
    state = {}
    for index, layer in enumerate(weights["layers"]):
        paths = {name: path.replace("attention", "cross_attention") for name, path in PATHS.items()}
        state |= folded(f"layers.{index}", side_by_side(with_bias(layer)), paths)
        own = {name: PATHS[name] for name in ("qkv", "out", "attention_norm")}
        state |= folded(f"layers.{index}", side_by_side(with_bias(layer["own"])), own)
    embedding = state_dict(weights["embedding"], [])
    return {name.removeprefix("embedding."): tensor for name, tensor in embedding.items()}, state


PATHS = {
    "qkv": "attention.qkv_proj",
    "out": "attention.out_proj",
    "up": "feed_forward.up_proj",
    "down": "feed_forward.down_proj",
    "attention_norm": "attention_norm",
    "feed_forward_norm": "feed_forward_norm",
}


def named(path: str, weight_and_bias: Pair) -> dict[str, Tensor]:
    weight, bias = weight_and_bias
    return {f"{path}.weight": weight, f"{path}.bias": bias}


def side_by_side(layer: Weights) -> Weights:
    """The same layer with q, k and v (each (D, D) and (D,)) joined to one qkv of (3D, D) and (3D,)."""
    weights, biases = zip(layer["q"], layer["k"], layer["v"], strict=True)
    return layer | {"qkv": (torch.cat(weights), torch.cat(biases))}


def state_dict(embedding: Tensor, layers: list[Weights]) -> dict[str, Tensor]:
    """The state dict of `Encoder`, less the final norm."""
    # The published sinusoids are added at full size, which is the scale 1.
    state = {"embedding.tokens.weight": embedding, "embedding.positions.scale": torch.tensor(1.0)}
    for index, layer in enumerate(layers):
        state |= folded(f"layers.{index}", layer, PATHS)
    return state


def folded(prefix: str, layer: Weights, paths: dict[str, str]) -> dict[str, Tensor]:
    state = {}
    for name, path in paths.items():
        state |= named(f"{prefix}.{path}", layer[name])
    return state


def config(**choices: Any) -> ModelConfig:
    # Longer texts are allowed than these are, as in use.
    tables = {"char_ngram_buckets": 0, "bigram_buckets": 0}  # published encoders have none
    return ModelConfig(d_model=D, num_heads=H, num_layers=L, d_ff=F, max_seq_len=2 * T, **tables, **choices)


def loaded(module: Module, state: dict[str, Tensor]) -> Module:
    module.load_state_dict(state, strict=True)
    return module.eval()  # dropout off


def assert_same(ours: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(ours, reference, rtol=0, atol=TOLERANCE)


@every_seed
@pytest.mark.parametrize(
    ("draw_weights", "encode", "fold", "choices"),
    [
        pytest.param(draw_a, encode_a, fold_a, {"norm": "pre", "activation": "relu"}, id="a"),
        pytest.param(draw_d, encode_d, fold_d, {"norm": "post", "activation": "relu"}, id="d"),
        pytest.param(draw_e, encode_e, fold_e, {"norm": "post", "activation": "gelu"}, id="e"),
    ],
)
@torch.no_grad()
def test_encoder_equals(seed: int, draw_weights: Any, encode: Any, fold: Any, choices: dict[str, str]) -> None:
    """The same vectors of real tokens and, where the reference keeps them, the same attention maps."""
    draw = Draw(seed)
    weights, (ids, mask) = draw_weights(draw), draw.texts()
    encoder = loaded(Encoder(config(**choices), vocab_size=VOCAB_SIZE), fold(weights))
    vectors, maps = encode(weights, ids, mask)
    assert_same(encoder(ids, mask)[mask], vectors[mask])
    if maps:  # of (L, B, H, T, T) the rows of real tokens: what padding looks at means nothing
        ours, theirs = (it.transpose(2, 3)[:, mask] for it in (encoder.attention_maps(ids, mask), torch.stack(maps)))
        assert_same(ours, theirs)


@every_seed
@torch.no_grad()
def test_classifier_equals_c(seed: int) -> None:
    """C, post-norm with a head, gives the same vectors and the same log-probabilities."""
    draw = Draw(seed)
    weights, (ids, mask) = draw_c(draw), draw.texts()
    shape = config(norm="post", activation="relu")
    classifier = loaded(EncoderClassifier(shape, vocab_size=VOCAB_SIZE, num_classes=NUM_CLASSES), fold_c(weights))
    assert_same(classifier.encoder(ids, mask)[mask], encode_b(weights, ids, mask)[mask])
    assert_same(classifier(ids, mask).log_softmax(dim=-1), classify_c(weights, ids, mask))


@every_seed
@torch.no_grad()
def test_decoder_equals_that_of_e(seed: int) -> None:
    """With an encoder's vectors of another length, the decoder of E gives the same vectors and scores of tokens."""
    draw = Draw(seed)
    weights, (ids, mask) = draw_e_decoder(draw), draw.texts()
    memory = torch.randn(B, S, D, generator=draw.generator)
    memory_mask = torch.arange(S) < torch.arange(1, B + 1)[:, None]
    shape = config(norm="post", activation="gelu")
    of_embedding, of_decoder = fold_e_decoder(weights)
    embedding = loaded(InputEmbedding(shape, vocab_size=VOCAB_SIZE), of_embedding)
    decoder = loaded(Decoder(shape, num_layers=L), of_decoder)
    vectors = decoder(embedding(ids, None), mask, memory, memory_mask)[mask]
    reference = decode_e(weights, ids, mask, memory, memory_mask)[mask]
    assert_same(vectors, reference)
    scores = embedding.token_scores(vectors, torch.arange(VOCAB_SIZE))
    assert_same(scores / D, reference @ weights["embedding"].T / D)  # sums of D products, whose rounding adds up
