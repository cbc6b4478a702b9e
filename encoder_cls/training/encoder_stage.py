"""The encoder's trainings in a run: pretraining on hidden words, then training on labels.

Both trainings are an `EncoderTraining`: they share its loop, and differ in their batches and their
validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.classifier.validation_result import ValidationResult, score_mixture
from encoder_cls.encoder.batches import BatchSampler, derive_seed, drop_tokens, shard_of
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.encoder.embedding_tables import embedding_tables
from encoder_cls.encoder.optimizer import make_optimizers
from encoder_cls.encoder.padding import Indices
from encoder_cls.encoder.pretraining import (
    GuessedTokens,
    denoise,
    mask_tokens,
    summed_loss,
)
from encoder_cls.encoder.step_limit import TrainingLength
from encoder_cls.encoder.torch_encoder import TorchEncoder, make_batch
from encoder_cls.encoder.training_loop import (
    ClassificationBatch,
    EncoderTraining,
    MultiLabelBatch,
)
from encoder_cls.encoder.transformer import DenoisingAutoencoder, EncoderClassifier
from encoder_cls.encoder.word_vectors import start_from_word_vectors
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.validation_score import ValidationScore
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.machine import resolve_precision
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.prepared import Prepared

# The names of the two trainings.
PRETRAINING = "pretraining"
ON_LABELS = "model"

# The number of forward passes that take about as long as a training step.
PASSES_PER_STEP = 3
# The number of passes over the validation texts that the final report takes, approximately.
REPORTED_VALIDATIONS = 3
# The seed of pretraining is derived from the seed of the run and this number, which is far from the
# seeds that people try.
PRETRAINING_SEED = 1000


def pretraining_of(
    prepared: Prepared, *, device: torch.device, group: ProcessGroup
) -> EncoderTraining:
    """Make the pretraining: masked language modelling or denoising.

    The encoder learns from all training texts, with and without labels. Each epoch hides other
    words, so the encoder does not overfit, and needs no early stopping.
    """
    config = prepared.config
    length = prepared.plan.pretraining
    assert length

    seed = derive_seed(config.seed, PRETRAINING_SEED)
    texts = prepared.texts
    sampler = BatchSampler(texts.lengths, config.train, seed=seed)
    kind: type[EncoderClassifier] = EncoderClassifier
    hide = partial(mask_tokens, fraction=config.pretrain.mask_probability)
    if config.pretrain.objective == "denoising":
        kind = DenoisingAutoencoder
        hide = partial(denoise, fraction=config.pretrain.mask_probability)

    def batches_at(
        step: int, shard: int, num_shards: int, generator: torch.Generator | None = None
    ) -> list[GuessedTokens]:
        batches = []
        for indices in sampler.batches_of_step(step):
            part = shard_of(indices, shard, num_shards)
            if not len(part):
                continue

            # A hidden word may be replaced by a word of the whole batch, also if this process has
            # only a shard of it: the result must not depend on the number of processes.
            batch = make_batch(texts, indices)
            candidates = torch.unique(batch.input_ids)
            if num_shards > 1:
                batch = make_batch(texts, part)
            batches.append(hide(batch, candidates, generator=generator))
        return batches

    def validate(model: EncoderClassifier) -> ValidationResult | None:
        """Compute the mean loss, with the same words hidden in each validation."""
        torch.manual_seed(seed)
        my_loss, my_weight = summed_loss(
            model,
            prepared.validation_texts,
            hide,
            batch_tokens=config.train.batch_tokens,
            share=group.share,
        )
        loss, weight = group.summed(my_loss, my_weight)
        mean = loss / weight
        if not group.is_first or not np.isfinite(mean):
            return None
        score = ValidationScore(is_sure=True, monitored=mean, loss=mean, lower_is_better=True)
        return ValidationResult(scores={"loss": mean}, score=score)

    def describe_step(step: int) -> str:
        return _some_texts(prepared, np.concatenate(sampler.batches_of_step(step)))

    model = prepared.new_model(seed, kind).to(device)
    new_training = _with_model(prepared, model, device=device, group=group)
    return new_training(
        name=PRETRAINING,
        batches_at=batches_at,
        validate=validate,
        length=length,
        seed=seed,
        describe_step=describe_step,
        validation_cost=_validation_cost(prepared, texts, length),
    )


def training_on_labels(
    prepared: Prepared,
    *,
    device: torch.device,
    group: ProcessGroup,
    linear_logits: Logits | None = None,
    pseudo_labels: NDArray[np.float32] | None = None,
) -> EncoderTraining:
    """Make the training on labels and pseudo-labels.

    If the run has a linear model, its validations score the mixture of encoder and linear model.

    Args:
        prepared: the data and the plan of the run.
        device: the device of the encoder.
        group: the processes that train together.
        linear_logits: the linear model's logits of the validation texts, (texts, classes); None in
            all processes except the first, and without a linear model.
        pseudo_labels: probabilities of the unlabelled texts among `prepared.encoder_texts`, (texts,
            classes); None without pseudo-labels.
    """
    config = prepared.config
    length = prepared.plan.training
    assert length

    texts = prepared.encoder_texts
    sampler = prepared.encoder_sampler
    targets = Targets(prepared, pseudo_labels)

    def batches_at(
        step: int, shard: int, num_shards: int, generator: torch.Generator | None = None
    ) -> list[ClassificationBatch]:
        batches = []
        for indices in sampler.batches_of_step(step):
            part = shard_of(indices, shard, num_shards)
            if len(part):
                batches.append(_labelled_batch(texts, part, targets, generator))
        return batches

    def validate(model: EncoderClassifier) -> ValidationResult | None:
        encoder = TorchEncoder(model, config.model)
        logits = encoder.logits(
            prepared.validation_texts, batch_tokens=config.train.batch_tokens, share=group.share
        )
        group.sum(torch.from_numpy(logits))
        if not group.is_first or not np.isfinite(logits).all():
            return None
        return score_mixture(
            logits,
            linear_logits,
            prepared.dataset,
            monitor=config.train.monitor,
            expects_equal_shares=pseudo_labels is not None,
        )

    def describe_step(step: int) -> str:
        rows = prepared.encoder_rows[np.concatenate(sampler.batches_of_step(step))]
        return _some_texts(prepared, rows)

    # The report scores the validation texts several times, and the test texts once.
    validation_cost = _validation_cost(prepared, texts, length)
    num_test = len(prepared.dataset.test or ())
    test_share = num_test / max(1, len(prepared.validation_texts))

    model = prepared.new_model(config.seed).to(device)
    new_training = _with_model(prepared, model, device=device, group=group)
    return new_training(
        name=ON_LABELS,
        batches_at=batches_at,
        validate=validate,
        length=length,
        seed=config.seed,
        patience=config.train.patience,
        describe_step=describe_step,
        validation_cost=validation_cost,
        report_cost=validation_cost * (REPORTED_VALIDATIONS + test_share),
        loss_function=prepared.objective,
        initial_tables=_initial_tables(prepared),
    )


def _with_model(
    prepared: Prepared, model: EncoderClassifier, *, device: torch.device, group: ProcessGroup
) -> Callable[..., EncoderTraining]:
    """Return `EncoderTraining` with the arguments that both trainings of a run have in common."""
    config = prepared.config.train
    return partial(
        EncoderTraining,
        model=model,
        optimizers=make_optimizers(model, config),
        config=config,
        device=device,
        precision=resolve_precision(config.precision, device),
        group=group,
        # Processes exchange numbers in each step, so they wait for them in any case.
        runs_ahead=device.type == "cuda" and group.size == 1,
    )


class Targets:
    """The target probabilities of the texts that the encoder learns classes from.

    A labelled text has probability 1 of its label, or of each of its labels. An unlabelled text has
    the probabilities of its pseudo-label.

    Args:
        prepared: the data of the run, whose labels come first.
        pseudo_labels: probabilities of the unlabelled texts, (texts, classes); None without any.
    """

    def __init__(self, prepared: Prepared, pseudo_labels: NDArray[np.float32] | None) -> None:
        self.config = prepared.config.train
        self.class_weights = prepared.class_weights
        self.is_multi_label = prepared.dataset.is_multi_label
        self._labels = prepared.dataset.train.labels
        self._pseudo_labels = pseudo_labels
        self._text_weights = prepared.text_weights
        self._num_classes = len(prepared.dataset.label_names)

    def of(self, rows: Indices) -> Tensor:
        """Return the targets of some texts, (B, C).

        Args:
            rows: the rows of the texts in `Prepared.encoder_texts`, (B,).
        """
        if self.is_multi_label:
            return torch.from_numpy(self._labels[rows])

        targets = np.zeros((len(rows), self._num_classes), dtype=np.float32)
        is_labelled = rows < len(self._labels)
        targets[is_labelled, self._labels[rows[is_labelled]]] = 1
        if self._pseudo_labels is not None:
            targets[~is_labelled] = self._pseudo_labels[rows[~is_labelled] - len(self._labels)]
        return torch.from_numpy(targets)

    def text_weights(self, rows: Indices) -> Tensor | None:
        """Return how much some texts count, (B,); None if all texts count alike.

        A text with a pseudo-label has the weight 1, the mean weight of the labelled texts.

        Args:
            rows: the rows of the texts in `Prepared.encoder_texts`, (B,).
        """
        if self._text_weights is None:
            return None
        weights = np.ones(len(rows), dtype=np.float32)
        is_labelled = rows < len(self._labels)
        weights[is_labelled] = self._text_weights[rows[is_labelled]]
        return torch.from_numpy(weights)


def _labelled_batch(
    texts: TokenizedTexts, rows: Indices, targets: Targets, generator: torch.Generator | None
) -> ClassificationBatch:
    """Make the batch of some texts, with word dropout and smoothed targets.

    Args:
        texts: the texts to learn from.
        rows: the rows of the batch's texts, (B,).
        targets: the target probabilities of the texts.
        generator: draws the words that are dropped; None for torch's default generator.
    """
    config = targets.config
    if config.rdrop_weight:
        # Put each text into the batch twice, since R-Drop compares two passes over it.
        rows = np.tile(rows, 2)

    batch = make_batch(texts, rows)
    dropped = drop_tokens(batch.input_ids, fraction=config.word_dropout, generator=generator)
    probabilities = targets.of(rows)

    # In a multi-label task, a class weight applies to the texts that have the label, and label
    # smoothing is between two alternatives, with the label and without it.
    kind = ClassificationBatch
    weights = targets.class_weights
    text_weights = targets.text_weights(rows)
    alternatives = probabilities.shape[1]
    if targets.is_multi_label:
        kind = MultiLabelBatch
        weights = torch.where(probabilities > 0, weights, 1.0)
        if text_weights is not None:
            weights = weights * text_weights[:, None]
            text_weights = None
        alternatives = 2

    smoothing = config.label_smoothing
    return kind(
        inputs=batch._replace(input_ids=dropped),
        targets=probabilities * (1 - smoothing) + smoothing / alternatives,
        weights=weights,
        rdrop_weight=config.rdrop_weight,
        text_weights=text_weights,
    )


def load_first_weights(training: EncoderTraining, prepared: Prepared, run: RunDir) -> None:
    """Give the encoder the weights with which a training begins.

    They are the best weights of pretraining if there was one, else the weights of the base run,
    else random weights, with word vectors if these are planned.
    """
    base = prepared.base
    if training.name == ON_LABELS and run.pretrained.is_dir():
        # Load the weights as NumPy arrays, so that no second PyTorch model is made.
        base = load_classifier(run.pretrained, engine="numpy")

    if base and base.encoder:
        start_from(base, training.model, label_names=prepared.dataset.label_names)
    elif prepared.plan.has_word_vectors:
        start_from_word_vectors(training.model, prepared.texts, seed=training.seed)


def save_encoder(
    training: EncoderTraining,
    result: ValidationResult,
    prepared: Prepared,
    run: RunDir,
    *,
    linear: LinearModel | None,
) -> None:
    """Save the encoder with its current weights.

    Pretraining saves the encoder alone. Training on labels saves the model of the run: the encoder,
    the linear model, and the mixture and thresholds of the validation.

    Args:
        training: the training of the encoder.
        result: the result of the validation of these weights.
        prepared: the data and the plan of the run.
        run: the folder of the run.
        linear: the linear model of the run; None without one.
    """
    encoder = TorchEncoder(training.model_for_users, prepared.config.model)
    classifier = prepared.new_classifier(encoder)
    if training.name == PRETRAINING:
        save_classifier(classifier, run.pretrained)
        return

    if linear:
        classifier.linear = linear
    classifier.mixture = result.mixture
    classifier.thresholds = result.thresholds
    save_classifier(classifier, run.model)


def start_from(base: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Copy the weights of a classifier's encoder into a model of the same shape.

    New words and new classes keep their random weights. The words of the base have the first rows
    of the embedding table. Classes are matched by name.

    Args:
        base: the classifier whose weights are copied.
        model: the model that gets the weights.
        label_names: the class names of the model.
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


def _initial_tables(prepared: Prepared) -> dict[str, Tensor]:
    """Return the random embedding tables with which the first training of the run starts."""
    seed = prepared.config.seed
    if prepared.plan.pretraining:
        seed = derive_seed(seed, PRETRAINING_SEED)
    return embedding_tables(prepared.new_model(seed))


def _validation_cost(prepared: Prepared, texts: TokenizedTexts, length: TrainingLength) -> float:
    """Estimate the time of a validation by its number of tokens, in training steps."""
    tokens_per_step = int(texts.lengths.sum()) / length.steps_per_epoch
    num_tokens = int(prepared.validation_texts.lengths.sum())
    return num_tokens / tokens_per_step / PASSES_PER_STEP


def _some_texts(prepared: Prepared, rows: Sequence[int] | NDArray[np.int64]) -> str:
    """Name the places that the first texts of a batch were read from."""
    return ", ".join(prepared.where(int(row)) for row in rows[:3])
