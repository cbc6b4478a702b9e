"""Write the report of a run's best weights, and its model card."""

from __future__ import annotations

import shutil

import torch

from encoder_cls.evaluation.held_out_answers import OwnAnswers
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_files import model_card, write_report
from encoder_cls.run.metrics_log import MetricLog, log_final_report
from encoder_cls.run.run_folder import RunDir
from encoder_cls.run.score import score_run
from encoder_cls.system.files import write_file
from encoder_cls.system.terminal import begin_work
from encoder_cls.training.final_model import finish_model
from encoder_cls.training.prepared import Prepared


def write_final_report(
    prepared: Prepared, run: RunDir, metric_log: MetricLog, *, best_step: int, device: torch.device
) -> Report | None:
    """Score the best weights as a user would load them, and write the model card as the sign that the run is complete.

    Returns the report; None where no text has a label.
    """
    dataset, config, linear = prepared.dataset, prepared.config, prepared.plan.linear
    begin_work("finishing the model")
    best, report = finish_model(prepared, run, device=str(device)), None
    name, split = dataset.reported
    if len(split):
        own = OwnAnswers.of_run(run.held_out_answers, best, dataset.validation)
        report = score_run(run, best, config, dataset, own, prepared=prepared, device=str(device))
        begin_work("writing the report")
        write_report(
            run.eval, report, data=config.data, run_name=config.name, config_yaml=config.to_yaml()
        )
        group = (
            name if dataset.test else f"best_{name}"
        )  # the curves of validation end with the last weights
        metric_log.log(best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
        log_final_report(metric_log, best, config, report, step=best_step)
        shutil.rmtree(run.pretrained, ignore_errors=True)
    begin_work("")
    card = model_card(
        config,
        dataset,
        report,
        best_step=best_step,
        vocab_size=prepared.vocab_size,
        has_encoder=prepared.plan.has_encoder,
        linear_max_tokens=linear and linear.max_tokens,
    )
    write_file(run.model_card, card.encode())
    return report
