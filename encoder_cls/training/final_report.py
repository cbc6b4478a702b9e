"""The best weights of a run in; its report, the plots of it and the model card out, as the end of the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from encoder_cls.evaluation.baseline import reference_of
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.former_answers import compare_with_former
from encoder_cls.evaluation.model_card import model_card
from encoder_cls.evaluation.report import AnyReport, Report
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.inference.tasks import SINGLE_LABEL
from encoder_cls.system.files import write_file
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.tensorboard import log_final_report
from encoder_cls.tracking.validation_logits import classifier_to_score
from encoder_cls.training.class_weight_check import class_weights_note
from encoder_cls.training.compaction import compact
from encoder_cls.training.interruptible import run_interruptibly
from encoder_cls.training.promises import fit_promises
from encoder_cls.training.setup import TrainingSetup


def write_final_report(
    setup: TrainingSetup,
    run: RunDir,
    metric_log: MetricLog,
    *,
    best_step: int,
    device: torch.device,
    stop_if_asked: Callable[[], None],
) -> AnyReport | None:
    """Score the best weights as a user would load them, and write the model card as the sign that the run is complete.

    Args:
        setup: of the run.
        run: its folder, in which the best weights are.
        metric_log: where the scores are logged.
        best_step: at which the best weights were found.
        device: where to score.
        stop_if_asked: called now and then; what it raises ends the work.

    Returns:
        The report; none where no text has a label.
    """
    dataset, config = setup.dataset, setup.config
    validation_texts, labels = setup.validation_texts, dataset.selection.labels
    if len(labels):
        compact(run.model, validation_texts, labels, device=str(device), after_batch=stop_if_asked)
    best = classifier_to_score(run.path, device=str(device))
    if setup.task is SINGLE_LABEL and len(labels):
        held_out = dataset.validation
        texts = validation_texts if held_out is dataset.selection else best.tokenize(held_out.texts)
        fit_promises(best, run.model, texts, held_out.labels, after_batch=stop_if_asked)
    name, split = dataset.reported
    if not len(split):
        _write_model_card(setup, run, None, best_step=best_step)
        return None
    report, logits = evaluate(
        best,
        split,
        name=name,
        reference=run_interruptibly(lambda: reference_of(dataset, split), stop_if_asked),
        batch_tokens=config.train.batch_tokens,
        after_batch=stop_if_asked,
    )
    if isinstance(report, Report) and setup.refits_on_validation:
        report = replace(report, num_refitted=len(labels))
    if isinstance(report, Report) and dataset.former and config.from_run:
        former = classifier_to_score(Path(config.from_run), device=str(device))
        answers = compare_with_former(best, former, dataset.former, run=config.from_run)
        report = replace(report, former_answers=answers)
    weighs_classes = config.train.class_weights == "none" and not dataset.has_names_alone
    if isinstance(report, Report) and setup.recipe.linear and weighs_classes:
        read, train = setup.recipe.linear, dataset.train
        note = run_interruptibly(
            lambda: class_weights_note(
                train,
                setup.train_texts,
                max_tokens=read.max_tokens,
                use_char_ngrams=read.use_char_ngrams,
            ),
            stop_if_asked,
        )
        report = replace(report, class_weights_note=note)
    write_report(run.eval, report, split, logits, run_name=config.name, config_yaml=config.to_yaml())
    group = name if dataset.test else f"best_{name}"  # the curves of validation end with the last weights
    metric_log.log(best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
    log_final_report(metric_log, best, config, report, split, logits, step=best_step)
    shutil.rmtree(run.stages, ignore_errors=True)
    _write_model_card(setup, run, report, best_step=best_step)
    return report


def _write_model_card(setup: TrainingSetup, run: RunDir, report: AnyReport | None, *, best_step: int) -> None:
    card = model_card(
        setup.config,
        setup.dataset,
        report,
        best_step=best_step,
        vocab_size=setup.vocab_size,
        linear_max_tokens=setup.recipe.linear and setup.recipe.linear.max_tokens,
        refits_on_validation=setup.refits_on_validation,
    )
    write_file(run.model_card, card.encode())
