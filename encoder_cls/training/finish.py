"""Finish a run: score its best weights, write the report and the model card."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch

from encoder_cls.evaluation.base_run import compare_with_former
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.files import write_report
from encoder_cls.evaluation.page import model_card
from encoder_cls.evaluation.reference import reference_of
from encoder_cls.evaluation.report import AnyReport, Report
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.files import write_file
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir, classifier_to_score
from encoder_cls.tracking.tensorboard import log_final_report
from encoder_cls.training.linear.class_weights import class_weights_note
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.shrink import compact, fit_promises


def write_final_report(
    prepared: Prepared, run: RunDir, metric_log: MetricLog, *, best_step: int, device: torch.device
) -> AnyReport | None:
    """Score the best weights as a user would load them, and write the model card as the sign that the run is complete.

    Returns:
        The report; none where no text has a label.
    """
    dataset, config = prepared.dataset, prepared.config
    best = _finished_model(prepared, run, device=str(device))
    name, split = dataset.reported
    if not len(split):
        _write_model_card(prepared, run, None, best_step=best_step)
        return None
    reference = run_interruptibly(lambda: reference_of(dataset, split))
    batch_tokens = config.train.batch_tokens
    report, logits = evaluate(best, split, name=name, reference=reference, batch_tokens=batch_tokens)
    if isinstance(report, Report):
        report = _with_sections(report, prepared, best, device=str(device))
    write_report(run.eval, report, split, logits, run_name=config.name, config_yaml=config.to_yaml())
    group = name if dataset.test else f"best_{name}"  # the curves of validation end with the last weights
    metric_log.log(best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
    log_final_report(metric_log, best, config, report, split, logits, step=best_step)
    shutil.rmtree(run.stages, ignore_errors=True)
    _write_model_card(prepared, run, report, best_step=best_step)
    return report


def _finished_model(prepared: Prepared, run: RunDir, *, device: str) -> Classifier:
    """Save the best weights in the smallest types, with guarantees, and load them."""
    dataset, texts, labels = prepared.dataset, prepared.validation_texts, prepared.dataset.selection.labels
    if len(labels):
        compact(run.model, texts, labels, device=device)
    best = classifier_to_score(run.path, device=device)
    if len(labels) and not dataset.is_multi_label:
        held_out = dataset.validation
        texts = texts if held_out is dataset.selection else best.tokenize(held_out.texts)
        fit_promises(best, run.model, texts, held_out.labels)
    return best


def _with_sections(report: Report, prepared: Prepared, best: Classifier, *, device: str) -> Report:
    """Add the sections that need the training: texts learned from in the end, the base run, class weights."""
    dataset, config, plan = prepared.dataset, prepared.config, prepared.plan
    if plan.refits_on_validation:
        report = replace(report, num_refitted=len(dataset.selection))
    if dataset.former and config.from_run:
        base = classifier_to_score(Path(config.from_run), device=device)
        answers = compare_with_former(best, base, dataset.former, run=config.from_run)
        report = replace(report, former_answers=answers)
    if plan.linear and config.train.class_weights == "none" and not dataset.has_names_alone:
        max_tokens, detail = plan.linear.max_tokens, plan.linear.use_char_ngrams
        note = run_interruptibly(
            lambda: class_weights_note(
                dataset.train, prepared.train_texts, max_tokens=max_tokens, use_char_ngrams=detail
            )
        )
        report = replace(report, class_weights_note=note)
    return report


def _write_model_card(prepared: Prepared, run: RunDir, report: AnyReport | None, *, best_step: int) -> None:
    card = model_card(
        prepared.config,
        prepared.dataset,
        report,
        best_step=best_step,
        vocab_size=prepared.vocab_size,
        linear_max_tokens=prepared.plan.linear and prepared.plan.linear.max_tokens,
        refits_on_validation=prepared.plan.refits_on_validation,
    )
    write_file(run.model_card, card.encode())
