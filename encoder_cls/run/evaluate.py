"""`encoder-cls eval`: score the classifier of a run or model folder on its data, or on a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from encoder_cls.run.reloaded_data import config_with_moved_data, dataset_of_run
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
        data: a labelled source; None: the run's test split, else its validation split.
        folder: where the files go; None: for the run's own data into its `eval`, else nowhere.
        reporter: hears what happens.
        reading: values of `DataConfig` for reading the source that replace those of the training.
        moved: new places of the run's data, by key of `DataConfig`.
        against: the folder of another classifier, which is compared on the same texts.

    Raises:
        ConfigError: no classifier, or no data to score.
        DataError: the data is missing or malformed, or has changed since the training.
        EncoderClsError: the disk refuses `folder`.
    """
    classifier = load_classifier(path, engine="torch")
    other = None
    if against:
        other = load_other(against, classifier, path)

    run = run_of(path)
    config = None
    dataset = None
    validation_predictions = None
    if run:
        if not run.is_finished():
            reporter.note(f"{run.path} is not finished: this is its best model so far")
        config = config_with_moved_data(run, moved)
        dataset = dataset_of_run(run, config, classifier, needed=data is None, reporter=reporter)
    if run and dataset:
        is_scored = data is None and dataset.report_split[0] == "validation"
        validation_predictions = _own_predictions(
            run, classifier, dataset, needed=is_scored, reporter=reporter
        )

    # Score the classifier on the source, or on its run's own data.
    if data is not None:
        data_config = _config_of_source(data, classifier, config, reading or {})
        scored = _score_source(
            data, classifier, data_config, dataset, validation_predictions, reporter=reporter
        )
    elif run and config and dataset:
        data_config = config.data
        loaded = LoadedRun(
            folder=run,
            classifier=classifier,
            config=config,
            dataset=dataset,
            validation_predictions=validation_predictions,
        )
        scored = _score_own_data(loaded, reporter=reporter)
    else:
        raise ConfigError(
            f"{path}: a model folder without its run has no data of its own; name some with --data"
        )

    # Compare it with the other classifier on the same texts.
    report = scored
    if against and other:
        comparison = compare_against(
            against,
            other,
            scored.evaluation.predictions,
            is_own_data=data is None,
            reporter=reporter,
        )
        report = replace(scored, against=comparison)

    def write_files(folder: Path, report: Report) -> None:
        run_name = path.resolve().name
        config_yaml = ""
        if config:
            run_name = config.name
            config_yaml = config.to_yaml()

        written = write_report(
            folder, report, data=data_config, run_name=run_name, config_yaml=config_yaml
        )
        reporter.note(f"wrote {folder}: {', '.join(written)}")

    if folder:
        write_files(folder, report)
    elif run and data is None:
        # The run's folder has the report of the run alone. If the disk refuses it, people still
        # see the scores.
        try:
            write_files(run.eval, scored)
        except EncoderClsError as error:
            reporter.warning(str(error))
    return report


def _own_predictions(
    run: RunDir, classifier: Classifier, dataset: Dataset, *, needed: bool, reporter: Reporter
) -> ValidationPredictions | None:
    """The predictions of a run for its own validation texts from before it learned from them.

    Returns:
        None where the run keeps none.

    Raises:
        DataError: these texts have changed, where the predictions are needed; else it is a warning.
    """
    try:
        return ValidationPredictions.of_run(
            run.held_out_predictions, classifier, dataset.validation
        )
    except DataError as error:
        if needed:
            raise
        reporter.warning(str(error))
        return None


def _config_of_source(
    source: str, classifier: Classifier, config: Config | None, reading: Mapping[str, Any]
) -> DataConfig:
    """How a source is read: as in training, except for the values of `reading`."""
    settings: dict[str, Any] = {}
    if config is None:
        text_format = classifier.text_format
        settings = {
            "name": "eval",
            "data.text_column": text_format.columns,
            "data.delimiter": text_format.delimiter,
            "data.encoding": text_format.encoding,
        }

    settings["data.train"] = source
    for name, value in reading.items():
        settings[f"data.{name}"] = value
    return config_of(settings, source="--set", base=config).data


def _score_source(
    source: str,
    classifier: Classifier,
    data_config: DataConfig,
    dataset: Dataset | None,
    validation_predictions: ValidationPredictions | None,
    *,
    reporter: Reporter,
) -> Report:
    """Score a classifier on a labelled source as it predicts.

    `dataset` and `validation_predictions` are those of the classifier's run, as far as they are known.
    """
    learned: Iterable[str] = ()
    if dataset:
        learned = learned_texts(dataset, validation_predictions)
    split = load_labelled(source, classifier, data_config, dataset, learned, reporter=reporter)

    baseline = None
    if dataset:
        baseline = baseline_scores(dataset, split)
    evaluation = evaluate_split(classifier, split, name=source)
    return Report(evaluation=evaluation, baseline_scores=baseline)


def _score_own_data(run: LoadedRun, *, reporter: Reporter) -> Report:
    """Score the classifier of a run on its own test split, else its validation split."""
    name, split = run.dataset.report_split
    if not len(split):
        raise ConfigError(
            f"{run.folder.path}: no text of its data has a label to score; name labelled texts "
            "with --data"
        )

    # A validation split that was held out is a part of the texts that the run has learned from.
    learned: Iterable[str] = ()
    if name == "test":
        learned = learned_texts(run.dataset, run.validation_predictions)
    notes = [notes for source, notes in run.dataset.sources if source == name]
    report_notes(name, split, notes, run.classifier, learned, reporter=reporter)
    return report_of_run(run, reporter=reporter)
