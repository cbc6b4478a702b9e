"""The batches of training: every text once an epoch, within the limits, by the step alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.batches import BatchSampler

LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


def make_sampler(lengths=LENGTHS, *, seed=0, batch_size=64, batch_tokens=1000, **values):
    config = TrainConfig(batch_size=batch_size, batch_tokens=batch_tokens, **values)
    return BatchSampler(lengths, config, seed=seed)


def batches_of_epoch(sampler, epoch):
    first = epoch * sampler.batches_per_epoch
    return [sampler.indices(first + number) for number in range(sampler.batches_per_epoch)]


@settings(max_examples=60, deadline=None, derandomize=True)
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
    batches = batches_of_epoch(sampler, epoch)

    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= batch_size
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= batch_tokens


def test_a_batch_depends_on_its_number_alone():
    """Any sampler of the same settings has the same batches, in whatever order it is asked."""
    sampler = make_sampler()
    for number in (0, 70, 3, 70, 0):
        assert np.array_equal(sampler.indices(number), make_sampler().indices(number))


def test_batches_differ_between_epochs_and_seeds():
    first = np.concatenate(batches_of_epoch(make_sampler(), 0))
    assert not np.array_equal(first, np.concatenate(batches_of_epoch(make_sampler(), 1)))
    assert not np.array_equal(first, np.concatenate(batches_of_epoch(make_sampler(seed=1), 0)))


def test_padding_is_a_few_percent():
    lengths = np.random.default_rng(0).lognormal(3, 0.6, size=5000).astype(int) + 1
    batches = batches_of_epoch(make_sampler(lengths, batch_tokens=8192), 0)
    tokens_with_padding = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert 1 - lengths.sum() / tokens_with_padding < 0.06


def test_neighbours_change_from_epoch_to_epoch():
    """Equal lengths are shuffled: no batch of one epoch is a batch of the next."""
    sampler = make_sampler(np.full(1000, 10), batch_size=20)
    first = {tuple(sorted(batch)) for batch in batches_of_epoch(sampler, 0)}
    second = {tuple(sorted(batch)) for batch in batches_of_epoch(sampler, 1)}
    assert len(first) == 50
    assert not first & second


def test_a_step_has_its_batches_and_the_last_of_an_epoch_the_rest():
    """Batches come in their order, none is left out or in two steps, no step is in two epochs."""
    one_by_one = make_sampler()
    num_batches = one_by_one.batches_per_epoch
    full_steps, rest = divmod(num_batches, 4)
    assert rest

    sampler = make_sampler(accumulation_steps=4)
    assert sampler.steps_per_epoch == full_steps + 1

    steps = [sampler.batches_of_step(step) for step in range(2 * sampler.steps_per_epoch)]
    sizes = [len(step) for step in steps]
    assert sizes == ([4] * full_steps + [rest]) * 2

    found = [batch.tolist() for step in steps for batch in step]
    assert found == [one_by_one.indices(number).tolist() for number in range(2 * num_batches)]
