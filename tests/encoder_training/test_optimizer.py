"""The optimizers and the learning rate."""

from __future__ import annotations

import pytest
import torch

from encoder_cls.config.schema import ModelConfig, TrainConfig
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.encoder_training.embedding_tables import embedding_tables
from encoder_cls.encoder_training.learning_rate import learning_rate
from encoder_cls.encoder_training.optimizer import (
    BETAS,
    AdamW,
    RowwiseAdam,
    load_moments,
    make_optimizers,
    moments_of,
)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])


def test_an_optimizer_of_torch_takes_all_parameters_until_ours_are_made():
    """Gradients of tables are dense unless `make_optimizers` makes them sparse."""
    config = ModelConfig(d_model=16, num_heads=2, char_ngram_buckets=64, bigram_buckets=64)
    model = EncoderClassifier(config, vocab_size=9, num_classes=2)
    input_ids = torch.tensor([[2, 4, 5]])
    char_ngrams = CharNgramBatch(input_ids * 0, torch.tensor([7]), torch.tensor([0, 1]))
    batch = (input_ids, input_ids > 0, char_ngrams)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    model(*batch)[0, 0].backward()
    torch.optim.AdamW(model.parameters(), lr=0.1).step()

    for parameter, old in zip(model.parameters(), before, strict=True):
        assert not parameter.grad.is_sparse
        assert not torch.equal(parameter, old)

    make_optimizers(model, TrainConfig())
    model.zero_grad()
    model(*batch)[0, 0].backward()
    assert all(table.grad.is_sparse for table in embedding_tables(model).values())


def test_only_matrices_of_linear_maps_decay():
    """Biases, norms, tables and position scales have no decay; each parameter is in one group."""
    config = ModelConfig(d_model=16, num_heads=2, char_ngram_buckets=64, bigram_buckets=64)
    model = EncoderClassifier(config, vocab_size=9, num_classes=2)

    dense, sparse = make_optimizers(model, TrainConfig(weight_decay=0.3))

    decayed, others = dense.param_groups
    (tables,) = sparse.param_groups
    assert decayed["weight_decay"] == 0.3
    assert others["weight_decay"] == 0
    assert "weight_decay" not in tables

    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed_names = {names[parameter] for parameter in decayed["params"]}
    other_names = {names[parameter] for parameter in others["params"]}
    table_names = {names[parameter] for parameter in tables["params"]}
    matrix_names = set()
    for name in names.values():
        if name.endswith(("_proj.weight", "head.linear.weight")):
            matrix_names.add(name)

    assert decayed_names == matrix_names
    assert table_names == {
        "encoder.embedding.tokens.weight",
        "encoder.embedding.char_ngrams.table.weight",
        "encoder.embedding.bigrams.table.weight",
    }
    assert sorted([*decayed_names, *other_names, *table_names]) == sorted(names.values())


@on_each_device
def test_rowwise_adam_equals_sparse_adam_of_torch(device):
    """Batches use some rows twice and others never; the update equals that of torch's optimizer."""
    torch.manual_seed(0)
    ours = torch.nn.Embedding(20, 6, sparse=True, device=device)
    theirs = torch.nn.Embedding(20, 6, sparse=True, device=device)
    theirs.load_state_dict(ours.state_dict())
    our_optimizer = RowwiseAdam([{"params": list(ours.parameters())}], lr=0.1)
    their_optimizer = torch.optim.SparseAdam(theirs.parameters(), lr=0.1, betas=BETAS)

    for _ in range(20):
        rows = torch.randint(0, 15, (12,), device=device)
        weights = torch.randn(12, 6, device=device)
        for table, optimizer in ((ours, our_optimizer), (theirs, their_optimizer)):
            optimizer.zero_grad()
            loss = (table(rows) * weights).sum()
            loss.backward()
            optimizer.step()

    torch.testing.assert_close(ours.weight, theirs.weight)
    our_state = our_optimizer.state[ours.weight]
    their_state = their_optimizer.state[theirs.weight]
    assert our_state.keys() == their_state.keys()
    torch.testing.assert_close(our_state["exp_avg"], their_state["exp_avg"])
    torch.testing.assert_close(our_state["exp_avg_sq"], their_state["exp_avg_sq"])
    assert our_state["step"] == their_state["step"]


