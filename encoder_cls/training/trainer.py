"""Config in, finished run out: the training loop, as a generator of reports.

A run has two stages, each from first weights to the best. Pretraining is masked language modelling; the run's model
begins with its weights and learns from the labels, and its logits are combined with those of a linear classifier.

Everything that varies from step to step is a pure function of (config, step): the batch, the learning
rate, the random numbers of dropout. So the state of a run is its weights, the optimizer's moments and a
few numbers, and a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from encoder_cls.errors import ConfigError, DivergedError, StoppedError
from encoder_cls.evaluation.baseline import linear_reference
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.model_card import model_card
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.linear import LinearClassifier, fit_linear
from encoder_cls.inference.serialization import load_classifier, save_classifier
from encoder_cls.system.device import environment, release_memory, resolve_precision
from encoder_cls.system.files import sha256, write_file
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.tensorboard import log_final_report
from encoder_cls.training.checkpoint import TrainingState, load_newest, save_checkpoint
from encoder_cls.training.disk_space import check_free_space
from encoder_cls.training.events import Event, Finished, Noted, StageStarted, Started, Stepped, Validated
from encoder_cls.training.interruptible import run_interruptibly
from encoder_cls.training.objectives import ClassificationObjective, MaskedLMObjective, Objective
from encoder_cls.training.optimizer import learning_rate, make_optimizers, warmup_steps
from encoder_cls.training.setup import TrainingSetup, derive_seed
from encoder_cls.training.train_step import NonFiniteError, train_step

TIMED_STEPS = 20  # from which the time of the others is judged
STEPS_BETWEEN_RELEASES = 50  # of memory, which is then asked for anew: at every ten steps a twentieth of the time
DRAWN_VALIDATIONS = 10  # TensorBoard shows no more pictures of a kind

StopSignal = Callable[[], int | None]
"""Says which signal has asked to stop, if any."""


def train(
    setup: TrainingSetup,
    run: RunDir,
    *,
    device: torch.device,
    resume: bool = False,
    stop_signal: StopSignal = lambda: None,
) -> Iterator[Event]:
    """Train into a run folder, telling of each step.

    Args:
        setup: of the config and its data.
        run: where to; it must be new, unless resumed.
        device: where to train.
        resume: go on from the newest checkpoint; a finished run ends at once, an empty folder starts anew.
        stop_signal: asked after each step and each batch of a validation.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is no finite number; what was written before is good.
        StoppedError: a signal asked to stop; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    with run.open_for_training(setup.config, resume=resume):
        if run.is_finished():
            return
        training = _Training(setup, run, device=device, stop_signal=stop_signal)
        with training.metric_log:
            yield from training.events()
        yield from training.noted()


