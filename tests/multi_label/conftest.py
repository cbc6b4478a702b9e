"""Runs on data in which a text has any number of labels."""

from __future__ import annotations

import pytest
from support.several_labels import labelled_texts, trained, write_json_lines

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.run.run_folder import RunDir


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of the linear model alone, with a test split."""
    folder = tmp_path_factory.mktemp("several")
    test = write_json_lines(folder / "test.jsonl", labelled_texts(60, seed=1))
    return trained(folder, labelled_texts(240, seed=0), **{"data.test": str(test)})


@pytest.fixture(scope="session")
def several(linear_run: RunDir) -> Classifier:
    """The classifier of that run."""
    return load_classifier(linear_run.path)
