"""The encoder and its head: what must hold for any weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.transformer import (
    BigramEmbedding,
    CharNgramBatch,
    ClassifierHead,
    Decoder,
    EncoderClassifier,
    SequenceDropout,
)
from encoder_cls.encoder_training.optimizer import make_optimizers
from encoder_cls.text.tokens import hash_char_ngrams

CONFIG = ModelConfig(
    d_model=16,
    num_layers=2,
    num_heads=2,
    d_ff=32,
    max_seq_len=12,
    dropout=0.5,
    char_ngram_buckets=50,
    bigram_buckets=40,
)

# All combinations of the settings that choose how layers compute, and each way of pooling.
COMBINATIONS = []
for norm, activation, positions in itertools.product(
    ["pre", "post"],
    ["relu", "gelu"],
    ["sinusoidal", "learned", "none"],
):
    COMBINATIONS.append({"norm": norm, "activation": activation, "positions": positions})
COMBINATIONS.append({"pooling": "cls"})
COMBINATIONS.append({"pooling": "max"})

with_all_settings = pytest.mark.parametrize(
    "settings", COMBINATIONS, ids=lambda settings: "-".join(settings.values())
)


def untrained_model(**settings: object) -> EncoderClassifier:
    """A model as it is before its training, with other settings than those of `CONFIG`."""
    torch.manual_seed(0)
    return EncoderClassifier(CONFIG.model_copy(update=settings), vocab_size=30, num_classes=3)


def make_model(**settings: object) -> EncoderClassifier:
    """A model whose weights are large enough for attention to matter."""
    model = untrained_model(**settings)
    enlarge_weights(model)
    return model.eval()


def enlarge_weights(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def ragged_batch(lengths: tuple[int, ...] = (3, 8, 1)) -> tuple[torch.Tensor, torch.Tensor]:
    """Random token ids, and the mask of texts of these lengths."""
    torch.manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    input_ids = torch.randint(4, 30, mask.shape)
    return input_ids, mask


def spelling_of(distinct_words: list[str], words_of_texts: list[list[int]]) -> CharNgramBatch:
    """The n-grams of distinct words; each token of a text has the index of its word."""
    char_ngrams = hash_char_ngrams(distinct_words)
    return CharNgramBatch(
        words=torch.tensor(words_of_texts),
        ngrams=torch.from_numpy(char_ngrams.ngrams.astype(np.int64)),
        offsets=torch.from_numpy(char_ngrams.offsets),
    )


def random_spelling(input_ids: torch.Tensor) -> CharNgramBatch:
    """A word for each id: "w4", "w5" and so on; every third word, as `[CLS]`, has no letters."""
    words = []
    for token in range(30):
        has_letters = token % 3 != 0
        words.append(f"w{token}" if has_letters else "")
    return spelling_of(words, input_ids.tolist())


@with_all_settings
def test_padding_and_batch_mates_do_not_change_logits(settings):
    """A text has the same logits alone and in a batch, with any ids on the padding."""
    model = make_model(**settings)
    input_ids, mask = ragged_batch()

    logits = model(input_ids, mask, random_spelling(input_ids))

    for row, length in enumerate(mask.sum(dim=1).tolist()):
        ids_of_text = input_ids[row : row + 1, :length]
        mask_of_text = mask[row : row + 1, :length]
        alone = model(ids_of_text, mask_of_text, random_spelling(ids_of_text))
        torch.testing.assert_close(logits[row], alone[0], atol=1e-5, rtol=1e-5)

    other_padding = input_ids.masked_fill(~mask, 29)
    logits_with_other_padding = model(other_padding, mask, random_spelling(other_padding))
    torch.testing.assert_close(logits_with_other_padding, logits, atol=1e-6, rtol=1e-6)


def logits_of_both_orders(**settings: object) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of a text, and those of its tokens from the last to the first."""
    model = make_model(**settings)
    input_ids, mask = ragged_batch((6,))
    return model(input_ids, mask), model(input_ids.flip(1), mask)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_word_order_matters_with_positions(positions):
    logits, logits_of_reversed = logits_of_both_orders(positions=positions, bigram_buckets=0)

    assert not torch.allclose(logits_of_reversed, logits, atol=1e-3)


def test_word_order_matters_with_pairs():
    logits, logits_of_reversed = logits_of_both_orders(positions="none")

    assert not torch.allclose(logits_of_reversed, logits, atol=1e-3)


def test_word_order_does_not_matter_without_positions_and_pairs():
    logits, logits_of_reversed = logits_of_both_orders(positions="none", bigram_buckets=0)

    torch.testing.assert_close(logits_of_reversed, logits, atol=1e-5, rtol=1e-5)


