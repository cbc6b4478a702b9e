"""Config in, finished run of a linear classifier alone out (`model.encoder: false`), as a generator of events.

There are no steps: the classifier is fitted at once, in seconds, so a run that was interrupted is done again from its
data, which are to be the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

from encoder_cls.errors import StoppedError
from encoder_cls.inference.serialization import save_classifier
from encoder_cls.system.device import resolve_precision
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import write_validation_logits
from encoder_cls.training.checkpoint import load_newest, save_checkpoint
from encoder_cls.training.disk_space import check_free_space
from encoder_cls.training.events import Event, Finished, LinearFitted, Noted, Started, Validated
from encoder_cls.training.final_report import write_final_report
from encoder_cls.training.fingerprint import check_fingerprint, fingerprint
from encoder_cls.training.interruptible import run_interruptibly
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.setup import TrainingSetup
from encoder_cls.training.state import TrainingState
from encoder_cls.training.validation import judge


class LinearTrainer:
    """The life of a run without an encoder; arguments as in `trainer.train`.

    Attributes:
        metric_log: where its numbers go.
    """

    def __init__(
        self,
        setup: TrainingSetup,
        run: RunDir,
        *,
        device: torch.device,
        stop_signal: Callable[[], int | None],
        with_report: bool,
    ) -> None:
        self._setup, self._run, self._device = setup, run, device
        self._stop_signal, self._with_report = stop_signal, with_report
        self._started = time.monotonic()
        precision = resolve_precision(setup.config.train.precision, device)
        self._fingerprint = fingerprint(setup, device=device, precision=precision)
        checkpoint, self._notes = load_newest(run.checkpoints)
        check_free_space(setup, run, nn.Module())
        if checkpoint:
            self._notes += check_fingerprint(checkpoint.fingerprint, self._fingerprint, run=run.path)
        self.metric_log = MetricLog(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard if with_report else None,
            resume_after=None,
            config_text=setup.config.to_yaml(),
            label_names=setup.dataset.label_names,
            warn=self._notes.append,
        )
        self.metric_log.log(0, "data", setup.data_statistics)

    def events(self) -> Iterator[Event]:
        """One validation of the fitted classifier, then the final report."""
        yield Started(step=0, total_steps=0)
        yield from self.noted()
        self._stop_if_asked()
        yield from self._fit()
        self._stop_if_asked()
        if not self._with_report:
            return
        report = write_final_report(
            self._setup,
            self._run,
            self.metric_log,
            best_step=0,
            device=self._device,
            stop_if_asked=self._stop_if_asked,
        )
        yield from self.noted()
        yield Finished(report=report, best_step=0, seconds=time.monotonic() - self._started)

    def noted(self) -> Iterator[Noted]:
        """What has come up since this was asked last."""
        while self._notes:
            yield Noted(self._notes.pop(0))

    def _fit(self) -> Iterator[Event]:
        """Fit the classifier, calibrate it on the validation texts, and save it with what its data was."""
        setup, (stage,) = self._setup, self._setup.stages
        config, read = setup.config, setup.recipe.linear
        assert read
        fitted = run_interruptibly(lambda: fit_linear_classifier(setup, read), self._stop_if_asked)
        if setup.refits_on_validation:
            write_validation_logits(self._run.validation_logits, fitted.validation_logits)
        if fitted.few_labels:
            yield LinearFitted(step=0, result=fitted.few_labels)
        classifier = setup.new_classifier(None)
        classifier.linear, classifier.mixture_weights = fitted.classifier, (1.0,)
        classifier.mixture_shares = {"linear": 1.0}
        if not len(setup.validation_texts):  # nobody has labelled one
            save_classifier(classifier, self._run.model)
            self._save_checkpoint()
            return
        result = judge(None, fitted.validation_logits, setup.dataset, monitor=config.train.monitor)
        classifier.mixture_weights = result.mixture_weights or (1.0,)
        classifier.thresholds = result.thresholds
        save_classifier(classifier, self._run.model)
        values = {**result.scores, "epoch": 0}
        if result.metrics:
            values |= {f"f1/{name}": scores.f1 for name, scores in result.metrics.per_class.items()}
            values |= result.metrics.drawable()
        self.metric_log.log(0, "validation", values)
        self._save_checkpoint()
        yield Validated(stage=stage, step=0, epoch=0, result=result, is_best=True)

    def _save_checkpoint(self) -> None:
        save_checkpoint(self._run.checkpoints, nn.Module(), [], TrainingState(), fingerprint=self._fingerprint, keep=1)

    def _stop_if_asked(self) -> None:
        signal_number = self._stop_signal()
        if signal_number is not None:
            raise StoppedError("stopped; --resume begins again: it takes seconds", signal_number=signal_number)