class _Training:
    """One run in progress: the model, the optimizer, the state and the files they go to."""

    def __init__(
        self,
        setup: TrainingSetup,
        run: RunDir,
        *,
        device: torch.device,
        stop_signal: StopSignal,
    ) -> None:
        config = setup.config
        self.setup = setup
        self.config = config.train
        self.run = run
        self.device = device
        self.stop_signal = stop_signal
        self.started = time.monotonic()
        self.precision = resolve_precision(config.train.precision, device)
        self.facts = environment(device, self.precision) | {
            "tokenizer": sha256(setup.tokenizer.to_str().encode()),
            "training_data": setup.dataset.train.fingerprint(),
            "unlabelled_data": setup.dataset.unlabelled.fingerprint(),
            "validation_data": setup.dataset.selection.fingerprint(),
            "classes": list(setup.dataset.label_names),
        }
        checkpoint, self.notes = load_newest(run.checkpoints)
        self.state = checkpoint.state if checkpoint else TrainingState()
        self.saved_state = checkpoint.state if checkpoint else None
        self._begin_stage(anew=checkpoint is None)
        check_free_space(setup, run, self.model)
        if checkpoint:
            self._check_facts(checkpoint.facts)
            checkpoint.restore(self.model, self.optimizers)
        # Of the steps since the last logged row, in this process: what a resumed run cannot know is not counted.
        self.timed_tokens, self.seconds = 0, 0.0
        self.metric_log = MetricLog(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard,
            resume_after={"data": 0, "train": self.state.step, "validation": self.state.validated_step}
            if checkpoint
            else None,
            config_text=config.to_yaml(),
            label_names=setup.dataset.label_names,
            warn=self.notes.append,
        )
        if not checkpoint:
            self.metric_log.log(0, "data", setup.facts)

    def _begin_stage(self, *, anew: bool) -> None:
        """Make the stage's model with its optimizers; anew: with its first weights, not those of a checkpoint."""
        setup = self.setup
        self.stage = setup.stages[self.state.stage]
        self.is_last_stage = self.stage is setup.stages[-1]
        self.folder = self.run.model if self.is_last_stage else self.run.stage(self.stage.name)
        self.model = setup.new_model(self.stage).to(self.device)
        if anew and self.stage.starts_from:
            former = load_classifier(self.run.stage(self.stage.starts_from), device=str(self.device))
            self.model.load_state_dict(former.model.state_dict())
        self.classifier = Classifier(self.model, setup.tokenizer, setup.config.model, setup.dataset.label_names)
        self.optimizers = make_optimizers(self.model, self.config)
        self.stage_steps_timed, self.stage_seconds = 0, 0.0  # of the stage, in this process

    def events(self) -> Iterator[Event]:
        """All stages, each until its last step or until patience runs out; then the final report."""
        yield Started(step=self.state.step, total_steps=self.setup.total_steps)
        while True:
            for event in self._train_stage():
                yield from self.noted()
                yield event
            if self.is_last_stage:
                break
            step = self.state.step
            self.state = TrainingState(
                step=step, stage=self.state.stage + 1, stage_start=step, validated_step=step, best_step=step
            )
            self._begin_stage(anew=True)
            self._save_checkpoint()
        finished = self._finish()
        yield from self.noted()
        yield finished

    def noted(self) -> Iterator[Noted]:
        """What has come up since this was asked last."""
        while self.notes:
            yield Noted(self.notes.pop(0))

    def _train_stage(self) -> Iterator[Event]:
        linear = None
        # Where a run goes on that had only its final report before it, nothing more is to be learnt.
        if self.is_last_stage and (self._is_validation_due() or not self._is_done()):
            linear = self.classifier.linear = self._fit_linear()
        objective = self._new_objective(linear)
        still_to_come = sum(stage.total_steps for stage in self.setup.stages[self.state.stage + 1 :])
        yield StageStarted(
            stage=self.stage,
            step=self.state.step,
            total_steps=self.state.stage_start + self._stage_steps + still_to_come,
        )
        while True:
            if self._is_validation_due():
                yield self._validate(objective)
                self._save_checkpoint()
            if self._is_done():
                break
            self._stop_if_asked()
            yield self._step(objective)
            if self.state.step % STEPS_BETWEEN_RELEASES == 0:
                release_memory()
            if self.config.checkpoint_every and self.state.step % self.config.checkpoint_every == 0:
                self._save_checkpoint()

    def _new_objective(self, linear: LinearClassifier | None) -> Objective:
        if self.stage.learns_from == "words":
            return MaskedLMObjective(self.setup, self.stage, device=self.device)
        return ClassificationObjective(self.setup, self.stage, linear, device=self.device)

    def _fit_linear(self) -> LinearClassifier | None:
        setup = self.setup
        linear = setup.recipe.linear
        if not linear:
            return None
        return run_interruptibly(
            lambda: fit_linear(
                setup.train_texts,
                setup.dataset.train.labels,
                class_weights=setup.class_weights.numpy(),
                reach=linear.reach,
                words_only=linear.words_only,
            ),
            self._stop_if_asked,
        )

    @property
    def _stage_step(self) -> int:
        """Optimizer steps done in this stage."""
        return self.state.step - self.state.stage_start

    @property
    def _stage_steps(self) -> int:
        """Those it has in all, at most."""
        return self.state.stage_steps or self.stage.total_steps

    def _is_validation_due(self) -> bool:
        step = self._stage_step
        is_due = step % self.setup.validate_every(self.stage) == 0 or step == self._stage_steps
        return is_due and self.state.step > self.state.validated_step

    def _is_drawn(self) -> bool:
        """Whether pictures are drawn of this validation: of the model itself, the first in each tenth of its steps."""
        step, total = self._stage_step, self._stage_steps
        every = self.setup.validate_every(self.stage)
        former = (step - 1) // every * every
        return step * DRAWN_VALIDATIONS // total > former * DRAWN_VALIDATIONS // total

    def _is_done(self) -> bool:
        # Other tokens are masked each time, so there is no overfitting: pretraining goes on to its last step.
        patience = self.config.patience if self.stage.learns_from == "labels" else None
        out_of_patience = patience is not None and self.state.stale_validations >= patience
        return out_of_patience or self._stage_step == self._stage_steps

    def _step(self, objective: Objective) -> Stepped:
        """One optimizer step over `accumulation_steps` batches."""
        began = time.perf_counter()
        step = self._stage_step
        rate = learning_rate(step, total_steps=self._stage_steps, config=self.config)
        try:
            metrics = train_step(
                self.model,
                self.optimizers,
                objective,
                step,
                seed=derive_seed(self.stage.seed, step),
                learning_rate=rate,
                max_grad_norm=self.config.max_grad_norm,
                precision=self.precision,
            )
        except NonFiniteError as error:
            raise self._diverged(error, rate) from None
        new = {"steps": 1, **metrics._asdict()}
        sums = {key: self.state.sums.get(key, 0.0) + value for key, value in new.items()}
        self.state = replace(self.state, step=self.state.step + 1, sums=sums)
        self.timed_tokens += metrics.tokens
        taken = time.perf_counter() - began
        self.seconds += taken
        self.stage_steps_timed, self.stage_seconds = self.stage_steps_timed + 1, self.stage_seconds + taken
        self._limit_time()
        values = self._log_training(rate) if self._stage_step % self.config.log_every == 0 else None
        return Stepped(step=self.state.step, epoch=self._epoch(), loss=metrics.loss, values=values)

    def _limit_time(self) -> None:
        """Where pretraining has a limit of time, decide by its first steps how many there will be.

        The decision is part of the state: a run that goes on keeps to it, so that it equals one undisturbed.
        """
        budget = self.setup.config.pretrain.time_budget
        if self.stage.learns_from == "words" and budget and self._stage_step == TIMED_STEPS:
            affordable = 60 * budget / (self.stage_seconds / self.stage_steps_timed)  # perhaps infinite
            steps = int(min(max(affordable, TIMED_STEPS), self.stage.total_steps))
            self.state = replace(self.state, stage_steps=steps)

    def _log_training(self, rate: float) -> dict[str, float]:
        """Log the means since the last row."""
        sums = self.state.sums
        values = {
            "loss": sums["loss"] / sums["steps"],
            "grad_norm": sums["grad_norm"] / sums["steps"],
            "learning_rate": rate,
            "tokens_per_s": self.timed_tokens / self.seconds,
            "padding_fraction": 1 - sums["tokens"] / sums["padded_tokens"],
            "epoch": self._epoch(),
        }
        self.metric_log.log(self.state.step, self._split("train"), values)
        self.state = replace(self.state, sums={})
        self.timed_tokens, self.seconds = 0, 0.0
        return values

    def _validate(self, objective: Objective) -> Validated:
        """Judge the model on the validation split, and keep its weights if they are the best so far."""
        step = self.state.step
        result = objective.validate(self.model, self._stop_if_asked)
        if result is None:
            raise DivergedError(step, "a validation text gets numbers that are not finite")
        # Little is learnt while the learning rate rises: that is no sign that there is no more to learn.
        is_warming_up = self._stage_step <= warmup_steps(self._stage_steps, self.config)
        is_best = self.state.best_score is None or result.selection_key > self.state.best_score
        if is_best:
            self.classifier.scales = result.scales or self.classifier.scales
            save_classifier(self.classifier, self.folder)
        self.state = replace(
            self.state,
            validated_step=step,
            best_score=result.selection_key if is_best else self.state.best_score,
            best_step=step if is_best else self.state.best_step,
            stale_validations=0 if is_best or is_warming_up else self.state.stale_validations + 1,
        )
        values = {**result.scores, "epoch": self._epoch()}
        if result.metrics:
            values |= {f"f1/{name}": scores.f1 for name, scores in result.metrics.per_class.items()}
            values |= result.metrics.drawable() if self._is_drawn() else {}
        self.metric_log.log(step, self._split("validation"), values)
        return Validated(stage=self.stage, step=step, epoch=self._epoch(), result=result, is_best=is_best)

    def _finish(self) -> Finished:
        """Report on the best weights, and write the model card as the sign that the run is complete."""
        dataset = self.setup.dataset
        best = load_classifier(self.run.model, device=str(self.device))
        name, split = dataset.reported
        report, logits = evaluate(
            best,
            split,
            name=name,
            reference=run_interruptibly(lambda: linear_reference(dataset.train, split), self._stop_if_asked),
            batch_tokens=self.config.batch_tokens,
            after_batch=self._stop_if_asked,
        )
        write_report(self.run.eval, report, split, logits, run_name=self.setup.config.name)
        group = name if dataset.test else f"best_{name}"  # the curves of validation end with the last weights
        self.metric_log.log(self.state.best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
        config, step = self.setup.config, self.state.best_step
        log_final_report(self.metric_log, best, config, report, split, logits, group=group, step=step)
        shutil.rmtree(self.run.stages, ignore_errors=True)
        linear = self.setup.recipe.linear
        card = model_card(
            config,
            dataset,
            report,
            best_step=step,
            vocab_size=self.setup.vocab_size,
            linear_reach=linear.reach if linear else None,
        )
        write_file(self.run.model_card, card.encode())
        return Finished(report=report, best_step=self.state.best_step, seconds=time.monotonic() - self.started)

    def _epoch(self) -> float:
        return self._stage_step / self.stage.steps_per_epoch

    def _split(self, name: str) -> str:
        """The name of a split in the metrics: those of pretraining have their own."""
        return name if self.is_last_stage else f"{self.stage.name}/{name}"

    def _save_checkpoint(self) -> None:
        if self.state == self.saved_state:
            return
        self.metric_log.flush()
        save_checkpoint(
            self.run.checkpoints,
            self.model,
            self.optimizers,
            self.state,
            facts=self.facts,
            keep=self.config.keep_checkpoints,
        )
        self.saved_state = self.state

    def _stop_if_asked(self) -> None:
        signal_number = self.stop_signal()
        if signal_number is None:
            return
        self._save_checkpoint()
        raise StoppedError(
            f"stopped at step {self.state.step}; a checkpoint is written, --resume goes on from it",
            signal_number=signal_number,
        )

    def _check_facts(self, facts: dict[str, Any]) -> None:
        changed = [name for name in facts if facts[name] != self.facts.get(name)]
        reasons = {
            "training_data": "training data has",
            "unlabelled_data": "unlabelled texts have",
            "validation_data": "validation data has",
            "classes": "names of the classes have",
            "tokenizer": "tokenizer's library has",
        }
        for name, meaning in reasons.items():
            if name in changed:
                raise ConfigError(f"{self.run.path}: the {meaning} changed since the run began; start a new run")
        if changed:
            self.notes.append(
                f"{', '.join(changed)} changed since the run began: the result may differ in the last digits"
            )
        if self.device.type == "cuda":  # some kernels add up in the order in which their threads end
            self.notes.append("on a GPU a run that goes on may differ in the last digits from an uninterrupted one")

    def _diverged(self, error: NonFiniteError, rate: float) -> DivergedError:
        texts = np.concatenate(self.stage.batches(self._stage_step))[:3].tolist()
        examples = ", ".join(self.setup.where(text) for text in texts)
        return DivergedError(
            self.state.step + 1,
            f"{error}, learning rate {rate:.3g}, batch of {examples}, …",
        )
