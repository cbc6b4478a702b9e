"""Score a run on its own data, at the end of training and for `eval`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.comparisons import BaseAnswers, compare_with_base
from encoder_cls.evaluation.held_out_answers import HeldOutAnswers, OwnAnswers
from encoder_cls.evaluation.report import Report, evaluate
from encoder_cls.linear.class_weights import class_weights_note
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.tokens import TokenizedTexts


def score_run(  # noqa: PLR0913 - what is known at the end of a training, too
    run: RunDir,
    classifier: Classifier,
    config: Config,
    dataset: Dataset,
    own: OwnAnswers | None,
    *,
    train_texts: TokenizedTexts | None = None,
    seconds: float | None = None,
    device: str = "auto",
    reporter: Reporter = SILENT,
) -> Report:
    """Score the classifier of a run on its test split, else its validation split.

    Args:
        run: the run.
        classifier: its classifier.
        config: its config.
        dataset: its data; the split that is scored must have texts.
        own: the run's earlier answers to its own validation texts, if any.
        train_texts: the tokens of the training texts, where they are known.
        seconds: the time for the TF-IDF baseline; None: as long as it takes.
        device: of a base run's classifier.
        reporter: hears what happens.

    Raises:
        DataError: the texts that the base run held out for validation have changed.
    """
    name, split = dataset.reported

    def weights_note() -> str:
        linear = classifier.linear
        has_class_weights = config.train.class_weights != "none"
        if linear is None or dataset.is_multi_label or has_class_weights:
            return ""
        texts = train_texts
        if texts is None:
            texts = classifier.tokenize(dataset.train.texts)
        return class_weights_note(dataset.train, texts, linear)

    num_refitted = 0
    if run.held_out_answers.exists():
        num_refitted = len(HeldOutAnswers.read(run.held_out_answers).validation.rows)

    reporter.working(f"scoring {len(split):,} texts")
    batch_tokens = config.train.batch_tokens if train_texts is not None else None
    report = replace(
        evaluate(classifier, split, name=name, batch_tokens=batch_tokens, own=own),
        base_answers=_base_answers(classifier, own, config, dataset, device=device),
        num_refitted=num_refitted,
        class_weights_note=run_interruptibly(weights_note),
    )
    reporter.working("fitting the TF-IDF baseline")
    reference = run_interruptibly(lambda: baseline_scores(dataset, split, seconds=seconds))
    reporter.working("")
    return replace(report, linear_reference=reference)


def _base_answers(
    classifier: Classifier,
    own: OwnAnswers | None,
    config: Config,
    dataset: Dataset,
    *,
    device: str,
) -> BaseAnswers | None:
    base = config.from_run and RunDir(Path(config.from_run))
    if not base or dataset.base is None or dataset.is_multi_label or not base.model.is_dir():
        return None
    base_classifier = load_classifier(base.path, device=device, engine="torch")
    own_of_base = None
    if dataset.base.reported[0] == "validation":
        own_of_base = OwnAnswers.of_run(
            base.held_out_answers, base_classifier, dataset.base.validation
        )
    return compare_with_base(
        classifier,
        base_classifier,
        dataset.base,
        run=str(config.from_run),
        own=own,
        own_of_base=own_of_base,
    )
