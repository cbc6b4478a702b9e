"""Steps of few shapes, which a GPU records and replays.

A recorder of the CPU takes the place of CUDA's.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.small_runs import CPU, make_config, make_training
from torch import Tensor

from encoder_cls.encoder.nested_tensors import list_tensors
from encoder_cls.encoder.torch_encoder import Batch
from encoder_cls.encoder.transformer import CharNgramBatch, EncoderClassifier
from encoder_cls.encoder_training import step_graphs
from encoder_cls.encoder_training.distributed import ALONE
from encoder_cls.encoder_training.graph_shapes import pad_to_few_shapes, round_up_size
from encoder_cls.encoder_training.optimizer import moments_of
from encoder_cls.encoder_training.step_graphs import StepGraphs, _without_garbage_collection
from encoder_cls.encoder_training.training_state import TrainingState
from encoder_cls.training import encoder_stage
from encoder_cls.training.encoder_stage import ON_LABELS, PRETRAINING
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# Without dropout, a loss does not depend on random numbers.
NO_DROPOUT = {"dropout": 0.0, "head_dropout": 0.0}

MASKED = {"epochs": 1}
DENOISED = {"epochs": 1, "objective": "denoising"}
KINDS = [
    pytest.param(ON_LABELS, {}, id="labels"),
    pytest.param(ON_LABELS, {"rdrop_weight": 1.0, "word_dropout": 0.2}, id="R-Drop"),
    pytest.param(PRETRAINING, {"pretrain": MASKED}, id="masked words"),
    pytest.param(PRETRAINING, {"pretrain": DENOISED}, id="denoising"),
]


# Few shapes


def test_sizes_are_rounded_up_to_few():
    sizes = {round_up_size(size) for size in range(1, 17)}
    lengths = {round_up_size(size, tolerance=1 / 4) for size in range(16, 129)}

    assert sizes == {1, 2, 3, 4, 6, 8, 12, 16}
    assert lengths == {16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128}


def test_a_padded_batch_has_the_same_texts_and_words():
    """The added n-grams are those of the batch, in words that no text has."""
    char_ngrams = CharNgramBatch(
        words=torch.tensor([[0, 1, 2, 1, 0]]),
        ngrams=torch.tensor([7, 8, 9, 5, 6]),
        offsets=torch.tensor([0, 2, 2, 5]),
    )
    mask = torch.tensor([[True, True, True, True, False]])
    batch = Batch(torch.tensor([[2, 4, 5, 4, 0]]), mask, char_ngrams)

    padded = pad_to_few_shapes(batch, max_seq_len=64)

    assert padded.input_ids.tolist() == [[2, 4, 5, 4, 0]]
    assert padded.attention_mask.tolist() == mask.tolist()
    assert padded.char_ngrams.ngrams.tolist() == [7, 8, 9, 5, 6, 7]
    assert padded.char_ngrams.offsets.tolist() == [0, 2, 2, 5, 6]


def test_texts_are_never_padded_to_more_than_an_encoder_reads():
    input_ids = torch.ones(1, 17, dtype=torch.int64)
    no_ngrams = CharNgramBatch(
        words=torch.zeros(1, 17, dtype=torch.int64),
        ngrams=torch.zeros(0, dtype=torch.int64),
        offsets=torch.tensor([0, 0]),
    )
    batch = Batch(input_ids, input_ids > 0, no_ngrams)

    assert pad_to_few_shapes(batch, max_seq_len=64).input_ids.shape == (1, 20)
    assert pad_to_few_shapes(batch, max_seq_len=18).input_ids.shape == (1, 18)


@pytest.mark.parametrize(("name", "values"), KINDS)
def test_a_padded_batch_has_the_same_loss_and_gradients(tmp_path, name, values):
    prepared = prepare(make_config(tmp_path, model=NO_DROPOUT, **values))
    trainer = make_training(prepared, name).trainer
    batches = [trainer.task.batches_at(step, 0, 1)[0] for step in range(10)]

    num_padded = 0
    for batch in batches:
        padded = batch.padded(max_seq_len=64)
        num_padded += padded.inputs.input_ids.shape != batch.inputs.input_ids.shape
        loss, gradients = loss_and_gradients(trainer.model, batch)
        found_loss, found_gradients = loss_and_gradients(trainer.model, padded)

        torch.testing.assert_close(found_loss, loss)
        for key, gradient in gradients.items():
            torch.testing.assert_close(found_gradients[key], gradient, msg=key)

    assert num_padded > 0


def loss_and_gradients(model: EncoderClassifier, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean loss of a model on a batch, and the gradient of each parameter."""
    model.zero_grad()
    loss = batch.loss(model) / batch.normalizer
    loss.backward()

    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.to_dense()
    return loss.detach(), gradients


# Graphs


