"""Finish a run: compact the model, evaluate it, write the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.evaluation.base_run import compare_with_former
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.files import write_report
from encoder_cls.evaluation.metrics import f1_scores
from encoder_cls.evaluation.page import model_card
from encoder_cls.evaluation.reference import reference_of
from encoder_cls.evaluation.report import AnyReport, Report
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import TorchEncoder
from encoder_cls.inference.folder import load_classifier, save_classifier, save_promises, weights_of_part
from encoder_cls.inference.guarantees import Familiarity, Promises
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Logits, combine_logits, softmax
from encoder_cls.inference.weights import DTYPES, Weight, pack, unpack
from encoder_cls.system.files import write_file
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import RunDir, classifier_to_score
from encoder_cls.tracking.tensorboard import log_final_report
from encoder_cls.training.class_weight_check import class_weights_note
from encoder_cls.training.interruptible import run_interruptibly
from encoder_cls.training.setup import TrainingSetup

MOST_CHANGE = 0.005  # of any probability
MOST_ACCURACY_LOST = (
    0.001  # of accuracy, or of micro-F1, where there are so many texts that this is one of them at least:
)
ENOUGH_TEXTS = 1000  # with fewer, no answer may change


def compact(
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    device: str,
    after_batch: Callable[[], None],
) -> dict[str, str]:
    """Save the classifier of a model folder in the smallest types that keep its answers; returns the type of each part.

    Args:
        folder: in which it is saved in float32.
        texts: validation texts, on which the answers are compared.
        labels: their classes, (texts,), or all labels of each, (texts, classes).
        device: where to compute.
        after_batch: called after each batch; what it raises ends the work, and the folder stays as it was.
    """
    exact = load_classifier(folder, device=device, engine="torch")
    if set(exact.dtypes.values()) != {"float32"}:  # a run that was stopped after this, and goes on
        return exact.dtypes

    @cache
    def logits(part: str, dtype: str) -> Logits:
        return _logits(exact, part, dtype, texts, device=device, after_batch=after_batch)

    def probabilities(dtypes: dict[str, str]) -> NDArray[np.float64]:
        parts = [logits(part, dtype) for part, dtype in dtypes.items()]
        return exact.task.probabilities(combine_logits(parts, exact.mixture_weights).astype(np.float32))

    expected = probabilities(dict.fromkeys(exact.parts, "float32"))
    for dtypes in _by_size(exact):
        if is_close(probabilities(dtypes), expected, labels, exact.thresholds):
            save_classifier(exact, folder, dtypes=dtypes)
            return dtypes
    return exact.dtypes


def is_close(
    found: NDArray[np.float64],
    expected: NDArray[np.float64],
    labels: NDArray[Any],
    thresholds: Sequence[float] = (),
) -> bool:
    """Whether probabilities, (texts, classes), are as good as others; thresholds are those of several labels."""
    if not np.isfinite(found).all() or np.abs(found - expected).max(initial=0) > MOST_CHANGE:
        return False
    if thresholds:
        of_labels, exact_of_labels = found >= np.array(thresholds), expected >= np.array(thresholds)
        if len(labels) < ENOUGH_TEXTS:
            return bool((of_labels == exact_of_labels).all())
        return f1_scores(of_labels, labels).micro >= f1_scores(exact_of_labels, labels).micro - MOST_ACCURACY_LOST
    answers, exact_answers = found.argmax(axis=1), expected.argmax(axis=1)
    if len(labels) < ENOUGH_TEXTS:
        return bool((answers == exact_answers).all())
    return bool((answers == labels).mean() >= (exact_answers == labels).mean() - MOST_ACCURACY_LOST)


def _by_size(classifier: Classifier) -> list[dict[str, str]]:
    """The types that the parts can have, the smallest together first."""
    sizes = {
        (part, dtype): sum(tensor.nbytes for tensor in pack(weights_of_part(classifier, part), dtype).values())
        for part in classifier.parts
        for dtype in DTYPES
    }
    choices = [
        dict(zip(classifier.parts, dtypes, strict=True)) for dtypes in product(DTYPES, repeat=len(classifier.parts))
    ]
    return sorted(choices, key=lambda dtypes: sum(sizes[part, dtype] for part, dtype in dtypes.items()))


def _logits(
    classifier: Classifier,
    part: str,
    dtype: str,
    texts: TokenizedTexts,
    *,
    device: str,
    after_batch: Callable[[], None],
) -> Logits:
    """Those of a part as it is read once it has been saved in a type."""
    weights = weights_of_part(classifier, part)
    shapes = {name: weight.shape for name, weight in weights.items()}
    rounded: dict[str, Weight] = unpack(pack(weights, dtype), shapes, dtype)
    if part == "linear":
        assert classifier.linear
        linear, max_tokens = LinearClassifier.from_weights, classifier.linear.max_tokens
        return linear(rounded, max_tokens=max_tokens, task=classifier.task).logits(texts)
    assert classifier.encoder
    encoder = TorchEncoder.from_weights(classifier.encoder.architecture, rounded, device=device, precision="float32")
    return encoder.logits(texts, after_batch=after_batch)


def fit_promises(
    classifier: Classifier,
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    *,
    after_batch: Callable[[], None],
) -> None:
    """Find out what a classifier can promise; it and its model folder then say so.

    Args:
        classifier: as `classifier_to_score` reads it.
        folder: in which its header is written anew.
        texts: validation texts.
        labels: their classes, (texts,); those beyond the classifier's are mistakes, and say nothing of what is usual.
        after_batch: called after each batch; what it raises ends the work, and the folder stays as it was.
    """
    logits, numbers = classifier.familiarity_numbers(texts, after_batch=after_batch)
    has_words = np.diff(texts.offsets) > 1  # blank texts get no answer
    if has_words.any():
        classifier.promises = Promises.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(numbers[has_words & (labels < logits.shape[1])])
    save_promises(folder, classifier.promises, classifier.familiarity)


def write_final_report(
    setup: TrainingSetup,
    run: RunDir,
    metric_log: MetricLog,
    *,
    best_step: int,
    device: torch.device,
    stop_if_asked: Callable[[], None],
) -> AnyReport | None:
    """Score the best weights as a user would load them, and write the model card as the sign that the run is complete.

    Args:
        setup: of the run.
        run: its folder, in which the best weights are.
        metric_log: where the scores are logged.
        best_step: at which the best weights were found.
        device: where to score.
        stop_if_asked: called now and then; what it raises ends the work.

    Returns:
        The report; none where no text has a label.
    """
    dataset, config = setup.dataset, setup.config
    validation_texts, labels = setup.validation_texts, dataset.selection.labels
    if len(labels):
        compact(run.model, validation_texts, labels, device=str(device), after_batch=stop_if_asked)
    best = classifier_to_score(run.path, device=str(device))
    if setup.task is SINGLE_LABEL and len(labels):
        held_out = dataset.validation
        texts = validation_texts if held_out is dataset.selection else best.tokenize(held_out.texts)
        fit_promises(best, run.model, texts, held_out.labels, after_batch=stop_if_asked)
    name, split = dataset.reported
    if not len(split):
        _write_model_card(setup, run, None, best_step=best_step)
        return None
    report, logits = evaluate(
        best,
        split,
        name=name,
        reference=run_interruptibly(lambda: reference_of(dataset, split), stop_if_asked),
        batch_tokens=config.train.batch_tokens,
        after_batch=stop_if_asked,
    )
    if isinstance(report, Report) and setup.refits_on_validation:
        report = replace(report, num_refitted=len(labels))
    if isinstance(report, Report) and dataset.former and config.from_run:
        former = classifier_to_score(Path(config.from_run), device=str(device))
        answers = compare_with_former(best, former, dataset.former, run=config.from_run)
        report = replace(report, former_answers=answers)
    weighs_classes = config.train.class_weights == "none" and not dataset.has_names_alone
    if isinstance(report, Report) and setup.recipe.linear and weighs_classes:
        read, train = setup.recipe.linear, dataset.train
        note = run_interruptibly(
            lambda: class_weights_note(
                train,
                setup.train_texts,
                max_tokens=read.max_tokens,
                use_char_ngrams=read.use_char_ngrams,
            ),
            stop_if_asked,
        )
        report = replace(report, class_weights_note=note)
    write_report(run.eval, report, split, logits, run_name=config.name, config_yaml=config.to_yaml())
    group = name if dataset.test else f"best_{name}"  # the curves of validation end with the last weights
    metric_log.log(best_step, group, {**report.metrics.scalars(), **report.metrics.drawable()})
    log_final_report(metric_log, best, config, report, split, logits, step=best_step)
    shutil.rmtree(run.stages, ignore_errors=True)
    _write_model_card(setup, run, report, best_step=best_step)
    return report


def _write_model_card(setup: TrainingSetup, run: RunDir, report: AnyReport | None, *, best_step: int) -> None:
    card = model_card(
        setup.config,
        setup.dataset,
        report,
        best_step=best_step,
        vocab_size=setup.vocab_size,
        linear_max_tokens=setup.recipe.linear and setup.recipe.linear.max_tokens,
        refits_on_validation=setup.refits_on_validation,
    )
    write_file(run.model_card, card.encode())
