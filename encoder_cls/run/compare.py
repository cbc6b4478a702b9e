"""Compare runs by their files alone, without loading models or data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from encoder_cls.classifier.model_folder import parts_of_model
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.evaluation.report_file_names import PREDICTIONS, REPORT_JSON
from encoder_cls.metrics.scores import Place, Score, Tasks, main_score, scores_shown_in
from encoder_cls.run.run_folder import RunDir, dotted_values, read_metrics
from encoder_cls.system.display import aligned, duration, printable
from encoder_cls.system.files import read_json
from encoder_cls.system.json_values import json_text

RunSummary = dict[str, Any]
"""Facts of a run as JSON values, as `summarize` reads them."""


def runs_of(path: Path) -> list[Path]:
    """The runs in a folder; the path itself if it is a run, or holds none."""
    if RunDir(path).is_run():
        return [path]
    runs = sorted(inside for inside in path.glob("*") if RunDir(inside).is_run())
    return runs or [path]


def summarize(path: Path) -> RunSummary:
    """Read facts of a run from its files, None where they are missing.

    `seconds` are those of training without pauses; `parameters` are those of the encoder, if the
    model of the run has or may still get one; `settings` are the config by dotted key.

    Raises:
        ConfigError: the path is not a run.
        EncoderClsError: the report of the run cannot be read.
    """
    run = RunDir(path)
    if not run.is_run():
        raise ConfigError(
            f"{path}: not a run, because it has no {run.config_file.name}; name folders of runs, "
            "or a folder with several of them"
        )
    report = _read_report(run)
    rows = read_metrics(run.metrics_file)

    settings = None
    with suppress(ConfigError, ImportError):
        settings = dotted_values(run.load_config())

    texts_sha256, data_sha256 = _hashes_of_scored_texts(run)
    summary = {
        "run": str(path),
        "split": report.get("split"),
        "num_examples": report.get("num_examples"),
        "texts_sha256": texts_sha256,
        "data_sha256": data_sha256,
    }
    for score in scores_shown_in(Place.COMPARE):
        summary[score.key] = report.get(score.key)
        if score.is_main:
            summary[score.interval_key] = report.get(score.interval_key)
    summary["model_bytes"] = _model_bytes(run)
    summary["seconds"] = _training_seconds(rows)
    summary["parameters"] = _encoder_parameters(run, rows)
    summary["settings"] = settings
    return summary


def _model_bytes(run: RunDir) -> int | None:
    """The size of a run's model folder; None without a model."""
    sizes = [file.stat().st_size for file in run.model.glob("*")]
    if not sizes:
        return None
    return sum(sizes)


def _read_report(run: RunDir) -> dict[str, Any]:
    """Read the report of a run; empty without one.

    Raises:
        EncoderClsError: it cannot be read, or is not a report.
    """
    path = run.eval / REPORT_JSON
    if not path.exists():
        return {}

    report = None
    with suppress(ValueError):
        report = read_json(path)
    if not isinstance(report, dict):
        raise EncoderClsError(f"{path}: not a report; write it again: encoder-cls eval {run.path}")
    return report


def _hashes_of_scored_texts(run: RunDir) -> tuple[str | None, str | None]:
    """The SHA-256 of the scored texts, in order, and that of these with their labels."""
    texts_digest = hashlib.sha256()
    data_digest = hashlib.sha256()
    try:
        with (run.eval / PREDICTIONS).open("rb") as lines:
            for line in lines:
                record = json.loads(line)
                text = record["text"]
                labels = record["label"] if "label" in record else record["labels"]
                texts_digest.update(json.dumps(text).encode())
                data_digest.update(json.dumps([text, labels]).encode())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, None
    return texts_digest.hexdigest(), data_digest.hexdigest()


# A longer time between two rows of metrics, in seconds and in median steps, is a pause.
LONGEST_STEP_IN_SECONDS = 300.0
LONGEST_STEP_IN_MEDIANS = 20.0


def _training_seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The time from the first row to the last, without the pauses of a resumed run."""
    times = [row["time"] for row in rows if "time" in row]
    steps = [later - earlier for earlier, later in pairwise(times)]
    if not steps:
        return None

    longest = max(LONGEST_STEP_IN_SECONDS, LONGEST_STEP_IN_MEDIANS * median(steps))
    return float(sum(step for step in steps if 0 <= step <= longest))


def _encoder_parameters(run: RunDir, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of parameters of the encoder; None in a run that has ended without one."""
    has_final_model = run.is_finished() and run.weights.is_file()
    if has_final_model and "encoder" not in parts_of_model(run.model):
        return None

    for row in rows:
        if "parameters" in row:
            parameters: int = row["parameters"]
            return parameters
    return None


