"""Finish a run: score its best weights, write the report and the model card."""

from __future__ import annotations

import shutil

import numpy as np
import torch

from encoder_cls.evaluation.files import model_card, write_report
from encoder_cls.evaluation.report import Report
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.folder import save_measured
from encoder_cls.system.files import write_file
from encoder_cls.system.work import begin_work
from encoder_cls.tracking.metric_log import MetricLog, log_final_report
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import classifier_to_score
from encoder_cls.training.cascade import fit_gate
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.score import score_run
from encoder_cls.training.shrink import compact, fit_guarantees

MOST_COMPARED = 5000  # texts whose answers the smallest types keep, where time is limited


def write_final_report(
    prepared: Prepared, run: RunDir, metric_log: MetricLog, *, best_step: int, device: torch.device
) -> Report | None:
    """Score the best weights as a user would load them, and write the model card as the sign that the run is complete.

    Returns the report; none where no text has a label.
    """
    dataset, config, linear = prepared.dataset, prepared.config, prepared.plan.linear
    begin_work("finishing the model")
    best, report = finish_model(prepared, run, device=str(device)), None
    name, split = dataset.reported
    if len(split):
        report, answered = score_run(
            run,
            best,
            config,
            dataset,
            train_texts=prepared.train_texts if linear else None,
            device=str(device),
            batch_tokens=config.train.batch_tokens,
            seconds_left=lambda: prepared.budget.left,
        )
        begin_work("writing the report")
        write_report(run.eval, report, answered, data=config.data, run_name=config.name, config_yaml=config.to_yaml())
        group = name if dataset.test else f"best_{name}"  # the curves of validation end with the last weights
        metric_log.log(best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
        log_final_report(metric_log, best, config, report, answered, step=best_step)
        shutil.rmtree(run.stages, ignore_errors=True)
    begin_work("")
    card = model_card(
        config,
        dataset,
        report,
        best_step=best_step,
        vocab_size=prepared.vocab_size,
        has_encoder=prepared.plan.has_encoder,
        linear_max_tokens=linear and linear.max_tokens,
        refits_on_validation=prepared.plan.refits_on_validation,
    )
    write_file(run.model_card, card.encode())
    return report


def finish_model(prepared: Prepared, run: RunDir, *, device: str) -> Classifier:
    """Save the best weights in the smallest types, with gate and guarantees, and load them."""
    dataset, texts, labels = prepared.dataset, prepared.validation_texts, prepared.dataset.selection.labels
    if len(labels):
        # Where time is limited, of fewer texts: each type takes a pass over them.
        most = len(labels) if prepared.budget.left is None else MOST_COMPARED
        compact(run.model, texts[:most], labels[:most], device=device)
    best = classifier_to_score(run.path, device=device)
    if not len(labels):
        return best
    if prepared.config.model.cascade:
        fit_gate(best, texts, labels)
    answers_all = prepared.plan.answers_labels_out_of_fold
    held_out = [dataset.validation, *([dataset.train] if answers_all else [])]
    if held_out[-1] is not dataset.selection:
        texts = best.tokenize([text for split in held_out for text in split.texts])
    fit_guarantees(best, texts, np.concatenate([split.labels for split in held_out]))
    save_measured(best, run.model)
    return best
