"""The sizes of a run: of its data, its vocabulary and its encoder."""

from __future__ import annotations

import math

from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.training.encoder_stage import untrained_encoder
from encoder_cls.training.prepared import Prepared


def data_statistics(prepared: Prepared) -> dict[str, float]:
    """The sizes of the data, and the fractions of truncated texts, unknown tokens and padding.

    Padding is that of the encoder's batches, as wide as their longest text.
    """
    # Count the tokens of an epoch, padding included.
    lengths = prepared.encoder_texts.lengths
    sampler = prepared.encoder_sampler
    num_with_padding = 0
    for number in range(sampler.batches_per_epoch):
        batch = sampler.indices(number)
        num_with_padding += lengths[batch].max() * len(batch)

    dataset = prepared.dataset
    statistics: dict[str, float] = {
        "training_texts": len(dataset.train),
        "validation_texts": len(dataset.validation),
        "test_texts": len(dataset.test or ()),
        "unlabelled_texts": len(dataset.unlabelled.texts),
        "tokens": int(prepared.texts.lengths.sum()),
        "classes": len(dataset.label_names),
        "vocabulary": prepared.vocab_size,
    }
    if prepared.plan.has_encoder:
        statistics["parameters"] = num_parameters(prepared)
    statistics["truncated_fraction"] = float(prepared.encoder_texts.truncated.mean())
    statistics["unknown_fraction"] = prepared.validation_texts.unknown_fraction
    statistics["padding_fraction"] = float(1 - lengths.sum() / num_with_padding)
    return statistics


def num_parameters(prepared: Prepared) -> int:
    """The parameters of the encoder; 0 without one."""
    if not prepared.plan.has_encoder:
        return 0
    if prepared.model_class:
        own_encoder = untrained_encoder(prepared, prepared.config.seed)
        return sum(weight.numel() for weight in own_encoder.parameters())

    shapes = EncoderArchitecture.of(prepared.config.model).weight_shapes(
        vocab_size=prepared.vocab_size, num_classes=len(prepared.dataset.label_names)
    )
    return sum(math.prod(shape) for shape in shapes.values())
