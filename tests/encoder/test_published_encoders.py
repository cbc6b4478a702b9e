"""`Encoder` gives what each of five published encoders gives, and `Decoder` what the decoder of one of them gives.

They are written out here in plain tensors, with weights in the form in which their authors keep them; `fold` turns
these into the state dict of `Encoder`. Where they differ, and where the difference goes:

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
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from encoder_cls.config.schema import ModelConfig
from encoder_cls.encoder.transformer import Decoder, Encoder, EncoderClassifier, InputEmbedding

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


def layer_norm(x: Tensor, gain_and_bias: Pair) -> Tensor:
    """LayerNorm: the biased variance, epsilon inside the root."""
    gain, bias = gain_and_bias  # (D,), (D,)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return gain * centred / (variance + 1e-5).sqrt() + bias


def std_norm(correction: int) -> Callable[[Tensor, Pair], Tensor]:
    """The norm by a standard deviation, epsilon outside the root; gain and bias are (D,) or (1,)."""

    def norm(x: Tensor, gain_and_bias: Pair) -> Tensor:
        gain, bias = gain_and_bias
        return (
            gain
            * (x - x.mean(-1, keepdim=True))
            / (x.std(-1, keepdim=True, correction=correction) + 1e-6)
            + bias
        )

    return norm


@dataclass(frozen=True)
class Published:
    """The choices of a published encoder."""

    norm: Callable[[Tensor, Pair], Tensor] = layer_norm
    is_pre_norm: bool = False  # with a norm at the end
    norm_size: int = D
    gain_factor: float = 1.0  # from its standard deviation to the biased one
    embedding_factor: float = 1.0
    is_fused: bool = False  # q, k and v of each head side by side
    has_bias: bool = True  # in attention
    score_width: int = K  # scores are divided by its root
    hidden: float = -1e9  # the score of padding
    activation: str = "relu"

    def config(self) -> ModelConfig:
        tables = {"char_ngram_buckets": 0, "bigram_buckets": 0}  # published encoders have none
        shape = {"d_model": D, "num_heads": H, "num_layers": L, "d_ff": F}
        shape["max_seq_len"] = 2 * T  # longer texts are allowed than these are, as in use
        return ModelConfig(
            **shape,
            **tables,
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
B_AND_C = Published(hidden=-math.inf)  # C has a head on the mean of B's vectors
# D's sequence embedding brings its own token embedding, read here as that of Vaswani et al. (2017).
FUSED_D = Published(
    norm=std_norm(0), embedding_factor=math.sqrt(D), is_fused=True, hidden=-math.inf
)
# As published, q and k are each divided by d_model^(1/4), and the GELU is the exact one.
E = Published(has_bias=False, score_width=D, hidden=-math.inf, activation="gelu")


class Draw:
    """Random tensors, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int) -> Tensor:
        return STD * torch.randn(*shape, generator=self.generator)

    def linear(self, inputs: int, outputs: int, *, has_bias: bool = True) -> Pair:
        return self.tensor(outputs, inputs), self.tensor(outputs) if has_bias else torch.zeros(
            outputs
        )

    def norm(self, size: int) -> Pair:
        return 1 + self.tensor(size), self.tensor(size)

    def attention(self, published: Published) -> Weights:
        sizes = (
            {"qkv": 3 * D, "out": D}
            if published.is_fused
            else dict.fromkeys(("q", "k", "v", "out"), D)
        )
        weights = {
            name: self.linear(D, size, has_bias=published.has_bias) for name, size in sizes.items()
        }
        return weights | {"attention_norm": self.norm(published.norm_size)}

    def model(self, published: Published) -> Weights:
        layers = [
            self.attention(published)
            | {"up": self.linear(D, F), "down": self.linear(F, D)}
            | {
                "feed_forward_norm": self.norm(published.norm_size),
                "own": self.attention(published),
            }
            for _ in range(L)
        ]
        # Standard deviation 1, as of a new nn.Embedding. In vectors much smaller than that, where a norm adds
        # its epsilon is no longer lost in the tolerance.
        embedding = torch.randn(VOCAB_SIZE, D, generator=self.generator)
        return {
            "embedding": embedding,
            "layers": layers,
            "final_norm": self.norm(published.norm_size),
        }

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


