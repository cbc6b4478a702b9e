"""The encoder's trainings: the loss of a step, and the validations that score the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.small_runs import CPU, make_config, make_training
from support.thirty_texts import CLASSES, prepare_thirty_texts, rows_of_step

from encoder_cls.classifier.mixture_weights import fit_mixture_weights
from encoder_cls.classifier.validation_result import score_mixture
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder_training.distributed import ALONE, ProcessGroup
from encoder_cls.encoder_training.random_numbers import drop_tokens
from encoder_cls.encoder_training.training_loop import EncoderTraining
from encoder_cls.linear_training.calibration import fit_inverse_temperature
from encoder_cls.metrics.classification import Metrics, compute_metrics
from encoder_cls.metrics.log_loss import one_hot
from encoder_cls.metrics.logits import Logits, combine_logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.system.stop import checking
from encoder_cls.text.tokens import CLS_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder_stage import (
    PRETRAINING,
    make_pretraining,
    make_training_on_labels,
)
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared


def noisy_logits(setup: Prepared, *, seed: int) -> Logits:
    """Make logits of the validation texts that often predict their labels."""
    labels = setup.dataset.validation.labels
    noise = np.random.default_rng(seed).standard_normal((len(labels), 3))
    return (noise + one_hot(labels, 3)).astype(np.float32)


def on_labels(setup: Prepared, linear_logits: Logits | None = None) -> EncoderTraining:
    """Make the training on labels, beside a linear model with these validation logits."""
    return make_training_on_labels(setup, device=CPU, group=ALONE, linear_logits=linear_logits)


# The training on labels


def test_two_passes_over_a_text_drop_other_words(tmp_path):
    setup = prepare_thirty_texts(tmp_path, rdrop_weight=2.0, word_dropout=0.5)
    training = on_labels(setup)
    (rows, *_) = rows_of_step(setup, training, 0)

    torch.manual_seed(0)
    batch = training.trainer.task.batches_at(0, 0, 1)[0]

    first, second = batch.inputs.input_ids.chunk(2)
    assert first.shape == second.shape == (len(rows), 6)
    assert not torch.equal(first, second)

    first_words, second_words = batch.inputs.char_ngrams.words.chunk(2)
    assert torch.equal(first_words, second_words)


def test_the_loss_is_weighted_cross_entropy_of_smoothed_labels_with_r_drop(tmp_path):
    setup = prepare_thirty_texts(
        tmp_path,
        class_weights={"a": 3.0, "c": 0.5},
        label_smoothing=0.3,
        rdrop_weight=2.0,
        word_dropout=0.5,
    )
    training = on_labels(setup)
    model = training.trainer.model.eval()
    # Change the first weights, with which both passes would be nearly the same.
    torch.nn.init.normal_(model.head.linear.weight)

    torch.manual_seed(0)
    batch = training.trainer.task.batches_at(0, 0, 1)[0]

    # Smoothing leaves 0.7 to the label, and spreads 0.3 evenly over the three classes.
    labels = setup.dataset.train.labels[rows_of_step(setup, training, 0)[0]]
    targets = torch.eye(3)[labels] * 0.7 + 0.1
    weighted_targets = torch.tensor([3.0, 1.0, 0.5]) * targets
    assert batch.normalizer.item() == pytest.approx(2 * float(weighted_targets.sum()))

    # Compute the log-probabilities of both passes.
    log_probabilities = model(*batch.inputs).log_softmax(dim=1).detach().double()
    first, second = log_probabilities.chunk(2)
    cross_entropy = -(weighted_targets * (first + second)).sum()

    # R-Drop adds half of the symmetric divergence to the loss of each text.
    divergences = (first.exp() * (first - second)).sum(dim=1)
    divergences += (second.exp() * (second - first)).sum(dim=1)
    assert divergences.min() > 0.001
    text_weights = weighted_targets.sum(dim=1)
    rdrop = 2.0 * (text_weights * divergences / 2).sum()

    expected = float(cross_entropy + rdrop)
    assert batch.loss(model).item() == pytest.approx(expected, rel=1e-5)


def test_word_dropout_replaces_words_only():
    """About the chosen fraction of the words becomes [UNK]; [CLS] and padding stay."""
    input_ids = torch.full((100, 50), 7)
    input_ids[:, 0] = CLS_ID
    input_ids[:, 40:] = PAD_ID

    torch.manual_seed(0)
    dropped = drop_tokens(input_ids, fraction=0.3)

    assert (dropped[:, 0] == CLS_ID).all()
    assert (dropped[:, 40:] == PAD_ID).all()
    is_unknown = dropped[:, 1:40] == UNK_ID
    assert is_unknown.float().mean() == pytest.approx(0.3, abs=0.02)
    assert drop_tokens(input_ids, fraction=0) is input_ids


# Validations


@pytest.mark.parametrize("monitor", ["accuracy", "loss"])
def test_a_validation_without_a_linear_model_scores_the_encoder(tmp_path, monkeypatch, monitor):
    setup = prepare_thirty_texts(tmp_path, monitor=monitor, class_weights={"a": 30.0})
    labels = setup.dataset.validation.labels
    encoder_logits = noisy_logits(setup, seed=1)
    monkeypatch.setattr(TorchEncoder, "logits", lambda *_, **__: encoder_logits)

    training = on_labels(setup)
    result = training.trainer.task.validate(training.trainer.model)

    weight = fit_inverse_temperature(encoder_logits, labels)
    mixture_logits = combine_logits([encoder_logits], [weight]).astype(np.float32)
    metrics = compute_metrics(mixture_logits, labels, CLASSES)
    assert result.mixture.weights == {"encoder": weight}
    assert result.mixture.shares == {"encoder": 1.0}
    assert result.metrics == metrics
    assert result.scores == metrics.scalars()
    assert_monitored(result.score, metrics, monitor)


@pytest.mark.parametrize("monitor", ["macro_f1", "loss"])
def test_a_validation_scores_the_weighted_sum_of_both_parts(tmp_path, monkeypatch, monitor):
    """The mixture has the weights that explain the validation labels best."""
    setup = prepare_thirty_texts(tmp_path, monitor=monitor, class_weights={"a": 30.0})
    labels = setup.dataset.validation.labels
    encoder_logits = noisy_logits(setup, seed=1)
    linear_logits = noisy_logits(setup, seed=0)
    monkeypatch.setattr(TorchEncoder, "logits", lambda *_, **__: encoder_logits)

    training = on_labels(setup, linear_logits)
    result = training.trainer.task.validate(training.trainer.model)

    # The result has the weights of the mixture, and the scores of the weighted sum.
    parts = [encoder_logits, linear_logits]
    weights, shares = fit_mixture_weights(parts, labels, RowGroups.single(len(labels)))
    assert tuple(result.mixture.weights.values()) == weights
    assert tuple(result.mixture.shares.values()) == shares

    mixture_logits = combine_logits(parts, weights).astype(np.float32)
    metrics = compute_metrics(mixture_logits, labels, CLASSES)
    assert result.metrics == metrics
    assert_monitored(result.score, metrics, monitor)

    # The result also has the accuracy of the encoder and of the linear model, which differ here.
    expected = metrics.scalars()
    expected["encoder_accuracy"] = (encoder_logits.argmax(axis=1) == labels).mean()
    expected["linear_accuracy"] = (linear_logits.argmax(axis=1) == labels).mean()
    expected["linear_weight"] = shares[1]
    assert result.scores == expected
    accuracies = {metrics.accuracy, expected["encoder_accuracy"], expected["linear_accuracy"]}
    assert len(accuracies) == 3


def assert_monitored(score: ValidationScore, metrics: Metrics, monitor: str) -> None:
    """Assert that a validation score has the monitored metric, and the loss to break ties."""
    assert score == ValidationScore(
        is_sure=score.is_sure,
        monitored=metrics.scalars()[monitor],
        loss=metrics.loss,
        lower_is_better=monitor == "loss",
    )


@pytest.fixture(params=["pretraining", "model"])
def training(request, tmp_path) -> EncoderTraining:
    """Each training of the encoder, with four texts of six tokens in a batch of validation."""
    setup = prepare_thirty_texts(tmp_path, {"epochs": 1, "mask_probability": 0.5}, batch_tokens=24)
    if request.param == "pretraining":
        return make_training(setup, PRETRAINING)
    return on_labels(setup, noisy_logits(setup, seed=0))


def test_a_validation_repeats_and_leaves_the_model_as_it_was(training):
    """Pretraining masks the same tokens in each validation."""
    model = training.trainer.model.train()

    first = training.trainer.task.validate(model)
    torch.rand(3)

    assert training.trainer.task.validate(model) == first
    assert model.training
    assert first.score.monitored == first.score.loss == first.scores["loss"]


def test_a_validation_looks_for_a_stop_at_each_batch(training):
    """The thirty texts fill eight batches."""
    looks = []

    with checking(lambda: looks.append("look")):
        training.trainer.task.validate(training.trainer.model)

    assert len(looks) >= 8


def test_a_validation_with_numbers_that_are_not_finite_has_no_result(training):
    with torch.no_grad():
        training.trainer.model.encoder.embedding.tokens.weight.fill_(torch.nan)

    assert training.trainer.task.validate(training.trainer.model) is None


class SecondProcess(ProcessGroup):
    """The second of two processes, without a connection to the first."""

    def __init__(self) -> None:
        super().__init__(rank=1, size=2)

    def sum(self, tensor: torch.Tensor) -> None:
        """Leave the tensor as it is."""


@pytest.mark.parametrize("new_training", [make_pretraining, make_training_on_labels])
def test_the_first_process_alone_has_the_result_of_a_validation(tmp_path, new_training):
    """Only the first process logs the result and saves the model."""
    setup = prepare_thirty_texts(tmp_path, {"epochs": 1})
    training = new_training(setup, device=CPU, group=SecondProcess())

    assert training.trainer.task.validate(training.trainer.model) is None


@pytest.mark.parametrize(
    ("helped", "harmed", "is_sure"), [(40, 0, True), (6, 10, False), (0, 0, False)]
)
def test_an_encoder_has_to_lower_the_loss_by_more_than_its_standard_error(
    tmp_path, helped, harmed, is_sure
):
    """A slightly lower loss may be chance."""
    config = make_config(tmp_path, texts=600, data={"validation_fraction": 0.4})
    dataset = prepare(config).dataset
    labels = dataset.known_validation.labels

    # The linear model predicts three of five texts correctly.
    shifts = np.array([0, 0, 0, 1, 2])
    predictions = (labels + shifts[np.arange(len(labels)) % 5]) % 3
    probabilities = 0.2 + 0.4 * np.eye(3)[predictions]
    linear_logits = np.log(probabilities).astype(np.float32)

    # The encoder raises the probability of the label of some texts, and lowers it for others.
    drawn = np.random.default_rng(0).permutation(len(labels))
    helped_rows = drawn[:helped]
    harmed_rows = drawn[helped : helped + harmed]
    encoder_logits = np.zeros_like(linear_logits)
    encoder_logits[helped_rows, labels[helped_rows]] = 1
    encoder_logits[harmed_rows, (labels[harmed_rows] + 1) % 3] = 1

    together = score_mixture(encoder_logits, linear_logits, dataset, monitor="loss")
    alone = score_mixture(None, linear_logits, dataset, monitor="loss")
    assert together.score.is_sure == is_sure
    assert alone.score.is_sure
