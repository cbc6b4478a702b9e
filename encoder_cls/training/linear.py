"""The linear model in a run: fitted by the plan and within the time, calibrated, saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, Numbers
from encoder_cls.classifier.mixture import ValidationResult, score_mixture
from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.encoder.distributed import ProcessGroup
from encoder_cls.evaluation.held_out_answers import Answers, HeldOutAnswers
from encoder_cls.linear.features import Reading, numbers_before_refit
from encoder_cls.linear.few_labels import (
    FewLabels,
    fit_linear_from_few_labels,
    fit_linear_from_names,
)
from encoder_cls.linear.linear_model import EVIDENCE_NUMBERS, LinearClassifier
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.linear.stream import fit_linear_from_stream
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import Reporter
from encoder_cls.system.stop import check_stop, run_interruptibly
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.progress import Progress

SAMPLE = 5000  # texts to estimate the time by; fewer are never learned from
# The time of each fit, relative to a stream: `plain` tries all penalties, and refits with the validation texts.
STREAM, PLAIN, DETAILED = 1.0, 3.0, 12.0
SCORING = (
    0.6  # the relative time to score a text: calibration, the smallest types, guarantees, report
)
SHARE = 0.5  # of the time left, where an encoder follows


class FittedLinear(NamedTuple):
    """The linear model of a run."""

    classifier: Classifier  # without an encoder; calibrated if there are validation labels
    validation_logits: (
        Logits  # of a linear classifier that has not learned from the validation texts
    )
    validation: ValidationResult | None  # None without validation labels
    held_out_answers: HeldOutAnswers | None = None  # of a classifier that was refitted
    few_labels: FewLabels | None = None


def affordable_texts(prepared: Prepared) -> int | None:
    """The number of texts that a stream has time for; None if there is time for the planned fit."""
    plan, dataset, seconds = (
        prepared.plan,
        prepared.dataset,
        prepared.budget.seconds_for(pretraining=False),
    )
    texts = len(dataset.train)
    if (
        seconds is None
        or plan.linear is None
        or plan.linear_fit not in ("plain", "stream")
        or texts <= SAMPLE
    ):
        return None
    import sklearn.linear_model  # noqa: F401 - not to be measured

    sample, began = streamed(prepared, SAMPLE), time.monotonic()
    train = sample.dataset.train
    run_interruptibly(
        lambda: fit_linear_from_stream(
            sample.train_texts, train.labels, _reading(sample), together=train.together
        )
    )
    taken = time.monotonic() - began
    scored = len(dataset.validation) + len(dataset.test or ())
    affordable = ((seconds - taken) / (taken / SAMPLE) - SCORING * scored) * (
        SHARE if plan.has_encoder else 1
    )
    of_plan = (
        STREAM
        if plan.linear_fit == "stream"
        else DETAILED
        if plan.linear.use_char_ngrams
        else PLAIN
    )
    return None if of_plan * texts <= affordable else min(texts, max(SAMPLE, int(affordable)))


def streamed(prepared: Prepared, num_texts: int) -> Prepared:
    """Replace data and plan by a stream of `num_texts` random labelled texts, with all classes among them."""
    train, plan = prepared.dataset.train, prepared.plan
    assert plan.linear
    labels = train.labels
    of_classes = (
        labels.argmax(axis=0) if train.is_multi_label else np.unique(labels, return_index=True)[1]
    )
    drawn = np.random.default_rng(0).permutation(len(train))[:num_texts]
    rows = np.union1d(drawn, of_classes)
    words_only = plan.linear._replace(use_char_ngrams=False)
    return replace(
        prepared,
        dataset=replace(prepared.dataset, train=train.subset(rows)),
        texts=prepared.train_texts.take(rows),
        plan=replace(plan, linear=words_only, linear_fit="stream", refits_on_validation=False),
    )


def fit_linear_model(
    run: RunDir, progress: Progress, group: ProcessGroup, reporter: Reporter
) -> FittedLinear | None:
    """Fit the linear model, in the first process, and save it as the model unless an encoder was better.

    A resumed run fits it again while there is work left that needs it: equal data gives an equal model. Where it is
    fitted again with the validation texts, the run keeps its answers from before.

    Returns:
        None in a run without one, in the other processes, and where nothing is left but the report.
    """
    linear = None
    if group.leads and progress.prepared.plan.linear and _has_work_left(progress):
        linear = _fit_within_time(run, progress, reporter)
    progress.share_state()
    return linear


def _has_work_left(progress: Progress) -> bool:
    """Whether the linear model is missing, or an encoder still learns beside it."""
    state = progress.state
    if not progress.prepared.plan.has_encoder:
        return state.linear_score is None
    return state.is_pretraining or state.training.outcome is None


def _fit_within_time(run: RunDir, progress: Progress, reporter: Reporter) -> FittedLinear:
    prepared = progress.prepared
    is_first_fit = progress.state.linear_score is None
    reporter.working("fitting the linear classifier")

    # Where time is short, it learns from as many texts as there is time for; a resumed run from the same ones.
    if is_first_fit and prepared.budget.left is not None:
        num_texts = affordable_texts(prepared)
        progress.state = replace(progress.state, linear_texts=num_texts)
    num_texts = progress.state.linear_texts
    data = prepared
    if num_texts is not None:
        data = streamed(prepared, num_texts)
        progress.prepared = replace(prepared, plan=data.plan)
        reporter.working(
            f"fitting the linear classifier to {num_texts:,} of {len(prepared.dataset.train):,} texts "
            "(train.time_budget)"
        )

    def save(fitted: FittedLinear) -> None:
        check_stop()  # another process may have resumed a stopped run
        save_classifier(fitted.classifier, run.model)

    on_better = save if is_first_fit else None
    linear = run_interruptibly(lambda: fit_linear_classifier(data, on_better=on_better))
    if linear.held_out_answers:
        linear.held_out_answers.write(run.held_out_answers)
    if not progress.state.is_encoder_better:
        save_classifier(linear.classifier, run.model)
    reporter.working("")

    if linear.few_labels:
        reporter.note(few_labels_line(linear.few_labels))
    if linear.validation is not None:
        progress.state = replace(progress.state, linear_score=linear.validation.score)
        if is_first_fit:
            progress.log.log(0, "validation", linear.validation.row(epoch=0))
            reporter.validated(
                "model", step=0, epoch=0, scores=linear.validation.scores, is_best=True
            )
    return linear


def few_labels_line(result: FewLabels) -> str:
    """How the linear model learned from few labels, with its accuracy."""
    low, high = result.interval
    accuracy = f"{result.accuracy:.1%} [{low:.1%}, {high:.1%}]"
    if result.accuracy != result.accuracy_before:
        accuracy = f"{result.accuracy_before:.1%} -> {accuracy}"

    outlook = ""
    if result.accuracy_with_twice is not None:
        outlook = f", with twice the labels about {result.accuracy_with_twice:.0%}"
    return f"linear classifier: {result.kept}; accuracy by cross-validation {accuracy}{outlook}"


def fit_linear_classifier(
    prepared: Prepared, *, on_better: Callable[[FittedLinear], None] | None = None
) -> FittedLinear:
    """Fit the linear classifier as planned; equal data gives an equal classifier.

    Where there are validation texts, `on_better` receives preliminary ones: a quick one, then one of a single penalty.
    """
    plan, reading, texts = prepared.plan, _reading(prepared), prepared.train_texts
    train, validation = prepared.dataset.train, prepared.dataset.selection
    if plan.linear_fit == "names":
        dimensions = prepared.config.train.lsa_dimensions
        return _calibrated(
            prepared, fit_linear_from_names(prepared.texts, reading, dimensions=dimensions)
        )
    held_out = (prepared.validation_texts, validation.labels)
    if on_better and reading.char_ngrams and len(validation):
        words_only = reading._replace(char_ngrams=False)
        first, _ = fit_linear(texts, train.labels, words_only, held_out=held_out, is_quick=True)
        on_better(_calibrated(prepared, first))
    if plan.linear_fit == "few_labels":
        return _fit_few_labels(prepared, reading)
    if plan.linear_fit == "stream":
        return _calibrated(
            prepared, fit_linear_from_stream(texts, train.labels, reading, together=train.together)
        )
    linear, choice = fit_linear(
        texts,
        train.labels,
        reading,
        held_out=held_out,
        together=train.together,
        on_first=lambda first: on_better(_calibrated(prepared, first)) if on_better else None,
    )
    if not plan.refits_on_validation:
        return _calibrated(prepared, linear)
    logits, numbers = linear.read(prepared.validation_texts)
    all_texts = prepared.tokenize(train.texts, validation.texts)
    refitted, _ = fit_linear(
        all_texts, np.concatenate([train.labels, validation.labels]), reading, choice=choice
    )
    assert numbers is not None
    evidence = numbers[:, :EVIDENCE_NUMBERS]
    numbers = numbers_before_refit(refitted, prepared.validation_texts, evidence)
    answers = _held_out_answers(prepared, np.arange(len(train), len(all_texts)), logits, numbers)
    return _calibrated(prepared, refitted, logits)._replace(held_out_answers=answers)


def _held_out_answers(
    prepared: Prepared, rows: NDArray[np.int64], logits: Logits, numbers: Numbers
) -> HeldOutAnswers:
    """The table of answers to labelled texts: `rows` count the training texts, then those of `Dataset.selection`."""
    dataset, num_train = prepared.dataset, len(prepared.dataset.train)
    is_train = rows < num_train

    in_validation = np.flatnonzero(~dataset.validation.has_unseen_label(len(dataset.label_names)))
    validation_rows = in_validation[rows[~is_train] - num_train]
    return HeldOutAnswers(
        validation=Answers(validation_rows, logits[~is_train], numbers[~is_train]),
        train=Answers(rows[is_train], logits[is_train], numbers[is_train]),
        texts_sha256=dataset.validation.texts_fingerprint,
    )


def _reading(prepared: Prepared) -> Reading:
    assert prepared.plan.linear
    return Reading(*prepared.plan.linear, prepared.class_weights.numpy())


def _fit_few_labels(prepared: Prepared, reading: Reading) -> FittedLinear:
    dataset, texts, splits = prepared.dataset, prepared.texts, [prepared.dataset.train]
    if prepared.plan.refits_on_validation:
        texts = prepared.tokenize(
            dataset.train.texts, dataset.selection.texts, dataset.unlabelled.texts
        )
        splits.append(dataset.selection)
    num_held_out = sum(map(len, splits[1:]))
    linear, few_labels = fit_linear_from_few_labels(
        texts,
        np.concatenate([it.labels for it in splits]),
        prepared.name_texts,
        reading,
        config=prepared.config.train,
        together=np.concatenate([it.together for it in splits]),
        held_out=len(dataset.train) + np.arange(num_held_out),
        with_teacher=prepared.plan.has_pseudo_labels,
    )
    if not num_held_out:
        return _calibrated(prepared, linear)._replace(few_labels=few_labels)
    numbers = numbers_before_refit(linear, texts.take(few_labels.rows))
    answers = _held_out_answers(prepared, few_labels.rows, few_labels.logits, numbers)
    # Calibrated on all labelled texts already: the few held out would only add chance. But an encoder is weighed by
    # these few, and beside it both are to be judged alike.
    fitted = _calibrated(
        prepared,
        linear,
        answers.validation.logits,
        is_calibrated=not prepared.plan.has_encoder,
    )
    return fitted._replace(held_out_answers=answers, few_labels=few_labels)


def _calibrated(
    prepared: Prepared,
    linear: LinearClassifier,
    logits: Logits | None = None,
    *,
    is_calibrated: bool = False,
) -> FittedLinear:
    """Calibrate a classifier by validation logits, by default its own, unless it `is_calibrated`."""
    logits = linear.logits(prepared.validation_texts) if logits is None else logits
    classifier = prepared.new_classifier(None)
    classifier.linear, classifier.mixture_weights, classifier.mixture_shares = (
        linear,
        (1.0,),
        {"linear": 1.0},
    )
    if not len(prepared.validation_texts):
        return FittedLinear(classifier, logits, None)
    result = score_mixture(
        None,
        logits,
        prepared.dataset,
        monitor=prepared.config.train.monitor,
        is_calibrated=is_calibrated,
    )
    classifier.mixture_weights, classifier.thresholds = result.mixture_weights, result.thresholds
    return FittedLinear(classifier, logits, result)


def shared_pseudo_labels(
    prepared: Prepared, linear: FittedLinear | None, group: ProcessGroup
) -> NDArray[np.float32] | None:
    """The teacher's probabilities of the unlabelled texts that the encoder learns from, in all processes.

    Soft labels: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, https://arxiv.org/abs/1503.02531.

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
