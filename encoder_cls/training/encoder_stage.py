"""The encoder in a run: how its trainings are made, its first weights, how it is saved."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.classifier.validation_result import ValidationResult
from encoder_cls.config.schema import Config
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.encoder_training.embedding_tables import embedding_tables
from encoder_cls.encoder_training.optimizer import make_optimizers
from encoder_cls.encoder_training.random_numbers import derive_seed
from encoder_cls.encoder_training.step_graphs import Recorder
from encoder_cls.encoder_training.steps_in_time import TrainingLength
from encoder_cls.encoder_training.training_loop import EncoderTraining
from encoder_cls.encoder_training.training_step import Trainer
from encoder_cls.encoder_training.training_task import TrainingTask
from encoder_cls.encoder_training.word_vectors import start_from_word_vectors
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.logits import Logits
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.machine import resolve_precision
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.classification_task import ClassificationTask
from encoder_cls.training.prepared import Objective, Prepared
from encoder_cls.training.pretraining_task import PretrainingTask
from encoder_cls.training.run_classifier import make_classifier

PRETRAINING = "pretraining"
ON_LABELS = "model"

# The seed of pretraining is derived from the seed of the run and this number, which is far from the
# seeds that people try.
PRETRAINING_SEED = 1000

# The number of passes over the validation texts that the final report takes, approximately.
REPORTED_VALIDATIONS = 3


def untrained_encoder(
    prepared: Prepared, seed: int, kind: type[EncoderClassifier] | None = None
) -> EncoderClassifier:
    """Make an encoder with random weights, which depend only on the seed.

    Its class is the run's own, unless `kind` is given.
    """
    torch.manual_seed(seed)
    kind = kind or prepared.model_class or EncoderClassifier
    return kind(
        prepared.config.model,
        vocab_size=prepared.vocab_size,
        num_classes=len(prepared.dataset.label_names),
    )


def make_pretraining(
    prepared: Prepared, *, device: torch.device, group: ProcessGroup
) -> EncoderTraining:
    """Make the pretraining of a run: masked language modelling, or denoising."""
    length = prepared.plan.pretraining
    assert length

    seed = _pretraining_seed(prepared.config)
    task = PretrainingTask(prepared, seed=seed, group=group)
    model = untrained_encoder(prepared, seed, task.model_class).to(device)
    return EncoderTraining(
        name=PRETRAINING,
        trainer=_make_trainer(prepared, task, model, seed=seed, device=device, group=group),
        length=length,
        config=prepared.config.train,
        validation_cost=_validation_cost(prepared, prepared.texts, length),
    )


def make_training_on_labels(
    prepared: Prepared,
    *,
    device: torch.device,
    group: ProcessGroup,
    linear_logits: Logits | None = None,
    pseudo_labels: NDArray[np.float32] | None = None,
) -> EncoderTraining:
    """Make the training on labels and pseudo-labels; see `ClassificationTask`."""
    length = prepared.plan.training
    assert length

    seed = prepared.config.seed
    task = ClassificationTask(
        prepared, group=group, linear_logits=linear_logits, pseudo_labels=pseudo_labels
    )
    model = untrained_encoder(prepared, seed).to(device)
    trainer = _make_trainer(
        prepared,
        task,
        model,
        seed=seed,
        device=device,
        group=group,
        objective=prepared.objective,
    )

    # The report scores the validation texts several times, and the test texts once.
    validation_cost = _validation_cost(prepared, prepared.encoder_texts, length)
    num_test = len(prepared.dataset.test or ())
    test_share = num_test / max(1, len(prepared.validation_texts))

    return EncoderTraining(
        name=ON_LABELS,
        trainer=trainer,
        length=length,
        config=prepared.config.train,
        patience=prepared.config.train.patience,
        validation_cost=validation_cost,
        report_cost=validation_cost * (REPORTED_VALIDATIONS + test_share),
        initial_tables=_initial_tables(prepared),
    )


def _make_trainer(
    prepared: Prepared,
    task: TrainingTask,
    model: EncoderClassifier,
    *,
    seed: int,
    device: torch.device,
    group: ProcessGroup,
    objective: Objective | None = None,
) -> Trainer:
    config = prepared.config.train
    return Trainer(
        task=task,
        model=model,
        optimizers=make_optimizers(model, config),
        num_shards=config.gradient_shards,
        max_grad_norm=config.max_grad_norm,
        seed=seed,
        device=device,
        precision=resolve_precision(config.precision, device),
        group=group,
        objective=objective,
        runs_ahead=_runs_ahead(device, group),
        recorder=_recorder(prepared, device=device, group=group),
    )


def _pretraining_seed(config: Config) -> int:
    return derive_seed(config.seed, PRETRAINING_SEED)


def _runs_ahead(device: torch.device, group: ProcessGroup) -> bool:
    """Whether steps start before the metrics of earlier ones are known.

    Several processes exchange numbers in each step, so they wait for the GPU in any case.
    """
    return device.type == "cuda" and group.size == 1


def _recorder(prepared: Prepared, *, device: torch.device, group: ProcessGroup) -> Recorder | None:
    """The recorder of CUDA graphs; None where steps cannot be recorded.

    A user's own loss or model may wait for the GPU or decide by numbers, and each shard has a seed
    of its own.
    """
    config = prepared.config.train
    has_own_code = prepared.objective is not None or prepared.model_class is not None
    if not config.cuda_graphs or has_own_code or config.gradient_shards > 1:
        return None
    if not _runs_ahead(device, group):
        return None
    return Recorder(device)


# The number of forward passes that take about as long as a training step.
PASSES_PER_STEP = 3


def _validation_cost(prepared: Prepared, texts: TokenizedTexts, length: TrainingLength) -> float:
    tokens_per_step = int(texts.lengths.sum()) / length.steps_per_epoch
    num_tokens = int(prepared.validation_texts.lengths.sum())
    return num_tokens / tokens_per_step / PASSES_PER_STEP


def _initial_tables(prepared: Prepared) -> dict[str, Tensor]:
    seed = prepared.config.seed
    if prepared.plan.pretraining:
        seed = _pretraining_seed(prepared.config)
    return embedding_tables(untrained_encoder(prepared, seed))


def load_first_weights(training: EncoderTraining, prepared: Prepared, run: RunDir) -> None:
    """Load the best weights of pretraining, else those of the base run, else random ones.

    Random ones have word vectors if planned.
    """
    trainer = training.trainer
    trained_before = prepared.base
    if training.name == ON_LABELS and run.pretrained.is_dir():
        # Load the weights as NumPy arrays, so that no second PyTorch model is made.
        trained_before = load_classifier(
            run.pretrained, engine="numpy", model_class=prepared.model_class
        )

    if trained_before and trained_before.encoder:
        start_from(trained_before, trainer.model, label_names=prepared.dataset.label_names)
    elif prepared.plan.has_word_vectors:
        start_from_word_vectors(trainer.model, prepared.texts, seed=trainer.seed)


def start_from(base: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Copy the weights of a classifier's encoder into a model of the same shape.

    New words and classes keep their random weights: the words of the base have the first rows of
    the table, and classes are matched by name.
    """
    assert base.encoder
    known_names = [name for name in label_names if name in base.label_names]
    base_classes = [base.label_names.index(name) for name in known_names]
    is_known = torch.tensor([name in base.label_names for name in label_names])

    state = model.state_dict()
    for name, weight in base.encoder.named_weights().items():
        values = torch.from_numpy(np.asarray(weight, dtype=np.float32))
        if name == "encoder.embedding.tokens.weight":
            state[name][: len(values)] = values
        elif name.startswith("head.linear."):
            state[name][is_known] = values[base_classes].to(state[name].device)
        else:
            state[name].copy_(values)


def save_encoder(
    training: EncoderTraining,
    result: ValidationResult,
    prepared: Prepared,
    run: RunDir,
    *,
    linear: LinearModel | None,
) -> None:
    """Save the encoder as it is now, with the result of its validation.

    Pretraining saves the encoder alone, training on labels the model of the run.
    """
    encoder = TorchEncoder(training.model_for_users, prepared.config.model)
    classifier = make_classifier(prepared, encoder=encoder, linear=linear, result=result)
    folder = run.pretrained if training.name == PRETRAINING else run.model
    save_classifier(classifier, folder)
