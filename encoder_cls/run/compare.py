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
from encoder_cls.evaluation.files import PREDICTIONS, REPORT_JSON
from encoder_cls.run.run_folder import RunDir, dotted_values, read_metrics
from encoder_cls.system.display import aligned, duration, json_text, printable
from encoder_cls.system.files import read_json

# A longer time between two rows of metrics, in seconds and in median steps, is a pause.
LONGEST_STEP, LONGEST_STEPS = 300.0, 20.0
SCORES = ("accuracy", "accuracy_interval", "micro_f1", "micro_f1_interval", "macro_f1", "ece")
NONE = "-"


def runs_of(path: Path) -> list[Path]:
    """The runs in a folder; the path itself if it is a run, or holds none."""
    inside = (
        [] if RunDir(path).is_run() else sorted(it for it in path.glob("*") if RunDir(it).is_run())
    )
    return inside or [path]


def summarize(path: Path) -> dict[str, Any]:
    """Read facts of a run from its files, as JSON values, None where they are missing.

    `seconds` are those of training without pauses, `parameters` those of the encoder, if the model of the run has or
    may still get one, `settings` by dotted key. Raises a `ConfigError` if the path is not a run, an `EncoderClsError` if its report cannot be read.
    """
    run = RunDir(path)
    if not run.is_run():
        raise ConfigError(
            f"{path}: no run: it has no {run.config_file.name}; name folders that train has made, or a folder of such"
        )
    report, rows, settings = _report(run), read_metrics(run.metrics_file), None
    with suppress(ConfigError, ImportError):
        settings = dotted_values(run.load_config())
    return {
        "run": str(path),
        **{key: report.get(key) for key in ("split", "num_examples")},
        **_hashes(run),
        **{key: report.get(key) for key in SCORES},
        "model_bytes": sum(file.stat().st_size for file in run.model.glob("*")) or None,
        "seconds": _seconds(rows),
        "parameters": _encoder_parameters(run, rows),
        "settings": settings,
    }


def comparison_warnings(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Warnings where scores or settings of the summarized runs cannot be compared."""
    for run in runs:
        name = run["run"]
        if run["split"] is None:
            yield f"{name}: no report yet; let the training end (train --resume), or run encoder-cls eval {name}"
        if run["settings"] is None:
            yield f"{name}: its settings cannot be read here, and are not compared"
    scored = [run for run in runs if run["split"] is not None]
    if len({(run["split"], run["num_examples"], run["texts_sha256"]) for run in scored}) > 1:
        on = "; ".join(f"{run['run']}: {run['num_examples']:,} of {run['split']}" for run in scored)
        yield f"the runs were scored on different texts, so their scores do not compare ({on})"
    elif len({run["data_sha256"] for run in scored}) > 1:
        yield (
            "some labels of the scored texts differ, as after corrections; encoder-cls eval "
            f"{scored[-1]['run']} --against {scored[0]['run']} scores both by the labels of the first"
        )


def differing_settings(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted keys whose values differ between the runs whose settings are known."""
    known = [run["settings"] for run in runs if run["settings"] is not None]
    keys = dict.fromkeys(key for settings in known for key in settings if key != "name")
    return [key for key in keys if len({json_text(settings.get(key)) for settings in known}) > 1]


def comparison_table(runs: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> Iterator[str]:
    """The lines of a table: a row for each run, then one for each setting in which they differ."""
    score = "micro-F1" if any(run["micro_f1"] is not None for run in runs) else "accuracy"
    head = [
        "run",
        score,
        "95% interval",
        "macro-F1",
        "calibration error",
        "model",
        "training",
        "parameters",
    ]
    yield from aligned([head, *(_cells(run) for run in runs)])
    if differing:
        yield ""
        rows = [[key, *(_setting(run["settings"] or {}, key) for run in runs)] for key in differing]
        yield from aligned(
            [["settings that differ", *(printable(run["run"]) for run in runs)], *rows]
        )
    elif len(runs) > 1:
        yield ""
        yield "no setting differs"


def _cells(run: Mapping[str, Any]) -> list[str]:
    kind = "accuracy" if run["micro_f1"] is None else "micro_f1"
    score, macro_f1, ece = (
        NONE if run[key] is None else f"{run[key]:.4f}" for key in (kind, "macro_f1", "ece")
    )
    interval = run[f"{kind}_interval"]
    return [
        printable(run["run"]),
        *(score, "{:.4f} to {:.4f}".format(*interval) if interval else NONE),
        *(macro_f1, ece),
        f"{run['model_bytes'] / 1e6:.1f} MB" if run["model_bytes"] else NONE,
        duration(run["seconds"]) if run["seconds"] is not None else NONE,
        f"{run['parameters']:,}" if run["parameters"] else NONE,
    ]


def _setting(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, NONE)
    return printable(value) if isinstance(value, str) else json_text(value)


def _report(run: RunDir) -> dict[str, Any]:
    """Read the report of a run; empty without one, `EncoderClsError` if it cannot be read."""
    path, report = run.eval / REPORT_JSON, None
    if not path.exists():
        return {}
    with suppress(ValueError):
        report = read_json(path)
    if not isinstance(report, dict):
        raise EncoderClsError(f"{path}: no report; write it again: encoder-cls eval {run.path}")
    return report


def _hashes(run: RunDir) -> dict[str, str | None]:
    """SHA-256 of the scored texts, in order, and of these with their labels."""
    of_texts, of_data = hashlib.sha256(), hashlib.sha256()
    try:
        with (run.eval / PREDICTIONS).open("rb") as lines:
            for line in lines:
                record = json.loads(line)
                labels = record["label"] if "label" in record else record["labels"]
                of_texts.update(json.dumps(record["text"]).encode())
                of_data.update(json.dumps([record["text"], labels]).encode())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {"texts_sha256": None, "data_sha256": None}
    return {"texts_sha256": of_texts.hexdigest(), "data_sha256": of_data.hexdigest()}


def _encoder_parameters(run: RunDir, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of parameters of the encoder; None if the run has ended with the linear classifier alone."""
    if run.is_finished() and run.weights.is_file() and "encoder" not in parts_of_model(run.model):
        return None
    return next((row["parameters"] for row in rows if "parameters" in row), None)


def _seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The time from the first row to the last, without the pauses of a resumed run."""
    times = [row["time"] for row in rows if "time" in row]
    steps = [later - earlier for earlier, later in pairwise(times)]
    if not steps:
        return None
    longest = max(LONGEST_STEP, LONGEST_STEPS * median(steps))
    return float(sum(step for step in steps if 0 <= step <= longest))