@on_each_device
def test_a_device_that_decides_updates_rows_alike(device):
    """The rows are those of the update that the caller decides, up to the order of sums."""

    def trained(found_inf: torch.Tensor | None) -> tuple[torch.Tensor, RowwiseAdam]:
        """A table after nine updates, and its optimizer."""
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 6, sparse=True, device=device)
        optimizer = RowwiseAdam([{"params": [table.weight]}], lr=0.1)

        for _ in range(9):
            optimizer.zero_grad()
            rows = torch.randint(0, 15, (12,), device=device)
            weights = torch.randn(12, 6, device=device)
            loss = (table(rows) * weights).sum()
            loss.backward()
            optimizer.step(found_inf)
        return table.weight, optimizer

    expected, deciding_caller = trained(None)
    found, deciding_device = trained(torch.zeros((), device=device))

    torch.testing.assert_close(found, expected)
    expected_moments = moments_of([deciding_caller])
    moments = moments_of([deciding_device])
    assert moments.keys() == expected_moments.keys()
    for name, moment in expected_moments.items():
        torch.testing.assert_close(moments[name].cpu(), moment.cpu())
        assert moments[name].dtype == moment.dtype


def test_moments_that_a_device_has_counted_load_into_an_optimizer_that_counts_itself():
    """A run that began on a GPU can continue on a CPU."""
    table = torch.nn.Embedding(20, 6, sparse=True)
    on_gpu = RowwiseAdam([{"params": [table.weight]}], lr=0.1)
    on_cpu = RowwiseAdam([{"params": [table.weight]}], lr=0.1)
    table(torch.tensor([3])).sum().backward()
    on_gpu.step(torch.zeros(()))

    load_moments([on_cpu], moments_of([on_gpu]))
    on_cpu.step()

    assert on_cpu.state[table.weight]["step"] == 2


def test_a_table_without_a_gradient_is_not_changed():
    table = torch.nn.Embedding(20, 6, sparse=True)
    optimizer = RowwiseAdam([{"params": [table.weight]}], lr=0.1)
    table(torch.tensor([3])).sum().backward()
    optimizer.step()
    before = table.weight.detach().clone()

    optimizer.zero_grad()
    optimizer.step()

    assert torch.equal(table.weight, before)


@on_each_device
def test_adamw_equals_that_of_torch(device):
    """Groups differ in weight decay; steps differ in learning rate and in missing gradients."""
    torch.manual_seed(0)

    def make_parameters() -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.ones(3, width, device=device)) for width in (1, 2, 4)]

    def make_groups(parameters: list[torch.nn.Parameter]) -> list[dict[str, object]]:
        return [
            {"params": parameters[:2], "weight_decay": 0.3},
            {"params": parameters[2:], "weight_decay": 0.0},
        ]

    ours = make_parameters()
    theirs = make_parameters()
    our_optimizer = AdamW(make_groups(ours), lr=0.1)
    their_optimizer = torch.optim.AdamW(make_groups(theirs), lr=0.1, betas=BETAS, fused=False)

    for step in range(5):
        # In each step another parameter has no gradient.
        gradients: list[torch.Tensor | None] = [torch.randn_like(parameter) for parameter in ours]
        gradients[step % 3] = None

        for optimizer, parameters in ((our_optimizer, ours), (their_optimizer, theirs)):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in parameters)

            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()

    for our_parameter, their_parameter in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_parameter, their_parameter)
        our_state = our_optimizer.state[our_parameter]
        their_state = their_optimizer.state[their_parameter]
        assert our_state.keys() == their_state.keys()
        for name, value in our_state.items():
            torch.testing.assert_close(value, their_state[name], check_device=False)


def test_learning_rate_rises_then_falls_to_zero():
    """A linear warm-up to the peak is followed by half a cosine."""
    config = TrainConfig(learning_rate=0.5, warmup_fraction=0.1)

    rates = [learning_rate(step, total_steps=100, config=config) for step in range(101)]

    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert rates[10] == 0.5
    assert rates[55] == pytest.approx(0.25)
    assert rates[100] == pytest.approx(0)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_single_step_without_warm_up_has_the_peak_rate():
    config = TrainConfig(learning_rate=0.5, warmup_fraction=0.0)

    assert learning_rate(0, total_steps=1, config=config) == 0.5
