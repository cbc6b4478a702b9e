"""The encoder and its head: what must hold for any weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.optimizer import make_optimizers
from encoder_cls.encoder.transformer import (
    BigramEmbedding,
    CharNgramBatch,
    Decoder,
    EncoderClassifier,
    SequenceDropout,
)
from encoder_cls.text.tokens import hash_char_ngrams

TABLES = {"char_ngram_buckets": 50, "bigram_buckets": 40}
CONFIG = ModelConfig(
    d_model=16, num_layers=2, num_heads=2, d_ff=32, max_seq_len=12, dropout=0.5, **TABLES
)
KNOBS = [
    {"norm": norm, "activation": activation, "positions": positions}
    for norm in ("pre", "post")
    for activation in ("relu", "gelu")
    for positions in ("sinusoidal", "learned", "none")
]


def make_model(**knobs: object) -> EncoderClassifier:
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


def spelling_of(words: list[str], rows: list[list[int]]) -> CharNgramBatch:
    spellings = hash_char_ngrams(words)
    return CharNgramBatch(
        torch.tensor(rows),
        torch.from_numpy(spellings.ngrams.astype(np.int64)),
        torch.from_numpy(spellings.offsets),
    )


def random_spelling(input_ids: torch.Tensor) -> CharNgramBatch:
    """A word for each id: "w4", "w5" and so on; every third word, as `[CLS]`, has no letters."""
    return spelling_of(
        [f"w{token}" if token % 3 else "" for token in range(30)], input_ids.tolist()
    )


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "-".join(knobs.values()))
def test_padding_and_batch_mates_do_not_change_logits(knobs):
    """A text alone and the same text padded in a batch have the same logits, whatever stands on the padding."""
    model = make_model(**knobs)
    input_ids, mask = ragged_batch()
    together = model(input_ids, mask, random_spelling(input_ids))
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        own_ids = input_ids[row : row + 1, :length]
        alone = model(own_ids, mask[row : row + 1, :length], random_spelling(own_ids))
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)
    garbage = input_ids.masked_fill(~mask, 29)
    torch.testing.assert_close(
        model(garbage, mask, random_spelling(garbage)), together, atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_word_order_matters_with_positions_only(positions):
    """Reversing a text changes the logits with positions and does not without, where pairs are not looked at."""
    input_ids, mask = ragged_batch((6,))
    model = make_model(positions=positions, bigram_buckets=0)
    assert not torch.allclose(model(input_ids, mask), model(input_ids.flip(1), mask), atol=1e-3)
    unordered = make_model(positions="none", bigram_buckets=0)
    torch.testing.assert_close(
        unordered(input_ids, mask), unordered(input_ids.flip(1), mask), atol=1e-5, rtol=1e-5
    )
    paired = make_model(positions="none")
    assert not torch.allclose(paired(input_ids, mask), paired(input_ids.flip(1), mask), atol=1e-3)


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "-".join(knobs.values()))
def test_every_parameter_gets_a_gradient(knobs):
    model = make_model(**knobs).train()
    input_ids, mask = ragged_batch()
    logits = model(input_ids, mask, random_spelling(input_ids))
    nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.to_dense().abs().sum() > 0
    ]
    assert without == []


def test_a_batch_without_any_letters_is_read():
    """Empty texts alone: `[CLS]` has no n-grams, and the backward pass finds nothing to do."""
    model = make_model().train()
    input_ids = torch.full((2, 1), 2)
    logits = model(input_ids, torch.ones(2, 1, dtype=torch.bool), spelling_of([""], [[0], [0]]))
    torch.testing.assert_close(logits[0].isfinite(), torch.ones(3, dtype=torch.bool))
    logits.sum().backward()
    assert model.encoder.embedding.char_ngrams.table.weight.grad.to_dense().abs().sum() == 0


def test_pairs_spread_evenly_over_the_buckets():
    """Of a large vocabulary's pairs few share a row, and none falls outside of the table."""
    embedding = BigramEmbedding(32_768, 1)
    embedding.table.weight.data = torch.arange(32_768.0)[:, None]
    torch.manual_seed(0)
    rows = embedding(torch.randint(4, 60_000, (64, 512))).flatten().int()
    # As of random rows.
    assert len(rows.unique()) / 32_768 == pytest.approx(1 - math.exp(-1), abs=0.02)


