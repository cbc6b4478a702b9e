"""The encoder and its head: what must hold for any weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from encoder_cls.config import ModelConfig
from encoder_cls.model import ClassifierHead, EncoderClassifier, SequenceDropout, sinusoids

CONFIG = ModelConfig(d_model=16, num_layers=2, num_heads=2, d_ff=32, max_seq_len=12, dropout=0.5)
KNOBS = [
    {"norm": norm, "activation": activation, "positions": positions}
    for norm in ("pre", "post")
    for activation in ("relu", "gelu")
    for positions in ("sinusoidal", "learned", "none")
]


def make_model(**knobs: str) -> EncoderClassifier:
    """A model whose weights are large enough for attention to matter."""
    torch.manual_seed(0)
    model = EncoderClassifier(CONFIG.model_copy(update=knobs), vocab_size=30, num_classes=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def ragged_batch(lengths: tuple[int, ...] = (3, 8, 1)) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randint(4, 30, mask.shape), mask


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "-".join(knobs.values()))
def test_padding_and_batch_mates_do_not_change_logits(knobs):
    """A text alone and the same text padded in a batch have the same logits, whatever stands on the padding."""
    model = make_model(**knobs)
    input_ids, mask = ragged_batch()
    together = model(input_ids, mask)
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        alone = model(input_ids[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)
    garbage = input_ids.masked_fill(~mask, 29)
    torch.testing.assert_close(model(garbage, mask), together, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_word_order_matters_with_positions_only(positions):
    """Reversing a text changes the logits with positions and does not without."""
    input_ids, mask = ragged_batch((6,))
    ordered, reversed_ = (make_model(positions=positions)(ids, mask) for ids in (input_ids, input_ids.flip(1)))
    assert not torch.allclose(ordered, reversed_, atol=1e-3)
    unordered = make_model(positions="none")
    torch.testing.assert_close(unordered(input_ids, mask), unordered(input_ids.flip(1), mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "-".join(knobs.values()))
def test_every_parameter_gets_a_gradient(knobs):
    """No parameter is left out of the computation."""
    model = make_model(**knobs).train()
    input_ids, mask = ragged_batch()
    nn.functional.cross_entropy(model(input_ids, mask), torch.tensor([0, 1, 2])).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_attention_rows_sum_to_one_and_ignore_padding():
    """Attention maps are distributions over the real tokens."""
    model = make_model()
    input_ids, mask = ragged_batch()
    maps = model.encoder.attention_maps(input_ids, mask)
    assert maps.shape == (CONFIG.num_layers, 3, CONFIG.num_heads, 8, 8)
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))
    assert maps.masked_select(~mask[None, :, None, None, :].expand(maps.shape)).abs().max() == 0


def test_plain_attention_equals_the_fused_kernel():
    """The two ways to attend, of which a GPU and a CPU each take one, are the same function."""
    attention = make_model().encoder.layers[0].attention
    _, mask = ragged_batch()
    x = torch.randn(3, 8, CONFIG.d_model)
    q, k, v = attention._heads(attention.qkv_proj(x))
    fused = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
    expected = attention.out_proj(fused.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, mask)[mask], expected[mask], atol=1e-5, rtol=1e-5)


def test_head_is_the_mean_over_real_tokens():
    """The pooled vector equals a mean taken by hand."""
    _, mask = ragged_batch()
    x = torch.randn(3, 8, CONFIG.d_model)
    pooled = ClassifierHead.pool(x, mask)
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        torch.testing.assert_close(pooled[row], x[row, :length].mean(dim=0))


def test_log_probabilities_are_normalized_logits():
    """Log-probabilities exponentiate to a distribution, and rank as the logits do."""
    model = make_model()
    batch = ragged_batch()
    log_probabilities = model.log_probabilities(*batch)
    torch.testing.assert_close(log_probabilities.exp().sum(dim=1), torch.ones(3))
    assert log_probabilities.argmax(dim=1).tolist() == model(*batch).argmax(dim=1).tolist()


def test_sinusoids_follow_the_formula():
    """Entry (pos, 2i) is sin(pos / 10000^(2i / D)), and (pos, 2i + 1) the cosine of the same."""
    table = sinusoids(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10_000 ** (2 * i / 16)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_sequence_dropout_drops_features_of_whole_sequences():
    """A feature is dropped on all tokens or on none, differently in each sequence, and keeps its mean."""
    torch.manual_seed(0)
    dropout = SequenceDropout(0.25)
    ones = torch.ones(200, 5, 64)
    dropped = dropout.train()(ones)
    assert (dropped == dropped[:, :1]).all()
    assert (dropped[0] != dropped[1]).any()
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert dropped.mean() == pytest.approx(1, abs=0.02)
    assert dropout.eval()(ones) is ones


def test_logits_are_float32_under_bfloat16_autocast():
    """Mixed precision stays inside the model."""
    with torch.autocast("cpu", torch.bfloat16):
        assert make_model()(*ragged_batch()).dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("knobs", KNOBS[:2], ids=lambda knobs: "-".join(knobs.values()))
def test_gpu_gives_the_logits_of_the_cpu(knobs):
    """The fused path on a GPU computes the same function."""
    model, (input_ids, mask) = make_model(**knobs), ragged_batch()
    expected = model(input_ids, mask)
    found = model.cuda()(input_ids.cuda(), mask.cuda()).cpu()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
