"""Exported classifiers in Node, and the same values by the NumPy engine."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.programs import TIME_LIMIT

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.linear.ngrams import find

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs Node")

# Reads a request from standard input, and writes for each text the tokens, the features, the
# probabilities and the prediction.
ASK = """
import fs from "node:fs";
const { module, texts, options } = JSON.parse(fs.readFileSync(0, "utf8"));
const { load } = await import(module);
const classifier = await load();
const values = {
  predictions: classifier.predict(texts, options),
  probabilities: classifier.predictProba(texts),
  tokens: texts.map((text) => classifier.tokens(text)),
  features: classifier.linear ? texts.map((text) => classifier.features(text)) : [],
};
process.stdout.write(JSON.stringify(values));
"""


def run_node(code: str, given: str = "") -> str:
    """What a program in JavaScript writes to standard output."""
    command = [NODE, "--input-type=module", "--eval", code]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask_node(module: Path, texts: Sequence[str], **options: Any) -> dict[str, Any]:
    """The values that an exported module computes for texts; options are those of `predict`."""
    request = {"module": module.as_uri(), "texts": texts, "options": options}
    return json.loads(run_node(ASK, json.dumps(request)))


def features_of(classifier: Classifier, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The counts of known features and the ids of the others, as an exported module lists them."""
    linear = classifier.linear
    features = []
    for counts in linear.count_features(classifier.tokenize(texts)):
        is_known = find(counts.ids, linear.feature_ids) >= 0
        for row in range(len(counts)):
            start, end = counts.offsets[row : row + 2]
            columns = counts.columns[start:end]
            known = []
            unknown = []
            for column, count in zip(columns.tolist(), counts.values[start:end], strict=True):
                if is_known[column]:
                    known.append([int(counts.ids[column]), int(count)])
                else:
                    unknown.append(int(counts.ids[column]))
            features.append({"known": known, "unknown": unknown})
    return features