@with_all_settings
def test_every_parameter_gets_a_gradient(settings):
    model = make_model(**settings).train()
    input_ids, mask = ragged_batch()

    logits = model(input_ids, mask, random_spelling(input_ids))
    loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2]))
    loss.backward()

    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.to_dense().abs().sum() > 0, name


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2.0, 0.0], [-1.0, -2.0]]),
        ("cls", [[1.0, -3.0], [-1.0, -2.0]]),
        ("max", [[3.0, 3.0], [-1.0, -2.0]]),
    ],
)
def test_pooling_reads_the_real_tokens_of_a_text(pooling, expected):
    """The first text has three tokens and the second one; padding is larger than both."""
    head = ClassifierHead(CONFIG.model_copy(update={"pooling": pooling}), num_classes=2)
    first = [[1.0, -3.0], [3.0, 0.0], [2.0, 3.0]]
    second = [[-1.0, -2.0], [9.0, 9.0], [9.0, 9.0]]
    mask = torch.tensor([[True, True, True], [True, False, False]])

    pooled = head.pool(torch.tensor([first, second], dtype=torch.bfloat16), mask)

    assert pooled.dtype == torch.float32
    assert pooled.tolist() == expected


def test_a_batch_without_any_letters_is_read():
    """In empty texts, `[CLS]` has no n-grams, and the backward pass finds nothing to do."""
    model = make_model().train()
    input_ids = torch.full((2, 1), 2)
    mask = torch.ones(2, 1, dtype=torch.bool)
    spelling = spelling_of([""], [[0], [0]])

    logits = model(input_ids, mask, spelling)
    logits.sum().backward()

    assert logits.isfinite().all()
    gradient = model.encoder.embedding.char_ngrams.table.weight.grad.to_dense()
    assert gradient.abs().sum() == 0


def test_pairs_spread_evenly_over_the_buckets():
    """Few pairs of a large vocabulary share a row, and none falls outside of the table."""
    embedding = BigramEmbedding(32_768, 1)
    # The vector of each row is its number.
    embedding.table.weight.data = torch.arange(32_768.0)[:, None]
    torch.manual_seed(0)

    rows = embedding(torch.randint(4, 60_000, (64, 512))).flatten().int()

    # If each of as many pairs has a random row, this share of the rows is used.
    expected_share = 1 - math.exp(-1)
    assert len(rows.unique()) / 32_768 == pytest.approx(expected_share, abs=0.02)


