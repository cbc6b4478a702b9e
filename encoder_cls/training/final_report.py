"""The end of a run: its model in small types, its report and its model card."""

from __future__ import annotations

import shutil

import torch

from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, ValidationPredictions
from encoder_cls.evaluation.model_card import model_card
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.run_report import LoadedRun, report_of_run
from encoder_cls.run.tensorboard import hparams_of
from encoder_cls.system.files import write_file
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.final_model import finish_model
from encoder_cls.training.run_progress import Progress


def write_final_report(
    run: RunDir, progress: Progress, reporter: Reporter, *, device: torch.device
) -> Report:
    """Score the best weights as a user would load them, and write the model card.

    With a model card, the run is finished.
    """
    prepared = progress.prepared
    config = prepared.config
    dataset = prepared.dataset
    best_step = progress.state.best_step

    reporter.working("finishing the model")
    table = HeldOutPredictions.of_run(run.held_out_predictions)
    best = finish_model(prepared, run, table, device=str(device))

    validation_predictions = None
    if table and best.linear:
        validation_predictions = ValidationPredictions(dataset.validation, table.validation)
    loaded = LoadedRun(
        folder=run,
        classifier=best,
        config=config,
        dataset=dataset,
        validation_predictions=validation_predictions,
    )
    report = report_of_run(
        loaded,
        train_texts=prepared.train_texts,
        seconds=prepared.budget.left,
        device=str(device),
        reporter=reporter,
    )

    reporter.working("writing the report")
    write_report(
        run.eval, report, data=config.data, run_name=config.name, config_yaml=config.to_yaml()
    )

    # The curves of `validation` end with the last weights, these scores are of the best ones.
    split_name, _ = dataset.report_split
    if split_name == "validation":
        split_name = "best_validation"
    scores = {**report.metrics.scalars(), **report.metrics.drawable()}
    progress.log.log(best_step, split_name, scores)
    if progress.log.tensorboard:
        progress.log.tensorboard.show_hparams(hparams_of(report, config))
        progress.log.tensorboard.show_report(report, step=best_step)

    shutil.rmtree(run.pretrained, ignore_errors=True)
    reporter.working("")

    linear_input = prepared.plan.linear
    card = model_card(
        config,
        dataset,
        report,
        best_step=best_step,
        vocab_size=prepared.vocab_size,
        has_encoder=prepared.plan.has_encoder,
        linear_max_tokens=linear_input.max_tokens if linear_input else None,
    )
    write_file(run.model_card, card.encode())
    return report
