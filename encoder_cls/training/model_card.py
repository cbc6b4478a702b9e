"""A finished training in, its model card out."""

from __future__ import annotations

import re

from encoder_cls.evaluation.report import Report
from encoder_cls.system.display import printable
from encoder_cls.training.setup import TrainingSetup


def model_card(setup: TrainingSetup, report: Report, best_step: int) -> str:
    """What the model of a run is, was trained on and scores, and how to use it, as Markdown."""
    dataset, config, metrics = setup.dataset, setup.config, report.metrics
    classes = ", ".join(code_span(name) for name in dataset.label_names)
    reference = report.linear_reference
    against = f" (a linear model on TF-IDF{report.reference_note}: {reference['accuracy']:.4f})" if reference else ""
    linear = setup.recipe.linear
    note = f"; {report.split_note}" if report.split_note else ""
    further = f", its linear classifier the first {linear.max_tokens:,}" if linear else ""
    return f"""# {config.name}

A Transformer-encoder text classifier, trained from scratch with encoder-cls.

- Classes: {classes}
- Trained on {len(dataset.train):,} texts of {code_span(config.data.train)}; validation was best at step {best_step}
- {report.split.capitalize()} split: {metrics.num_examples:,} texts, accuracy {metrics.accuracy:.4f}{against}, \
macro-F1 {metrics.macro_f1:.4f}, expected calibration error {metrics.ece:.4f}{note}
- Reads the first {config.model.max_seq_len:,} tokens of a text{further}; {setup.vocab_size:,} tokens known

```python
from encoder_cls import load_classifier

classifier = load_classifier("path/to/this/folder")
print(classifier.predict(["some text"])[0].label)
```
"""


def code_span(text: str) -> str:
    """A text as Markdown code, whatever is in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"
