"""Score the classifier of a run or model folder on its data, or on a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.checks import seen_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load import load_all_data
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.comparisons import PairedComparison, compare_answers, numbered_answers
from encoder_cls.evaluation.held_out_answers import OwnAnswers
from encoder_cls.evaluation.mistakes import Answered
from encoder_cls.evaluation.report import Report, evaluate
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.run.run_folder import RunDir, run_of
from encoder_cls.run.score import score_run
from encoder_cls.run.scored_texts import (
    config_with_moved_data,
    dataset_of_run,
    learned_texts,
    load_labelled,
    report_notes,
)
from encoder_cls.system.display import listed
from encoder_cls.system.reporter import Reporter


def evaluate_run(
    path: Path,
    *,
    data: str | None,
    folder: Path | None,
    reporter: Reporter,
    reading: Mapping[str, Any] | None = None,
    moved: Mapping[str, str] | None = None,
    against: Path | None = None,
) -> Report:
    """Score the classifier of a run or model folder on a labelled source, else on the run's test or validation split.

    The files of the report go to `folder`, else, for the run's own data, to its `eval`. The source is read as in
    training, except for the values of `DataConfig` in `reading`; `moved` are new places of the run's data, by key. The
    classifier `against` is compared on these texts.

    Raises:
        ConfigError: no classifier, or no data to score.
        DataError: the data is missing or malformed, or has changed since the training.
        EncoderClsError: the disk refuses `folder`.
    """
    classifier = load_classifier(path, engine="torch")
    other = load_classifier(against, engine="torch") if against else None
    if other and (classifier.thresholds or other.thresholds):
        named = path if classifier.thresholds else against
        several = f"compares classifiers with one label a text; those of {named} may be several"
        raise ConfigError(f"--against {against}: {several}")

    run = run_of(path)
    if run and not run.is_finished():
        reporter.note(f"{run.path} is not finished: this is its best model so far")

    config = config_with_moved_data(run, moved) if run else None
    dataset = None
    own = None
    if run and config:
        dataset = dataset_of_run(run, config, classifier, needed=data is None, reporter=reporter)
    if run and dataset:
        is_scored = data is None and dataset.reported[0] == "validation"
        own = _own_answers(run, classifier, dataset, needed=is_scored, reporter=reporter)

    if data is not None:
        data_config, scored = _score_source(
            data, classifier, config, dataset, own, reading=reading or {}, reporter=reporter
        )
    elif run and config and dataset:
        data_config = config.data
        scored = _score_own_data(run, classifier, config, dataset, own, reporter=reporter)
    else:
        raise ConfigError(
            f"{path}: a model folder without its run has no data of its own; name some with --data"
        )

    report = scored
    if against and other:
        compared = _compared(
            against, other, scored.answered, is_own_data=data is None, reporter=reporter
        )
        report = replace(scored, against=compared)

    where = folder or (run.eval if run and data is None else None)
    if where:
        yaml, name = (config.to_yaml(), config.name) if config else ("", path.resolve().name)
        to_write = report if folder else scored  # the run's folder has the report of the run alone
        try:
            written = write_report(
                where, to_write, data=data_config, run_name=name, config_yaml=yaml
            )
            reporter.note(f"wrote {where}: {', '.join(written)}")
        except EncoderClsError as error:
            if folder:
                raise
            reporter.warning(str(error))
    return report


def _score_source(
    source: str,
    classifier: Classifier,
    config: Config | None,
    dataset: Dataset | None,
    own: OwnAnswers | None,
    *,
    reading: Mapping[str, Any],
    reporter: Reporter,
) -> tuple[DataConfig, Report]:
    """Score a classifier on a labelled source as it answers; also returns how the source was read.

    `config`, `dataset` and `own` are those of the classifier's run, as far as they are known.
    """
    settings: dict[str, Any] = {"data.train": source}
    settings |= {f"data.{name}": value for name, value in reading.items()}
    if config is None:
        of_model = {
            "name": "eval",
            "data.text_column": classifier.text_columns,
            "data.delimiter": classifier.delimiter,
            "data.encoding": classifier.encoding,
        }
        settings = of_model | settings
    data_config = config_of(settings, source="--set", base=config).data

    learned = learned_texts(dataset, own) if dataset else ()
    split = load_labelled(source, classifier, data_config, dataset, learned, reporter=reporter)
    reference = baseline_scores(dataset, split) if dataset else None
    report = evaluate(classifier, split, name=source)
    return data_config, replace(report, linear_reference=reference)


def _score_own_data(
    run: RunDir,
    classifier: Classifier,
    config: Config,
    dataset: Dataset,
    own: OwnAnswers | None,
    *,
    reporter: Reporter,
) -> Report:
    """Score the classifier of a run on its own test split, else its validation split."""
    name, split = dataset.reported
    notes = [of_source for source, of_source in dataset.sources if source == name]
    learned = learned_texts(dataset, own) if name == "test" else ()
    report_notes(name, split, notes, classifier, learned, reporter=reporter)
    return score_run(run, classifier, config, dataset, own, reporter=reporter)


def _own_answers(
    run: RunDir,
    classifier: Classifier,
    dataset: Dataset,
    *,
    needed: bool,
    reporter: Reporter,
) -> OwnAnswers | None:
    """The earlier answers of a run to its own validation texts, if any; a warning if these have changed, or an error."""
    try:
        return OwnAnswers.of_run(run.held_out_answers, classifier, dataset.validation)
    except DataError as error:
        if needed:
            raise
        reporter.warning(str(error))
        return None


def _compared(
    path: Path,
    other: Classifier,
    answered: Answered,
    *,
    is_own_data: bool,
    reporter: Reporter,
) -> PairedComparison:
    """Compare with the classifier of another folder on the same texts.

    Where these are of a run's own data, some may be validation texts of the other run, too: of these, the answers from
    before it learned from them count.
    """
    names, split = answered.label_names, answered.split
    if not set(other.label_names) & set(names):
        others = f"none of the classes that are scored ({listed(names)}), but {listed(other.label_names)}"
        raise ConfigError(f"--against {path}: knows {others}")
    own = None
    run = run_of(path)
    if run:
        own = _answers_of_other(run, other, split, is_own_data=is_own_data, reporter=reporter)
    other_answers = numbered_answers(other, split, names, own)
    return compare_answers(split.labels, answered.answers, other_answers, run=str(path))


def _answers_of_other(
    run: RunDir,
    classifier: Classifier,
    split: Split,
    *,
    is_own_data: bool,
    reporter: Reporter,
) -> OwnAnswers | None:
    """The earlier answers of a run to compare with, if they count; warns of texts that it has learned from."""
    try:
        dataset = load_all_data(run.load_config())
    except DataError as error:
        reporter.warning(f"which of the texts {run.path} has learned from is unknown: {error}")
        return None

    own = _own_answers(run, classifier, dataset, needed=False, reporter=reporter)
    may_be_learned = np.ones(len(split), dtype=bool)
    if own and is_own_data:
        may_be_learned[own.places_in(split)[0]] = False
    learned = learned_texts(dataset, own)
    others = split.subset(np.flatnonzero(may_be_learned))
    for warning in seen_warnings(f"--against {run.path}", others, learned):
        reporter.warning(str(warning))
    return own if is_own_data else None
