"""How often guarantees hold, and how well out-of-distribution texts are recognized.

    python scripts/benchmarks/guarantees.py FOLDER [--only DATASET]... [--output PAGE]

FOLDER is as that of `accuracy.py`, with go_emotions besides. A linear model is trained once on
each data set. Its scores of test texts are halved at random 1,000 times: one half gives the
guarantee, the other tests it. Out-of-distribution texts are those of other data sets; then new
topics: the classes of a data set are dealt into groups, and a classifier is trained without each.
The command fails where a guarantee is broken more often than in a tenth of the halvings plus three
standard errors, or where texts of either kind are recognized no better than by the maximum
probability plus 0.03.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row
from shared.commands import train
from shared.data import EXAMPLE, add_data_arguments, overrides, path_of, read, sample, splits, write
from shared.page import table
from sklearn.metrics import roc_auc_score

from encoder_cls import Classifier, load_classifier
from encoder_cls.classifier.familiarity import measure_familiarity
from encoder_cls.classifier.guarantees import CONFIDENCE, THRESHOLDS, Guarantees
from encoder_cls.metrics.row_groups import RowGroups

DATA = ("trec6", "sst2", "banking77", "sst2_glue", "ag_news", "imdb")
# A data set whose texts have several labels, so that no classifier is trained on it.
NOT_TRAINED_ON = ("go_emotions",)
# Sentences of the same film reviews: each is in the distribution of the other.
SAME_KIND = {"sst2", "sst2_glue"}
# The guarantees that are tested.
PRECISIONS = (0.9, 0.95, 0.98)
COVERAGE = 0.9
HALVINGS = 1000
# The halvings in which a guarantee is expected to be broken at most, and their standard deviation.
EXPECTED_BROKEN = (1 - CONFIDENCE) * HALVINGS
DEVIATION = (CONFIDENCE * (1 - CONFIDENCE) * HALVINGS) ** 0.5
# The halvings in which a guarantee may be broken.
MAX_BROKEN = EXPECTED_BROKEN + 3 * DEVIATION
# Texts of each data set that are distinguished from others.
MAX_TEXTS = 800
# The number of groups of classes of a data set, each of which is left out once.
GROUPS = {"trec6": 6, "banking77": 5, EXAMPLE: 4, "ag_news": 4}
# Texts of each split, where classes are left out.
MAX_OF_SPLIT = {"train": 10_000, "validation": 2000, "test": 4000}
# What the AUROC must gain over that of the maximum probability.
WANTED_GAIN = 0.03

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]


class Separation(NamedTuple):
    """How well texts are distinguished from a classifier's own, as a line of the results has it.

    Attributes:
        others: what the other texts are.
        auroc: the AUROC of the score by which texts are flagged.
        baseline_auroc: the AUROC of the maximum probability.
        flagged: the share of the other texts that is flagged.
        own_flagged: the share of the classifier's own texts that is flagged.
    """

    others: str
    auroc: float
    baseline_auroc: float
    flagged: float
    own_flagged: float


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets, then each group of classes to leave out."""
    names = arguments.only or (*DATA, EXAMPLE)
    found: list[Case] = [{"data": name} for name in names if name in DATA]
    for name in names:
        found += [{"data": name, "group": group} for group in range(GROUPS.get(name, 0))]
    return found


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train; then halve the test texts, and score texts of the other data sets."""
    name = case["data"]
    folder = arguments.folder
    if "group" in case:
        return {"pairs": [new_topics(name, folder, case["group"])]}

    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train([*overrides(folder, name), "model.encoder=false"], run)
        classifier = load_classifier(run, device="cpu", engine="numpy")

        test = read(path_of(folder, name, "test"))
        numbers = {label: number for number, label in enumerate(classifier.label_names)}
        labels = np.array([numbers[label] for label in test.labels])
        halvings = halve(classifier.predict_proba(test.texts), labels)

        own = _some_texts(path_of(folder, name, "test"))
        pairs = []
        for other in (*DATA, *NOT_TRAINED_ON):
            if other != name and not {other, name} <= SAME_KIND:
                texts = _some_texts(path_of(folder, other, "test"))
                pairs.append(separation(other, classifier, own, texts))
    return {"texts": len(labels), **halvings, "pairs": pairs}


def new_topics(name: str, folder: Path, group: int) -> Separation:
    """Train without a group of classes, and distinguish its test texts from the others."""
    texts = {}
    for split, whole in splits(folder, name, 0).items():
        texts[split] = sample(whole, MAX_OF_SPLIT[split])

    classes = texts["train"].classes
    order = np.random.default_rng(0).permutation(len(classes))
    left_out = [classes[number] for number in order[group :: GROUPS[name]]]

    with tempfile.TemporaryDirectory() as temporary:
        settings = ["data.test=null", "model.encoder=false"]
        for split in ("train", "validation"):
            is_left_out = np.isin(texts[split].labels, left_out)
            kept = texts[split].take(np.flatnonzero(~is_left_out))
            path = write(Path(temporary) / f"{split}.parquet", kept)
            settings.append(f"data.{split}={json.dumps(str(path))}")

        train(settings, Path(temporary) / "run")
        classifier = load_classifier(Path(temporary) / "run", device="cpu", engine="numpy")

    is_new = np.isin(texts["test"].labels, left_out)
    own = texts["test"].take(np.flatnonzero(~is_new)).texts
    new = texts["test"].take(np.flatnonzero(is_new)).texts
    return separation(f"{len(left_out)} of {len(classes)} classes", classifier, own, new)


def halve(probabilities: Probabilities, labels: Labels) -> Found:
    """Test guarantees from one half of the texts on the other one.

    Returns:
        In how many halvings each precision could be guaranteed, in how many of these it was not
        reached, and the mean coverage.
    """
    random = np.random.default_rng(0)
    whole = Guarantees.of(probabilities, labels, groups=RowGroups.single(len(labels)))
    given = dict.fromkeys(PRECISIONS, 0)
    broken = dict.fromkeys(PRECISIONS, 0)
    coverages = []
    for _ in range(HALVINGS):
        half = random.permutation(len(labels))[: len(labels) // 2]
        one = Guarantees.of(probabilities[half], labels[half], groups=RowGroups.single(len(half)))

        for precision in PRECISIONS:
            threshold = one.precision_threshold(precision)
            if threshold is None:
                continue
            given[precision] += 1
            if _precision_of_other_half(whole, one, threshold) < precision:
                broken[precision] += 1

        threshold = one.coverage_threshold(COVERAGE)
        if threshold is not None:
            coverages.append(_coverage_of_other_half(whole, one, threshold))
    return {
        "given": list(given.values()),
        "broken": list(broken.values()),
        "coverage": float(np.mean(coverages)),
    }


def _precision_of_other_half(whole: Guarantees, one: Guarantees, threshold: float) -> float:
    """The precision above a threshold on the texts that are in `whole` but not in `one`."""
    index = np.searchsorted(THRESHOLDS, threshold)
    num_confident = whole.num_confident[index] - one.num_confident[index]
    num_correct = whole.num_correct[index] - one.num_correct[index]
    return float(num_correct / max(1, num_confident))


def _coverage_of_other_half(whole: Guarantees, one: Guarantees, threshold: float) -> float:
    """The coverage of sets of classes on the texts that are in `whole` but not in `one`."""
    index = np.searchsorted(THRESHOLDS, threshold)
    num_covered = whole.num_covered[index] - one.num_covered[index]
    return float(num_covered) / (whole.num_texts - one.num_texts)


def separation(name: str, classifier: Classifier, own: list[str], others: list[str]) -> Separation:
    """Distinguish other texts, which have a name, from a classifier's own."""
    own_scores, own_unsure, own_flagged = _unfamiliarity(classifier, own)
    scores, unsure, flagged = _unfamiliarity(classifier, others)
    return Separation(
        others=name,
        auroc=auroc(own_scores, scores),
        baseline_auroc=auroc(own_unsure, unsure),
        flagged=float(flagged.mean()),
        own_flagged=float(own_flagged.mean()),
    )


