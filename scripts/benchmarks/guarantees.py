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
import math
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
from shared.page import NOT_MEASURED, table
from sklearn.metrics import roc_auc_score

from encoder_cls import Classifier, load_classifier
from encoder_cls.inference.guarantees import CONFIDENCE, THRESHOLDS, Guarantees

DATA = ("trec6", "sst2", "banking77", "sst2_glue", "ag_news", "imdb")
NOT_TRAINED_ON = ("go_emotions",)  # has several labels a text
SAME_KIND = {"sst2", "sst2_glue"}  # sentences of the same film reviews: each is in the distribution of the other
PRECISIONS, COVERAGE = (0.9, 0.95, 0.98), 0.9
HALVINGS = 1000
MOST_BROKEN = 1 - CONFIDENCE + 3 * (CONFIDENCE * (1 - CONFIDENCE) / HALVINGS) ** 0.5
MOST_TEXTS = 800  # of each data set, which are to be told apart
GROUPS = {"trec6": 6, "banking77": 5, EXAMPLE: 4, "ag_news": 4}  # of classes, each left out once
MOST_OF_SPLIT = {"train": 10_000, "validation": 2000, "test": 4000}  # texts, where classes are left out
WANTED_GAIN = 0.03

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]


class Tested(NamedTuple):
    """A guarantee in all halvings, as fractions.

    Attributes:
        given: of the halvings in which there could be a guarantee.
        broken: of all, in which the other half was below it.
        broken_overall: of all, in which both halves together were.
        got: the mean of what the other half had, where there was a guarantee.
        answered: the mean part that was answered, or the mean number of classes in a set.
    """

    given: float
    broken: float
    broken_overall: float
    got: float
    answered: float


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Data sets, then each group of classes to leave out."""
    names = arguments.only or (*DATA, EXAMPLE)
    groups = [{"data": data, "group": group} for data in names for group in range(GROUPS.get(data, 0))]
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
        probabilities = classifier.predict_proba(test.texts)
        tested = [halve(probabilities, labels, precision=it) for it in PRECISIONS]
        tested.append(halve(probabilities, labels, coverage=COVERAGE))
        pairs = distant(classifier, name, folder)
    return {"texts": len(labels), "tested": tested, "pairs": pairs}


def new_topics(name: str, folder: Path, group: int) -> tuple[str, float, float, float, float]:
    """Train without a group of classes, and tell its test texts from the others, as `distant` does."""
    texts = {split: sample(it, MOST_OF_SPLIT[split]) for split, it in splits(folder, name, 0).items()}
    classes = texts["train"].classes
    left_out = [classes[number] for number in np.random.default_rng(0).permutation(len(classes))[group :: GROUPS[name]]]
    with tempfile.TemporaryDirectory() as temporary:
        settings = ["data.test=null", "model.encoder=false"]
        for split in ("train", "validation"):
            kept = texts[split].take(np.flatnonzero(~np.isin(texts[split].labels, left_out)))
            path = write(Path(temporary) / f"{split}.parquet", kept)
            settings.append(f"data.{split}={json.dumps(str(path))}")
        train(settings, Path(temporary) / "run")
        classifier = load_classifier(Path(temporary) / "run", device="cpu", engine="numpy")
    familiarity, is_new = classifier.familiarity, np.isin(texts["test"].labels, left_out)
    assert familiarity
    logits, numbers = classifier.familiarity_numbers(classifier.tokenize(texts["test"].texts))
    unsure = 1 - classifier.task.probabilities(logits).max(axis=1)
    ours, theirs = (auroc(it[~is_new], it[is_new]) for it in (familiarity.scores(numbers), unsure))
    flagged = familiarity.are_unfamiliar(numbers)
    what = f"{len(left_out)} of {len(classes)} classes"
    return what, ours, theirs, float(flagged[is_new].mean()), float(flagged[~is_new].mean())


def halve(
    probabilities: Probabilities, labels: Labels, *, precision: float | None = None, coverage: float = COVERAGE
) -> Tested:
    """Test a guarantee of precision, or else of coverage, in random halvings."""
    random = np.random.default_rng(0)
    whole = Guarantees.of(probabilities, labels)
    sizes = len(labels) * probabilities.shape[1] - np.searchsorted(np.sort(probabilities.ravel()), THRESHOLDS)
    found = []
    for _ in range(HALVINGS):
        half = random.permutation(len(labels))[: len(labels) // 2]
        one = Guarantees.of(probabilities[half], labels[half])
        threshold = one.precision_threshold(precision) if precision else one.coverage_threshold(coverage)
        if threshold is None:
            continue
        index = int(np.flatnonzero(threshold == THRESHOLDS)[0])
        rest = whole.num_texts - one.num_texts
        if precision:
            total, part = int(whole.answers[index]), int(whole.right[index])
            answers, right = total - int(one.answers[index]), part - int(one.right[index])
            found.append((right / max(1, answers), part / total, answers / rest))
        else:
            covered = int(whole.covered[index] - one.covered[index])
            # The most probable class, which is in each set, is left out here: what the quantile alone gives.
            found.append((covered / rest, whole.covered[index] / whole.num_texts, sizes[index] / len(labels)))
    if not found:
        return Tested(0.0, 0.0, 0.0, math.nan, 0.0)
    got, overall, answered = np.array(found).T
    wanted = precision or coverage
    return Tested(
        given=len(found) / HALVINGS,
        broken=float((got < wanted).sum()) / HALVINGS,
        broken_overall=float((overall < wanted).sum()) / HALVINGS,
        got=float(got.mean()),
        answered=float(answered.sum()) / HALVINGS,
    )


def distant(classifier: Classifier, name: str, folder: Path) -> list[tuple[str, float, float, float, float]]:
    """Tell the texts of each other data set from a classifier's own.

    Returns:
        The data set, the AUROC of the score by which texts are flagged, that of the maximum probability, the part of
        the data set's texts that is flagged, and the part of the classifier's own.
    """
    scores, flagged, unsure = {}, {}, {}
    assert classifier.familiarity
    for data in (*DATA, *NOT_TRAINED_ON):
        texts = _some_texts(path_of(folder, data, "test"))
        numbers = classifier.familiarity_numbers(classifier.tokenize(texts))[1]
        scores[data] = classifier.familiarity.scores(numbers)
        flagged[data] = float(classifier.familiarity.are_unfamiliar(numbers).mean())
        unsure[data] = 1 - classifier.predict_proba(texts).max(axis=1)
    others = [data for data in scores if data != name and not {data, name} <= SAME_KIND]
    return [
        (other, auroc(scores[name], scores[other]), auroc(unsure[name], unsure[other]), flagged[other], flagged[name])
        for other in others
    ]


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
        name, texts = row.case["data"], f"{row.found.get('texts', 0) // 2:,}"
        for wanted, it in zip((*PRECISIONS, None), (Tested(*it) for it in row.found.get("tested", ()))):  # noqa: B905
            what = f"precision {wanted:g}" if wanted else f"coverage {COVERAGE:g}"
            shares = [f"{100 * share:.1f}%" for share in (it.given, it.broken, it.broken_overall)]
            answered = f"{100 * it.answered:.0f}%" if wanted else f"{it.answered:.2f} classes"
            tested.append([name, texts, what, *shares, f"{it.got:.3f}" if it.given else NOT_MEASURED, answered])
        found += [
            [name, other, f"{ours:.3f}", f"{theirs:.3f}", f"{100 * flagged:.0f}%", f"{100 * own:.1f}%"]
            for other, ours, theirs, flagged, own in row.found["pairs"]
        ]
    columns = ["data set", "texts in a half", "guarantee", "could be given", "broken", "broken, both halves", "got",
               "answers / set size"]  # fmt: skip
    return [
        *(table(columns, tested) if tested else []),
        "",
        *(
            f"{what}: the mean AUROC is **{ours:.3f}**, of the maximum probability **{theirs:.3f}**."
            for what, (ours, theirs) in _means(rows).items()
        ),
        "",
        *table(["model", "other texts", "AUROC", "maximum probability", "flagged", "of its own"], found, left=2),
    ]


def _means(rows: Sequence[Row]) -> dict[str, NDArray[np.float64]]:
    """The AUROC of the score and of the maximum probability; of new topics the mean of the data sets' means."""
    of_others = [pair[1:3] for row in rows if "group" not in row.case for pair in row.found["pairs"]]
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
        *precisions, coverage = (Tested(*it) for it in row.found["tested"])
        for wanted, it in zip(PRECISIONS, precisions, strict=True):
            if it.broken > MOST_BROKEN:
                found.append(f"{row.case['data']}: precision {wanted:g} is broken in {it.broken:.1%}")
        if 1 - coverage.got > 1 - COVERAGE + 3 * (COVERAGE * (1 - COVERAGE) / row.found["texts"]) ** 0.5:
            found.append(f"{row.case['data']}: sets lack the label of {1 - coverage.got:.1%} of the texts")
    for what, (ours, theirs) in _means(rows).items():
        if ours < theirs + WANTED_GAIN:
            found.append(f"{what}: AUROC {ours:.3f}, by the maximum probability {theirs:.3f}")
    return found


ADD_ARGUMENTS = partial(add_data_arguments, names=(*DATA, EXAMPLE))
BENCHMARK = Benchmark("guarantees", __doc__, ADD_ARGUMENTS, cases, measure, lines, failures=failures, rounds=1)

if __name__ == "__main__":
    BENCHMARK.main()
