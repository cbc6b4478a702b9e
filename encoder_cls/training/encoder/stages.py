"""Make the stages of a plan."""

from __future__ import annotations

import numpy as np
import torch

from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.encoder.batches import BatchSampler, derive_seed
from encoder_cls.training.encoder.classification import ModelStage
from encoder_cls.training.encoder.pretraining import DenoisingStage, PretrainingStage
from encoder_cls.training.encoder.stage import Stage
from encoder_cls.training.plan import Schedule
from encoder_cls.training.prepared import Prepared

REPORTED_VALIDATIONS = 3  # the report computes logits of the validation texts about so often
PASSES_PER_STEP = 3  # forward passes of validation that take as long as a step, about


def make_stages(prepared: Prepared, device: torch.device) -> list[Stage]:
    """Make the stages of the plan: pretraining, and the model, which starts from its weights."""
    config, plan, stages = prepared.config, prepared.plan, list[Stage]()
    validation_tokens = int(prepared.validation_texts.lengths.sum())

    def validation_cost(texts: TokenizedTexts, schedule: Schedule) -> float:
        tokens_per_step = int(texts.lengths.sum()) / schedule.steps_per_epoch
        return validation_tokens / tokens_per_step / PASSES_PER_STEP

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
                sampler=BatchSampler.of(texts.lengths, config.train, seed=seed),
                schedule=plan.pretraining,
                validation_cost=validation_cost(texts, plan.pretraining),
            )
        )
    if plan.training:
        cost = validation_cost(prepared.model_texts, plan.training)
        tests = len(prepared.dataset.test or ()) / max(1, len(prepared.validation_texts))
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
                validation_cost=cost,
                report_cost=cost * (REPORTED_VALIDATIONS + tests),
            )
        )
    return stages