def _unfamiliarity(
    classifier: Classifier, texts: list[str]
) -> tuple[Probabilities, Probabilities, NDArray[np.bool_]]:
    """How unlike its own texts a classifier finds these.

    Returns:
        The scores by which texts are flagged; 1 minus the maximum probabilities; which texts are
        flagged; all (texts,).
    """
    assert classifier.familiarity
    tokenized = classifier.tokenize(texts)
    part_logits, linear_features = classifier.part_logits_and_familiarity(tokenized)
    probabilities = classifier.task.probabilities(classifier.combined(part_logits))

    numbers = measure_familiarity(probabilities, tokenized, linear_features)
    scores = classifier.familiarity.scores(numbers)
    is_flagged = classifier.familiarity.are_unfamiliar(numbers)
    return scores, 1 - probabilities.max(axis=1), is_flagged


@cache
def _some_texts(path: Path) -> list[str]:
    texts = pyarrow.parquet.read_table(path).column("text").to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))
    return [texts[row] for row in order[:MAX_TEXTS]]


def auroc(own: Probabilities, others: Probabilities) -> float:
    """The probability that a score of another text is above a score of an own text."""
    is_other = [0] * len(own) + [1] * len(others)
    return float(roc_auc_score(is_other, np.concatenate([own, others])))


