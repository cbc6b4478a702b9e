"""A program that uses the library, for mypy alone: each type is what a user of it expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from encoder_cls import (
    Classifier,
    Config,
    Prediction,
    Report,
    Review,
    TextPool,
    config_of,
    evaluate,
    load_classifier,
    load_config,
    model_folder,
    predicted_rows,
    read_metrics,
    review,
    save_linear_part,
    train,
)


def client(folder: Path) -> None:
    """Load a classifier, then call each of its methods."""
    classifier = load_classifier(folder, engine="numpy")
    assert_type(classifier, Classifier)
    assert_type(classifier.predict(["a text"]), list[Prediction])
    assert_type(classifier.predict(["a text"])[0].top(3), list[tuple[str, float]])
    assert_type(classifier.predict_proba(["a text"]), NDArray[np.float64])
    assert_type(classifier.embed(["a text"]), NDArray[np.float32])
    assert_type(classifier.label_names, tuple[str, ...])


def runs(folder: Path) -> None:
    """Train with two configs, and compare the runs."""
    config = load_config(folder / "spam.yaml", ["train.epochs=5"])
    assert_type(config, Config)
    assert_type(config_of({"train.epochs": 10}, base=config), Config)
    assert_type(train(config, run_dir=folder / "run"), Classifier)
    assert_type(read_metrics(folder / "run" / "metrics.jsonl"), list[dict[str, Any]])

    report = evaluate(folder / "run", against=folder / "other")
    assert_type(report, Report)
    assert_type(report.summary(), str)
    assert_type(report.to_dict(), dict[str, Any])


def labels(folder: Path) -> None:
    """Label a few texts of a pool, and review labels."""
    fit = TextPool(["a text", "another"]).fit({0: "a", 1: "b"})
    assert_type(fit.uncertainty, NDArray[np.float64])
    assert_type(fit.labels_of(0), list[str])
    TextPool(["a text"]).fit({0: ["a", "b"]})

    for _, prediction in predicted_rows(load_classifier(folder), "pool.csv"):
        assert_type(prediction.uncertainty, float)
    assert_type(review(folder / "run"), Review)


def models(folder: Path) -> None:
    """Make a smaller model, and find its files."""
    save_linear_part(folder / "run", folder / "linear")
    assert_type(model_folder(folder / "linear"), Path)
    assert_type(load_classifier(folder / "linear").text_format.columns, tuple[str, ...])
