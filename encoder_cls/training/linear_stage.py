"""The first stage of a run: fit the linear model within the time limit, save it and report it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.linear_training.cost import PLANNED
from encoder_cls.linear_training.few_labels import FewLabelsFit
from encoder_cls.metrics.logits import softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.display import duration
from encoder_cls.system.reporter import Reporter
from encoder_cls.system.stop import check_stop, run_interruptibly
from encoder_cls.training.fitted_linear import FittedLinear
from encoder_cls.training.linear_fit import fit_linear_classifier, repeat_linear_fit
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_progress import Progress


def fit_linear_model(
    run: RunDir, progress: Progress, group: ProcessGroup, reporter: Reporter
) -> FittedLinear | None:
    """Fit the linear model of a run that has one, in the first process.

    The linear model is saved as the model of the run, unless the run has already saved a better
    model with an encoder. A resumed run fits the linear model again if its remaining work needs it,
    since equal data gives an equal model. If the final fit includes the validation texts, the run
    also saves the held-out predictions for them.

    The result is None in all processes except the first, and in a resumed run in which only the
    report is left to do.
    """
    linear = None
    if group.is_first and progress.needs_linear_model:
        is_first_fit = progress.state.linear_work is None
        linear = _fit(run, progress, reporter)
        _report(linear, progress, reporter, is_first_fit=is_first_fit)
    progress.share_state()
    return linear


def _fit(run: RunDir, progress: Progress, reporter: Reporter) -> FittedLinear:
    """Fit the linear model within the time limit, and save it with its held-out predictions.

    The state of the run gets the work and the score of the fit.
    """
    prepared = progress.prepared

    def save(fitted: FittedLinear) -> None:
        # Save nothing once the run is stopped: another process may have resumed it.
        check_stop()
        save_classifier(fitted.classifier, run.model)

    # In the first fit, the remaining time decides how much work the fit does. A repeated fit does
    # the same work, so that it gives the same model.
    work = progress.state.linear_work
    if work is None:
        linear = run_interruptibly(
            lambda: fit_linear_classifier(prepared, on_preliminary=save, reporter=reporter)
        )
    else:
        linear = run_interruptibly(lambda: repeat_linear_fit(prepared, work, reporter=reporter))

    if linear.held_out_predictions:
        linear.held_out_predictions.write(run.held_out_predictions)
    else:
        # A process that was killed, and had more time, may have left those of another fit.
        run.held_out_predictions.unlink(missing_ok=True)
    if not progress.state.is_encoder_better:
        save_classifier(linear.classifier, run.model)

    # Change the state last, so that a checkpoint never has work whose model is not saved.
    progress.state = replace(
        progress.state, linear_work=linear.work, linear_score=linear.validation.score
    )
    reporter.working("")
    return linear


def _report(
    linear: FittedLinear, progress: Progress, reporter: Reporter, *, is_first_fit: bool
) -> None:
    """Report how the linear model was fitted; after the first fit, also log its validation."""
    if is_first_fit:
        num_train = len(progress.prepared.dataset.train)
        _report_differences_from_plan(linear, reporter, num_train=num_train)
    if linear.few_labels:
        reporter.note(_few_labels_line(linear.few_labels))

    if is_first_fit:
        validation = linear.validation
        progress.log.log(0, "validation", validation.row(epoch=0))
        reporter.validated("model", step=0, epoch=0, scores=validation.scores, is_best=True)


def _report_differences_from_plan(
    linear: FittedLinear, reporter: Reporter, *, num_train: int
) -> None:
    """Report less work than planned, features that are left out, and texts that are not read."""
    if linear.effort is not PLANNED:
        reporter.warning(
            "train.time_budget: there is no time to fit the linear model as planned, but in a "
            f"simpler way: {linear.effort.name}"
        )

    if linear.uses_words_alone:
        reporter.note(
            "linear model: words alone, since it is surely worse on validation texts with n-grams "
            "of characters"
        )

    stream = linear.stream
    if stream and stream.num_unread:
        reporter.warning(
            f"train.time_budget: the linear model has learned from {stream.num_texts:,} of "
            f"{num_train:,} texts; all of them would take it {duration(stream.seconds_for_all)}"
        )


def _few_labels_line(result: FewLabelsFit) -> str:
    """Describe in one line how the linear model learned from few labels, with its accuracy.

    The accuracy has its 95% interval, after the accuracy without unlabelled texts if that differs.
    """
    low, high = result.interval
    accuracy = f"{result.accuracy:.1%} [{low:.1%}, {high:.1%}]"
    if result.accuracy != result.accuracy_before:
        accuracy = f"{result.accuracy_before:.1%} -> {accuracy}"

    outlook = ""
    if result.accuracy_with_twice is not None:
        outlook = f", with twice the labels about {result.accuracy_with_twice:.0%}"
    return f"linear model: {result.kind}; accuracy by cross-validation {accuracy}{outlook}"


def broadcast_pseudo_labels(
    prepared: Prepared, linear: FittedLinear | None, group: ProcessGroup
) -> NDArray[np.float32] | None:
    """Send the pseudo-labels of the first process, (texts, classes), to all processes.

    They are the probabilities that the teacher, a linear model, predicts for the unlabelled texts
    that the encoder learns from; None without a teacher. Only the first process needs `linear`. The
    encoder learns the probabilities themselves rather than the most probable class: Hinton et al.,
    "Distilling the Knowledge in a Neural Network" (2015), https://arxiv.org/abs/1503.02531.
    """
    probabilities = None
    if linear and linear.few_labels and linear.few_labels.teacher:
        unlabelled = prepared.texts.take(prepared.encoder_rows[len(prepared.dataset.train) :])
        logits = linear.few_labels.teacher.logits(unlabelled)
        probabilities = softmax(logits).astype(np.float32)

    # Only the first process knows whether there is a teacher.
    if not group.broadcast_value(probabilities is not None):
        return None
    if group.size == 1:
        return probabilities

    content = b""
    if probabilities is not None:
        content = probabilities.tobytes()
    content = group.broadcast_bytes(content)
    num_classes = len(prepared.dataset.label_names)
    return np.frombuffer(content, dtype=np.float32).reshape(-1, num_classes)