def lines(rows: Sequence[Row]) -> list[str]:
    """Guarantees of each data set; then out-of-distribution texts."""
    guarantees = [_guarantee_line(row) for row in rows if "group" not in row.case]
    separations = []
    for row in rows:
        for pair in row.found["pairs"]:
            separations.append(_separation_line(row.case["data"], Separation(*pair)))

    found = []
    if guarantees:
        broken = [f"precision {precision:g}, broken" for precision in PRECISIONS]
        heads = ["data set", "texts in a half", *broken, f"coverage {COVERAGE:g}"]
        found += table(heads, guarantees)

    found.append("")
    for what, (ours, baseline) in _means(rows).items():
        found.append(
            f"{what}: the mean AUROC is **{ours:.3f}**, "
            f"of the maximum probability **{baseline:.3f}**."
        )
    heads = ["model", "other texts", "AUROC", "maximum probability", "flagged", "of its own"]
    return [*found, "", *table(heads, separations, left=2)]


def _guarantee_line(row: Row) -> list[str]:
    found = row.found
    counts = []
    for broken, given in zip(found["broken"], found["given"], strict=True):
        counts.append(f"{broken:,} of {given:,}")
    return [row.case["data"], f"{found['texts'] // 2:,}", *counts, f"{found['coverage']:.3f}"]


def _separation_line(data: str, pair: Separation) -> list[str]:
    return [
        data,
        pair.others,
        f"{pair.auroc:.3f}",
        f"{pair.baseline_auroc:.3f}",
        f"{100 * pair.flagged:.0f}%",
        f"{100 * pair.own_flagged:.1f}%",
    ]


def _means(rows: Sequence[Row]) -> dict[str, NDArray[np.float64]]:
    """The mean AUROC of the score and of the maximum probability.

    Of new topics, it is the mean of the data sets' means.
    """
    # Both AUROCs: of each other data set, and by data set of each group of classes.
    other_data_sets = []
    topics: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for pair in row.found["pairs"]:
            found = Separation(*pair)
            both = (found.auroc, found.baseline_auroc)
            if "group" in row.case:
                topics.setdefault(row.case["data"], []).append(both)
            else:
                other_data_sets.append(both)

    means = {}
    if other_data_sets:
        means["Texts of other data sets"] = np.mean(other_data_sets, axis=0)
    if topics:
        means_of_data_sets = [np.mean(groups, axis=0) for groups in topics.values()]
        means["Texts of new topics"] = np.mean(means_of_data_sets, axis=0)
    return means


def failures(rows: Sequence[Row]) -> list[str]:
    """The guarantees that are broken too often, and the texts that are recognized too badly."""
    found = []
    for row in rows:
        if "group" in row.case:
            continue
        data = row.case["data"]
        for precision, broken in zip(PRECISIONS, row.found["broken"], strict=True):
            if broken > MAX_BROKEN:
                found.append(f"{data}: precision {precision:g} is broken in {broken:,} halvings")

        coverage = row.found["coverage"]
        error = 3 * (COVERAGE * (1 - COVERAGE) / row.found["texts"]) ** 0.5
        if coverage < COVERAGE - error:
            found.append(f"{data}: a coverage of {coverage:.3f}")

    for what, (ours, baseline) in _means(rows).items():
        if ours < baseline + WANTED_GAIN:
            found.append(f"{what}: AUROC {ours:.3f}, by the maximum probability {baseline:.3f}")
    return found


ADD_ARGUMENTS = partial(add_data_arguments, names=(*DATA, EXAMPLE))
BENCHMARK = Benchmark(
    "guarantees", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
