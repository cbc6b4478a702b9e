"""The stages: pretraining, by masked language modelling or denoising, and training on labels.

A batch is corrupted by torch's random numbers: words are masked, deleted or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.inference.encoder import Indices, by_length
from encoder_cls.inference.encoder.torch import Batch, TorchEncoder, pad
from encoder_cls.system.stop import check_stop
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder.batches import WHOLE, BatchSampler, Shard, derive_seed
from encoder_cls.training.encoder.processes import ALONE, ProcessGroup
from encoder_cls.training.encoder.stage import Stage, TargetBatch
from encoder_cls.training.encoder.validation import ValidationResult, judge
from encoder_cls.training.prepared import Prepared
from encoder_cls.transformer import DenoisingAutoencoder, EncoderClassifier

REPORTED_VALIDATIONS = 3  # the report computes logits of the validation texts about so often


def mask_tokens(batch: Batch, *, fraction: float) -> tuple[Batch, Tensor]:
    """Put `[MASK]`, a word without n-grams, in place of a random part of the words; also returns where, (B, T)."""
    ids, char_ngrams = batch.input_ids, batch.char_ngrams
    is_word = (ids != PAD_ID) & (ids != CLS_ID)
    is_masked = is_word & (torch.rand(ids.shape, device=ids.device) < fraction)
    without_ngrams = len(char_ngrams.offsets) - 1  # one more word
    char_ngrams = char_ngrams._replace(
        words=char_ngrams.words.masked_fill(is_masked, without_ngrams),
        offsets=torch.cat([char_ngrams.offsets, char_ngrams.offsets[-1:]]),
    )
    return batch._replace(input_ids=ids.masked_fill(is_masked, MASK_ID), char_ngrams=char_ngrams), is_masked


def delete_tokens(batch: Batch, *, fraction: float) -> Batch:
    """Take a random part of the words out of their texts, which become shorter."""
    ids, mask = batch.input_ids, batch.attention_mask
    is_kept = mask & ((torch.rand(ids.shape, device=ids.device) >= fraction) | (ids == CLS_ID))
    order = (~is_kept).sort(dim=1, stable=True).indices[:, : is_kept.sum(dim=1).max()]  # those that are kept come first
    mask, words = is_kept.gather(1, order), batch.char_ngrams.words.gather(1, order)
    ids = ids.gather(1, order).masked_fill(~mask, PAD_ID)
    return Batch(ids, mask, batch.char_ngrams._replace(words=words))


@dataclass(frozen=True, kw_only=True)
class GuessedTokens(TargetBatch):
    """Texts of which some tokens are to be guessed, where `is_guessed`, (B, T), from `vectors` of a model, (B, T, D).

    The softmax is over the tokens of the batch, `candidates`, (V,): few of all tokens, and drawn as often as they are
    used. Targets index the candidates, (guessed tokens,).
    """

    is_guessed: Tensor
    candidates: Tensor
    targets: Tensor
    vectors: Callable[[EncoderClassifier], Tensor]

    @property
    def normalizer(self) -> Tensor:
        """See `TargetBatch`; 1 without a token to guess."""
        return self.is_guessed.sum().clamp(min=1)

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TargetBatch`."""
        scores = model.encoder.embedding.token_scores(self.vectors(model)[self.is_guessed], self.candidates)
        return functional.cross_entropy(scores.float(), self.targets, reduction="sum")


