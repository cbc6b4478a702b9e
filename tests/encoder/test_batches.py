"""The batches of training: every text once an epoch, within the budget, and a pure function of the step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.config.schema import TrainConfig
from encoder_cls.encoder.batches import BatchSampler

LENGTHS = np.random.default_rng(0).integers(1, 200, size=500)


def schedule(lengths=LENGTHS, *, batch_size=64, batch_tokens=1000, seed=0) -> BatchSampler:
    return BatchSampler(
        lengths, TrainConfig(batch_size=batch_size, batch_tokens=batch_tokens), seed=seed
    )


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
    """No text is lost or doubled; a batch over the budget is a single long text."""
    batches = schedule(np.array(lengths), batch_size=batch_size, batch_tokens=batch_tokens)
    first = epoch * batches.batches_per_epoch
    found = [batches.indices(first + i) for i in range(batches.batches_per_epoch)]
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    for batch in found:
        padded = max(lengths[i] for i in batch) * len(batch)
        assert len(batch) <= batch_size
        assert padded <= batch_tokens or len(batch) == 1


def test_a_batch_depends_on_its_number_alone():
    """Asked for in any order, by any schedule of the same settings, a batch is the same; seeds and epochs differ."""
    numbers = [0, 70, 3, 70, 0]
    forwards, fresh = schedule(), [schedule().indices(number) for number in numbers]
    assert all(
        (forwards.indices(n) == batch).all() for n, batch in zip(numbers, fresh, strict=True)
    )
    per_epoch = forwards.batches_per_epoch
    assert any(
        list(forwards.indices(i)) != list(forwards.indices(i + per_epoch)) for i in range(per_epoch)
    )
    assert any(
        list(forwards.indices(i)) != list(schedule(seed=1).indices(i)) for i in range(per_epoch)
    )


def test_padding_is_a_few_percent():
    lengths = np.random.default_rng(0).lognormal(3, 0.6, size=5000).astype(int) + 1
    batches = schedule(lengths, batch_tokens=8192)
    padded = sum(
        lengths[b := batches.indices(i)].max() * len(b) for i in range(batches.batches_per_epoch)
    )
    assert 1 - lengths.sum() / padded < 0.06


def test_neighbours_change_from_epoch_to_epoch():
    """Equal lengths are shuffled: few pairs that share a batch in one epoch share one in the next."""
    batches = schedule(np.full(1000, 10), batch_size=20)
    first, second = (
        {tuple(sorted(batches.indices(epoch * 50 + i))) for i in range(50)} for epoch in (0, 1)
    )
    assert not first & second


def test_a_step_has_its_batches_and_the_last_of_an_epoch_the_rest():
    """In their order, none left out, none in two steps, and no step in two epochs."""
    one_by_one = schedule()
    batches = one_by_one.batches_per_epoch
    sampler = BatchSampler(
        LENGTHS, TrainConfig(batch_size=64, batch_tokens=1000, accumulation_steps=4), seed=0
    )
    assert batches % 4
    assert sampler.steps_per_epoch == batches // 4 + 1
    steps = [sampler.batches_of_step(step) for step in range(2 * sampler.steps_per_epoch)]
    assert [len(step) for step in steps] == ([4] * (batches // 4) + [batches % 4]) * 2
    found = [batch.tolist() for step in steps for batch in step]
    assert found == [one_by_one.indices(number).tolist() for number in range(2 * batches)]
