"""`encoder-cls drift --against`: where two models differ on texts without labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.programs import assert_failed
from support.tables import read_table, write_table
from support.topics import labelled_texts

from encoder_cls.classifier.model_folder import save_classifier
from encoder_cls.metrics.tasks import MULTI_LABEL


@pytest.fixture
def source() -> str:
    """A file of texts of mixed topics, on which two models differ, and of a blank one."""
    texts = [text for text, _ in labelled_texts(30, seed=3)]
    mixed = [f"{first} {second}" for first, second in zip(texts, reversed(texts), strict=True)]
    return write_table("later.csv", [["text"], *[[text] for text in [*texts, *mixed, ""]]])


def test_agreement_is_counted_text_by_text(cli, trained_run, classifier, source):
    """The other model takes two of the three classes for each other."""
    assert classifier.label_names == ("küche", "sport", "weather")
    names = ("sport", "küche", "weather")
    save_classifier(replace(classifier, label_names=names, guarantees=None), Path("other"))
    texts = [text for (text,) in read_table(source)[1:] if text]
    predicted = [prediction.label for prediction in classifier.predict(texts)]

    outcome = cli(
        "drift", trained_run.path, "--against", "other", "--input", source, "--json",
        "--output", "differences.html",
    )  # fmt: skip

    found = json.loads(outcome.out)
    assert found["texts"] == len(texts)
    assert found["agreement"] == predicted.count("weather") / len(texts)
    pairs = {(*pair["labels"], *pair["against_labels"]): pair["texts"] for pair in found["pairs"]}
    assert pairs == {
        ("küche", "sport"): predicted.count("küche"),
        ("sport", "küche"): predicted.count("sport"),
    }
    confidences = [disagreement["confidence"] for disagreement in found["disagreements"]]
    assert confidences == sorted(confidences, reverse=True)
    assert len(confidences) == 100
    assert "küche" in Path("differences.html").read_text(encoding="utf-8")


def test_a_model_agrees_with_itself(cli, trained_run, source):
    outcome = cli("drift", trained_run.path, "--against", trained_run.model, "--input", source)
    assert "agree on 100.0% of 180 texts" in outcome.out


def test_models_of_different_kinds_are_refused(cli, trained_run, classifier, source):
    save_classifier(replace(classifier, task=MULTI_LABEL, guarantees=None), Path("several"))
    outcome = cli("drift", trained_run.path, "--against", "several", "--input", source)
    assert_failed(outcome, 2, "--against", "two models of the same kind")


def test_what_has_changed_is_no_question_to_two_models(cli, trained_run, source):
    outcome = cli(
        "drift", trained_run.path, "--against", trained_run.path, "--input", source, "--by", "x"
    )
    assert_failed(outcome, 2, "leave out --by")