class PretrainingStage(Stage):
    """Masked language modelling of all texts, with and without labels.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), https://arxiv.org/abs/1810.04805;
    masked tokens are always `[MASK]`, which is enough (Wettig et al., 2023, https://arxiv.org/abs/2202.08005). Other
    tokens are masked in each epoch, so there is no overfitting, and no patience.
    """

    name, metric_prefix = "pretraining", "pretraining/"

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[GuessedTokens]:
        """See `Stage`; the candidates of a shard are those of the whole batch."""
        batches = []
        for indices in self.sampler.batches_of_step(step):
            if len(part := shard.of(indices)):
                whole = pad(self.texts, indices).to(self.device)
                batch = whole if shard == WHOLE else pad(self.texts, part).to(self.device)
                batches.append(self._corrupted(batch, torch.unique(whole.input_ids)))
        return batches

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Stage`: the mean loss, with the same tokens corrupted each time."""
        torch.manual_seed(self.seed)
        texts = self.prepared.validation_texts
        pieces = by_length(texts.lengths, batch_tokens=self.prepared.config.train.batch_tokens)
        mine = group.dealt(len(pieces))
        loss = weight = 0.0
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for number, piece in enumerate(pieces):
                    if number not in mine:
                        torch.rand(len(piece.indices), piece.length, device=self.device)  # as corrupting it would
                        continue
                    inputs = pad(texts, *piece).to(self.device)
                    batch = self._corrupted(inputs, torch.unique(inputs.input_ids))
                    loss += float(batch.loss(model))
                    weight += float(batch.normalizer)
                    check_stop()
        finally:
            model.train(was_training)
        loss, weight = group.summed(loss, weight)
        mean = loss / weight
        return ValidationResult({"loss": mean}, (1.0, -mean, -mean)) if np.isfinite(mean) else None

    def _corrupted(self, batch: Batch, candidates: Tensor) -> GuessedTokens:
        masked, is_masked = mask_tokens(batch, fraction=self.prepared.config.pretrain.mask_probability)
        targets = torch.searchsorted(candidates, batch.input_ids[is_masked])
        return GuessedTokens(
            inputs=masked,
            is_guessed=is_masked,
            candidates=candidates,
            targets=targets,
            vectors=lambda model: model.encoder(*masked),
        )


class DenoisingStage(PretrainingStage):
    """Denoising: the encoder reads a text with words deleted, and a decoder, thrown away afterwards, writes the whole.

    Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder" (2021),
    https://arxiv.org/abs/2104.06979; there the decoder sees one vector of the text, here all that the encoder gives.
    """

    def new_model(self) -> EncoderClassifier:
        """See `Stage`."""
        return self.prepared.new_model(self.seed, DenoisingAutoencoder)

    def _corrupted(self, batch: Batch, candidates: Tensor) -> GuessedTokens:
        corrupted = delete_tokens(batch, fraction=self.prepared.config.pretrain.mask_probability)
        ids, has_next = batch.input_ids, batch.attention_mask.roll(-1, dims=1)
        has_next[:, -1] = False

        def vectors(model: EncoderClassifier) -> Tensor:
            assert isinstance(model, DenoisingAutoencoder)
            embedded, memory = model.encoder.embedding(ids, batch.char_ngrams), model.encoder(*corrupted)
            decoded: Tensor = model.decoder(embedded, batch.attention_mask, memory, corrupted.attention_mask)
            return decoded

        return GuessedTokens(
            inputs=batch,
            is_guessed=has_next,
            candidates=candidates,
            targets=torch.searchsorted(candidates, ids[:, 1:][has_next[:, :-1]]),
            vectors=vectors,
        )


def drop_tokens(input_ids: Tensor, *, fraction: float) -> Tensor:
    """Replace a random part of the words by `[UNK]`, of which training would otherwise see too few."""
    if fraction == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < fraction
    is_word = (input_ids != PAD_ID) & (input_ids != CLS_ID)
    return input_ids.masked_fill(dropped & is_word, UNK_ID)


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch(TargetBatch):
    """Texts with target probabilities, (B, C), and weights of classes, (C,).

    R-Drop (Liang et al., "R-Drop: Regularized Dropout for Neural Networks", 2021, https://arxiv.org/abs/2106.14448):
    the batch has all texts twice, with other dropout masks and other words dropped; the symmetric Kullback-Leibler
    divergence of both predictions, times `rdrop_weight`, is added to the cross entropy.
    """

    targets: Tensor
    weights: Tensor
    rdrop_weight: float

    @property
    def normalizer(self) -> Tensor:
        """See `TargetBatch`."""
        return (self.targets @ self.weights).sum()

    def loss(self, model: EncoderClassifier) -> Tensor:
        """See `TargetBatch`."""
        logits = model(*self.inputs)
        loss = self._cross_entropy(logits)
        return loss + self.rdrop_weight * self._symmetric_kl(logits) if self.rdrop_weight else loss

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The mean of KL(p || q) and KL(q || p) of the two dropout passes, in nats, summed by the weights, ()."""
        first, second = functional.log_softmax(logits, dim=-1).chunk(2)
        divergences = ((first.exp() - second.exp()) * (first - second)).sum(dim=-1) / 2
        weights, _ = (self.targets @ self.weights).chunk(2)
        return (weights * divergences).sum()


class MultiLabelBatch(ClassificationBatch):
    """The same where a text may have several labels, with weights of the labels of each text, (B, C)."""

    @property
    def normalizer(self) -> Tensor:
        """See `TargetBatch`: each text counts once, with all its labels."""
        return torch.tensor(float(len(self.targets)), device=self.targets.device)

    def _cross_entropy(self, logits: Tensor) -> Tensor:
        """The binary cross entropies of all labels."""
        return functional.binary_cross_entropy_with_logits(logits, self.targets, weight=self.weights, reduction="sum")

    def _symmetric_kl(self, logits: Tensor) -> Tensor:
        """The same of Bernoulli distributions: (p - q) * (logit p - logit q) / 2 of each label."""
        first, second = logits.chunk(2)
        weights, _ = self.weights.chunk(2)
        return (weights * (first.sigmoid() - second.sigmoid()) * (first - second)).sum() / 2


class ModelStage(Stage):
    """Classification by labels, and by the pseudo-labels of a linear classifier, whose logits join in validations."""

    name, metric_prefix = "model", ""

    @cached_property
    def report_cost(self) -> float:
        """See `Stage`."""
        tests = len(self.prepared.dataset.test or ()) / max(1, len(self.prepared.validation_texts))
        return self.validation_cost * (REPORTED_VALIDATIONS + tests)

    def loss(self, model: EncoderClassifier, batch: TargetBatch) -> Tensor:
        """See `Stage`; of the prepared objective, if any."""
        objective = self.prepared.objective
        return objective(model, batch) if objective else super().loss(model, batch)

    def batches_at(self, step: int, shard: Shard = WHOLE) -> list[ClassificationBatch]:
        """See `Stage`."""
        parts = [shard.of(indices) for indices in self.sampler.batches_of_step(step)]
        return [self._collate(indices) for indices in parts if len(indices)]

    def validate(self, model: EncoderClassifier, group: ProcessGroup = ALONE) -> ValidationResult | None:
        """See `Stage`: of the weighted sum of the encoder's logits and the linear classifier's."""
        config, dataset = self.prepared.config.train, self.prepared.dataset
        encoder = TorchEncoder(model, self.prepared.config.model)
        logits = encoder.logits(self.prepared.validation_texts, batch_tokens=config.batch_tokens, share=group.dealt)
        group.sum(torch.from_numpy(logits))
        if not (group.leads and np.isfinite(logits).all()):
            return None
        linear, is_taught = self.answers.validation_logits, self.answers.pseudo_labels is not None
        return judge(logits, linear, dataset, monitor=config.monitor, expects_equal_shares=is_taught)

    def _collate(self, indices: Indices) -> ClassificationBatch:
        config = self.prepared.config.train
        if config.rdrop_weight:
            indices = np.tile(indices, 2)
        batch = pad(self.texts, indices).to(self.device)
        inputs = batch._replace(input_ids=drop_tokens(batch.input_ids, fraction=config.word_dropout))
        targets, weights = self.targets_of(indices), self.prepared.class_weights.to(self.device)
        kind, alternatives = ClassificationBatch, targets.shape[1]
        if self.prepared.dataset.is_multi_label:
            kind, alternatives, weights = MultiLabelBatch, 2, torch.where(targets > 0, weights, 1.0)
        targets = targets * (1 - config.label_smoothing) + config.label_smoothing / alternatives
        return kind(inputs=inputs, targets=targets, weights=weights, rdrop_weight=config.rdrop_weight)

    def targets_of(self, indices: Indices) -> Tensor:
        """The probability of each class: 1 for the labels of a text, else its pseudo-label."""
        dataset, pseudo_labels = self.prepared.dataset, self.answers.pseudo_labels
        labels, classes = dataset.train.labels, len(dataset.label_names)
        if dataset.is_multi_label:
            return torch.from_numpy(labels[indices]).to(self.device)
        if pseudo_labels is None:
            return functional.one_hot(torch.from_numpy(labels[indices]).to(self.device), classes)
        is_labelled = indices < len(labels)
        targets = np.zeros((len(indices), classes), dtype=np.float32)
        targets[is_labelled, labels[indices[is_labelled]]] = 1
        targets[~is_labelled] = pseudo_labels[indices[~is_labelled] - len(labels)]
        return torch.from_numpy(targets).to(self.device)


def make_stages(prepared: Prepared, device: torch.device) -> list[Stage]:
    """Make the stages of the plan: pretraining, and the model, which starts from its weights."""
    config, plan, stages = prepared.config, prepared.plan, list[Stage]()
    if plan.pretraining:
        texts, seed = prepared.texts, derive_seed(config.seed, 1000)  # far from seeds that a person would try
        kind = DenoisingStage if config.pretrain.objective == "denoising" else PretrainingStage
        stages.append(
            kind(
                prepared=prepared,
                device=device,
                seed=seed,
                texts=texts,
                rows=np.arange(len(texts)),
                sampler=BatchSampler(texts.lengths, config.train, seed=seed),
                schedule=plan.pretraining,
            )
        )
    if plan.training:
        stages.append(
            ModelStage(
                prepared=prepared,
                device=device,
                seed=config.seed,
                texts=prepared.model_texts,
                rows=prepared.model_rows,
                sampler=prepared.model_sampler,
                schedule=plan.training,
                patience=config.train.patience,
            )
        )
    return stages
