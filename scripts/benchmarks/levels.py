"""How often the guarantee of answers with back-off holds, and what back-off answers.

    python scripts/benchmarks/levels.py FOLDER [--only NAME]... [--output PAGE]

FOLDER has the data sets hwu64 and banking77 as that of `accuracy.py`. Simulated are texts of 96
codes in three levels, whose probabilities are right, or wrong in four ways: in each of 100 draws,
1,000 texts give the guarantee, and 20,000 test it. On each data set a linear model is trained once,
and its scores of test texts are halved at random 1,000 times: one half gives the guarantee, the
other tests it. The command fails where a guarantee is broken more often than in a tenth of the
draws plus three standard errors.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row
from shared.commands import train
from shared.data import FOLDER_HELP, overrides, path_of, read
from shared.page import table

from encoder_cls import load_classifier
from encoder_cls.classifier.guarantees import CONFIDENCE, Guarantees
from encoder_cls.data.codes import Codes
from encoder_cls.metrics.row_groups import RowGroups

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

PRECISIONS = (0.9, 0.95, 0.98)
DRAWS = 100
HALVINGS = 1000
NUM_HELD_OUT = 1000
NUM_NEW = 20_000

SIMULATED = Codes(
    [f"{a}{b}{c:02d}" for a in range(6) for b in range(4) for c in range(4)], (1, 2, 4)
)
# How clearly a simulated text speaks for its code, at each level.
CLARITY = (2.5, 2.0, 1.6)

# The codes of BANKING77 above its labels, by words of the labels; the first that fits counts.
BANKING = {
    "identity and account": "identity personal_details terminate age_limit country_support "
    "passcode phone source_of_funds",
    "top-ups": "top_up topping_up cheque_or_cash",
    "cash": "cash_withdrawal cash_received pending_cash atm swallowed",
    "transfers": "transfer receiving_money beneficiary",
    "exchange": "exchange currenc",
    "payments": "payment charged charge refund Refund statement debit",
    "cards": "card pin contactless apple_pay",
}


def simulated(
    distort: Callable[[Floats], Floats], random: np.random.Generator, num_texts: int
) -> tuple[Floats, Labels]:
    """Draw labels, and the probabilities that noisy signs of the codes of all levels give them."""
    num_classes = len(SIMULATED.classes)
    labels = random.integers(num_classes, size=num_texts)
    clarity_of_text = random.gamma(1.5, 1.0, size=(num_texts, 1))
    logits = np.zeros((num_texts, num_classes))
    for level, clarity in zip(SIMULATED.levels, CLARITY, strict=True):
        signs = random.normal(size=(num_texts, len(level.codes)))
        signs[np.arange(num_texts), level.numbers[labels]] += clarity * clarity_of_text[:, 0]
        logits += clarity * clarity_of_text * signs[:, level.numbers]

    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    distorted = distort(probabilities / probabilities.sum(axis=1, keepdims=True))
    return distorted / distorted.sum(axis=1, keepdims=True), labels


def sharper_at(number: int, probabilities: Floats) -> Floats:
    """Make the probabilities within the codes above a level, counted from 0, far too sure."""
    above = np.ones_like(probabilities)
    if number:
        level_above = SIMULATED.levels[number - 1]
        above = level_above.probabilities(probabilities)[:, level_above.numbers]
    level = SIMULATED.levels[number]
    of_level = level.probabilities(probabilities)[:, level.numbers]
    smallest = np.finfo(np.float64).tiny
    within = (of_level / np.maximum(above, smallest)) ** 2
    return above * within * probabilities / np.maximum(of_level, smallest)


DISTORTIONS: dict[str, Callable[[Floats], Floats]] = {
    "right": lambda probabilities: probabilities,
    "too sure": lambda probabilities: probabilities**2,
    "too unsure": lambda probabilities: probabilities**0.5,
    "too sure at the top": partial(sharper_at, 0),
    "too sure of classes": partial(sharper_at, 2),
}


def parents_of(data: str, labels: Sequence[str]) -> dict[str, str]:
    """The code above each label of a data set."""
    if data == "hwu64":
        return {label: label.partition("_")[0] for label in labels}
    parents = {}
    for label in labels:
        fitting = [
            code for code, words in BANKING.items() if any(word in label for word in words.split())
        ]
        parents[label] = fitting[0] if fitting else "other"
    return parents


def cases(arguments: argparse.Namespace) -> list[Case]:
    """The ways in which probabilities are wrong, and the data sets."""
    return [{"name": name} for name in arguments.only or NAMES]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Count in how many draws each precision was guaranteed, and in how many of these broken."""
    name = case["name"]
    if name in DISTORTIONS:
        codes = SIMULATED
        draws = _simulated_draws(DISTORTIONS[name])
    else:
        codes, probabilities, labels = _scored(arguments.folder, name)
        draws = _halves(probabilities, labels)

    given = dict.fromkeys(PRECISIONS, 0)
    broken = dict.fromkeys(PRECISIONS, 0)
    answered: dict[float, list[float]] = {precision: [] for precision in PRECISIONS}
    answered_by_classes: dict[float, list[float]] = {precision: [] for precision in PRECISIONS}
    num_draws = 0
    for (held_out, labels_held_out), (new, new_labels) in draws:
        num_draws += 1
        groups = RowGroups.single(len(labels_held_out))
        guarantees = Guarantees.of(held_out, labels_held_out, groups=groups)
        guarantees = guarantees.with_levels(held_out, labels_held_out, codes, groups=groups)
        assert guarantees.back_off
        confidence, is_right = _answers(codes, new, new_labels)
        for precision in PRECISIONS:
            threshold = guarantees.back_off.precision_threshold(precision)
            if threshold is None:
                continue
            given[precision] += 1
            depth = (confidence >= threshold).sum(axis=0)
            rows = np.flatnonzero(depth)
            if len(rows):
                broken[precision] += is_right[depth[rows] - 1, rows].mean() < precision
            answered[precision].append(len(rows) / len(depth))
            of_classes = guarantees.precision_threshold(precision)
            share = 0.0 if of_classes is None else (confidence[-1] >= of_classes).mean()
            answered_by_classes[precision].append(float(share))

    return {
        "draws": num_draws,
        "given": list(given.values()),
        "broken": [int(number) for number in broken.values()],
        "answered": [float(np.mean(shares or [0])) for shares in answered.values()],
        "by_classes": [float(np.mean(shares or [0])) for shares in answered_by_classes.values()],
    }


