"""Config in, finished run out: the training loop, as a generator of reports.

Everything that varies from step to step is a pure function of (config, step): the batch, the learning
rate, the random numbers of dropout. So the state of a run is its weights, the optimizer's moments and a
few numbers, and a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from encoder_cls.batching import Indices, drop_words, pad
from encoder_cls.checkpoint import TrainingState, load_newest, save_checkpoint
from encoder_cls.classifier import Classifier, compute_logits, load_classifier
from encoder_cls.dashboard import Dashboard
from encoder_cls.errors import ConfigError, DivergedError, EncoderClsError, StoppedError
from encoder_cls.evaluate import Metrics, Report, compute_metrics, confusion_picture, evaluate, write_report
from encoder_cls.hardware import environment, resolve_precision
from encoder_cls.optimization import learning_rate, make_optimizer
from encoder_cls.preparation import Preparation
from encoder_cls.run_folder import RunFolder
from encoder_cls.storage import sha256, write_file

StopSignal = Callable[[], int | None]
"""Says which signal has asked to stop, if any."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """Training begins, or goes on, after `step` of `total_steps`."""

    step: int
    total_steps: int
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """One optimizer step is done; `values` is the logged row, at the steps that have one."""

    step: int
    epoch: float
    loss: float
    values: dict[str, float] | None


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A validation is done; `is_best`: its weights are now the run's model."""

    step: int
    epoch: float
    metrics: Metrics
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run is complete: the best weights' report on the test (else the validation) split."""

    report: Report
    best_step: int
    seconds: float


Event = Started | Stepped | Validated | Finished


def train(
    preparation: Preparation,
    run: RunFolder,
    *,
    device: torch.device,
    resume: bool = False,
    stop_signal: StopSignal = lambda: None,
) -> Iterator[Event]:
    """Train into a run folder, telling of each step.

    Args:
        preparation: of the config and its data.
        run: where to; it must be new, unless resumed.
        device: where to train.
        resume: go on from the newest checkpoint; a finished run ends at once, an empty folder starts anew.
        stop_signal: asked after each step and each batch of a validation.

    Raises:
        ConfigError: the folder holds something else, or a run with another config or other data.
        DivergedError: the loss or the gradient is no finite number; the last checkpoint is good.
        StoppedError: a signal asked to stop; a checkpoint has been written.
        EncoderClsError: another process trains in the folder, or the disk refuses.
    """
    with run.opened(preparation.config, resume=resume):
        if run.is_finished():
            return
        training = _Training(preparation, run, device=device, stop_signal=stop_signal)
        with training.dashboard:
            yield from training.events()


