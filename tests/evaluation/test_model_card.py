"""Model cards: Markdown whatever the names in it are, with every number of the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.reports import REFERENCE

from encoder_cls.config.loading import load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load import load_dataset
from encoder_cls.evaluation.report import Report, evaluate
from encoder_cls.evaluation.report_files import model_card
from encoder_cls.evaluation.report_text import comparison_sentence

VALUES = {"best_step": 36, "vocab_size": 1234, "has_encoder": True, "linear_max_tokens": None}


@pytest.fixture(scope="module")
def dataset(trained_run) -> Dataset:
    return load_dataset(trained_run.load_config().data)


@pytest.fixture(scope="module")
def report(classifier, dataset) -> Report:
    return evaluate(classifier, dataset.test, name="test")


def test_the_card_of_a_run_has_its_data_and_scores(trained_run, dataset, report):
    config, metrics = trained_run.load_config(), report.metrics
    low, high = report.scores["accuracy_interval"]
    f1_low, f1_high = report.scores["macro_f1_interval"]
    parts = "alone has accuracy {accuracy:.4f} ({accuracy_interval[0]:.4f} to {accuracy_interval[1]:.4f})"
    linear, encoder = (parts.format(**report.parts[part]) for part in ("linear", "encoder"))
    assert (
        model_card(config, dataset, report, **VALUES)
        == f"""# tiny

A Transformer-encoder text classifier, trained from scratch with encoder-cls.

- Classes: `küche`, `sport`, `weather`
- Trained on 72 texts of `{config.data.train}`; validation was best at step 36
- Test split: 15 texts, accuracy {metrics.accuracy:.4f} (95% interval {low:.4f} to {high:.4f}), \
macro-F1 {metrics.macro_f1:.4f} ({f1_low:.4f} to {f1_high:.4f}), expected calibration error {metrics.ece:.4f}
- Of its parts, the linear model {linear}, \
the encoder {encoder.replace("has accuracy ", "")}; together they are {comparison_sentence(report)}
- Reads the first 16 tokens of a text; 1,234 tokens known

```python
from encoder_cls import load_classifier

classifier = load_classifier("path/to/this/folder")
print(classifier.predict(["some text"])[0].label)
```
"""
    )


def test_the_card_has_notes_where_there_is_something_to_note(dataset, report):
    """Of the linear classifier and of the baseline, and of a split that is no test split; names are code."""
    dataset = replace(dataset, label_names=("a`b", "c\n<d>", "ß"))
    answered = replace(report.answered, name="validation")
    report = replace(
        report, answered=answered, linear_reference=REFERENCE | {"accuracy": 0.75, "of_texts": 9000}
    )
    card = model_card(load_config(), dataset, report, **VALUES | {"linear_max_tokens": 4096})
    classes, _, scores, _, reads = [line for line in card.splitlines() if line.startswith("- ")]
    assert classes == r"- Classes: `` a`b ``, `c\n<d>`, `ß`"
    assert scores.startswith("- Validation split: 15 texts, accuracy ")
    assert (
        "; a TF-IDF baseline, trained on 9 of 9,000 texts: 0.7500, 0.4000 to 0.8000), macro-F1 "
        in scores
    )
    assert "; these texts also chose the weights and calibrated them: " in scores
    assert reads.endswith(
        " tokens of a text, its linear classifier the first 4,096; 1,234 tokens known"
    )


def test_the_card_of_a_linear_model_alone_has_no_word_of_an_encoder(dataset, report):
    report = replace(report, comparison=None, parts={"combined": report.parts["linear"]})
    values = VALUES | {"has_encoder": False, "linear_max_tokens": 4096}
    card = model_card(load_config(None, ["model.encoder=false"]), dataset, report, **values)
    assert "\nA linear text classifier, trained" in card
    assert "\n- Reads the first 4,096 tokens of a text; 1,234 tokens known\n" in card
    assert not {"encoder", "step", "parts"} & set(
        card.replace("encoder-cls", "").replace("encoder_cls", "").split()
    )