class CpuRecorder:
    """Records functions on the CPU: a replay computes them again.

    As on a GPU, the outputs of a replay are overwritten by the next one.
    """

    device = CPU

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0
        self._last_outputs: list[Tensor] = []

    def record(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that computes a function again."""
        self.num_recorded += 1

        def replay() -> Any:
            self.num_replayed += 1
            for tensor in self._last_outputs:
                tensor.fill_(math.nan)
            outputs = function()
            self._last_outputs = list_tensors(outputs)
            return outputs

        return replay


def test_the_second_inputs_of_a_shape_are_recorded():
    recorder = CpuRecorder()
    graphs = StepGraphs(lambda inputs: {"sum": inputs["x"].sum()}, recorder)

    recorded = []
    replayed = []
    for size in (2, 3, 2, 2, 3):
        graphs({"x": torch.ones(size)})
        recorded.append(recorder.num_recorded)
        replayed.append(recorder.num_replayed)

    assert recorded == [0, 0, 1, 1, 2]
    assert replayed == [0, 0, 1, 2, 3]


def test_outputs_stay_while_further_inputs_are_computed():
    graphs = StepGraphs(lambda inputs: [inputs[0] * 10], CpuRecorder())

    outputs = [graphs([torch.tensor(float(number))]) for number in range(5)]

    assert [float(output[0]) for output in outputs] == [0, 10, 20, 30, 40]


def test_shapes_beyond_the_maximum_number_of_graphs_are_not_recorded(monkeypatch):
    monkeypatch.setattr(step_graphs, "MAX_GRAPHS", 1)
    recorder = CpuRecorder()
    graphs = StepGraphs(lambda inputs: inputs[0].sum(), recorder)

    sums = []
    for size in (2, 3, 2, 3, 3):
        output = graphs([torch.ones(size)])
        sums.append(float(output))

    assert sums == [2, 3, 2, 3, 3]
    assert recorder.num_recorded == 1


def test_the_graphs_of_a_training_go_when_it_ends(tmp_path):
    """Those of pretraining would take memory of the GPU during the training on labels."""
    recorder = CpuRecorder()
    prepared = prepare(make_config(tmp_path, epochs=4))
    training = make_training(prepared)
    trainer = replace(training.trainer, runs_ahead=True, recorder=recorder)

    list(replace(training, trainer=trainer).run(TrainingState()))

    assert recorder.num_recorded > 0
    assert not trainer._graphs._graphs


def test_no_garbage_is_collected_while_a_graph_is_recorded():
    """Garbage may have a graph, and CUDA cannot delete one meanwhile."""
    assert gc.isenabled()
    with _without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("name", "values"),
    [KINDS[0], pytest.param(*KINDS[-1].values, id="denoising", marks=pytest.mark.slow)],
)
def test_replayed_steps_compute_the_same_as_others(tmp_path, monkeypatch, name, values):
    prepared = prepare(make_config(tmp_path, **values))

    monkeypatch.setattr(step_graphs, "MAX_GRAPHS", 0)
    expected = trained(prepared, name, recorder=CpuRecorder())

    monkeypatch.undo()
    recorder = CpuRecorder()
    found = trained(prepared, name, recorder=recorder)

    assert recorder.num_replayed > 10
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(found[key], tensor), key


def trained(prepared: Prepared, name: str, *, recorder: CpuRecorder) -> dict[str, Tensor]:
    """The weights and moments of a training after some steps, and the metrics of these steps."""
    trainer = make_training(prepared, name).trainer
    trainer = replace(trainer, runs_ahead=True, recorder=recorder)
    steps = [trainer.start_step(step, 0.01) for step in range(40)]

    metrics = {f"step {number}": step.sums for number, step in enumerate(steps)}
    return trainer.model.state_dict() | moments_of(trainer.optimizers) | metrics


def test_only_steps_that_never_wait_are_recorded(tmp_path, monkeypatch):
    """The `Recorder` of CUDA takes a device; here it is replaced."""
    monkeypatch.setattr(encoder_stage, "Recorder", lambda device: f"recorder of {device}")
    gpu = torch.device("cuda")

    def recorder(device: torch.device = gpu, group: Any = ALONE, **values: Any) -> Any:
        objective = values.pop("objective", None)
        prepared = replace(prepare(make_config(tmp_path, **values)), objective=objective)
        return encoder_stage._recorder(prepared, device=device, group=group)

    several = type("Group", (), {"size": 2})
    assert recorder() == "recorder of cuda"
    assert recorder(CPU) is None
    assert recorder(group=several) is None
    assert recorder(cuda_graphs=False) is None
    assert recorder(gradient_shards=2) is None
    assert recorder(objective=lambda model, batch: batch.loss(model)) is None


# On a GPU


@needs_cuda
@pytest.mark.parametrize(("name", "values"), KINDS)
def test_replayed_steps_compute_the_same_as_others_on_a_gpu(tmp_path, monkeypatch, name, values):
    """They draw the same random numbers, too. Sums on a GPU differ in their last bits."""
    prepared = prepare(make_config(tmp_path, precision="float32", **values))

    monkeypatch.setattr(step_graphs, "MAX_GRAPHS", 0)
    expected, num_graphs = losses_on_gpu(prepared, name)
    assert num_graphs == 0

    monkeypatch.undo()
    found, num_graphs = losses_on_gpu(prepared, name)
    assert num_graphs > 2
    assert found == pytest.approx(expected, rel=0.01)


def losses_on_gpu(prepared: Prepared, name: str) -> tuple[list[float], int]:
    """The losses of some steps on a GPU, and the number of graphs that were recorded."""
    make = encoder_stage.make_training_on_labels
    if name == PRETRAINING:
        make = encoder_stage.make_pretraining
    trainer = make(prepared, device=torch.device("cuda"), group=ALONE).trainer
    assert trainer.recorder

    # The learning rate changes, so that a graph which kept that of its recording is noticed.
    steps = [trainer.start_step(step, 0.0005 * (1 + step % 3)) for step in range(40)]
    return [step.metrics().loss for step in steps], len(trainer._graphs._graphs)


@needs_cuda
def test_a_replayed_step_that_is_not_finite_updates_nothing(tmp_path):
    prepared = prepare(make_config(tmp_path, epochs=8))
    training = encoder_stage.make_training_on_labels(
        prepared, device=torch.device("cuda"), group=ALONE
    )
    trainer = training.trainer
    for step in range(40):
        trainer.start_step(step, 0.01).metrics()
    assert trainer._graphs._graphs

    bias = trainer.model.head.linear.bias
    with torch.no_grad():
        bias[0] = math.nan
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    step = trainer.start_step(1, 0.01).metrics()

    assert not step.should_update
    for key, value in trainer.model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True, msg=key)
