"""Compare runs by the files in their folders, without loading models or data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from encoder_cls.classifier.model_folder import CONFIG_FILE, parts_of_model
from encoder_cls.config.changed_keys import dotted_values
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.evaluation.file_names import PREDICTIONS, REPORT_JSON
from encoder_cls.metrics.scores import Place, scores_shown_in
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.system.files import read_json
from encoder_cls.system.json_values import json_text

# The scores and settings of a run as JSON values, by the names that `summarize` lists.
RunSummary = dict[str, Any]


def runs_of(path: Path) -> list[Path]:
    """The runs in a folder, sorted; the path itself if it is a run or has none."""
    if RunDir(path).is_run():
        return [path]

    found = sorted(inside for inside in path.glob("*") if RunDir(inside).is_run())
    return found or [path]


def without_links_to_others(runs: Sequence[Path]) -> list[Path]:
    """Leave out links to other runs of a list, such as `runs/live`."""
    not_linked = {run.resolve() for run in runs if not run.is_symlink()}
    return [run for run in runs if not run.is_symlink() or run.resolve() not in not_linked]


def summarize(path: Path) -> RunSummary:
    """Read scores and settings of a run from its files.

    Returns:
        A dictionary with the path of the run, and these values, each None if it is missing: -
        `split`, `num_examples`, `texts_sha256` and `data_sha256`: which texts were scored; - the
        scores by key, and the interval of the main score; - `model_bytes`: the size of the model
        folder; - `seconds`: the time of the training, without pauses; - `parameters`: the number of
        parameters of the encoder, unless the final model has none; - `settings`: the config by
        dotted key.

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
        settings |= _own_model_class(run)

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
    sizes = [file.stat().st_size for file in run.model.glob("*")]
    if not sizes:
        return None
    return sum(sizes)


def _own_model_class(run: RunDir) -> dict[str, str]:
    with suppress(EncoderClsError, ValueError):
        config = read_json(run.model / CONFIG_FILE)
        if "model_class" in config:
            return {"model.class": config["model_class"]}
    return {}


def _read_report(run: RunDir) -> dict[str, Any]:
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


# The time between two rows of the metrics is a pause if it is longer than this number of seconds,
# and longer than this multiple of the median time between two rows.
MAX_GAP_SECONDS = 300.0
MAX_GAP_IN_MEDIANS = 20.0


def _training_seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    times = [row["time"] for row in rows if "time" in row]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if not gaps:
        return None

    max_gap = max(MAX_GAP_SECONDS, MAX_GAP_IN_MEDIANS * median(gaps))
    return float(sum(gap for gap in gaps if 0 <= gap <= max_gap))


def _encoder_parameters(run: RunDir, rows: Sequence[Mapping[str, Any]]) -> int | None:
    has_final_model = run.is_finished() and run.weights.is_file()
    if has_final_model and "encoder" not in parts_of_model(run.model):
        return None

    for row in rows:
        if "parameters" in row:
            parameters: int = row["parameters"]
            return parameters
    return None


def main_figures(path: Path) -> dict[str, Any]:
    """Read the main figures of a finished run, for `train --json`.

    They are its scores and those of the baseline, the number of texts and their split, the bytes of
    the model and the seconds of the training. Without a report, which needs labels to score, there
    are neither a split nor scores.

    Raises:
        EncoderClsError: the report of the run cannot be read.
    """
    run = RunDir(path)
    report = _read_report(run)

    figures: dict[str, Any] = {"run": str(path)}
    if report:
        figures["split"] = report["split"]
        figures["num_examples"] = report["num_examples"]
        for score in scores_shown_in(Place.COMPARE):
            for key in (score.key, score.interval_key):
                if key in report:
                    figures[key] = report[key]
        figures["linear_reference"] = report["linear_reference"]

    figures["model_bytes"] = _model_bytes(run)
    figures["seconds"] = _training_seconds(read_metrics(run.metrics_file))
    return figures


def comparison_warnings(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Warn of scores or settings that cannot be compared."""
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
    """The keys of settings that differ between runs."""
    all_settings = [run["settings"] for run in runs if run["settings"] is not None]
    keys: list[str] = []
    for settings in all_settings:
        keys += [key for key in settings if key != "name" and key not in keys]

    differing = []
    for key in keys:
        values = {json_text(settings.get(key)) for settings in all_settings}
        if len(values) > 1:
            differing.append(key)
    return differing
