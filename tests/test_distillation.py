"""Teachers: their joint opinion is what their scaled scores add up to, and the scales are what validation says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from encoder_cls.batching import Batch, gather, pad, vary
from encoder_cls.calibration import fit_pool, pool
from encoder_cls.classifier import compute_logits
from encoder_cls.config import ModelConfig, TokenizerConfig
from encoder_cls.distillation import Teachers
from encoder_cls.linear import LinearClassifier
from encoder_cls.model import EncoderClassifier
from encoder_cls.tokenizer import CLS_ID, TokenizedTexts, tokenize, train_tokenizer

TEXTS = ["rain wind", "ball goal", "soup", "snow rain now", "goal", "bread soup pan", "wind", "team ball the goal", ""]
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig())
READ = tokenize(TOKENIZER, [*TEXTS, "umbrella ball"], max_seq_len=8)
VALIDATION = tokenize(TOKENIZER, TEXTS[:8], max_seq_len=8)


def make_encoder(seed: int) -> EncoderClassifier:
    """An encoder of strong opinions."""
    torch.manual_seed(seed)
    config = ModelConfig(d_model=16, num_layers=1, num_heads=2, d_ff=16, max_seq_len=8, char_ngram_buckets=64)
    model = EncoderClassifier(config, vocab_size=TOKENIZER.get_vocab_size(), num_classes=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return model.eval()


def make_linear() -> LinearClassifier:
    return LinearClassifier(tokenize(TOKENIZER, TEXTS, max_seq_len=8), LABELS, num_classes=3, char_ngrams=True)


def make_teachers(encoders: Sequence[nn.Module], linear: object, labels=LABELS[:8], **options: object) -> Teachers:
    return Teachers(encoders, linear, **({"validation": VALIDATION, "labels": labels, "batch_tokens": 8} | options))


def everything() -> tuple[Batch, np.ndarray]:
    return pad(READ, np.arange(len(READ))), np.arange(len(READ.words))


# ---------------------------------------------------------------- teachers whose opinions are known


class Lookup(nn.Module):
    """An encoder that has one opinion for each text, by its tokens."""

    def __init__(self, logits) -> None:
        super().__init__()
        self.head = nn.Module()
        self.head.linear = nn.Linear(1, 3)
        self.logits = torch.tensor(np.array(logits), dtype=torch.float32)

    def forward(self, input_ids, attention_mask, spelling):
        asked = [row[mask].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        known = np.split(READ.input_ids(), READ.offsets[1:-1])
        return torch.stack([self.logits[[k.tolist() for k in known].index(ids)] for ids in asked])


class LinearLookup:
    """A linear classifier that has one opinion for each text."""

    def __init__(self, logits) -> None:
        self.logits = np.array(logits, dtype=np.float32)

    def margins(self, texts: TokenizedTexts, places, lengths):
        assert lengths.sum() == len(places)
        assert (texts.input_ids(places[np.cumsum(lengths) - lengths]) == CLS_ID).all()
        return self.logits[: len(lengths)]


def opinions(right: Sequence[int], sure: float = 4.0) -> np.ndarray:
    """Logits of the texts: the right class where the text is in `right`, else the next one."""
    classes = [label if place in right else (label + 1) % 3 for place, label in enumerate([*LABELS, 0])]
    return sure * np.eye(3)[classes]


@pytest.mark.parametrize(
    ("by_encoder", "by_linear", "least", "most"),
    [
        (opinions(range(8)), opinions([0]), 0.0, 0.05),
        (opinions([0]), opinions(range(8)), 0.95, 1.0),
        (opinions([0, 1, 2, 3, 4, 5], 1.5), opinions([2, 3, 4, 5, 6, 7]), 0.25, 0.75),
    ],
    ids=["encoder", "linear", "both"],
)
def test_the_linear_teacher_counts_as_much_as_it_knows(by_encoder, by_linear, least, most):
    """Nothing where it is wrong, everything where the encoders are, something where each knows texts of its own."""
    assert least <= make_teachers([Lookup(by_encoder)], LinearLookup(by_linear)).linear_part <= most


@pytest.mark.parametrize("seed", range(8))
def test_the_joint_opinion_is_the_pool_that_explains_the_validation_labels_best(seed):
    """Of the encoders as members of one kind, and of the linear margins."""
    random = np.random.default_rng(seed)
    right, noise = 2 * np.eye(3)[[*LABELS, 0]], random.normal(size=(3, 10, 3))
    first, second, by_linear = (right * random.random() + noise).astype(np.float32)
    teachers = make_teachers([Lookup(first), Lookup(second)], LinearLookup(by_linear))
    kinds = [np.stack([first, second])[:, :8], by_linear[None, :8]]
    scales, parts = fit_pool(kinds, LABELS[:8])
    expected = pool(kinds, scales)
    np.testing.assert_allclose(teachers.validation_probabilities, expected, rtol=1e-5)
    assert teachers.linear_part == pytest.approx(parts[1])
    assert teachers.validation_accuracy == (expected.argmax(axis=1) == LABELS[:8]).mean()


def test_divergence_is_that_of_kullback_and_leibler_from_the_teachers_to_the_model():
    """Their mean over the validation texts; none between equals."""
    random = np.random.default_rng(0)
    by_encoder, by_model = random.normal(size=(2, 10, 3)).astype(np.float32)
    teachers = make_teachers([Lookup(by_encoder)], None)
    joint, model = teachers.validation_probabilities, softmax(by_model[:8].astype(np.float64), axis=1)
    expected = (joint * np.log(joint / model)).sum(axis=1).mean()
    assert teachers.divergence(by_model[:8]) == pytest.approx(expected, rel=1e-6)
    assert teachers.divergence(np.log(joint).astype(np.float32)) == pytest.approx(0, abs=1e-6)


def test_scores_of_any_size_count_alike():
    """Margins a tenth as large as the encoder's logits are scaled up first: both know the same."""
    alike = make_teachers([Lookup(opinions(range(6), 3.0))], LinearLookup(opinions(range(6), 0.3)))
    assert alike.linear_part == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("right", "accuracy"), [(range(8), 1.0), ([1, 2, 7], 0.375), ((), 0.0)], ids=["all", "three", "none"]
)
def test_validation_accuracy_is_the_part_of_right_answers(right, accuracy):
    """Of an encoder, of a linear classifier, and of both where they agree."""
    encoder, linear = Lookup(opinions(right)), LinearLookup(opinions(right))
    for teachers in (make_teachers([encoder], None), make_teachers([], linear), make_teachers([encoder], linear)):
        assert teachers.validation_accuracy == accuracy


