"""The batches of training: each epoch has every text once, and batches keep their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder_training.batch_sampler import BatchSampler
from encoder_cls.encoder_training.random_numbers import seed_random_numbers

Indices = NDArray[np.int64]

LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


def make_sampler(
    lengths: Indices = LENGTHS,
    *,
    seed: int = 0,
    batch_size: int = 64,
    batch_tokens: int = 1000,
    **train_values: Any,
) -> BatchSampler:
    config = TrainConfig(batch_size=batch_size, batch_tokens=batch_tokens, **train_values)
    return BatchSampler(lengths, config, seed=seed)


def batches_of_epoch(sampler: BatchSampler, epoch: int) -> list[Indices]:
    first = epoch * sampler.batches_per_epoch
    end = first + sampler.batches_per_epoch
    return [sampler.indices(number) for number in range(first, end)]


def text_order(sampler: BatchSampler, *, epoch: int) -> list[int]:
    """All texts, in the order in which an epoch uses them."""
    return np.concatenate(batches_of_epoch(sampler, epoch)).tolist()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=200),
    batch_size=st.integers(1, 40),
    batch_tokens=st.integers(1, 2000),
    epoch=st.integers(0, 3),
)
def test_each_epoch_holds_every_text_once_within_both_limits(
    lengths, batch_size, batch_tokens, epoch
):
    """No text is lost or doubled; a batch over the limit is a single long text."""
    lengths = np.array(lengths)

    sampler = make_sampler(lengths, batch_size=batch_size, batch_tokens=batch_tokens)

    assert sorted(text_order(sampler, epoch=epoch)) == list(range(len(lengths)))
    for batch in batches_of_epoch(sampler, epoch):
        assert len(batch) <= batch_size
        if len(batch) > 1:
            assert lengths[batch].max() * len(batch) <= batch_tokens


def test_a_batch_depends_on_its_number_alone():
    """Two samplers with the same settings have the same batches, asked for in any order."""
    sampler = make_sampler()

    for number in (0, 70, 3, 70, 0):
        found = sampler.indices(number)
        assert np.array_equal(found, make_sampler().indices(number))


def test_batches_differ_between_epochs_and_seeds():
    first = text_order(make_sampler(), epoch=0)

    assert text_order(make_sampler(), epoch=1) != first
    assert text_order(make_sampler(seed=1), epoch=0) != first


def test_padding_is_a_few_percent():
    lengths = 1 + np.random.default_rng(0).lognormal(3, 0.6, size=5000).astype(int)

    batches = batches_of_epoch(make_sampler(lengths, batch_tokens=8192), 0)

    tokens_with_padding = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert 1 - lengths.sum() / tokens_with_padding < 0.06


def test_texts_of_a_batch_change_from_epoch_to_epoch():
    """Texts of equal lengths are shuffled, so no batch of an epoch is a batch of the next one."""
    sampler = make_sampler(np.full(1000, 10), batch_size=20)

    first = {frozenset(batch) for batch in batches_of_epoch(sampler, 0)}
    second = {frozenset(batch) for batch in batches_of_epoch(sampler, 1)}

    assert len(first) == 50
    assert first.isdisjoint(second)


def test_a_step_has_its_batches_and_the_last_of_an_epoch_the_rest():
    """Each batch is in exactly one step, in order, and no step is in two epochs."""
    sampler = make_sampler(accumulation_steps=4)
    full_steps, rest = divmod(sampler.batches_per_epoch, 4)
    assert rest > 0
    assert sampler.steps_per_epoch == full_steps + 1

    sizes = []
    found: list[list[int]] = []
    for step in range(2 * sampler.steps_per_epoch):
        batches = sampler.batches_of_step(step)
        sizes.append(len(batches))
        found += as_lists(batches)

    sizes_of_epoch = [4] * full_steps + [rest]
    assert sizes == sizes_of_epoch * 2

    one_by_one = make_sampler()
    expected = batches_of_epoch(one_by_one, 0) + batches_of_epoch(one_by_one, 1)
    assert found == as_lists(expected)


def as_lists(batches: Sequence[Indices]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_seeds_decide_the_random_numbers_of_torch():
    cpu = torch.device("cpu")

    seed_random_numbers(7, cpu)
    first = torch.rand(3)
    second = torch.rand(3)
    seed_random_numbers(7, cpu)
    again = torch.rand(3)

    assert torch.equal(again, first)
    assert not torch.equal(second, first)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), first)
