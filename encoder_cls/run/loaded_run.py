"""Make the report of a run on its own data, at the end of training and for `encoder-cls eval`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.changes_since_base import ChangesSinceBase, compare_with_base
from encoder_cls.evaluation.class_weights_advice import class_weights_note
from encoder_cls.evaluation.findings import RunFacts
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.run.labelled_source import learned_texts
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.deadlines import seconds_until
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.tokens import TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A run, with all that is needed to score it.

    `validation_predictions` are from before the final linear fit; None if that does not include the
    validation texts.
    """

    classifier: Classifier
    config: Config
    dataset: Dataset
    validation_predictions: ValidationPredictions | None

    @property
    def num_refitted(self) -> int:
        """How many validation texts the linear model has learned from."""
        if self.validation_predictions is None:
            return 0
        return len(self.validation_predictions.predictions.rows)

    def learned_texts(self, split_name: str) -> Iterable[str]:
        """The labelled texts that the predictions for a split have learned from.

        Validation texts in the final fit have held-out predictions.
        """
        if split_name == "validation":
            return self.dataset.train.texts
        return learned_texts(self.dataset, self.validation_predictions)


# With less time left, class weights are not tried: that takes some seconds, which the baseline
# needs.
MIN_SECONDS_FOR_NOTE = 20.0


def report_of_run(
    run: LoadedRun,
    *,
    train_texts: TokenizedTexts | None = None,
    end: float | None = None,
    num_unread: int = 0,
    device: str = "auto",
    reporter: Reporter = SILENT,
) -> Report:
    """Score a run on its test split, or else on its validation split.

    `train_texts` are tokens; by default the texts are tokenized again.

    The scores must be there at `end`, a time of `time.monotonic`: as many texts are scored, and
    learned from by the baseline, as there is time for, and no more than the linear model had time
    for (`num_unread`).

    Raises:
        DataError: the validation texts of the base run have changed.
    """
    name, whole_split = run.dataset.report_split

    # At the end of training, use batches of the same size as in training, which fit into memory.
    batch_tokens = None
    if train_texts is not None:
        batch_tokens = run.config.train.batch_tokens

    split = scored_in_time(
        run.classifier, whole_split, seconds=seconds_until(end), batch_tokens=batch_tokens
    )
    reporter.working(f"scoring {len(split):,} texts")
    evaluation = evaluate_split(
        run.classifier,
        split,
        name=name,
        batch_tokens=batch_tokens,
        learned=run.learned_texts(name),
        validation_predictions=run.validation_predictions,
    )
    changes_since_base = _compare_with_base_run(run, device=device)

    note = ""
    seconds = seconds_until(end)
    if seconds is None or seconds > MIN_SECONDS_FOR_NOTE:
        note = run_interruptibly(lambda: _class_weights_note(run, train_texts))
    facts = RunFacts(
        num_refitted=run.num_refitted,
        changes_since_base=changes_since_base,
        class_weights_note=note,
        num_unread=num_unread + run.dataset.num_unread,
        num_unscored=len(whole_split) - len(split),
        sample_note=run.dataset.sample_note if name == "validation" else "",
    )

    reporter.working("fitting the TF-IDF baseline")
    with_validation = name == "test" and run.num_refitted > 0
    max_texts = len(run.dataset.train) - num_unread if num_unread else None
    baseline = run_interruptibly(
        lambda: baseline_scores(
            run.dataset,
            split,
            with_validation=with_validation,
            seconds=seconds_until(end),
            max_texts=max_texts,
        )
    )
    reporter.working("")

    return Report(evaluation=evaluation, baseline_scores=baseline, run_facts=facts)


# The number of texts that are scored first, to estimate how many there is time for.
TIMED_TEXTS = 1000
# The number of texts of each class that are scored in any case, on average: with fewer of them,
# macro-F1 would be far too low.
MIN_OF_CLASS = 5
# The time that a report takes for a text, relative to the time to compute its logits.
REPORT_COST = 3.0


def scored_in_time(
    classifier: Classifier, split: Split, *, seconds: float | None, batch_tokens: int | None
) -> Split:
    """Draw the texts of a split that there is time to report on; all without a limit."""
    least = max(TIMED_TEXTS, MIN_OF_CLASS * len(classifier.label_names))
    if seconds is None or len(split) <= least:
        return split
    rows = np.random.default_rng(0).permutation(len(split))

    first = split.subset(np.sort(rows[:TIMED_TEXTS]))
    began = time.monotonic()
    classifier.part_logits(classifier.tokenize(first.texts), batch_tokens=batch_tokens)
    seconds_of_logits = time.monotonic() - began

    num_in_time = int(TIMED_TEXTS * seconds / (REPORT_COST * seconds_of_logits))
    if num_in_time >= len(split):
        return split
    return split.subset(np.sort(rows[: max(least, num_in_time)]))


def _class_weights_note(run: LoadedRun, train_texts: TokenizedTexts | None) -> str:
    linear = run.classifier.linear
    has_class_weights = run.config.train.class_weights != "none"
    if linear is None or run.dataset.is_multi_label or has_class_weights:
        return ""

    train = run.dataset.train
    if train_texts is None:
        train_texts = run.classifier.tokenize(train.texts)
    return class_weights_note(train, train_texts, linear)


def _compare_with_base_run(run: LoadedRun, *, device: str) -> ChangesSinceBase | None:
    base_dataset = run.dataset.base
    if run.config.from_run is None or base_dataset is None:
        return None
    base = RunDir(Path(run.config.from_run))
    if not base.model.is_dir():
        return None

    base_classifier = load_classifier(
        base.path, device=device, engine="torch", model_class=run.classifier.model_class
    )
    base_predictions = None
    base_split_name, _ = base_dataset.report_split
    if base_split_name == "validation":
        base_predictions = ValidationPredictions.of_run(
            base.held_out_predictions, base_classifier, base_dataset.validation
        )
    return compare_with_base(
        run.classifier,
        base_classifier,
        base_dataset,
        run=run.config.from_run,
        validation_predictions=run.validation_predictions,
        base_validation_predictions=base_predictions,
    )