def test_encoders_are_averaged_by_their_probabilities():
    """One of them is asked about a batch, each equally often, so that on average it is their mean."""
    sure, unsure, other = [[9e4, 0, 0]] * 10, [[0, 0.9, 0]] * 10, [[0, 0.9, 0.5]] * 10
    teachers = make_teachers([Lookup(sure), Lookup(unsure), Lookup(other)], None)
    batch, places = everything()
    random = np.random.default_rng(0)
    answers = [teachers.probabilities(batch, READ, places, READ.lengths, random).numpy()[:8] for _ in range(600)]
    opinions_given, times = np.unique(answers, axis=0, return_counts=True)
    assert len(opinions_given) == 3  # each time one of them is asked
    assert times.min() > 160
    np.testing.assert_allclose(opinions_given.mean(axis=0), teachers.validation_probabilities, atol=1e-6)


# ---------------------------------------------------------------- real teachers


COMPANIES = {
    "encoders": ([0, 1, 2], False),
    "one encoder": ([5], False),
    "linear": ([], True),
    "both": ([0, 1], True),
}
companies = pytest.mark.parametrize(("seeds", "has_linear"), COMPANIES.values(), ids=COMPANIES)


@companies
def test_probabilities_are_of_the_scaled_sum_of_scores(seeds, has_linear):
    """One encoder's and the linear classifier's, each text by itself; rows sum to one, in float32 on the device."""
    encoders, linear = [make_encoder(seed) for seed in seeds], make_linear() if has_linear else None
    teachers = make_teachers(encoders, linear)
    assert (seeds and has_linear) or teachers.linear_part == float(has_linear)
    batch, places = everything()
    found = teachers.probabilities(batch, READ, places, READ.lengths, np.random.default_rng(3))
    assert found.dtype == torch.float32
    assert found.device == batch.input_ids.device
    torch.testing.assert_close(found.sum(dim=1), torch.ones(len(READ)))
    kinds = [np.stack([compute_logits(it, VALIDATION, batch_tokens=8) for it in encoders])] if encoders else []
    if linear:
        kinds.append(linear.margins(VALIDATION, np.arange(len(VALIDATION.words)), VALIDATION.lengths)[None])
    scales, _ = fit_pool(kinds, LABELS[:8])
    expected = np.zeros((len(READ), 3))
    if encoders:
        asked = encoders[np.random.default_rng(3).integers(len(encoders))]
        for row in range(len(READ)):
            expected[row] += scales[0] * asked(*pad(READ, np.array([row]))).detach().numpy()[0]
    if linear:
        expected += scales[-1] * linear.margins(READ, places, READ.lengths)
    np.testing.assert_allclose(found, softmax(expected, axis=1), atol=1e-4)


