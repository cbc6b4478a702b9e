"""The linear model in a run: fitted within the time, saved, reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.linear.effort import EFFORTS, PLANNED
from encoder_cls.linear.few_labels import FewLabels
from encoder_cls.metrics.logits import softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import Reporter
from encoder_cls.system.stop import check_stop, run_interruptibly
from encoder_cls.training.linear_fit import FittedLinear, fit_linear_classifier
from encoder_cls.training.linear_time import affordable_texts, streamed
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_progress import Progress


def fit_linear_model(
    run: RunDir, progress: Progress, group: ProcessGroup, reporter: Reporter
) -> FittedLinear | None:
    """Fit the linear model, in the first process.

    It is saved as the model unless an encoder was better. A resumed run fits it again while there
    is work left that needs it: equal data gives an equal model. Where it is fitted again with the
    validation texts, the run keeps its predictions for these texts from before.

    Returns:
        None in a run without one, in the other processes, and where nothing is left but the report.
    """
    linear = None
    if group.leads and progress.prepared.plan.linear and _has_work_left(progress):
        is_first_fit = progress.state.linear_score is None
        linear = _fit(run, progress, reporter, is_first_fit=is_first_fit)
        _report(linear, progress, reporter, is_first_fit=is_first_fit)
    progress.share_state()
    return linear


def _has_work_left(progress: Progress) -> bool:
    """Whether the linear model is missing, or an encoder still learns beside it."""
    state = progress.state
    if not progress.prepared.plan.has_encoder:
        return state.linear_score is None
    return state.is_pretraining or state.training.outcome is None


def _fit(
    run: RunDir, progress: Progress, reporter: Reporter, *, is_first_fit: bool
) -> FittedLinear:
    """Fit the linear model within the time, and save it with what the run keeps of it."""
    reporter.working("fitting the linear model")
    prepared = _texts_in_time(progress, reporter, is_first_fit=is_first_fit)

    def save(fitted: FittedLinear) -> None:
        # Another process may have resumed a stopped run.
        check_stop()
        save_classifier(fitted.classifier, run.model)

    # The time left also decides how much work the fit does; a resumed run does the same.
    on_preliminary = save if is_first_fit else None
    effort = None if is_first_fit else EFFORTS[progress.state.linear_effort]
    linear = run_interruptibly(
        lambda: fit_linear_classifier(prepared, on_preliminary=on_preliminary, effort=effort)
    )
    if linear.plan:
        progress.prepared = replace(progress.prepared, plan=linear.plan)
    if is_first_fit:
        progress.state = replace(progress.state, linear_effort=linear.effort.key)

    if linear.held_out_predictions:
        linear.held_out_predictions.write(run.held_out_predictions)
    if not progress.state.is_encoder_better:
        save_classifier(linear.classifier, run.model)
    reporter.working("")
    return linear


def _texts_in_time(progress: Progress, reporter: Reporter, *, is_first_fit: bool) -> Prepared:
    """The data that the linear model learns from.

    Where time is short, it learns from as many texts as there is time for; a resumed run from the
    same ones.
    """
    prepared = progress.prepared
    if is_first_fit and prepared.budget.left is not None:
        progress.state = replace(progress.state, linear_texts=affordable_texts(prepared))

    num_texts = progress.state.linear_texts
    if num_texts is None:
        return prepared

    sample = streamed(prepared, num_texts)
    progress.prepared = replace(prepared, plan=sample.plan)
    reporter.working(
        f"fitting the linear model to {num_texts:,} of {len(prepared.dataset.train):,} texts "
        "(train.time_budget)"
    )
    return sample


def _report(
    linear: FittedLinear, progress: Progress, reporter: Reporter, *, is_first_fit: bool
) -> None:
    """Tell how the linear model was fitted, and log its scores."""
    if is_first_fit and linear.effort is not PLANNED:
        reporter.warning(
            "train.time_budget: there is no time to fit the linear model as planned, but in a "
            f"simpler way: {linear.effort.name}"
        )
    if linear.few_labels:
        reporter.note(few_labels_line(linear.few_labels))

    validation = linear.validation
    if validation is None:
        return
    progress.state = replace(progress.state, linear_score=validation.score)
    if is_first_fit:
        progress.log.log(0, "validation", validation.row(epoch=0))
        reporter.validated("model", step=0, epoch=0, scores=validation.scores, is_best=True)


def few_labels_line(result: FewLabels) -> str:
    """How the linear model learned from few labels, with its accuracy."""
    low, high = result.interval
    accuracy = f"{result.accuracy:.1%} [{low:.1%}, {high:.1%}]"
    if result.accuracy != result.accuracy_before:
        accuracy = f"{result.accuracy_before:.1%} -> {accuracy}"

    outlook = ""
    if result.accuracy_with_twice is not None:
        outlook = f", with twice the labels about {result.accuracy_with_twice:.0%}"
    return f"linear model: {result.kept}; accuracy by cross-validation {accuracy}{outlook}"


def broadcast_pseudo_labels(
    prepared: Prepared, linear: FittedLinear | None, group: ProcessGroup
) -> NDArray[np.float32] | None:
    """The teacher's probabilities of the unlabelled texts that the encoder learns from.

    All processes get them. Soft labels: Hinton et al., "Distilling the Knowledge in a Neural
    Network" (2015), https://arxiv.org/abs/1503.02531.

    Returns:
        Probabilities, (texts, classes); None without a teacher.
    """
    probabilities = None
    if linear and linear.few_labels and linear.few_labels.teacher:
        unlabelled = prepared.texts.take(prepared.model_rows[len(prepared.dataset.train) :])
        logits = linear.few_labels.teacher.logits(unlabelled)
        probabilities = softmax(logits).astype(np.float32)

    if not group.decide(probabilities is not None):
        return None
    if group.size == 1:
        return probabilities

    content = group.broadcast(b"" if probabilities is None else probabilities.tobytes())
    num_classes = len(prepared.dataset.label_names)
    return np.frombuffer(content, dtype=np.float32).reshape(-1, num_classes)
