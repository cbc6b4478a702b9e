"""`encoder-cls eval`: score a classifier on the data of its run, or on another labelled source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.loading import config_of
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.evaluation.split_evaluation import evaluate_split
from encoder_cls.run.against import compare_against, load_other
from encoder_cls.run.labelled_source import learned_texts, load_labelled, report_notes
from encoder_cls.run.reloaded_data import (
    config_with_moved_data,
    dataset_of_run,
    dataset_of_run_for_baseline,
)
from encoder_cls.run.run_folder import RunDir, run_of
from encoder_cls.run.run_report import LoadedRun, report_of_run
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
    """Score the classifier of a run or model folder, and write the files of the report.

    Args:
        path: the run or model folder.
        data: a labelled source to score the classifier on; None to score it on the test split of
            its run, or on the validation split if the run has no test split.
        folder: the folder for the files of the report; None to write the report on the run's own
            data into the folder `eval` of the run, and no other report.
        reporter: receives the progress and the warnings.
        reading: values of `DataConfig` that replace those of the training for reading `data`.
        moved: the new paths of the run's data, if it has been moved, by key of `DataConfig`.
        against: the folder of another classifier, to compare the classifier with on the same
            texts; None for no comparison.

    Raises:
        ConfigError: there is no classifier, or no data to score it on.
        DataError: the data is missing or malformed, or has changed since the training.
        EncoderClsError: the files cannot be written into `folder`.
    """
    classifier = load_classifier(path, engine="torch")
    other = None
    if against:
        other = load_other(against, classifier, path)
    run = run_of(path)
    if run and not run.is_finished():
        reporter.note(f"{run.path} is not finished: this is its best model so far")

    # Score the classifier on the source, or on its run's own data.
    if data is not None:
        scored = _score_source(
            data, classifier, run, reading=reading or {}, moved=moved, reporter=reporter
        )
    elif run:
        scored = _score_own_data(run, classifier, moved=moved, reporter=reporter)
    else:
        raise ConfigError(
            f"{path}: a model folder without its run has no data of its own; name some with --data"
        )

    # Compare the classifier with the other one on the same texts.
    compared = scored
    if against and other:
        comparison = compare_against(
            against,
            other,
            scored.report.evaluation.predictions,
            is_own_data=data is None,
            reporter=reporter,
        )
        compared = scored._replace(report=replace(scored.report, against=comparison))

    if folder:
        _write_files(folder, compared, path, reporter=reporter)
    elif run and data is None:
        # Write the report into the folder of the run, without the comparison. If that fails, only
        # warn, so that the user still sees the scores.
        try:
            _write_files(run.eval, scored, path, reporter=reporter)
        except EncoderClsError as error:
            reporter.warning(str(error))
    return compared.report


class _Scored(NamedTuple):
    """The report on some texts, with what else its files show.

    Attributes:
        report: the report.
        data: how the scored texts were read.
        config: the config of the run; None for a model folder without its run.
    """

    report: Report
    data: DataConfig
    config: Config | None


def _write_files(folder: Path, scored: _Scored, path: Path, *, reporter: Reporter) -> None:
    """Write the files of a report.

    Args:
        folder: the folder for the files.
        scored: the report, and what else the files show.
        path: the run or model folder; a model folder without its run is named after it.
        reporter: receives a note that names the files.
    """
    run_name = path.resolve().name
    config_yaml = ""
    if scored.config:
        run_name = scored.config.name
        config_yaml = scored.config.to_yaml()

    written = write_report(
        folder, scored.report, data=scored.data, run_name=run_name, config_yaml=config_yaml
    )
    reporter.note(f"wrote {folder}: {', '.join(written)}")


# The run's own data


def _score_own_data(
    run: RunDir, classifier: Classifier, *, moved: Mapping[str, str] | None, reporter: Reporter
) -> _Scored:
    """Score the classifier of a run on its test split, or without one on its validation split.

    Args:
        run: the folder of the run.
        classifier: the classifier of the run.
        moved: the new paths of the run's data, if it has been moved, by key of `DataConfig`.
        reporter: receives notes and warnings.

    Raises:
        DataError: the data is missing or has changed.
    """
    config = config_with_moved_data(run, moved)
    dataset = dataset_of_run(run, config, classifier)
    name, split = dataset.report_split
    if not len(split):
        raise ConfigError(
            f"{run.path}: no text of its data has a label to score; name labelled texts with --data"
        )
    validation_predictions = _validation_predictions(
        run, classifier, dataset, is_required=name == "validation", reporter=reporter
    )

    # Warn of test texts that the run has learned from. Validation texts are not checked: the final
    # fit may include them, but they are scored by predictions that were saved before it.
    learned: Iterable[str] = ()
    if name == "test":
        learned = learned_texts(dataset, validation_predictions)
    notes = [notes for source, notes in dataset.sources if source == name]
    report_notes(name, split, notes, classifier, learned, reporter=reporter)

    loaded = LoadedRun(
        folder=run,
        classifier=classifier,
        config=config,
        dataset=dataset,
        validation_predictions=validation_predictions,
    )
    return _Scored(report_of_run(loaded, reporter=reporter), config.data, config)


def _validation_predictions(
    run: RunDir, classifier: Classifier, dataset: Dataset, *, is_required: bool, reporter: Reporter
) -> ValidationPredictions | None:
    """Read the held-out predictions of a run for its validation texts.

    Args:
        run: the folder of the run.
        classifier: the classifier of the run.
        dataset: the data of the run.
        is_required: raise an error if the validation texts have changed, rather than warn.
        reporter: receives the warning.

    Returns:
        None if the run has no held-out predictions, or if its validation texts have changed.

    Raises:
        DataError: the validation texts have changed, and the predictions are required.
    """
    try:
        return ValidationPredictions.of_run(
            run.held_out_predictions, classifier, dataset.validation
        )
    except DataError as error:
        if is_required:
            raise
        reporter.warning(str(error))
        return None


# Another source


def _score_source(
    source: str,
    classifier: Classifier,
    run: RunDir | None,
    *,
    reading: Mapping[str, Any],
    moved: Mapping[str, str] | None,
    reporter: Reporter,
) -> _Scored:
    """Score a classifier on a labelled source.

    Args:
        source: the labelled source.
        classifier: the classifier to score.
        run: the run of the classifier, whose data the baseline learns from; None for a model folder
            without its run.
        reading: values of `DataConfig` that replace those of the training.
        moved: the new paths of the run's data, if it has been moved, by key of `DataConfig`.
        reporter: receives notes and warnings.
    """
    config = None
    dataset = None
    learned: Iterable[str] | None = None
    learns_validation = False
    if run:
        config = config_with_moved_data(run, moved)
        dataset = dataset_of_run_for_baseline(run, config, classifier, reporter=reporter)
        if dataset:
            # If there are held-out predictions, the classifier has learned the validation texts.
            validation_predictions = _validation_predictions(
                run, classifier, dataset, is_required=False, reporter=reporter
            )
            learned = learned_texts(dataset, validation_predictions)
            learns_validation = validation_predictions is not None

    data_config = _config_of_source(source, classifier, config, reading)
    split = load_labelled(
        source, classifier, data_config, dataset, learned or (), reporter=reporter
    )

    baseline = None
    if dataset:
        baseline = baseline_scores(dataset, split, with_validation=learns_validation)
    evaluation = evaluate_split(classifier, split, name=source, learned=learned)
    report = Report(evaluation=evaluation, baseline_scores=baseline)
    return _Scored(report, data_config, config)


def _config_of_source(
    source: str, classifier: Classifier, config: Config | None, reading: Mapping[str, Any]
) -> DataConfig:
    """Return the config for reading a source.

    The source is read like the training data, except for the values of `reading`.

    Args:
        source: the labelled source.
        classifier: the classifier, which knows the columns of its training data.
        config: the config of the classifier's run; None for a model folder without its run.
        reading: values of `DataConfig`, by key.
    """
    settings: dict[str, Any] = {}
    if config is None:
        text_format = classifier.text_format
        settings = {
            "name": "eval",
            "data.text_column": text_format.columns,
            "data.delimiter": text_format.delimiter,
            "data.encoding": text_format.encoding,
            "data.label_column": text_format.label_column,
            "data.label_separator": text_format.label_separator,
        }

    settings["data.train"] = source
    for name, value in reading.items():
        settings[f"data.{name}"] = value
    return config_of(settings, source="--set", base=config).data