def comparison_warnings(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Warn where scores or settings of runs cannot be compared."""
    for run in runs:
        name = run["run"]
        if run["split"] is None:
            yield (
                f"{name}: no report yet; let the training end (train --resume), or run "
                f"encoder-cls eval {name}"
            )
        if run["settings"] is None:
            yield f"{name}: its settings cannot be read here, and are not compared"

    scored = [run for run in runs if run["split"] is not None]
    scored_texts = {(run["split"], run["num_examples"], run["texts_sha256"]) for run in scored}
    scored_data = {run["data_sha256"] for run in scored}

    if len(scored_texts) > 1:
        sizes = [f"{run['run']}: {run['num_examples']:,} of {run['split']}" for run in scored]
        yield (
            "the runs were scored on different texts, so their scores do not compare "
            f"({'; '.join(sizes)})"
        )
    elif len(scored_data) > 1:
        yield (
            "some labels of the scored texts differ, as after corrections; encoder-cls eval "
            f"{scored[-1]['run']} --against {scored[0]['run']} scores both by the labels of the "
            "first"
        )


def differing_settings(runs: Sequence[RunSummary]) -> list[str]:
    """The dotted keys whose values differ between the runs whose settings are known."""
    known = [run["settings"] for run in runs if run["settings"] is not None]
    keys: list[str] = []
    for settings in known:
        keys += [key for key in settings if key != "name" and key not in keys]

    differing = []
    for key in keys:
        values = {json_text(settings.get(key)) for settings in known}
        if len(values) > 1:
            differing.append(key)
    return differing


# What a cell shows where nothing is known.
NONE = "-"


def comparison_table(runs: Sequence[RunSummary], differing: Sequence[str]) -> Iterator[str]:
    """The lines of a table: a row for each run, then one for each setting in which they differ."""
    # The main score of a run is that of its own task.
    is_multi_label = any(_is_multi_label(run) for run in runs)
    main = main_score(is_multi_label=is_multi_label)
    further_scores = _further_scores(runs)

    head = ["run", main.name, "95% interval"]
    head += [score.name for score in further_scores]
    head += ["model", "training", "parameters"]
    rows_of_runs = [_cells(run, further_scores) for run in runs]
    yield from aligned([head, *rows_of_runs])

    if differing:
        names = [printable(run["run"]) for run in runs]
        rows = [["settings that differ", *names]]
        for key in differing:
            values = [_setting(run["settings"] or {}, key) for run in runs]
            rows.append([key, *values])
        yield ""
        yield from aligned(rows)
    elif len(runs) > 1:
        yield ""
        yield "no setting differs"


def _is_multi_label(run: RunSummary) -> bool:
    """Whether the report of a run is of a multi-label task."""
    return run["micro_f1"] is not None


def _further_scores(runs: Sequence[RunSummary]) -> list[Score]:
    """The compared scores of the tasks of runs, without the main ones."""
    tasks = Tasks.NONE
    for run in runs:
        tasks |= Tasks.of(is_multi_label=_is_multi_label(run))

    scores = []
    for score in scores_shown_in(Place.COMPARE):
        if not score.is_main and score.tasks & tasks:
            scores.append(score)
    return scores


def _cells(run: RunSummary, further_scores: Sequence[Score]) -> list[str]:
    """The row of a run."""
    main = main_score(is_multi_label=_is_multi_label(run))
    interval = NONE
    if run[main.interval_key]:
        low, high = run[main.interval_key]
        interval = f"{low:.4f} to {high:.4f}"

    model_size = NONE
    if run["model_bytes"]:
        model_size = f"{run['model_bytes'] / 1e6:.1f} MB"

    training_time = NONE
    if run["seconds"] is not None:
        training_time = duration(run["seconds"])

    parameters = NONE
    if run["parameters"]:
        parameters = f"{run['parameters']:,}"

    cells = [printable(run["run"]), _score(run[main.key]), interval]
    cells += [_score(run[score.key]) for score in further_scores]
    cells += [model_size, training_time, parameters]
    return cells


def _score(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _setting(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, NONE)
    return printable(value) if isinstance(value, str) else json_text(value)