class _Training:
    """One run in progress: the model, the optimizer, the state and the files they go to."""

    def __init__(
        self,
        preparation: Preparation,
        run: RunFolder,
        *,
        device: torch.device,
        stop_signal: StopSignal,
    ) -> None:
        config = preparation.config
        self.preparation = preparation
        self.config = config.train
        self.run = run
        self.device = device
        self.stop_signal = stop_signal
        self.started = time.monotonic()
        self.precision = resolve_precision(config.train.precision, device)
        self.model = preparation.new_model().to(device)
        self.classifier = Classifier(self.model, preparation.tokenizer, config.model, preparation.dataset.label_names)
        self.optimizer = make_optimizer(self.model, config.train)
        self.class_weights = _class_weights(preparation).to(device)
        self.facts = environment(device, self.precision) | {
            "tokenizer": sha256(preparation.tokenizer.to_str().encode()),
            "training_data": preparation.dataset.train.fingerprint(),
            "validation_data": preparation.dataset.validation.fingerprint(),
        }
        checkpoint, self.notes = load_newest(run.checkpoints)
        self.state = TrainingState()
        if checkpoint:
            self._check_facts(checkpoint.facts)
            checkpoint.restore(self.model, self.optimizer)
            self.state = checkpoint.state
        self.saved_state = checkpoint.state if checkpoint else None
        # Of the steps since the last logged row, in this process: what a resumed run cannot know is not counted.
        self.timed_tokens, self.seconds = 0, 0.0
        self.dashboard = Dashboard(
            metrics_file=run.metrics_file,
            tensorboard=run.tensorboard,
            resume_after={"train": self.state.step, "validation": self.state.validated_step} if checkpoint else None,
            config_text=config.to_yaml(),
        )
        if not checkpoint:
            self.dashboard.log(0, "train", preparation.facts)

    def events(self) -> Iterator[Event]:
        """Steps and validations until the last step, or until patience runs out; then the final report."""
        yield Started(step=self.state.step, total_steps=self.preparation.total_steps, notes=self.notes)
        while True:
            if self._is_validation_due():
                yield self._validate()
                self._save_checkpoint()
            if self._is_done():
                break
            self._stop_if_asked()
            yield self._step()
            if self.config.checkpoint_every and self.state.step % self.config.checkpoint_every == 0:
                self._save_checkpoint()
        yield self._finish()

    def _is_validation_due(self) -> bool:
        step = self.state.step
        every = self.config.validate_every or self.preparation.steps_per_epoch
        return step > self.state.validated_step and (step % every == 0 or step == self.preparation.total_steps)

    def _is_done(self) -> bool:
        out_of_patience = self.config.patience is not None and self.state.stale_validations >= self.config.patience
        return out_of_patience or self.state.step == self.preparation.total_steps

    def _step(self) -> Stepped:
        """One optimizer step over `accumulation_steps` batches."""
        began = time.perf_counter()
        step = self.state.step
        _seed_step(self.preparation.config.seed, step)
        batches = self._batches(step)
        rate = learning_rate(step, total_steps=self.preparation.total_steps, config=self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        loss = self._accumulate_gradients(batches)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm))
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise self._diverged(loss, grad_norm, rate, batches)
        self.optimizer.step()
        self.optimizer.zero_grad()

        lengths = [self.preparation.train_texts.lengths[batch] for batch in batches]
        tokens = sum(int(batch.sum()) for batch in lengths)
        padded_tokens = sum(len(batch) * int(batch.max()) for batch in lengths)
        new = {"steps": 1, "loss": loss, "grad_norm": grad_norm, "tokens": tokens, "padded_tokens": padded_tokens}
        sums = {key: self.state.sums.get(key, 0.0) + value for key, value in new.items()}
        self.state = replace(self.state, step=step + 1, sums=sums)
        self.timed_tokens += tokens
        self.seconds += time.perf_counter() - began
        values = self._log_training(rate) if self.state.step % self.config.log_every == 0 else None
        return Stepped(step=self.state.step, epoch=self._epoch(), loss=loss, values=values)

    def _batches(self, step: int) -> list[Indices]:
        """The batches of a step; the last step of an epoch may have fewer, so that no step spans two epochs."""
        schedule, many = self.preparation.schedule, self.config.accumulation_steps
        epoch, place = divmod(step, self.preparation.steps_per_epoch)
        first = epoch * schedule.batches_per_epoch
        last = min((place + 1) * many, schedule.batches_per_epoch)
        return [schedule.indices(first + batch) for batch in range(place * many, last)]

    def _accumulate_gradients(self, batches: list[Indices]) -> float:
        """Gradients of the mean loss over the texts of all batches, each text counted by its class's weight.

        The sum over a batch is divided by the weight of all batches together: so many small batches give the
        same gradient as one large.
        """
        labels = torch.from_numpy(self.preparation.dataset.train.labels)
        labels_of = [labels[torch.from_numpy(batch)].to(self.device) for batch in batches]
        total_weight = sum(self.class_weights[batch_labels].sum() for batch_labels in labels_of)
        total_loss = 0.0
        for batch, batch_labels in zip(batches, labels_of, strict=True):
            input_ids, attention_mask = (tensor.to(self.device) for tensor in pad(self.preparation.train_texts, batch))
            input_ids = drop_words(input_ids, fraction=self.config.word_dropout)
            with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
                logits = self.model(input_ids, attention_mask)
            losses = functional.cross_entropy(
                logits, batch_labels, reduction="none", label_smoothing=self.config.label_smoothing
            )
            loss: Tensor = (losses * self.class_weights[batch_labels]).sum() / total_weight
            loss.backward()  # type: ignore[no-untyped-call]
            total_loss += loss.item()
        return total_loss

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
        self.dashboard.log(self.state.step, "train", values)
        self.state = replace(self.state, sums={})
        self.timed_tokens, self.seconds = 0, 0.0
        return values

    def _validate(self) -> Validated:
        """Score the validation split, and keep the weights if they are the best so far."""
        dataset, step = self.preparation.dataset, self.state.step
        logits = compute_logits(
            self.model,
            self.preparation.validation_texts,
            batch_tokens=self.config.batch_tokens,
            after_batch=self._stop_if_asked,
        )
        if not np.isfinite(logits).all():
            raise DivergedError(
                f"training diverged at step {step}: a validation text gets numbers that are not finite; "
                "lower train.learning_rate"
            )
        metrics = compute_metrics(logits, dataset.validation.labels, dataset.label_names)
        # On small splits many validations have equal accuracy: the loss then tells which is better.
        score = (
            -metrics.loss if self.config.monitor == "loss" else metrics.scalars()[self.config.monitor],
            -metrics.loss,
        )
        is_best = self.state.best_score is None or score > self.state.best_score
        if is_best:
            self.classifier.save(self.run.model)
        self.state = replace(
            self.state,
            validated_step=step,
            best_score=score if is_best else self.state.best_score,
            best_step=step if is_best else self.state.best_step,
            stale_validations=0 if is_best else self.state.stale_validations + 1,
        )
        f1 = {f"f1/{name}": scores.f1 for name, scores in metrics.per_class.items()}
        self.dashboard.log(step, "validation", {**metrics.scalars(), "epoch": self._epoch(), **f1})
        return Validated(step=step, epoch=self._epoch(), metrics=metrics, is_best=is_best)

    def _finish(self) -> Finished:
        """Report on the best weights, and write the model card as the sign that the run is complete."""
        dataset = self.preparation.dataset
        best = load_classifier(self.run.model, device=str(self.device))
        name, split = dataset.reported
        report, logits = evaluate(
            best,
            split,
            name=name,
            train=dataset.train,
            batch_tokens=self.config.batch_tokens,
            after_batch=self._stop_if_asked,
        )
        write_report(self.run.eval, report, split, logits)
        if dataset.test:
            self.dashboard.log(self.state.best_step, "test", report.metrics.scalars())
        picture = confusion_picture(report.metrics.confusion_matrix, dataset.label_names)
        self.dashboard.picture(f"{name}/confusion_matrix", picture, self.state.best_step)
        write_file(self.run.model_card, _model_card(self.preparation, report, self.state.best_step).encode())
        return Finished(report=report, best_step=self.state.best_step, seconds=time.monotonic() - self.started)

    def _epoch(self) -> float:
        return self.state.step / self.preparation.steps_per_epoch

    def _save_checkpoint(self) -> None:
        if self.state == self.saved_state:
            return
        self.dashboard.flush()
        save_checkpoint(
            self.run.checkpoints,
            self.model,
            self.optimizer,
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
        for name, meaning in (("training_data", "training data has"), ("tokenizer", "tokenizer's library has")):
            if name in changed:
                raise ConfigError(f"{self.run.path}: the {meaning} changed since the run began; start a new run")
        if changed:
            self.notes.append(
                f"{', '.join(changed)} changed since the run began: the result may differ in the last digits"
            )

    def _diverged(self, loss: float, grad_norm: float, rate: float, batches: list[Indices]) -> EncoderClsError:
        where = self.preparation.dataset.train.where
        examples = ", ".join(where[i] for i in np.concatenate(batches)[:3])
        return DivergedError(
            f"training diverged at step {self.state.step + 1}: loss {loss}, gradient norm {grad_norm}, learning rate "
            f"{rate:.3g}, batch of {examples}, …; lower train.learning_rate (the last checkpoint is good)"
        )


def _class_weights(preparation: Preparation) -> Tensor:
    """The weight of each class in the loss, (classes,)."""
    choice, dataset = preparation.config.train.class_weights, preparation.dataset
    counts = np.bincount(dataset.train.labels, minlength=len(dataset.label_names))
    if choice == "balanced":
        weights = len(dataset.train) / (len(counts) * counts)
    elif choice == "none":
        weights = np.ones(len(counts))
    else:
        weights = np.array([choice.get(name, 1.0) for name in dataset.label_names])
    return torch.from_numpy(weights).float()


def _seed_step(seed: int, step: int) -> None:
    """Make the random numbers of a step independent of all that was drawn before it.

    torch's CPU generator looks at 32 bits of its seed only, so both numbers are mixed into these.
    """
    torch.manual_seed(int(np.random.SeedSequence([seed, step]).generate_state(1)[0]))


def _model_card(preparation: Preparation, report: Report, best_step: int) -> str:
    """What the model is, was trained on and scores, and how to use it."""
    dataset, config, metrics = preparation.dataset, preparation.config, report.metrics
    classes = ", ".join(f"`{name}`" for name in dataset.label_names)
    reference = report.linear_reference
    against = f" (a linear model on TF-IDF: {reference['accuracy']:.4f})" if reference else ""
    return f"""# {config.name}

A Transformer-encoder text classifier, trained from scratch with encoder-cls.

- Classes: {classes}
- Trained on {len(dataset.train):,} texts of `{config.data.train}`; validation was best at step {best_step}
- {report.split.capitalize()} split: {metrics.num_examples:,} texts, accuracy {metrics.accuracy:.4f}{against}, \
macro-F1 {metrics.macro_f1:.4f}, expected calibration error {metrics.ece:.4f}
- Reads the first {config.model.max_seq_len} tokens of a text; {preparation.vocab_size:,} tokens known

```python
from encoder_cls import load_classifier

classifier = load_classifier("path/to/this/folder")
print(classifier.predict(["some text"])[0].label)
```
"""
