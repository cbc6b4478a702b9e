"""How often guarantees of precision and coverage hold, and out-of-distribution texts are recognized, on real data.

    python scripts/benchmarks/guarantees.py FOLDER [--only DATASET]... [--output PAGE]

FOLDER is as that of `accuracy.py`, with go_emotions besides. A linear classifier is trained once on each data set. Its
scores of test texts are halved at random 1,000 times: one half gives the guarantee, the other tests it.
Out-of-distribution texts are those of other data sets; then new topics: the classes of a data set are dealt into
groups, and a classifier is trained without each. The command fails where a guarantee is broken more often than in a
tenth of the halvings plus three standard errors, or where texts of either kind are recognized no better than by the
maximum probability plus 0.03.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row
from shared.commands import train
from shared.data import EXAMPLE, add_data_arguments, overrides, path_of, read, sample, splits, write
from shared.page import table
from sklearn.metrics import roc_auc_score

from encoder_cls import Classifier, load_classifier
from encoder_cls.classifier.guarantees import CONFIDENCE, THRESHOLDS, Guarantees, text_numbers

DATA = ("trec6", "sst2", "banking77", "sst2_glue", "ag_news", "imdb")
NOT_TRAINED_ON = ("go_emotions",)  # has several labels a text
# Sentences of the same film reviews: each is in the distribution of the other.
SAME_KIND = {
    "sst2",
    "sst2_glue",
}
PRECISIONS, COVERAGE = (0.9, 0.95, 0.98), 0.9
HALVINGS = 1000
MOST_BROKEN = (1 - CONFIDENCE) * HALVINGS + 3 * (CONFIDENCE * (1 - CONFIDENCE) * HALVINGS) ** 0.5
MOST_TEXTS = 800  # of each data set that are distinguished
GROUPS = {"trec6": 6, "banking77": 5, EXAMPLE: 4, "ag_news": 4}  # of classes, each left out once
# Texts, where classes are left out.
MOST_OF_SPLIT = {
    "train": 10_000,
    "validation": 2000,
    "test": 4000,
}
WANTED_GAIN = 0.03

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets, then each group of classes to leave out."""
    names = arguments.only or (*DATA, EXAMPLE)
    groups = [
        {"data": data, "group": group} for data in names for group in range(GROUPS.get(data, 0))
    ]
    return [*({"data": data} for data in names if data in DATA), *groups]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train; then halve the test texts, and score texts of the other data sets."""
    name, folder = case["data"], arguments.folder
    if "group" in case:
        return {"pairs": [new_topics(name, folder, case["group"])]}
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train([*overrides(folder, name), "model.encoder=false"], run)
        classifier = load_classifier(run, device="cpu", engine="numpy")
        test = read(path_of(folder, name, "test"))
        numbers = {label: number for number, label in enumerate(classifier.label_names)}
        labels = np.array([numbers[label] for label in test.labels])
        others = [
            it for it in (*DATA, *NOT_TRAINED_ON) if it != name and not {it, name} <= SAME_KIND
        ]
        own, *of_others = (_some_texts(path_of(folder, it, "test")) for it in (name, *others))
        pairs = [
            (it, *separation(classifier, own, texts))
            for it, texts in zip(others, of_others, strict=True)
        ]
    return {
        "texts": len(labels),
        **halve(classifier.predict_proba(test.texts), labels),
        "pairs": pairs,
    }


def new_topics(name: str, folder: Path, group: int) -> tuple[str, float, float, float, float]:
    """Train without a group of classes, and distinguish its test texts from the others."""
    texts = {
        split: sample(it, MOST_OF_SPLIT[split]) for split, it in splits(folder, name, 0).items()
    }
    classes = texts["train"].classes
    left_out = [
        classes[number]
        for number in np.random.default_rng(0).permutation(len(classes))[group :: GROUPS[name]]
    ]
    with tempfile.TemporaryDirectory() as temporary:
        settings = ["data.test=null", "model.encoder=false"]
        for split in ("train", "validation"):
            kept = texts[split].take(np.flatnonzero(~np.isin(texts[split].labels, left_out)))
            path = write(Path(temporary) / f"{split}.parquet", kept)
            settings.append(f"data.{split}={json.dumps(str(path))}")
        train(settings, Path(temporary) / "run")
        classifier = load_classifier(Path(temporary) / "run", device="cpu", engine="numpy")
    is_new = np.isin(texts["test"].labels, left_out)
    own, new = (texts["test"].take(np.flatnonzero(it)).texts for it in (~is_new, is_new))
    return f"{len(left_out)} of {len(classes)} classes", *separation(classifier, own, new)


def halve(probabilities: Probabilities, labels: Labels) -> Found:
    """Test guarantees from one half of the texts on the other one.

    Returns:
        In how many halvings each precision could be guaranteed, and was not reached; and the mean coverage.
    """
    random, whole = np.random.default_rng(0), Guarantees.of(probabilities, labels)
    given, broken, covered = dict.fromkeys(PRECISIONS, 0), dict.fromkeys(PRECISIONS, 0), []
    for _ in range(HALVINGS):
        half = random.permutation(len(labels))[: len(labels) // 2]
        one = Guarantees.of(probabilities[half], labels[half])
        for precision in PRECISIONS:
            if (threshold := one.precision_threshold(precision)) is not None:
                index = np.searchsorted(THRESHOLDS, threshold)
                answers, right = (
                    getattr(whole, it)[index] - getattr(one, it)[index]
                    for it in ("answers", "right")
                )
                given[precision] += 1
                broken[precision] += int(right / max(1, answers) < precision)
        if (threshold := one.coverage_threshold(COVERAGE)) is not None:
            index = np.searchsorted(THRESHOLDS, threshold)
            covered.append(
                float(whole.covered[index] - one.covered[index]) / (whole.num_texts - one.num_texts)
            )
    return {
        "given": [*given.values()],
        "broken": [*broken.values()],
        "coverage": float(np.mean(covered)),
    }


def separation(
    classifier: Classifier, own: list[str], others: list[str]
) -> tuple[float, float, float, float]:
    """Distinguish texts from a classifier's own.

    Returns:
        The AUROC of the score by which texts are flagged, that of the maximum probability, the part of the other texts
        that is flagged, and the part of its own.
    """
    assert classifier.familiarity
    found = []
    for texts in (own, others):
        tokenized = classifier.tokenize(texts)
        part_logits, linear_numbers = classifier.part_logits_and_numbers(tokenized)
        probabilities = classifier.task.probabilities(classifier.combined(part_logits))
        numbers = text_numbers(probabilities, tokenized, linear_numbers)
        unsure = 1 - probabilities.max(axis=1)
        found.append(
            (
                classifier.familiarity.scores(numbers),
                unsure,
                classifier.familiarity.are_unfamiliar(numbers),
            )
        )
    scores, unsure, flagged = zip(*found, strict=True)
    return auroc(*scores), auroc(*unsure), float(flagged[1].mean()), float(flagged[0].mean())


@cache
def _some_texts(path: Path) -> list[str]:
    texts = pyarrow.parquet.read_table(path).column("text").to_pylist()
    return [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:MOST_TEXTS]]


def auroc(own: Probabilities, others: Probabilities) -> float:
    """How often a score of another text is above one of an own text."""
    return float(roc_auc_score([0] * len(own) + [1] * len(others), np.concatenate([own, others])))


def lines(rows: Sequence[Row]) -> list[str]:
    """Guarantees of each data set; then out-of-distribution texts."""
    tested, found = [], []
    for row in rows:
        name, it = row.case["data"], row.found
        if "group" not in row.case:
            counts = [
                f"{one:,} of {of:,}" for one, of in zip(it["broken"], it["given"], strict=True)
            ]
            tested.append([name, f"{it['texts'] // 2:,}", *counts, f"{it['coverage']:.3f}"])
        found += [
            [
                name,
                other,
                f"{ours:.3f}",
                f"{theirs:.3f}",
                f"{100 * flagged:.0f}%",
                f"{100 * own:.1f}%",
            ]
            for other, ours, theirs, flagged, own in it["pairs"]
        ]
    broken = [f"precision {it:g}, broken" for it in PRECISIONS]
    return [
        *(
            table(["data set", "texts in a half", *broken, f"coverage {COVERAGE:g}"], tested)
            if tested
            else []
        ),
        "",
        *(
            f"{what}: the mean AUROC is **{ours:.3f}**, of the maximum probability **{theirs:.3f}**."
            for what, (ours, theirs) in _means(rows).items()
        ),
        "",
        *table(
            ["model", "other texts", "AUROC", "maximum probability", "flagged", "of its own"],
            found,
            left=2,
        ),
    ]


def _means(rows: Sequence[Row]) -> dict[str, NDArray[np.float64]]:
    """The AUROC of the score and of the maximum probability; of new topics the mean of the data sets' means."""
    of_others = [
        pair[1:3] for row in rows if "group" not in row.case for pair in row.found["pairs"]
    ]
    groups: dict[str, list[list[float]]] = {}
    for row in rows:
        if "group" in row.case:
            groups.setdefault(row.case["data"], []).append(row.found["pairs"][0][1:3])
    of_topics = [np.mean(values, axis=0) for values in groups.values()]
    found = {"Texts of other data sets": of_others, "Texts of new topics": of_topics}
    return {what: np.mean(values, axis=0) for what, values in found.items() if values}


def failures(rows: Sequence[Row]) -> list[str]:
    """The guarantees that are broken too often."""
    found = []
    for row in (row for row in rows if "group" not in row.case):
        for precision, broken in zip(PRECISIONS, row.found["broken"], strict=True):
            if broken > MOST_BROKEN:
                found.append(
                    f"{row.case['data']}: precision {precision:g} is broken in {broken:,} halvings"
                )
        error = 3 * (COVERAGE * (1 - COVERAGE) / row.found["texts"]) ** 0.5
        if row.found["coverage"] < COVERAGE - error:
            found.append(f"{row.case['data']}: a coverage of {row.found['coverage']:.3f}")
    for what, (ours, theirs) in _means(rows).items():
        if ours < theirs + WANTED_GAIN:
            found.append(f"{what}: AUROC {ours:.3f}, by the maximum probability {theirs:.3f}")
    return found


ADD_ARGUMENTS = partial(add_data_arguments, names=(*DATA, EXAMPLE))
BENCHMARK = Benchmark(
    "guarantees", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
