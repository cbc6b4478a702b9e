"""Score the classifier of a run or model folder on its data, or on a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.loading import config_of
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.comparisons import PairedComparison, compare_answers, numbered_answers
from encoder_cls.evaluation.mistakes import Answered
from encoder_cls.evaluation.report import Report, evaluate
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.run.run_folder import classifier_to_score, run_of
from encoder_cls.run.score import score_run
from encoder_cls.run.scored_texts import dataset_of_run, load_labelled, report_notes, warn_of_seen
from encoder_cls.system.display import listed


def evaluate_run(
    path: Path,
    *,
    data: str | None,
    folder: Path | None,
    notify: Callable[[str], None],
    reading: Mapping[str, Any] | None = None,
    against: Path | None = None,
) -> Report:
    """Score the classifier of a run or model folder on a labelled source, else on the run's test or validation split.

    The files of the report go to `folder`, else, for the run's own data, to its `eval`. The source is read as in
    training, except for the values of `DataConfig` in `reading`. The classifier `against` is compared on these texts.

    Raises:
        ConfigError: no classifier, or no data to score.
        DataError: the data is missing or malformed, or has changed since the training.
        EncoderClsError: the disk refuses `folder`.
    """
    classifier, other = classifier_to_score(path), classifier_to_score(against) if against else None
    for named, its in ((path, classifier), (against, other)):
        if other and its and its.thresholds:
            several = f"compares classifiers with one label a text; those of {named} may be several"
            raise ConfigError(f"--against {against}: {several}")
    run = run_of(path)
    if run and not run.is_finished():
        notify(f"{run.path} is not finished: this is its best model so far")
    config = run.load_config() if run else None
    dataset = dataset_of_run(run, classifier, needed=data is None, warn=notify) if run else None
    if data is not None:
        of_model = {
            "name": "eval",
            "data.text_column": classifier.text_columns,
            "data.delimiter": classifier.delimiter,
            "data.encoding": classifier.encoding,
        }
        settings = {"data.train": data} | {
            f"data.{name}": value for name, value in (reading or {}).items()
        }
        data_config = config_of(
            settings if config else of_model | settings, source="--set", base=config
        ).data
        split = load_labelled(data, classifier, data_config, dataset, notify=notify)
        reference = baseline_scores(dataset, split) if dataset else None
        own = replace(evaluate(classifier, split, name=data), linear_reference=reference)
    elif run and config and dataset:
        data_config, (name, split) = config.data, dataset.reported
        if not len(split):
            raise ConfigError(
                f"{path}: no text of its data has a label to score; name labelled texts with --data"
            )
        notes = [it for source, it in dataset.sources if source == name]
        report_notes(name, split, notes, classifier, notify=notify)
        own = score_run(run, classifier, config, dataset)
    else:
        raise ConfigError(
            f"{path}: a model folder without its run has no data of its own; name some with --data"
        )
    report = (
        replace(own, against=_compared(against, other, own.answered, notify=notify))
        if against and other
        else own
    )
    where = folder or (run.eval if run and data is None else None)
    if where:
        yaml, name = (config.to_yaml(), config.name) if config else ("", path.resolve().name)
        to_write = report if folder else own  # the run's folder has the report of the run alone
        try:
            written = write_report(
                where, to_write, data=data_config, run_name=name, config_yaml=yaml
            )
            notify(f"wrote {where}: {', '.join(written)}")
        except EncoderClsError as error:
            if folder:
                raise
            notify(f"warning: {error}")
    return report


def _compared(
    path: Path, other: Classifier, answered: Answered, *, notify: Callable[[str], None]
) -> PairedComparison:
    """Compare with the classifier of another folder on the same texts."""
    names, split = answered.label_names, answered.split
    if not set(other.label_names) & set(names):
        others = f"none of the classes that are scored ({listed(names)}), but {listed(other.label_names)}"
        raise ConfigError(f"--against {path}: knows {others}")
    warn_of_seen(path, split, notify=notify)
    return compare_answers(
        split.labels, answered.answers, numbered_answers(other, split.texts, names), run=str(path)
    )
