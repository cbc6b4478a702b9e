"""Whether promises of precision and coverage are kept, and whether unfamiliar texts are found, on real data.

    python scripts/benchmarks/promises.py FOLDER [--output docs/promises.md]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet and test.parquet, with the columns
`text` and `label`. On each a linear classifier is trained once. Its scores of test texts, which it did not learn from
and was not calibrated on, are halved at random 1,000 times: one half promises, the other shows what became of it. The
command fails where a promise is broken more often than in a tenth of the halvings plus three standard errors, or where
unfamiliar texts are found no better than by the maximum probability plus 0.03.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from reporting import cpu_name, note, table
from sklearn.metrics import roc_auc_score

from encoder_cls.config import load_config
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.logits import softmax
from encoder_cls.inference.promises import CONFIDENCE, THRESHOLDS, Promises
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import classifier_to_score
from encoder_cls.training.prepare import prepare
from encoder_cls.training.promises import fit_promises
from encoder_cls.training.trainer import train

DATA = ("trec6", "sst2", "banking77", "sst2_glue", "ag_news", "imdb")
ONLY_STRANGE = ("go_emotions",)  # has several labels a text, so that nothing is trained on it here
SAME_KIND = {"sst2", "sst2_glue"}  # sentences of the same film reviews: neither is strange to the other
PRECISIONS, COVERAGE = (0.9, 0.95, 0.98), 0.9
HALVINGS = 1000
MOST_TEXTS = 800  # of each set, among which unfamiliar ones are to be found
WANTED_GAIN = 0.03

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]


class Kept(NamedTuple):
    """What became of a promise in all halvings, as fractions.

    Attributes:
        promised: of the halvings in which it could be promised.
        broken: of all, in which the other half was below the promise.
        broken_overall: of all, in which both halves together were.
        got: the mean of what the other half had, where it was promised.
        answered: the mean part that was answered, or the mean number of classes in a set.
    """

    promised: float
    broken: float
    broken_overall: float
    got: float
    answered: float


def main() -> None:
    """Train, halve, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable; default: all")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, pairs, failures = [], [], []
    most_broken = 1 - CONFIDENCE + 3 * (CONFIDENCE * (1 - CONFIDENCE) / HALVINGS) ** 0.5
    for name in arguments.only or DATA:
        note(f"{name} ...")
        classifier, probabilities, labels = trained(name, arguments.folder)
        for precision in PRECISIONS:
            kept = halve(probabilities, labels, precision=precision)
            rows.append(_row(name, len(labels), f"precision {precision:g}", kept, f"{100 * kept.answered:.0f}%"))
            if kept.broken > most_broken:
                failures.append(f"{name}: precision {precision:g} is broken in {kept.broken:.1%}")
        kept = halve(probabilities, labels, coverage=COVERAGE)
        rows.append(_row(name, len(labels), f"coverage {COVERAGE:g}", kept, f"{kept.answered:.2f} classes"))
        if 1 - kept.got > 1 - COVERAGE + 3 * (COVERAGE * (1 - COVERAGE) / len(labels)) ** 0.5:
            failures.append(f"{name}: sets lack the label of {1 - kept.got:.1%} of the texts")
        pairs += [(name, other, *found) for other, found in strange(classifier, name, arguments.folder).items()]
    mean_flags, mean_probability = (float(np.mean([pair[column] for pair in pairs])) for column in (2, 3))
    if mean_flags < mean_probability + WANTED_GAIN:
        failures.append(f"unfamiliar texts: AUROC {mean_flags:.3f}, by the maximum probability {mean_probability:.3f}")
    text = document(rows, pairs, mean_flags, mean_probability)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)
    if failures:
        sys.exit("\n".join(failures))


def trained(name: str, folder: Path) -> tuple[Classifier, Probabilities, Labels]:
    """A linear classifier of a data set with what its validation texts promise; probabilities and labels of test."""
    data = [f"data.train={folder / name / 'train.parquet'}", f"data.test={folder / name / 'test.parquet'}"]
    config = load_config(None, [*data, "data.validation=null", "data.label_column=label", "model.encoder=false"])
    with tempfile.TemporaryDirectory() as temporary:
        run, setup = RunDir(Path(temporary) / "run"), prepare(config)
        for _ in train(setup, run, device=torch.device("cpu"), with_report=False):
            pass
        classifier = classifier_to_score(run.path, device="cpu")
        labels = setup.dataset.selection.labels
        fit_promises(classifier, run.model, setup.validation_texts, labels, after_batch=lambda: None)
    test = setup.dataset.test
    assert test is not None
    return classifier, softmax(classifier.logits(classifier.tokenize(test.texts))), test.labels


