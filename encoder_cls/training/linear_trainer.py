"""Config in, finished run of a linear classifier alone out (`model.encoder: false`), as a generator of events.

There are no steps: the classifier is fitted at once, in seconds, so a run that was interrupted is done again from its
data, which are to be the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import nn

from encoder_cls.errors import StoppedError
from encoder_cls.inference.serialization import save_classifier
from encoder_cls.system.device import resolve_precision
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.calibrated_linear import fit_calibrated_linear
from encoder_cls.training.checkpoint import load_newest, save_checkpoint
from encoder_cls.training.disk_space import check_free_space
from encoder_cls.training.events import Event, Finished, LinearFitted, Noted, Started, Validated
from encoder_cls.training.final_report import write_final_report
from encoder_cls.training.fingerprint import check_fingerprint, fingerprint
from encoder_cls.training.interruptible import StopSignal
from encoder_cls.training.setup import TrainingSetup
from encoder_cls.training.state import TrainingState


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
        stop_signal: StopSignal,
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
        assert setup.recipe.linear
        linear = fit_calibrated_linear(
            setup, self._run, setup.recipe.linear, save_first=True, stop_if_asked=self._stop_if_asked
        )
        if linear.fitted.few_labels:
            yield LinearFitted(step=0, result=linear.fitted.few_labels)
        save_classifier(linear.classifier, self._run.model)
        if linear.result:
            self.metric_log.log(0, "validation", linear.result.row(epoch=0, is_drawn=True))
        self._save_checkpoint()
        if linear.result:
            yield Validated(stage=stage, step=0, epoch=0, result=linear.result, is_best=True)

    def _save_checkpoint(self) -> None:
        save_checkpoint(self._run.checkpoints, nn.Module(), [], TrainingState(), fingerprint=self._fingerprint, keep=1)

    def _stop_if_asked(self) -> None:
        signal_number = self._stop_signal()
        if signal_number is not None:
            raise StoppedError("stopped; --resume begins again: it takes seconds", signal_number=signal_number)