def test_a_new_model_reads_no_pairs():
    """They start at zero, so that a pair never trained adds nothing; all other tables start small and random."""
    torch.manual_seed(0)
    embedding = EncoderClassifier(CONFIG, vocab_size=30, num_classes=3).encoder.embedding
    assert embedding.bigrams.table.weight.abs().max() == 0
    for table in (embedding.tokens, embedding.char_ngrams.table):
        assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_unknown_words_differ_by_their_letters():
    """Two words of the same id have other logits and maps; without tables they have the same."""
    model, plain = make_model(), make_model(char_ngram_buckets=0, bigram_buckets=0)
    input_ids, mask = torch.tensor([[2, 1]]), torch.ones(1, 2, dtype=torch.bool)
    one, other = (spelling_of(["", word], [[0, 1]]) for word in ("refunded", "umbrella"))
    assert not torch.allclose(
        *(model(input_ids, mask, spelling) for spelling in (one, other)), atol=1e-3
    )
    maps = [model.encoder.attention_maps(input_ids, mask, spelling) for spelling in (one, other)]
    assert not torch.allclose(*maps, atol=1e-3)
    assert torch.equal(plain(input_ids, mask, one), plain(input_ids, mask, other))


def test_a_step_changes_only_the_rows_of_a_table_that_the_batch_touched():
    """Gradients of the tables are sparse, and the optimizers leave all other rows as they were, bit by bit."""
    torch.manual_seed(0)
    sizes = {"char_ngram_buckets": 997, "bigram_buckets": 991}
    model = EncoderClassifier(CONFIG.model_copy(update=sizes), vocab_size=30, num_classes=3)
    input_ids, mask = torch.tensor([[2, 7, 9]]), torch.ones(1, 3, dtype=torch.bool)
    spelling = spelling_of(["", "seven", "unused", "nine"], [[0, 1, 3]])
    embedding = model.encoder.embedding
    tables = {
        "tokens": embedding.tokens,
        "ngrams": embedding.char_ngrams.table,
        "pairs": embedding.bigrams.table,
    }
    before = {name: table.weight.detach().clone() for name, table in tables.items()}
    optimizers = make_optimizers(model, TrainConfig(learning_rate=0.1, weight_decay=0.5))
    for _ in range(2):  # at the second step moments are not zero any more
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(input_ids, mask, spelling), torch.tensor([1])).backward()
        assert all(table.weight.grad.is_sparse for table in tables.values())
        for optimizer in optimizers:
            optimizer.step()
    changed = {
        name: set((table.weight != before[name]).any(dim=1).nonzero().flatten().tolist())
        for name, table in tables.items()
    }
    assert changed["tokens"] == {2, 7, 9}
    # "unused" is in the batch's spelling, but no token is it.
    assert changed["ngrams"] == {int(n) % 997 for n in hash_char_ngrams(["seven", "nine"]).ngrams}
    assert changed["pairs"] == {
        (one * 1_000_003 + other) % 991 for one, other in [(0, 2), (2, 7), (7, 9)]
    }


@pytest.mark.parametrize(
    "off", [["char_ngram_buckets"], ["bigram_buckets"], list(TABLES)], ids="-".join
)
def test_tables_can_be_left_out(off):
    model = make_model(**dict.fromkeys(off, 0)).train()
    input_ids, mask = ragged_batch()
    logits = model(input_ids, mask, random_spelling(input_ids))
    assert logits.shape == (3, 3)
    logits.sum().backward()
    for optimizer in make_optimizers(model, TrainConfig()):
        optimizer.step()