def halve(
    probabilities: Probabilities, labels: Labels, *, precision: float | None = None, coverage: float | None = None
) -> Kept:
    """What becomes of a promise of precision, or else of coverage, in random halvings."""
    random = np.random.default_rng(0)
    whole = Promises.of(probabilities, labels)
    sizes = len(labels) * probabilities.shape[1] - np.searchsorted(np.sort(probabilities.ravel()), THRESHOLDS)
    found = []
    for _ in range(HALVINGS):
        half = random.permutation(len(labels))[: len(labels) // 2]
        one = Promises.of(probabilities[half], labels[half])
        threshold = one.precision_threshold(precision) if precision else one.coverage_threshold(coverage or COVERAGE)
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
        return Kept(0.0, 0.0, 0.0, float("nan"), 0.0)
    got, overall, answered = np.array(found).T
    promise = precision or coverage or COVERAGE
    return Kept(
        promised=len(found) / HALVINGS,
        broken=float((got < promise).sum()) / HALVINGS,
        broken_overall=float((overall < promise).sum()) / HALVINGS,
        got=float(got.mean()),
        answered=float(answered.sum()) / HALVINGS,
    )


def strange(classifier: Classifier, name: str, folder: Path) -> dict[str, tuple[float, float, float, float]]:
    """How well the texts of each other data set are told from a classifier's own.

    Returns:
        By data set: the AUROC of the score by which texts are flagged, that of the maximum probability, the part of the
        data set's texts that is flagged, and the part of the classifier's own.
    """
    assert classifier.familiarity
    scores, flagged, unsure = {}, {}, {}
    for data in (*DATA, *ONLY_STRANGE):
        texts = pyarrow.parquet.read_table(folder / data / "test.parquet").column("text").to_pylist()
        chosen = np.random.default_rng(0).permutation(len(texts))[:MOST_TEXTS]
        logits, numbers = classifier.familiarity_numbers(classifier.tokenize([texts[i] for i in chosen]))
        scores[data] = classifier.familiarity.scores(numbers)
        flagged[data] = float(classifier.familiarity.are_unfamiliar(numbers).mean())
        unsure[data] = 1 - softmax(logits).max(axis=1)
    others = [data for data in scores if data != name and not {data, name} <= SAME_KIND]
    return {
        other: (auroc(scores[name], scores[other]), auroc(unsure[name], unsure[other]), flagged[other], flagged[name])
        for other in others
    }


def auroc(own: Probabilities, others: Probabilities) -> float:
    """How often a score of another text is above one of an own text."""
    return float(roc_auc_score([0] * len(own) + [1] * len(others), np.concatenate([own, others])))


def _row(name: str, texts: int, promise: str, kept: Kept, answered: str) -> list[str]:
    got = f"{kept.got:.3f}" if kept.promised else "-"
    shares = (f"{100 * share:.1f}%" for share in (kept.promised, kept.broken, kept.broken_overall))
    return [name, f"{texts // 2:,}", promise, *shares, got, answered]


def document(
    rows: list[list[str]], pairs: list[tuple[str, str, float, float, float, float]], flags: float, probability: float
) -> str:
    """The Markdown page."""
    command = shlex.join(["python", "scripts/benchmarks/promises.py", "FOLDER", *sys.argv[2:]])
    columns = ["data set", "texts in a half", "promise", "could be promised", "broken", "broken, both halves", "got",
               "answers / set size"]  # fmt: skip
    found = [
        [name, other, f"{ours:.3f}", f"{theirs:.3f}", f"{100 * flagged:.0f}%", f"{100 * own:.1f}%"]
        for name, other, ours, theirs, flagged, own in pairs
    ]
    lines = [
        "# Promises, simulated",
        "",
        f"One linear model a data set, one thread, on {cpu_name()}; made by",
        "",
        "```sh",
        command,
        "```",
        "",
        "## Precision and coverage",
        "",
        f"The scores of the test texts are halved {HALVINGS:,} times: one half promises, the other is new. `broken` is",
        "the part of all halvings in which the new half has less than was promised; chance in few texts counts, too.",
        "`both halves` is measured on all test texts, which is nearer to what the promise is of: texts without end.",
        f"A precision is promised at confidence {CONFIDENCE:g}, so it may be broken in 10% of the halvings, plus three",
        "standard errors of a rate from so many (12.8%). A coverage is promised on average over halvings, as split",
        "conformal prediction has it: `got` is to be the promise, while a single half is below it every second time.",
        "",
        *table(columns, rows, left=1),
        "",
        "## Unfamiliar texts",
        "",
        f"Up to {MOST_TEXTS:,} test texts of another data set among as many of the model's own: how often the score by",
        "which `predict` flags texts is higher for the other's (AUROC), beside the same of 1 - maximum probability",
        "(Hendrycks and Gimpel, 2017), and how many texts are flagged. sst2 and sst2_glue are of the same reviews, so",
        "they are no pair; sst2_glue is trained on phrases and tested on sentences, so many of its own are flagged.",
        f"The mean over all {len(pairs)} pairs is **{flags:.3f}**, of the maximum probability **{probability:.3f}**.",
        "",
        *table(["model", "other texts", "AUROC", "maximum probability", "flagged", "of its own"], found, left=2),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