Drawn = tuple[tuple[Floats, Labels], tuple[Floats, Labels]]


def _simulated_draws(distort: Callable[[Floats], Floats]) -> Iterator[Drawn]:
    for seed in range(DRAWS):
        random = np.random.default_rng(seed)
        yield simulated(distort, random, NUM_HELD_OUT), simulated(distort, random, NUM_NEW)


def _halves(probabilities: Floats, labels: Labels) -> Iterator[Drawn]:
    random = np.random.default_rng(0)
    for _ in range(HALVINGS):
        rows = random.permutation(len(labels))
        one, other = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        yield (probabilities[one], labels[one]), (probabilities[other], labels[other])


def _answers(
    codes: Codes, probabilities: Floats, labels: Labels
) -> tuple[Floats, NDArray[np.bool_]]:
    """The confidence in the code of each level, and whether it is right, both (levels, texts)."""
    confidence = []
    is_right = []
    for level in codes.levels:
        of_codes = level.probabilities(probabilities)
        confidence.append(of_codes.max(axis=1))
        is_right.append(of_codes.argmax(axis=1) == level.labels(labels))
    return np.array(confidence), np.array(is_right)


def _scored(folder: Path, name: str) -> tuple[Codes, Floats, Labels]:
    """Train a linear model on a data set, and score its test texts."""
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        train([*overrides(folder, name), "model.encoder=false"], run)
        classifier = load_classifier(run, device="cpu", engine="numpy")
    test = read(path_of(folder, name, "test"))
    numbers = {label: number for number, label in enumerate(classifier.label_names)}
    labels = np.array([numbers[label] for label in test.labels])
    codes = Codes(classifier.label_names, parents_of(name, classifier.label_names))
    return codes, classifier.predict_proba(test.texts), labels


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each way in which probabilities are wrong, and each data set."""
    heads = ["probabilities, or data set"]
    for precision in PRECISIONS:
        heads += [f"{precision:g}: broken", "answered", "by classes alone"]
    return table(heads, [_line(row) for row in rows])


def _line(row: Row) -> list[str]:
    found = row.found
    cells = [row.case["name"]]
    for broken, given, answered, by_classes in zip(
        found["broken"], found["given"], found["answered"], found["by_classes"], strict=True
    ):
        cells += [f"{broken:,} of {given:,}", f"{answered:.0%}", f"{by_classes:.0%}"]
    return cells


def failures(rows: Sequence[Row]) -> list[str]:
    """The guarantees that are broken too often."""
    found = []
    for row in rows:
        num_draws = row.found["draws"]
        expected = (1 - CONFIDENCE) * num_draws
        most = expected + 3 * (CONFIDENCE * expected) ** 0.5
        for precision, broken in zip(PRECISIONS, row.found["broken"], strict=True):
            if broken > most:
                name = row.case["name"]
                found.append(f"{name}: precision {precision:g} is broken in {broken:,} draws")
    return found


NAMES = (*DISTORTIONS, "hwu64", "banking77")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of data sets, and a choice of cases."""
    parser.add_argument("folder", type=Path, help=FOLDER_HELP)
    parser.add_argument("--only", choices=NAMES, action="append", help="repeatable; default: all")


BENCHMARK = Benchmark(
    "levels", __doc__, add_arguments, cases, measure, lines, failures=failures, rounds=1
)

if __name__ == "__main__":
    BENCHMARK.main()