def test_a_new_model_reads_no_pairs():
    """Pairs start at zero, so that an untrained pair adds nothing; other tables start at random."""
    embedding = untrained_model().encoder.embedding

    assert embedding.bigrams.table.weight.abs().max() == 0
    for table in (embedding.tokens, embedding.char_ngrams.table):
        assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_unknown_words_differ_by_their_letters():
    """Two words with the id of `[UNK]` have different logits; without tables, they are equal."""
    input_ids = torch.tensor([[2, 1]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    refunded = spelling_of(["", "refunded"], [[0, 1]])
    umbrella = spelling_of(["", "umbrella"], [[0, 1]])

    model = make_model()
    logits = model(input_ids, mask, refunded)
    other_logits = model(input_ids, mask, umbrella)
    assert not torch.allclose(other_logits, logits, atol=1e-3)

    maps = model.encoder.attention_maps(input_ids, mask, refunded)
    other_maps = model.encoder.attention_maps(input_ids, mask, umbrella)
    assert not torch.allclose(other_maps, maps, atol=1e-3)

    plain = make_model(char_ngram_buckets=0, bigram_buckets=0)
    plain_logits = plain(input_ids, mask, refunded)
    assert torch.equal(plain(input_ids, mask, umbrella), plain_logits)


def test_a_step_changes_only_the_rows_of_a_table_that_the_batch_touched():
    """Gradients of tables are sparse, and optimizers leave all other rows as they were."""
    model = untrained_model(char_ngram_buckets=997, bigram_buckets=991)
    input_ids = torch.tensor([[2, 7, 9]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    # "unused" is in the spelling, but no token is that word.
    spelling = spelling_of(["", "seven", "unused", "nine"], [[0, 1, 3]])

    embedding = model.encoder.embedding
    tables = {
        "tokens": embedding.tokens.weight,
        "ngrams": embedding.char_ngrams.table.weight,
        "pairs": embedding.bigrams.table.weight,
    }
    before = {name: table.detach().clone() for name, table in tables.items()}

    # At the second step, moments are not zero any more.
    optimizers = make_optimizers(model, TrainConfig(learning_rate=0.1, weight_decay=0.5))
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        logits = model(input_ids, mask, spelling)
        nn.functional.cross_entropy(logits, torch.tensor([1])).backward()

        assert all(table.grad.is_sparse for table in tables.values())
        for optimizer in optimizers:
            optimizer.step()

    # Only the rows of the tokens, of their n-grams and of their pairs have changed.
    ngrams = hash_char_ngrams(["seven", "nine"]).ngrams
    pairs = [(0, 2), (2, 7), (7, 9)]
    touched = {
        "tokens": {2, 7, 9},
        "ngrams": {int(ngram) % 997 for ngram in ngrams},
        "pairs": {(first * 1_000_003 + second) % 991 for first, second in pairs},
    }
    for name, table in tables.items():
        is_changed = (table != before[name]).any(dim=1)
        changed_rows = is_changed.nonzero().flatten().tolist()
        assert set(changed_rows) == touched[name], name


@pytest.mark.parametrize(
    "sizes",
    [
        {"char_ngram_buckets": 0},
        {"bigram_buckets": 0},
        {"char_ngram_buckets": 0, "bigram_buckets": 0},
    ],
    ids="-".join,
)
def test_tables_can_be_left_out(sizes):
    model = make_model(**sizes).train()
    optimizers = make_optimizers(model, TrainConfig())
    input_ids, mask = ragged_batch()

    logits = model(input_ids, mask, random_spelling(input_ids))
    logits.sum().backward()
    for optimizer in optimizers:
        optimizer.step()

    assert logits.shape == (3, 3)


def make_decoder() -> Decoder:
    """A decoder whose weights are large enough for attention to matter."""
    torch.manual_seed(0)
    decoder = Decoder(CONFIG, num_layers=2)
    enlarge_weights(decoder)
    return decoder.eval()


def test_a_decoder_sees_no_later_tokens_and_no_padding_of_its_memory():
    """Vectors depend on earlier tokens and on real vectors of the memory, and on nothing else."""
    decoder = make_decoder()
    x = torch.randn(3, 8, CONFIG.d_model)
    memory = torch.randn(3, 5, CONFIG.d_model)
    _, mask = ragged_batch()
    memory_mask = torch.arange(5) < torch.tensor([[2], [5], [1]])
    vectors = decoder(x, mask, memory, memory_mask)

    # Later tokens and the padding of the memory change nothing before them.
    other_end = x.clone()
    other_end[:, 4:] = 1
    other_padding = memory.clone()
    other_padding[~memory_mask] = 1
    found = decoder(other_end, mask, other_padding, memory_mask)
    torch.testing.assert_close(found[:, :4], vectors[:, :4])

    # They change the later vectors, of which the second text has eight.
    is_equal = torch.isclose(decoder(other_end, mask, memory, memory_mask), vectors)
    assert not is_equal[1, 4:].any(dim=1).all()

    # A real vector of the memory changes all vectors.
    other_memory = memory.clone()
    other_memory[:, 0] = 1
    differences = (decoder(x, mask, other_memory, memory_mask) - vectors).abs()
    assert differences.mean(dim=2).min() > 0.01


@pytest.mark.parametrize("has_memory", [False, True])
def test_plain_attention_equals_the_fused_kernel(monkeypatch, has_memory):
    """On a CPU, training uses the plain products, and prediction the fused kernel."""
    attention = make_model().encoder.layers[0].attention
    _, mask = ragged_batch()
    x = torch.randn(3, 8, CONFIG.d_model)
    memory = None
    if has_memory:
        memory = torch.randn(3, 8, CONFIG.d_model)

    fused = nn.functional.scaled_dot_product_attention
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return fused(*arguments, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)

    trained = attention(x, mask[:, None], memory_BSD=memory)
    assert len(calls) == 0

    with torch.inference_mode():
        predicted = attention(x, mask[:, None], memory_BSD=memory)
    assert len(calls) == 1

    torch.testing.assert_close(trained[mask], predicted[mask], atol=1e-5, rtol=1e-5)


def test_fused_attention_never_uses_the_kernel_of_cudnn(monkeypatch):
    """The gradients of cuDNN's kernel were not finite. The caller's choice is restored."""
    attention = make_model().encoder.layers[0].attention
    _, mask = ragged_batch()
    fused = nn.functional.scaled_dot_product_attention
    allowed = []

    def recorded(*arguments, **options):
        kernels = {
            "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
            "flash": torch.backends.cuda.flash_sdp_enabled(),
            "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
            "math": torch.backends.cuda.math_sdp_enabled(),
        }
        allowed.append(kernels)
        return fused(*arguments, **options)

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

    without_cudnn = {"cudnn": False, "flash": True, "efficient": True, "math": True}
    assert allowed == [without_cudnn, without_cudnn]


def test_sequence_dropout_drops_features_of_whole_sequences():
    """A feature is dropped on all tokens or on none, and keeps its mean."""
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


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_model_of_another_type_gives_about_the_same_logits(dtype, expected, pooling):
    model = make_model(pooling=pooling).eval()
    logits = model(*ragged_batch())

    converted = model.to(dtype)(*ragged_batch())

    assert converted.dtype == expected
    assert torch.allclose(converted.float(), logits, atol=0.05)


def test_a_mask_may_be_of_zeros_and_ones():
    """Tokenizers of Hugging Face give such masks."""
    model = make_model().eval()
    input_ids, mask = ragged_batch()

    assert torch.equal(model(input_ids, mask.long()), model(input_ids, mask))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@with_all_settings
def test_gpu_gives_the_logits_of_the_cpu(settings):
    model = make_model(**settings)
    input_ids, mask = ragged_batch()
    spelling = random_spelling(input_ids)
    expected = model(input_ids, mask, spelling)

    spelling_on_gpu = CharNgramBatch(*(part.cuda() for part in spelling))
    found = model.cuda()(input_ids.cuda(), mask.cuda(), spelling_on_gpu)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)
