"""Estimate how long a training takes, before it begins, by its plan and the amount of its data.

The estimate is without a GPU. Its constants are processor seconds of trainings on 200 to 45,000
labelled texts of 2 to 77 classes; a short piece of work shows how much slower or faster this
machine is at present.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.encoder_training.steps_in_time import TrainingLength
from encoder_cls.linear_training.corpus import MAX_TOKENS, MAX_UNLABELLED
from encoder_cls.linear_training.cost import (
    COUNTING_PASSES,
    PLANNED,
    CorpusSizes,
    count_fits,
    num_passes,
    usual_fits,
)
from encoder_cls.linear_training.many_classes import NUM_OTHERS
from encoder_cls.metrics.tasks import task_of
from encoder_cls.system.display import duration
from encoder_cls.system.machine import number_in_environment
from encoder_cls.system.processes import usable_processes
from encoder_cls.training.plan import (
    LINEAR_LENGTHS,
    CorpusSize,
    Counts,
    Plan,
    make_plan,
)


class ExpectedTime(NamedTuple):
    """The seconds that a training is expected to take.

    `encoder` includes pretraining, `report` everything else.
    """

    linear: float
    encoder: float
    report: float

    @property
    def total(self) -> float:
        """The seconds of the whole training."""
        return sum(self)

    def __str__(self) -> str:
        seconds_of_parts = {
            "linear model": self.linear,
            "encoder": self.encoder,
            "report": self.report,
        }
        parts = []
        for part, seconds in seconds_of_parts.items():
            if seconds:
                parts.append(f"{part} {duration(seconds)}")
        return f"about {duration(self.total)} on this machine ({', '.join(parts)})"


# The seconds for loading libraries, the report and the charts, and those for each token of the
# training texts that the report's baseline is fitted to. It is fitted to some 40 million characters
# at most (`baseline.MAX_CHARACTERS`).
REPORT_SECONDS = 4.0
REPORT_SECONDS_PER_TOKEN = 6e-6
MAX_BASELINE_TOKENS = 8_000_000


def expected_time_of_plan(plan: Plan, counts: Counts, config: Config) -> ExpectedTime:
    """Estimate the time of a plan with these amounts of data."""
    slowness = machine_slowness()
    baseline_tokens = min(counts.corpus.tokens, MAX_BASELINE_TOKENS)
    report = REPORT_SECONDS + REPORT_SECONDS_PER_TOKEN * baseline_tokens
    return ExpectedTime(
        linear=slowness * _linear_seconds(plan, counts, config),
        encoder=slowness * _share_on_cores() * _encoder_seconds(plan, counts, config),
        report=slowness * report + scoring_seconds(counts),
    )


# The seconds for each token of the texts that the report scores, from its tokenization to the files
# of the report.
SCORING_SECONDS_PER_TOKEN = 3e-6


def scoring_seconds(counts: Counts) -> float:
    """The time to score the texts of the report, without an encoder."""
    mean_length = counts.corpus.tokens / (counts.labelled + counts.unlabelled)
    seconds = SCORING_SECONDS_PER_TOKEN * counts.scored * mean_length
    return machine_slowness() * seconds


def expected_time(config: Config, dataset: Dataset) -> ExpectedTime:
    """Estimate the time for data that is not tokenized yet."""
    counts = _estimated_counts(dataset, config)
    plan = make_plan(config, counts, encoder_corpus=lambda _: counts.corpus)
    return expected_time_of_plan(plan, counts, config)


# The number of texts by which the lengths of all texts are estimated.
SAMPLED_TEXTS = 2000
# The tokens of a word: words, punctuation and pieces.
TOKENS_OF_WORD = 1.25


def _estimated_counts(dataset: Dataset, config: Config) -> Counts:
    num_labelled = len(dataset.train)
    stride = max(1, num_labelled // SAMPLED_TEXTS)
    sample = [dataset.train.texts[row] for row in range(0, num_labelled, stride)]
    words = np.array([len(text.split()) for text in sample])
    sampled_lengths = (1 + TOKENS_OF_WORD * words).astype(np.int64)

    # Repeat the lengths of the sample for all texts.
    num_unlabelled = len(dataset.unlabelled.texts)
    lengths = np.resize(sampled_lengths, num_labelled + num_unlabelled)

    def tokens_within(max_tokens: int) -> NDArray[np.int64]:
        return np.minimum(lengths, max_tokens)

    max_seq_len = config.model.max_seq_len
    linear_tokens = {}
    for multiple in LINEAR_LENGTHS:
        max_tokens = multiple * max_seq_len
        linear_tokens[max_tokens] = int(tokens_within(max_tokens)[:num_labelled].sum())

    return Counts(
        labelled=num_labelled,
        unlabelled=num_unlabelled,
        validation=len(dataset.validation),
        classes=len(dataset.label_names),
        corpus=CorpusSize.of(tokens_within(max_seq_len), config),
        linear_tokens=linear_tokens,
        task=task_of(dataset.train.labels),
        scored=len(dataset.report_split[1]),
    )


# The seconds of the linear model that do not depend on the data.
LINEAR_START = 2.5
# The seconds for a token: counting features, converting and predicting them.
SECONDS_PER_TOKEN = 1.5e-5
# The seconds for a token with few labels, which include latent semantics and naive Bayes.
FEW_LABELS_SECONDS_PER_TOKEN = 5e-5
# The seconds for a token in each fit of each classifier. Two classes have a single classifier,
# which takes as long as two.
SECONDS_PER_FIT = 1e-6
MIN_CLASSIFIERS = 2
# The seconds of an SVM of very many classes: for each text that it learns from, and for each that
# these are chosen from.
SECONDS_PER_LEARNED_TEXT = 2e-5
SECONDS_PER_TEXT = 2e-7
# The seconds for a token in a pass of a fit in passes: those that all classifiers share, and those
# of each classifier.
SECONDS_PER_PASS = 1.5e-7
SECONDS_PER_PASS_OF_CLASSIFIER = 7e-9


def _linear_seconds(plan: Plan, counts: Counts, config: Config) -> float:
    if plan.linear_fit is None or plan.linear_max_tokens is None:
        return 0.0
    tokens = counts.linear_tokens[plan.linear_max_tokens]
    num_classifiers = max(MIN_CLASSIFIERS, counts.task.num_one_vs_rest(counts.classes))

    if plan.linear_fit == "stream":
        # In the first pass, two sets of classifiers learn.
        passes = COUNTING_PASSES + 1 + num_passes(counts.labelled)
        seconds_per_pass = SECONDS_PER_PASS + SECONDS_PER_PASS_OF_CLASSIFIER * num_classifiers
        return LINEAR_START + tokens * passes * seconds_per_pass

    if plan.linear_fit == "many_classes":
        num_learned = NUM_OTHERS + counts.labelled / counts.classes
        seconds_per_svm = (
            SECONDS_PER_LEARNED_TEXT * num_learned + SECONDS_PER_TEXT * counts.labelled
        )
        # Both models are fitted again with the validation texts.
        fits = 1 + plan.refits_on_validation
        seconds = SECONDS_PER_TOKEN * tokens + num_classifiers * seconds_per_svm
        return LINEAR_START + fits * seconds

    if plan.linear_fit == "few_labels":
        corpus_tokens = min(counts.corpus.tokens, tokens + MAX_TOKENS)
        seconds_of_counting = FEW_LABELS_SECONDS_PER_TOKEN * corpus_tokens
        num_fits = _fits_to_few_labels(plan, counts, config)
    else:
        seconds_of_counting = SECONDS_PER_TOKEN * tokens
        num_fits = usual_fits(counts.labelled, counts.validation, counts.task)
        if plan.refits_on_validation:
            num_fits += 1

    seconds_of_fits = SECONDS_PER_FIT * num_classifiers * num_fits * tokens
    return LINEAR_START + seconds_of_counting + seconds_of_fits


def _fits_to_few_labels(plan: Plan, counts: Counts, config: Config) -> float:
    num_refitted = counts.validation if plan.refits_on_validation else 0
    sizes = CorpusSizes(
        labelled=counts.labelled + num_refitted,
        unlabelled=min(counts.unlabelled, MAX_UNLABELLED),
        classes=counts.classes,
    )
    return count_fits(
        PLANNED,
        sizes,
        config.train,
        num_held_out=num_refitted,
        with_teacher=plan.has_pseudo_labels,
    )


# The seconds of an optimizer step, beside those of its tokens.
SECONDS_PER_STEP = 0.036
# The seconds for a token, with R-Drop: those for the tables, and those for each weight of a layer.
SECONDS_PER_ENCODER_TOKEN = 2.7e-5
SECONDS_PER_WEIGHT = 1.6e-10
# R-Drop passes each text twice, forward and backward. Backward takes twice as long as forward.
PASSES_PER_TOKEN = 6


def _encoder_seconds(plan: Plan, counts: Counts, config: Config) -> float:
    model = config.model
    mean_length = counts.corpus.tokens / (counts.labelled + counts.unlabelled)
    tokens_per_step = counts.corpus.tokens / counts.corpus.steps
    validation_tokens = counts.validation * mean_length / PASSES_PER_TOKEN

    # Attention multiplies each token by all tokens of its text. Count that as further weights.
    weights_of_layer = 4 * model.d_model**2 + 2 * model.d_model * model.d_ff
    weights_of_layer += 2 * int(mean_length) * model.d_model
    seconds_per_token = SECONDS_PER_ENCODER_TOKEN
    seconds_per_token += SECONDS_PER_WEIGHT * model.num_layers * weights_of_layer
    if config.train.rdrop_weight == 0:
        seconds_per_token /= 2

    seconds = 0.0
    for length in plan.training_lengths:
        steps = float(length.total_steps)
        if length is plan.training:
            steps = _usual_steps(length, config.train.patience)
        tokens = steps * tokens_per_step + steps / length.validate_every * validation_tokens
        seconds += SECONDS_PER_STEP * steps + seconds_per_token * tokens
    return seconds


def _usual_steps(length: TrainingLength, patience: int | None) -> float:
    """The number of steps after which a training usually ends.

    It ends after all steps at the latest, and at the earliest `patience` validations after the
    first one: their geometric mean is wrong by at most the same factor either way.
    """
    if patience is None:
        return length.total_steps
    fewest = min(length.total_steps, (1 + patience) * length.validate_every)
    return math.sqrt(fewest * length.total_steps)


# The share of the encoder's work that several cores do together, and the cores from which on more
# are no faster.
PARALLEL_SHARE = 0.75
MAX_CORES = 8


def _share_on_cores() -> float:
    """The time of the encoder on all cores, relative to that on one."""
    cores = min(MAX_CORES, usable_processes())
    num_threads = number_in_environment("OMP_NUM_THREADS", least=1)
    if num_threads:
        cores = min(cores, num_threads)
    return 1 - PARALLEL_SHARE + PARALLEL_SHARE / cores


# The number of values of the work that is timed, how often it is repeated, and the processor
# seconds that it took where the constants were measured.
TIMED_VALUES = 1 << 20
REPETITIONS = 20
REFERENCE_SECONDS = 0.006


def machine_slowness() -> float:
    """How many times longer this machine takes than that of the constants.

    It is more than 1 where a processor is slower, or where other programs use it, too.
    """
    values = np.arange(TIMED_VALUES, dtype=np.float32)
    order = np.random.default_rng(0).permutation(TIMED_VALUES)

    # Keep the shortest time: other programs, which may end soon, disturb the others.
    shortest = math.inf
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        np.exp(-values[order] / TIMED_VALUES).sum()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest / REFERENCE_SECONDS
