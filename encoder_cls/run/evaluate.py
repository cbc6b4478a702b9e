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
from encoder_cls.data.data_warnings import seen_warnings
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.split_evaluation import SplitEvaluation, evaluate_split
from encoder_cls.evaluation.write_files import write_report
from encoder_cls.run.against import compare_against, load_other
from encoder_cls.run.labelled_source import learned_texts, load_labelled, report_notes
from encoder_cls.run.loaded_run import LoadedRun, report_of_run
from encoder_cls.run.reloaded_data import (
    config_with_moved_data,
    dataset_of_run,
    dataset_of_run_for_baseline,
)
from encoder_cls.run.run_folder import RunDir, run_of
from encoder_cls.system.reporter import SILENT, Reporter


def evaluate(
    path: str | Path,
    *,
    data: str | None = None,
    against: str | Path | None = None,
    folder: Path | None = None,
    reading: Mapping[str, Any] | None = None,
    moved: Mapping[str, str] | None = None,
    reporter: Reporter = SILENT,
) -> Report:
    """Score the classifier of a run or model folder, and write the files of the report.

    It is scored on the labelled source `data`; without one, on the test split of its run, else on
    the validation split. `against` is the folder of another classifier, to compare with on the same
    texts. By default, a report on the run's own data goes into its folder `eval`, and no other is
    written.

    `reading` has values of the section `data` for reading `data`; `moved` has the new paths of the
    run's data, by key.

    Raises:
        ConfigError: there is no classifier, or no data to score it on.
        DataError: the data is missing or malformed, or has changed since the training.
        EncoderClsError: the files cannot be written into `folder`.
    """
    path = Path(path)
    classifier = load_classifier(path, engine="torch")
    other = None
    if against:
        against = Path(against)
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
    report: Report
    data: DataConfig
    config: Config | None


def _write_files(folder: Path, scored: _Scored, path: Path, *, reporter: Reporter) -> None:
    run_name = path.resolve().name
    config_yaml = ""
    if scored.config:
        run_name = scored.config.name
        config_yaml = scored.config.to_yaml()

    written = write_report(
        folder, scored.report, data=scored.data, run_name=run_name, config_yaml=config_yaml
    )
    reporter.note(f"wrote {folder}: {', '.join(written)}")


def _warn_of_learned(evaluation: SplitEvaluation, reporter: Reporter) -> None:
    for warning in seen_warnings(
        evaluation.split_name,
        num_learned=evaluation.num_learned or 0,
        num_texts=evaluation.metrics.num_examples,
    ):
        reporter.warning(warning)


# The run's own data


def _score_own_data(
    run: RunDir, classifier: Classifier, *, moved: Mapping[str, str] | None, reporter: Reporter
) -> _Scored:
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

    notes = [notes for source, notes in dataset.sources if source == name]
    report_notes(name, split, notes, classifier, reporter=reporter)

    loaded = LoadedRun(
        classifier=classifier,
        config=config,
        dataset=dataset,
        validation_predictions=validation_predictions,
    )
    report = report_of_run(loaded, reporter=reporter)
    # There is no warning of validation texts: they are scored by predictions of a model that has
    # not learned from them.
    if name == "test":
        _warn_of_learned(report.evaluation, reporter)
    return _Scored(report, config.data, config)


def _validation_predictions(
    run: RunDir, classifier: Classifier, dataset: Dataset, *, is_required: bool, reporter: Reporter
) -> ValidationPredictions | None:
    """Read the held-out predictions of a run, if it has any.

    If the texts have changed, that is a `DataError` if they are required, else a warning.
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
    split = load_labelled(source, classifier, data_config, dataset, reporter=reporter)

    baseline = None
    if dataset:
        baseline = baseline_scores(dataset, split, with_validation=learns_validation)
    evaluation = evaluate_split(classifier, split, name=source, learned=learned)
    _warn_of_learned(evaluation, reporter)
    report = Report(evaluation=evaluation, baseline_scores=baseline)
    return _Scored(report, data_config, config)


def _config_of_source(
    source: str, classifier: Classifier, config: Config | None, reading: Mapping[str, Any]
) -> DataConfig:
    """The config for reading a source like the training data, except for `reading`.

    Without a run, the classifier still knows its columns.
    """
    settings: dict[str, Any] = {}
    if config is None:
        text_format = classifier.text_format
        settings = {
            "name": "eval",
            "data.text_column": text_format.columns,
            "data.features": classifier.features,
            "data.delimiter": text_format.reading.delimiter,
            "data.encoding": text_format.reading.encoding,
            "data.label_column": text_format.label_column,
            "data.label_separator": text_format.label_separator,
        }

    settings["data.train"] = source
    for name, value in reading.items():
        settings[f"data.{name}"] = value
    return config_of(settings, source="--set", base=config).data