def attend(
    it: Published, layer: Weights, x: Tensor, memory: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention from `x` to a memory, (B, T, D), and its maps, (B, H, T, .); the mask is (B, 1, ., .)."""
    if it.is_fused:
        q, k, v = linear(x, layer["qkv"]).reshape(B, T, H, 3 * K).transpose(1, 2).split(K, dim=-1)
    else:  # head h has the features from h * K on
        given = {"q": x, "k": memory, "v": memory}
        q, k, v = (
            torch.stack(linear(given[name], layer[name]).split(K, dim=-1), dim=1) for name in given
        )
    maps = (q @ k.mT / math.sqrt(it.score_width)).masked_fill(mask == 0, it.hidden).softmax(-1)
    return linear(torch.cat((maps @ v).unbind(1), dim=-1), layer["out"]), maps


def feed_forward(it: Published, layer: Weights, x: Tensor) -> Tensor:
    hidden = linear(x, layer["up"])
    gelu = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return linear(hidden.clamp(min=0) if it.activation == "relu" else gelu, layer["down"])


def encode(it: Published, weights: Weights, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors, (B, T, D), and the attention maps, (L, B, H, T, T)."""
    x, all_maps = weights["embedding"][ids] * it.embedding_factor + positions(), []
    for layer in weights["layers"]:
        given = it.norm(x, layer["attention_norm"]) if it.is_pre_norm else x
        attended, maps = attend(it, layer, given, given, mask[:, None, None, :])
        all_maps.append(maps)
        if it.is_pre_norm:
            x = x + attended
            x = x + feed_forward(it, layer, it.norm(x, layer["feed_forward_norm"]))
        else:
            x = it.norm(x + attended, layer["attention_norm"])
            x = it.norm(x + feed_forward(it, layer, x), layer["feed_forward_norm"])
    return it.norm(x, weights["final_norm"]) if it.is_pre_norm else x, torch.stack(all_maps)


def decode_e(
    weights: Weights, ids: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor
) -> Tensor:
    """Causal self-attention, then a block of E from that to the encoder's vectors; a map to tokens follows.

    As published, the residual sum of the second attention adds its key: the encoder's vectors, which would have to be
    as many, in place of the decoder's own. Here it adds the query. The map has the embedding's weights (published: its
    own), as `Encoder` guesses masked tokens.
    """
    x = weights["embedding"][ids] + positions()  # (B, T, D)
    causal = torch.ones(T, T).tril() * mask[:, None, None, :]  # (B, 1, T, T)
    for layer in weights["layers"]:
        own = layer["own"]
        x = layer_norm(x + attend(E, own, x, x, causal)[0], own["attention_norm"])
        x = layer_norm(
            x + attend(E, layer, x, memory, memory_mask[:, None, None, :])[0],
            layer["attention_norm"],
        )
        x = layer_norm(x + feed_forward(E, layer, x), layer["feed_forward_norm"])
    return x


def named(path: str, weight_and_bias: Pair) -> dict[str, Tensor]:
    weight, bias = weight_and_bias
    return {f"{path}.weight": weight, f"{path}.bias": bias}


def fold_norm(it: Published, gain_and_bias: Pair) -> Pair:
    gain, bias = gain_and_bias  # (D,) or (1,)
    return it.gain_factor * gain.expand(D), bias.expand(D)


def fold_attention(it: Published, layer: Weights, path: str) -> dict[str, Tensor]:
    """`Encoder` has q, k and v joined to one map of (3D, D), and divides scores by sqrt(d_k)."""
    if it.is_fused:  # rows by head, then q, k, v -> rows by q, k, v, then head
        joined = tuple(
            part.unflatten(0, (H, 3, K)).transpose(0, 1).flatten(0, 2) for part in layer["qkv"]
        )
    else:
        query = tuple(math.sqrt(K / it.score_width) * part for part in layer["q"])
        joined = tuple(map(torch.cat, zip(query, layer["k"], layer["v"], strict=True)))
    state = named(f"{path}.qkv_proj", joined) | named(f"{path}.out_proj", layer["out"])
    return state | named(f"{path}_norm", fold_norm(it, layer["attention_norm"]))


def fold_feed_forward(it: Published, layer: Weights, path: str) -> dict[str, Tensor]:
    state = named(f"{path}.up_proj", layer["up"]) | named(f"{path}.down_proj", layer["down"])
    return state | named(f"{path}_norm", fold_norm(it, layer["feed_forward_norm"]))


def fold_embedding(it: Published, weights: Weights) -> dict[str, Tensor]:
    # The published sinusoids are added at full size, which is the scale 1.
    return {
        "tokens.weight": it.embedding_factor * weights["embedding"],
        "positions.scale": torch.tensor(1.0),
    }


def fold(it: Published, weights: Weights) -> dict[str, Tensor]:
    """The state dict of `Encoder`."""
    state = {f"embedding.{name}": tensor for name, tensor in fold_embedding(it, weights).items()}
    for number, layer in enumerate(weights["layers"]):
        state |= fold_attention(it, layer, f"layers.{number}.attention")
        state |= fold_feed_forward(it, layer, f"layers.{number}.feed_forward")
    return state | (
        named("final_norm", fold_norm(it, weights["final_norm"])) if it.is_pre_norm else {}
    )


def loaded(module: Module, state: dict[str, Tensor]) -> Module:
    module.load_state_dict(state, strict=True)
    return module.eval()  # dropout off


def assert_same(ours: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(ours, reference, rtol=0, atol=TOLERANCE)


@every_seed
@pytest.mark.parametrize("published", [A, B_AND_C, FUSED_D, E], ids=["a", "b", "d", "e"])
@torch.no_grad()
def test_encoder_equals(seed: int, published: Published) -> None:
    draw = Draw(seed)
    weights, (ids, mask) = draw.model(published), draw.texts()
    encoder = loaded(Encoder(published.config(), vocab_size=VOCAB_SIZE), fold(published, weights))
    vectors, maps = encode(published, weights, ids, mask)
    assert_same(encoder(ids, mask)[mask], vectors[mask])
    # Of (L, B, H, T, T) the rows of real tokens: what padding looks at means nothing.
    assert_same(
        encoder.attention_maps(ids, mask).transpose(2, 3)[:, mask], maps.transpose(2, 3)[:, mask]
    )


@every_seed
@torch.no_grad()
def test_classifier_equals_c(seed: int) -> None:
    """The mean over the real tokens, a linear map and a log-softmax give the same log-probabilities."""
    draw = Draw(seed)
    weights, head, (ids, mask) = draw.model(B_AND_C), draw.linear(D, NUM_CLASSES), draw.texts()
    state = {f"encoder.{name}": tensor for name, tensor in fold(B_AND_C, weights).items()} | named(
        "head.linear", head
    )
    classifier = loaded(
        EncoderClassifier(B_AND_C.config(), vocab_size=VOCAB_SIZE, num_classes=NUM_CLASSES), state
    )
    vectors, _ = encode(B_AND_C, weights, ids, mask)
    logits = linear(torch.stack([vectors[row, mask[row]].mean(0) for row in range(B)]), head)
    assert_same(
        classifier(ids, mask).log_softmax(dim=-1), logits - logits.exp().sum(-1, keepdim=True).log()
    )


@every_seed
@torch.no_grad()
def test_decoder_equals_that_of_e(seed: int) -> None:
    """With an encoder's vectors of another length, the decoder of E gives the same vectors and scores of tokens."""
    draw = Draw(seed)
    weights, (ids, mask) = draw.model(E), draw.texts()
    memory = torch.randn(B, S, D, generator=draw.generator)
    memory_mask = torch.arange(S) < torch.arange(1, B + 1)[:, None]
    state = {}
    for number, layer in enumerate(weights["layers"]):
        state |= fold_attention(E, layer["own"], f"layers.{number}.attention")
        state |= fold_attention(E, layer, f"layers.{number}.cross_attention")
        state |= fold_feed_forward(E, layer, f"layers.{number}.feed_forward")
    embedding = loaded(
        InputEmbedding(E.config(), vocab_size=VOCAB_SIZE), fold_embedding(E, weights)
    )
    decoder = loaded(Decoder(E.config(), num_layers=L), state)
    vectors = decoder(embedding(ids, None), mask, memory, memory_mask)[mask]
    reference = decode_e(weights, ids, mask, memory, memory_mask)[mask]
    assert_same(vectors, reference)
    scores = embedding.token_scores(vectors, torch.arange(VOCAB_SIZE))
    # Sums of D products, whose rounding adds up.
    assert_same(scores / D, reference @ weights["embedding"].T / D)
