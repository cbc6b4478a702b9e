"""Export a classifier as one web page, which predicts as a person types and needs no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from encoder_cls.errors import EncoderClsError
from encoder_cls.extras.export.character_tables import character_tables
from encoder_cls.extras.export.javascript import engine
from encoder_cls.extras.export.model_file import WEIGHTS_FILE, ExportedModel
from encoder_cls.system.display import counted
from encoder_cls.system.files import read_json
from encoder_cls.system.html_pages import PREDICTION_VIEW, html_page, render
from encoder_cls.system.json_values import json_text

_FILES = files(__package__)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the page says of its model."""

    name: str
    sentences: tuple[str, ...]
    suggested_threshold: float | None


def model_facts(path: Path, model: ExportedModel) -> ModelFacts:
    """Collect what is known of a model, which the user calls `path`, and its report if any."""
    name = path.resolve().name
    report: Mapping[str, Any] = {}
    run = _run_of(model.folder)
    if run is not None:
        name = run.resolve().name
        report = _report_of(run / "eval" / "report.json")

    about_part = []
    if model.is_linear_part:
        report = _report_of_linear_part(report)
        about_part = ["This file has the linear part of the model alone, without its encoder."]

    modified = (model.folder / WEIGHTS_FILE).stat().st_mtime
    saved = datetime.fromtimestamp(modified).astimezone()
    sentences = [
        *about_part,
        *_scores(report),
        *_advice(report, model),
        f"Saved on {saved:%d %B %Y}; SHA-256 of the model file: {model.classifier.sha256}.",
        "Texts stay on this page: it works offline, and a browser refuses all requests of it.",
    ]
    return ModelFacts(
        name=name,
        sentences=tuple(sentences),
        suggested_threshold=report.get("suggested_threshold"),
    )


def _run_of(folder: Path) -> Path | None:
    for run in (folder.parent, folder.resolve().parent):
        is_its_model = (run / "model").resolve() == folder.resolve()
        if is_its_model and (run / "metrics.jsonl").is_file() and (run / "config.yaml").is_file():
            return run
    return None


def _report_of(path: Path) -> Mapping[str, Any]:
    try:
        report = read_json(path)
    except (EncoderClsError, ValueError):
        return {}
    if not isinstance(report, dict):
        return {}
    return report


def _report_of_linear_part(report: Mapping[str, Any]) -> Mapping[str, Any]:
    of_part: Mapping[str, Any] = report.get("parts", {}).get("linear", {})
    # Of the texts that the model has not learned from, a report has no scores of parts.
    texts = {key: report.get(key) for key in ("split", "num_examples", "learned_texts")}
    return {**texts, **of_part}


def _scores(report: Mapping[str, Any]) -> Iterator[str]:
    split = report.get("split", "test")
    calibration_error = report.get("ece_beyond_chance")
    learned = report.get("learned_texts")
    if learned:
        # What it does on texts that it has learned from says nothing here.
        report = report.get("new_texts") or {}
    texts = counted(report.get("num_examples", 0), f"{split} text")
    if learned is not None:
        texts += " that it has not learned from"

    if "accuracy" in report:
        accuracy = f"{report['accuracy']:.0%}"
        low, high = report["accuracy_interval"]
        yield f"Right for {accuracy} of {texts} (95% interval: {low:.0%} to {high:.0%})."
    elif "micro_f1" in report:
        low, high = report["micro_f1_interval"]
        yield (
            f"Micro-F1 of its labels {report['micro_f1']:.2f}, on {texts} "
            f"(95% interval: {low:.2f} to {high:.2f})."
        )
    else:
        yield "There are no results of tests beside this model, so nothing is known of its errors."
        return

    if split == "validation":
        yield "It was tuned on these texts, so expect slightly lower scores on new ones."
    if calibration_error is not None:
        yield (
            "Its probabilities differ from the share of correct labels by "
            f"{100 * calibration_error:.0f} percentage points on average, beyond chance."
        )


def _advice(report: Mapping[str, Any], model: ExportedModel) -> Iterator[str]:
    threshold = report.get("suggested_threshold")
    if threshold:
        yield (
            f"Of its labels with a probability of at least {threshold:.3f}, at least 95% are "
            f"right; they are {report['answered_fraction']:.0%} of all labels."
        )
    if model.classifier.familiarity is not None and not model.is_linear_part:
        yield (
            "A text is marked as unfamiliar if it differs from nearly all texts that the model was "
            "tested on: do not rely on its label."
        )
    yield "New texts should come from where the training texts came from."


def web_page(model: ExportedModel, facts: ModelFacts) -> str:
    """Write a model as a page."""
    classifier = model.classifier
    codes = classifier.codes
    suggested = ""
    if facts.suggested_threshold:
        suggested = f"{facts.suggested_threshold:.3f}"

    settings = {
        "textColumns": classifier.text_format.columns,
        "features": classifier.features,
        "readsRows": bool(classifier.features or classifier.fields),
        "hasNames": bool(codes and codes.names and not classifier.is_multi_label),
        "numLevels": codes.num_levels if codes and codes.has_levels else 0,
    }
    classes = [codes.shown(name) if codes else name for name in classifier.label_names]
    body = render(
        "extras/export/page.html",
        title=facts.name,
        suggested=suggested,
        facts=facts.sentences,
        num_classes=counted(len(classifier.label_names), "class", "classes"),
        classes=classes,
        settings=_json_in_html(settings),
        characters=_json_in_html(character_tables()),
        engine=f"{engine()}\n{_source('worker.js')}",
        model=base64.b64encode(model.content).decode(),
    )
    return html_page(
        facts.name,
        body,
        script=PREDICTION_VIEW + _source("table.js") + "\n" + _source("page.js"),
        style=_source("page.css"),
        worker="blob:",
    )


def _source(name: str) -> str:
    return _FILES.joinpath(name).read_text(encoding="utf-8")


def _json_in_html(value: Any) -> str:
    """Write JSON in which no tag can begin."""
    return json_text(value).replace("<", r"\u003c")