@companies
def test_another_model_learns_from_the_probabilities(seeds, has_linear):
    """They are plain tensors without a gradient: a loss with them has a backward pass, which leaves teachers alone."""
    encoders, linear = [make_encoder(seed) for seed in seeds], make_linear() if has_linear else None
    teachers, student = make_teachers(encoders, linear), make_encoder(99).train()
    batch, places = everything()
    targets = teachers.probabilities(batch, READ, places, READ.lengths, np.random.default_rng(0))
    assert not targets.requires_grad
    assert not targets.is_inference()
    for loss in (
        nn.functional.cross_entropy(student(*batch), targets),
        nn.functional.kl_div(student.log_probabilities(*batch), targets, reduction="batchmean"),
        -(student.log_probabilities(*batch) * targets).sum(),
    ):
        loss.backward()
    assert student.head.linear.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for encoder in encoders for parameter in encoder.parameters())


@companies
def test_teachers_are_asked_about_texts_varied_in_any_way(seeds, has_linear):
    """Each sequence is answered as it is answered alone."""
    linear = make_linear() if has_linear else None
    teachers = make_teachers([make_encoder(seed) for seed in seeds], linear)
    places, lengths = vary(READ, np.arange(len(READ)), np.random.default_rng(0))
    together = teachers.probabilities(gather(READ, places, lengths), READ, places, lengths, np.random.default_rng(0))
    starts = np.cumsum(lengths) - lengths
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        own, one = places[start : start + length], np.array([length])
        alone = teachers.probabilities(gather(READ, own, one), READ, own, one, np.random.default_rng(0))
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-4)


def test_real_teachers_know_the_right_answers_together():
    """A linear classifier of these very texts wins over encoders that know nothing."""
    teachers = make_teachers([make_encoder(0)], make_linear())
    assert teachers.linear_part > 0.5
    assert teachers.validation_accuracy == 1.0


def test_the_work_can_be_stopped_after_each_batch():
    """`after_batch` is called once for each batch of each encoder, and what it raises ends the work."""
    calls = []
    encoders = [make_encoder(0), make_encoder(1)]
    make_teachers(encoders, None, batch_tokens=1, after_batch=lambda: calls.append(1))
    assert len(calls) == 2 * len(VALIDATION)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_teachers(encoders, None, after_batch=stop)
