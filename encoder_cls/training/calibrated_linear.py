"""The linear classifier of a run as a classifier by itself: fitted, calibrated and scored on the validation texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.serialization import save_classifier
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import write_validation_logits
from encoder_cls.training.fitted_linear import FittedLinear
from encoder_cls.training.interruptible import run_interruptibly, while_waited_for
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.recipe import LinearInput
from encoder_cls.training.setup import TrainingSetup
from encoder_cls.training.validation import ValidationResult, judge


class CalibratedLinear(NamedTuple):
    """A linear classifier that can be used.

    Attributes:
        classifier: without an encoder.
        fitted: what it was made of.
        result: of the validation texts; none where nobody has labelled one, so that it is not calibrated.
    """

    classifier: Classifier
    fitted: FittedLinear
    result: ValidationResult | None


def fit_calibrated_linear(
    setup: TrainingSetup, run: RunDir, read: LinearInput, *, save_first: bool, stop_if_asked: Callable[[], None]
) -> CalibratedLinear:
    """Fit the linear classifier of a run and calibrate it; the same on the same data.

    Args:
        setup: of the run.
        run: its folder, where the logits of validation texts are kept that it has learned from.
        read: what of the texts it looks at.
        save_first: whether what there is on the way is saved as the model.
        stop_if_asked: called now and then; what it raises ends the work.
    """

    def on_better(fitted: FittedLinear) -> None:
        classifier = _calibrated(setup, fitted).classifier
        with while_waited_for():  # later the run may be another process's
            save_classifier(classifier, run.model)

    fitted = run_interruptibly(
        lambda: fit_linear_classifier(setup, read, on_better=on_better if save_first else None), stop_if_asked
    )
    if setup.refits_on_validation:
        write_validation_logits(run.validation_logits, fitted.validation_logits, setup.validation_texts)
    return _calibrated(setup, fitted)


def _calibrated(setup: TrainingSetup, fitted: FittedLinear) -> CalibratedLinear:
    classifier = setup.new_classifier(None)
    classifier.linear, classifier.mixture_weights = fitted.classifier, (1.0,)
    classifier.mixture_shares = {"linear": 1.0}
    if not len(setup.validation_texts):
        return CalibratedLinear(classifier, fitted, None)
    result = judge(None, fitted.validation_logits, setup.dataset, monitor=setup.config.train.monitor)
    classifier.mixture_weights = result.mixture_weights or (1.0,)
    classifier.thresholds = result.thresholds
    return CalibratedLinear(classifier, fitted, result)
