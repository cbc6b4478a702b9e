"""The first stage of a run: fit the linear model in time, save it and report it.

How it is fitted is in `linear_training/linear_fit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.classifier.validation_result import ValidationResult, score_mixture
from encoder_cls.encoder_training.distributed import ProcessGroup
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, LinearPredictions
from encoder_cls.linear_training.class_weights import class_weights
from encoder_cls.linear_training.cost import PLANNED, LinearWork
from encoder_cls.linear_training.features import LinearOptions
from encoder_cls.linear_training.few_labels import FewLabelsFit
from encoder_cls.linear_training.fit_data import FitData, HeldOutLogits, LinearFit
from encoder_cls.linear_training.linear_fit import fit_linear_model, repeat_linear_fit
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.display import duration
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import check_stop, run_interruptibly
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.run_classifier import make_classifier
from encoder_cls.training.run_progress import RunProgress

# The maximum share of the remaining time for the linear model. An encoder, if there is time for it,
# and the report follow.
MAX_TIME_SHARE = 0.5


class FittedLinear(NamedTuple):
    """The linear model of a run as a classifier, calibrated on the validation texts.

    Attributes:
        validation_logits: by a model that has not learned from these texts, (texts, classes).
    """

    classifier: Classifier
    fit: LinearFit
    validation_logits: Logits
    validation: ValidationResult


def run_linear_stage(
    run: RunDir, progress: RunProgress, group: ProcessGroup, reporter: Reporter
) -> FittedLinear | None:
    """Fit the linear model of a run that has one, in the first process, and save it.

    It is the model of the run unless one with an encoder is better. A resumed run fits it again if
    its remaining work needs it. If the final fit includes the validation texts, their held-out
    predictions are saved, too.

    The result is None in all processes but the first, and where only the report is left to do.
    """
    linear = None
    if group.is_first and progress.needs_linear_model:
        is_first_fit = progress.state.linear_work is None
        linear = _fit_and_save(run, progress, reporter)
        _report(linear, progress, reporter, is_first_fit=is_first_fit)
    progress.share_state()
    return linear


def _fit_and_save(run: RunDir, progress: RunProgress, reporter: Reporter) -> FittedLinear:
    prepared = progress.prepared

    def save(fitted: FittedLinear) -> None:
        # Save nothing once the run is stopped: another process may have resumed it.
        check_stop()
        save_classifier(fitted.classifier, run.model)

    linear = run_interruptibly(
        lambda: fit_linear_classifier(
            prepared, work=progress.state.linear_work, on_preliminary=save, reporter=reporter
        )
    )

    if linear.fit.held_out:
        predictions = held_out_predictions(prepared, linear.fit.held_out)
        predictions.write(run.held_out_predictions)
    else:
        # A process that was killed, and had more time, may have left those of another fit.
        run.held_out_predictions.unlink(missing_ok=True)
    if not progress.state.is_encoder_better:
        save_classifier(linear.classifier, run.model)

    # Change the state last, so that a checkpoint never has work whose model is not saved.
    progress.state = replace(
        progress.state, linear_work=linear.fit.work, linear_score=linear.validation.score
    )
    reporter.working("")
    return linear


def fit_linear_classifier(
    prepared: Prepared,
    *,
    work: LinearWork | None = None,
    on_preliminary: Callable[[FittedLinear], None] | None = None,
    reporter: Reporter = SILENT,
) -> FittedLinear:
    """Fit the linear model of a run, and make it a classifier.

    The remaining time decides how much work that is, unless `work` is to be repeated.
    `on_preliminary` receives earlier models, each better than the one before.
    """
    data = _fit_data(prepared)
    if work is not None:
        return _scored(prepared, data, repeat_linear_fit(data, work, reporter=reporter))

    on_first = None
    if on_preliminary:

        def on_first(fit: LinearFit) -> None:
            on_preliminary(_scored(prepared, data, fit))

    end = _end_of_fit(prepared)
    fit = fit_linear_model(data, end=end, on_preliminary=on_first, reporter=reporter)
    return _scored(prepared, data, fit)


def _end_of_fit(prepared: Prepared) -> float | None:
    """When the fit must end, a time of `time.monotonic`, if it must."""
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None:
        return None
    return time.monotonic() + MAX_TIME_SHARE * seconds


def _fit_data(prepared: Prepared) -> FitData:
    plan = prepared.plan
    config = prepared.config
    assert plan.linear_fit
    assert plan.linear_max_tokens is not None

    def tokenize_all(*texts: Iterable[str]) -> TokenizedTexts:
        return tokenize(prepared.tokenizer, chain(*texts), max_seq_len=config.model.max_seq_len)

    return FitData(
        kind=plan.linear_fit,
        dataset=prepared.dataset,
        texts=prepared.texts,
        validation_texts=prepared.validation_texts,
        tokenize=tokenize_all,
        options=LinearOptions(
            plan.linear_max_tokens,
            char_ngrams=True,
            class_weights=class_weights(config.train.class_weights, prepared.dataset),
        ),
        config=config.train,
        refits_on_validation=plan.refits_on_validation,
        with_teacher=plan.has_pseudo_labels,
    )


def _scored(prepared: Prepared, data: FitData, fit: LinearFit) -> FittedLinear:
    logits = fit.validation_logits(data)

    # A model of few labels that were predicted out of fold is calibrated on all of them, so do not
    # calibrate it again on the few validation texts. With an encoder, do: the validation texts
    # choose the weights of both models, so both must be calibrated on the same texts.
    is_calibrated = (
        fit.few_labels is not None and fit.held_out is not None and not prepared.plan.has_encoder
    )
    result = score_mixture(
        None,
        logits,
        prepared.dataset,
        monitor=prepared.config.train.monitor,
        is_calibrated=is_calibrated,
    )
    classifier = make_classifier(prepared, linear=fit.linear, result=result)
    return FittedLinear(classifier, fit, logits, result)


def held_out_predictions(prepared: Prepared, held_out: HeldOutLogits) -> HeldOutPredictions:
    """The held-out predictions of each split, with the rows of their texts in the split."""
    dataset = prepared.dataset
    rows, logits, familiarity_features = held_out
    num_train = len(dataset.train)
    is_train = rows < num_train

    # Translate rows of `Dataset.known_validation` to rows of `Dataset.validation`.
    validation_rows = dataset.known_validation_rows[rows[~is_train] - num_train]

    return HeldOutPredictions(
        validation=LinearPredictions(
            validation_rows, logits[~is_train], familiarity_features[~is_train]
        ),
        train=LinearPredictions(rows[is_train], logits[is_train], familiarity_features[is_train]),
        texts_sha256=dataset.validation.texts_fingerprint,
    )


def _report(
    linear: FittedLinear, progress: RunProgress, reporter: Reporter, *, is_first_fit: bool
) -> None:
    if is_first_fit:
        num_train = len(progress.prepared.dataset.train)
        _report_differences_from_plan(linear, reporter, num_train=num_train)
    if linear.fit.few_labels:
        reporter.note(_few_labels_line(linear.fit.few_labels))

    if is_first_fit:
        validation = linear.validation
        progress.log.log(0, "validation", validation.row(epoch=0))
        reporter.validated("model", step=0, epoch=0, scores=validation.scores, is_best=True)


def _report_differences_from_plan(
    linear: FittedLinear, reporter: Reporter, *, num_train: int
) -> None:
    effort = linear.fit.effort
    if effort is not PLANNED and linear.fit.is_surely_better_than_planned:
        reporter.note(
            f"linear model: {effort.name}, since that is surely better on validation texts than "
            "all that is planned"
        )
    elif effort is not PLANNED:
        reporter.warning(
            "train.time_budget: there is no time to fit the linear model as planned, but in a "
            f"simpler way: {effort.name}"
        )

    if linear.fit.uses_words_alone:
        reporter.note(
            "linear model: words alone, since it is surely worse on validation texts with n-grams "
            "of characters"
        )

    stream = linear.fit.stream
    if stream and stream.num_unread:
        reporter.warning(
            f"train.time_budget: the linear model has learned from {stream.num_texts:,} of "
            f"{num_train:,} texts; all of them would take it {duration(stream.seconds_for_all)}"
        )


def _few_labels_line(result: FewLabelsFit) -> str:
    """How the model learned from few labels, and its accuracy with its 95% interval.

    If unlabelled texts have changed it, the accuracy without them comes first.
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
    """Send the pseudo-labels, (texts, classes), of the first process to all.

    They are the probabilities that the teacher, a linear model, gives to the unlabelled texts that
    the encoder learns from; None without a teacher. Probabilities teach more than the most probable
    class: Hinton et al., "Distilling the Knowledge in a Neural Network" (2015),
    https://arxiv.org/abs/1503.02531. Only the first process needs `linear`.
    """
    probabilities = None
    if linear and linear.fit.few_labels and linear.fit.few_labels.teacher:
        unlabelled = prepared.texts.take(prepared.encoder_rows[len(prepared.dataset.train) :])
        logits = linear.fit.few_labels.teacher.logits(unlabelled)
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
