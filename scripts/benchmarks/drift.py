"""How often `encoder-cls drift` sees drift that is there, and drift that is not.

    python scripts/benchmarks/drift.py FOLDER [--only DATASET]... [--runs RUNS] [--output PAGE]

FOLDER is as that of `accuracy.py`; `sib200.parquet` in it has texts of other languages. A linear
model is trained once on each data set, in RUNS if that is named, and predicts its test texts once;
what is compared are draws of these predictions.

The test texts are halved at random 100 times, and one half is compared with the other: there is no
drift. Then a half is compared with drawn texts: of the other half without the most frequent class,
or with every other class, by frequency, four times as probable to be drawn; in German; and of
another data set.

The accuracy to expect is that of a half from the other half, and of all test texts from the run.
The command fails where there is an alarm in more than 5 of 100 halvings, where drift is missed in
more than a tenth of the draws, or where the expected accuracy is off by more than two points and is
not said to be a guess.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from shared.benchmark import Benchmark, Case, Found, Row, distinct
from shared.commands import train
from shared.data import Texts, overrides, path_of, read, sample
from shared.page import table

from encoder_cls import Classifier, Reference, load_classifier, read_reference
from encoder_cls.extras.drift.comparison import Change, compare, corrected
from encoder_cls.extras.drift.expected_accuracy import SampledProbabilities, expected_accuracy
from encoder_cls.extras.drift.figures import Figures
from encoder_cls.extras.drift.find_drift import Comparison, Verdict, probabilities_if_shifted

DATA = (
    "example",
    "trec6",
    "sst2",
    "mr",
    "R8",
    "hwu64",
    "ohsumed",
    "banking77",
    "ag_news",
    "sst2_glue",
)
# The data set whose texts are of another register: long reviews of films.
OTHER_DATA = "imdb"
HALVINGS = 100
DRAWS = 20
# The number of texts of a draw, if the test split has so many.
TEXTS = 2000
# The most test texts that are predicted.
MAX_TEXTS = 8000
LANGUAGE = "deu_Latn"
MAX_ERROR = 0.02

Rows = NDArray[np.int64]


class Predicted:
    """Texts with their predictions, of which any rows become figures."""

    def __init__(self, classifier: Classifier, texts: Texts) -> None:
        self.label_names = classifier.label_names
        predictions = classifier.predict(texts.texts)
        self.probabilities = classifier.predict_proba(texts.texts)
        self.predicted = self.probabilities.argmax(axis=1)
        self.labels = np.array(texts.labels)
        names = np.array(classifier.label_names)
        self.is_right = (names[self.predicted] == self.labels).astype(np.int8)
        self.confidence = self.probabilities.max(axis=1).astype(np.float32)
        self.num_words = np.array([prediction.num_words for prediction in predictions])
        self.unknown_words = np.array([prediction.unknown_words for prediction in predictions])
        self.is_unfamiliar = np.array(
            [
                prediction.unfamiliar
                for prediction in predictions
                if prediction.unfamiliar is not None
            ],
            dtype=bool,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def figures(self, rows: Rows, *, with_labels: bool = True) -> Figures:
        """The figures of some of the texts."""
        num_predicted = np.bincount(self.predicted[rows], minlength=len(self.label_names))
        is_right = self.is_right[rows]
        return Figures(
            num_predicted=num_predicted,
            confidence=self.confidence[rows],
            num_words=self.num_words[rows],
            unknown_words=self.unknown_words[rows],
            is_unfamiliar=self.is_unfamiliar[rows]
            if len(self.is_unfamiliar)
            else np.zeros(0, bool),
            is_right=is_right if with_labels else np.full_like(is_right, -1),
            groups=rows,
        )

    def compared(
        self, before: Figures, rows: Rows, mean_probabilities: NDArray[np.float64]
    ) -> Comparison:
        """What is said of some of the texts, whose labels are not known."""
        now = self.figures(rows, with_labels=False)
        (changes,) = corrected([compare(before, now, self.label_names)])
        sampled = SampledProbabilities(rows, self.probabilities[rows].astype(np.float32))
        return Comparison(
            before=before,
            now=now,
            changes=changes,
            expected=expected_accuracy(
                before,
                now,
                mean_probabilities=mean_probabilities,
                shifted=probabilities_if_shifted(changes, sampled),
            ),
            measured=None,
        )

    def accuracy(self, rows: Rows) -> float:
        """The accuracy on some of the texts."""
        return float(self.is_right[rows].mean())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of data sets, and that of runs."""
    parser.add_argument("folder", type=Path, help="as that of accuracy.py, with sib200.parquet")
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable")
    parser.add_argument("--runs", type=Path, help="a folder for runs, which are trained once")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """The data sets."""
    return [{"data": name} for name in arguments.only or DATA]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Train, predict the test texts, and draw from the predictions."""
    name = case["data"]
    folder = _folder_of(arguments.folder, name)
    with tempfile.TemporaryDirectory() as temporary:
        run = (arguments.runs or Path(temporary)) / name
        if not (run / "model" / "README.md").exists():
            train([*overrides(folder, name), "model.encoder=false"], run)
        classifier = load_classifier(run, device="cpu", engine="numpy")
        reference = read_reference(run)
        test = Predicted(classifier, sample(read(path_of(folder, name, "test")), MAX_TEXTS))
        return {
            "texts": len(test),
            **halve(test),
            **from_run(test, reference),
            "kinds": drifts(classifier, test, arguments.folder),
        }


def _folder_of(folder: Path, name: str) -> Path:
    inner = folder / "textgcn"
    return inner if (inner / name).is_dir() else folder


def halve(test: Predicted) -> Found:
    """Compare halves of the test texts."""
    random = np.random.default_rng(0)
    num_alarms = 0
    alarms: set[str] = set()
    errors = []
    for _ in range(HALVINGS):
        order = random.permutation(len(test))
        first, second = np.array_split(order, 2)
        comparison = test.compared(
            test.figures(first), second, test.probabilities[first].mean(axis=0)
        )
        num_alarms += bool(comparison.alarms)
        alarms |= {alarm.figure for alarm in comparison.alarms}
        errors.append(abs(comparison.expected.accuracy - test.accuracy(second)))
    return {
        "false_alarms": num_alarms,
        "alarms": sorted(alarms),
        "error_of_half": float(np.mean(errors)),
    }


def from_run(test: Predicted, reference: Reference) -> Found:
    """Compare all test texts with the held-out texts of the run."""
    rows = np.arange(len(test))
    comparison = test.compared(Figures.of_reference(reference), rows, reference.mean_probabilities)
    return {
        "held_out": len(comparison.before),
        "expected": comparison.expected.accuracy,
        "interval": comparison.expected.interval,
        "accuracy": test.accuracy(rows),
        "is_guess": bool(comparison.reasons_to_doubt),
        "verdict": str(comparison.verdict),
        "verdict_alarms": [_name(alarm) for alarm in comparison.alarms],
    }


def _name(change: Change) -> str:
    return str(change.figure)


def drifts(classifier: Classifier, test: Predicted, folder: Path) -> dict[str, Found]:
    """Compare draws of changed texts with a half of the test texts."""
    german = Predicted(classifier, _texts_in_language(folder))
    other = Predicted(classifier, sample(read(path_of(folder, OTHER_DATA, "test")), TEXTS))
    _, numbers = np.unique(test.labels, return_inverse=True)
    by_frequency = np.argsort(-np.bincount(numbers), kind="stable")
    most_frequent, every_other = by_frequency[0], by_frequency[::2]

    def draws(texts: Predicted, draw: Callable[[np.random.Generator, Rows], Rows]) -> Found:
        random = np.random.default_rng(0)
        counts = Counter[Verdict]()
        num_guesses, errors = 0, []
        for _ in range(DRAWS):
            first, second = np.array_split(random.permutation(len(test)), 2)
            rows = draw(random, second)
            comparison = texts.compared(
                test.figures(first), rows, test.probabilities[first].mean(axis=0)
            )
            counts[comparison.verdict] += 1
            num_guesses += bool(comparison.reasons_to_doubt)
            errors.append(abs(comparison.expected.accuracy - texts.accuracy(rows)))
        return {
            "alarms": counts[Verdict.DRIFT],
            "too_few": counts[Verdict.TOO_FEW],
            "guesses": num_guesses,
            "error": float(np.mean(errors)),
        }

    def without_a_class(_: np.random.Generator, rows: Rows) -> Rows:
        remaining: Rows = rows[numbers[rows] != most_frequent]
        return remaining[:TEXTS]

    def with_shifted_shares(random: np.random.Generator, rows: Rows) -> Rows:
        weights = np.where(np.isin(numbers[rows], every_other), 4.0, 1.0)
        number = min(TEXTS, len(rows) // 2)
        drawn = random.choice(rows, size=number, replace=False, p=weights / weights.sum())
        return np.asarray(drawn)

    def any_of(texts: Predicted) -> Callable[[np.random.Generator, Rows], Rows]:
        return lambda random, _: random.permutation(len(texts))[: len(texts) // 2]

    return {
        "a class removed": draws(test, without_a_class),
        "shifted shares": draws(test, with_shifted_shares),
        "German": draws(german, any_of(german)),
        "another register": draws(other, any_of(other)),
    }


@cache
def _texts_in_language(folder: Path) -> Texts:
    filters = [("language", "==", LANGUAGE)]
    found = pyarrow.parquet.read_table(folder / "sib200.parquet", filters=filters)
    columns = found.select(["text", "label"]).to_pydict()
    return Texts(columns["text"], columns["label"])


def lines(rows: Sequence[Row]) -> list[str]:
    """False alarms, alarms, and expected accuracies."""
    kinds = list(rows[0].found["kinds"])
    alarms = []
    accuracies = []
    for row in rows:
        found = row.found
        of_kinds = []
        for kind in kinds:
            result = found["kinds"][kind]
            of_kinds.append(f"{result['alarms']} of {DRAWS}")
            if result["too_few"]:
                of_kinds[-1] += f", {result['too_few']} too few"
        alarms.append([row.case["data"], f"{found['false_alarms']} of {HALVINGS}", *of_kinds])

        low, high = found["interval"]
        accuracies.append(
            [
                row.case["data"],
                f"{100 * found['error_of_half']:.1f}",
                f"{found['held_out']:,}",
                f"{100 * found['expected']:.1f}",
                f"{100 * low:.1f} to {100 * high:.1f}",
                f"{100 * found['accuracy']:.1f}",
                "yes" if found["is_guess"] else "no",
                f"{found['verdict']} {', '.join(distinct(found['verdict_alarms']))}".strip(),
            ]
        )
    heads_of_accuracies = [
        "data set",
        "error between halves",
        "held-out texts",
        "expected",
        "95% interval",
        "measured",
        "a guess",
        "verdict",
    ]
    return [
        *table(["data set", "false alarms", *kinds], alarms),
        "",
        *table(heads_of_accuracies, accuracies),
    ]


def failures(rows: Sequence[Row]) -> list[str]:
    """False alarms, drift that is missed, and wrong accuracies that are not said to be a guess."""
    found = []
    for row in rows:
        data = row.case["data"]
        if row.found["false_alarms"] > 0.05 * HALVINGS:
            found.append(f"{data}: alarms in {row.found['false_alarms']} halvings")
        for kind, result in row.found["kinds"].items():
            num_missed = DRAWS - result["alarms"] - result["too_few"]
            if num_missed > 0.1 * DRAWS:
                found.append(f"{data}: {kind}: no alarm in {num_missed} draws of {DRAWS}")
        error = abs(row.found["expected"] - row.found["accuracy"])
        if error > MAX_ERROR and not row.found["is_guess"]:
            found.append(f"{data}: the expected accuracy is off by {100 * error:.1f} points")
    return found


BENCHMARK = Benchmark(
    name="drift",
    doc=__doc__,
    add_arguments=add_arguments,
    cases=cases,
    measure=measure,
    lines=lines,
    failures=failures,
    rounds=1,
)

if __name__ == "__main__":
    BENCHMARK.main()
