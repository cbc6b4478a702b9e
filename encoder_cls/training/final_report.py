"""The last stage of a run: finish its model, and write its report and its model card."""

from __future__ import annotations

import shutil
from typing import Any

import torch

from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, ValidationPredictions
from encoder_cls.evaluation.model_card import model_card
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.write_files import write_report
from encoder_cls.run.loaded_run import LoadedRun, report_of_run
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.tensorboard import hparams_of
from encoder_cls.system.files import write_file
from encoder_cls.system.reporter import Reporter
from encoder_cls.training.final_model import finish_model
from encoder_cls.training.run_progress import RunProgress

# With less time left, no picture is drawn, neither as PNG nor for TensorBoard: to load matplotlib
# and to draw takes some seconds.
MIN_SECONDS_TO_DRAW = 4.0


def write_final_report(
    run: RunDir, progress: RunProgress, reporter: Reporter, *, device: torch.device
) -> Report:
    """Finish the best model, and write its report and model card.

    The model is scored as a user would load it.
    """
    prepared = progress.prepared
    config = prepared.config
    dataset = prepared.dataset
    best_step = progress.state.best_step

    reporter.working("finishing the model")
    held_out_predictions = HeldOutPredictions.of_run(run.held_out_predictions)
    best = finish_model(prepared, run, held_out_predictions, device=str(device))

    # An encoder alone has learned from none of the validation texts.
    validation_predictions = None
    if held_out_predictions and best.linear:
        validation_predictions = ValidationPredictions(
            dataset.validation, held_out_predictions.validation
        )

    num_unread = 0
    if progress.state.linear_work:
        num_unread = progress.state.linear_work.num_unread

    loaded = LoadedRun(
        classifier=best,
        config=config,
        dataset=dataset,
        validation_predictions=validation_predictions,
    )
    report = report_of_run(
        loaded,
        train_texts=prepared.train_texts,
        end=prepared.budget.end_of_work,
        num_unread=num_unread,
        device=str(device),
        reporter=reporter,
    )

    reporter.working("writing the report")
    seconds_left = prepared.budget.seconds_left
    has_time_to_draw = seconds_left is None or seconds_left > MIN_SECONDS_TO_DRAW
    write_report(
        run.eval,
        report,
        data=config.data,
        run_name=config.name,
        config_yaml=config.to_yaml(),
        with_picture=has_time_to_draw,
    )

    # Log the scores of the best weights under a name of their own: the `validation` curve ends with
    # the scores of the last weights.
    split_name, _ = dataset.report_split
    if split_name == "validation":
        split_name = "best_validation"
    scores: dict[str, Any] = {**report.metrics.scalars()}
    if has_time_to_draw:
        scores |= report.metrics.drawable()
    progress.log.log(best_step, split_name, scores)
    if progress.log.tensorboard:
        progress.log.tensorboard.show_hparams(hparams_of(report, config))
        progress.log.tensorboard.show_report(report, step=best_step)

    # A finished run no longer needs its pretrained encoder.
    shutil.rmtree(run.pretrained, ignore_errors=True)
    reporter.working("")

    # Write the model card last, since it marks the run as finished.
    card = model_card(
        config,
        dataset,
        report,
        best_step=best_step,
        vocab_size=prepared.vocab_size,
        has_encoder=prepared.plan.has_encoder,
        linear_max_tokens=prepared.plan.linear_max_tokens,
    )
    write_file(run.model_card, card.encode())
    return report
