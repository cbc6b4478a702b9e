"""Config in, finished run out, as a generator of events: the folder is held, and whoever trains is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.encoder_trainer import EncoderTrainer
from encoder_cls.training.events import Event
from encoder_cls.training.interruptible import StopSignal
from encoder_cls.training.linear_trainer import LinearTrainer
from encoder_cls.training.process_group import ALONE, ProcessGroup
from encoder_cls.training.setup import TrainingSetup


def train(
    setup: TrainingSetup,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    stop_signal: StopSignal = lambda: None,
    with_report: bool = True,
    group: ProcessGroup = ALONE,
) -> Iterator[Event]:
    """Train into a run folder, telling of each step.

    Args:
        setup: of the config and its data.
        run: where to; it must be new, unless resumed.
        device: where to train.
        resume: go on from the newest checkpoint; a finished run ends at once, an empty folder starts a new run.
        stop_signal: asked after each step and each batch of a validation.
        with_report: else nothing is shown in TensorBoard, and with the best weights in `model/` the run is at its end:
            no report, no model card, and weights in float32.
        group: the processes that train together, of which this is the first; the others call `follow`.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is no finite number; what was written before is good.
        StoppedError: a signal asked to stop; a checkpoint has been written, and the best model so far is in `model/`.
        LostProcessError: another process of the group has ended; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    with run.open_for_training(setup.config, resume=resume):
        if run.is_finished():
            return
        make = partial(EncoderTrainer, group=group) if setup.has_encoder else LinearTrainer
        trainer = make(setup, run, device=device, stop_signal=stop_signal, with_report=with_report)
        run.record_sources(setup.config)
        with trainer.metric_log:
            yield from trainer.events()
        yield from trainer.noted()