def test_a_decoder_sees_no_later_tokens_and_no_padding_of_its_memory():
    """Vectors depend on earlier tokens and on real vectors of the memory, and on nothing else."""
    torch.manual_seed(0)
    decoder = Decoder(CONFIG, num_layers=2).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x, memory, mask = (
        torch.randn(3, 8, CONFIG.d_model),
        torch.randn(3, 5, CONFIG.d_model),
        ragged_batch()[1],
    )
    memory_mask = torch.arange(5) < torch.tensor([[2], [5], [1]])
    vectors = decoder(x, mask, memory, memory_mask)
    later, hidden, seen = x.clone(), memory.clone(), memory.clone()
    later[:, 4:], hidden[~memory_mask], seen[:, 0] = 1, 1, 1
    torch.testing.assert_close(decoder(later, mask, hidden, memory_mask)[:, :4], vectors[:, :4])
    assert (
        not torch.isclose(decoder(later, mask, memory, memory_mask)[1, 4:], vectors[1, 4:])
        .any(dim=1)
        .all()
    )
    assert (decoder(x, mask, seen, memory_mask) - vectors).abs().mean(dim=2).min() > 0.01


def test_plain_attention_equals_the_fused_kernel(monkeypatch):
    """The two ways to attend are the same function: on a CPU the plain one is trained, the fused one used."""
    attention = make_model().encoder.layers[0].attention
    _, mask = ragged_batch()
    x = torch.randn(3, 8, CONFIG.d_model)
    fused, calls = nn.functional.scaled_dot_product_attention, []
    monkeypatch.setattr(
        nn.functional,
        "scaled_dot_product_attention",
        lambda *of, **more: calls.append(1) or fused(*of, **more),
    )
    for memory in (None, torch.randn(3, 8, CONFIG.d_model)):
        trained = attention(x, mask[:, None], memory_BSD=memory)
        assert not calls
        with torch.inference_mode():
            used = attention(x, mask[:, None], memory_BSD=memory)
        assert calls.pop() == 1
        torch.testing.assert_close(trained[mask], used[mask], atol=1e-5, rtol=1e-5)


def test_fused_attention_never_uses_the_kernel_of_cudnn(monkeypatch):
    """Whose gradients were not finite; in training on a GPU as in prediction, whatever the caller has chosen."""
    attention = make_model().encoder.layers[0].attention
    _, mask = ragged_batch()
    fused, allowed = nn.functional.scaled_dot_product_attention, []

    def recorded(*of, **more):
        allowed.append(
            (
                torch.backends.cuda.cudnn_sdp_enabled(),
                torch.backends.cuda.flash_sdp_enabled(),
                torch.backends.cuda.mem_efficient_sdp_enabled(),
                torch.backends.cuda.math_sdp_enabled(),
            )
        )
        return fused(*of, **more)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", recorded)
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        for caller_wants_cudnn in (True, False):
            torch.backends.cuda.enable_cudnn_sdp(caller_wants_cudnn)
            with torch.inference_mode():
                attention(torch.randn(3, 8, CONFIG.d_model), mask[:, None])
            assert torch.backends.cuda.cudnn_sdp_enabled() == caller_wants_cudnn
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)
    assert allowed == [(False, True, True, True)] * 2


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
    assert torch.equal(dropout.eval()(ones), ones)


def test_logits_are_float32_under_bfloat16_autocast():
    """Mixed precision stays inside the encoder: the head's product has all its digits."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = make_model()(*ragged_batch())
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("knobs", KNOBS[:2], ids=lambda knobs: "-".join(knobs.values()))
def test_gpu_gives_the_logits_of_the_cpu(knobs):
    model, (input_ids, mask) = make_model(**knobs), ragged_batch()
    spelling = random_spelling(input_ids)
    expected = model(input_ids, mask, spelling)
    found = model.cuda()(
        input_ids.cuda(), mask.cuda(), CharNgramBatch(*(part.cuda() for part in spelling))
    ).cpu()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
