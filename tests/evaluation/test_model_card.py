"""Model cards: Markdown with every number of the report, whatever the names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.reports import BASELINE_SCORES, said

from encoder_cls.config.loading import load_config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.evaluation.findings import Kind
from encoder_cls.evaluation.model_card import model_card
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.split_evaluation import evaluate_split

VALUES = {
    "best_step": 36,
    "vocab_size": 1234,
    "has_encoder": True,
    "linear_max_tokens": None,
}


@pytest.fixture(scope="module")
def dataset(trained_run) -> Dataset:
    return load_dataset(trained_run.load_config().data)


@pytest.fixture(scope="module")
def report(classifier, dataset) -> Report:
    return Report(evaluation=evaluate_split(classifier, dataset.test, name="test"))


def with_interval(scores, key: str) -> str:
    """A score with its interval, as a card has it."""
    low, high = scores[f"{key}_interval"]
    return f"{scores[key]:.4f} ({low:.4f} to {high:.4f})"


def test_the_card_of_a_run_has_its_data_and_scores(trained_run, dataset, report):
    config = trained_run.load_config()
    evaluation = report.evaluation

    card = model_card(config, dataset, report, **VALUES)

    accuracy = with_interval(evaluation.scores, "accuracy").replace("(", "(95% interval ")
    macro_f1 = with_interval(evaluation.scores, "macro_f1")
    linear = with_interval(evaluation.parts["linear"], "accuracy")
    encoder = with_interval(evaluation.parts["encoder"], "accuracy")
    expected = f"""# tiny

A Transformer-encoder text classifier, trained from scratch with encoder-cls.

- Classes: `küche`, `sport`, `weather`
- Trained on 72 texts of `{config.data.train}`; validation was best at step 36
- Test split: 15 texts, accuracy {accuracy}, macro-F1 {macro_f1}, \
expected calibration error {report.metrics.ece:.4f}
- Of its parts, the linear model alone has accuracy {linear}, the encoder alone {encoder}; \
together they are {said(report, Kind.ENCODER_GAIN)}
- Reads the first 16 tokens of a text; 1,234 tokens known

```python
from encoder_cls import load_classifier

classifier = load_classifier("path/to/this/folder")
print(classifier.predict(["some text"])[0].label)
```
"""
    assert card == expected


def test_the_card_has_notes_where_there_is_something_to_note(dataset, report):
    """On the linear model, the baseline, and a validation split; names are code."""
    dataset = replace(dataset, label_names=("a`b", "c\n<d>", "ß"))
    predictions = replace(report.evaluation.predictions, name="validation")
    report = Report(
        evaluation=replace(report.evaluation, predictions=predictions),
        baseline_scores=BASELINE_SCORES | {"accuracy": 0.75, "of_texts": 9000},
    )
    values = VALUES | {"linear_max_tokens": 4096}

    card = model_card(load_config(), dataset, report, **values)

    items = [line for line in card.splitlines() if line.startswith("- ")]
    classes, _, scores, _, reads = items
    assert classes == r"- Classes: `` a`b ``, `c\n<d>`, `ß`"
    assert scores.startswith("- Validation split: 15 texts, accuracy ")
    baseline = "; a TF-IDF baseline, trained on 9 of 9,000 texts: 0.7500, 0.4000 to 0.8000)"
    assert f"{baseline}, macro-F1 " in scores
    assert "; the model was tuned on these texts, so expect slightly lower scores" in scores
    assert reads.endswith(" tokens of a text, its linear model the first 4,096; 1,234 tokens known")


def test_the_card_of_a_linear_model_alone_has_no_word_of_an_encoder(dataset, report):
    evaluation = report.evaluation
    parts = {"combined": evaluation.parts["linear"]}
    report = Report(evaluation=replace(evaluation, part_comparison=None, parts=parts))
    config = load_config(None, ["model.encoder=false"])
    values = VALUES | {"has_encoder": False, "linear_max_tokens": 4096}

    card = model_card(config, dataset, report, **values)

    assert "\nA linear text classifier, trained" in card
    assert "\n- Reads the first 4,096 tokens of a text; 1,234 tokens known\n" in card
    words = card.replace("encoder-cls", "").replace("encoder_cls", "").split()
    assert not {"encoder", "step", "parts"} & set(words)
