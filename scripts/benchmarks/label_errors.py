"""Flip labels of data sets, and measure how many of those that a review puts first are flipped; print a Markdown table.

    python scripts/benchmarks/label_errors.py FOLDER [--only DATASET]... [--flipped 0.05] [--texts 7000] [--seeds 3]

FOLDER holds a subfolder for each data set (trec6, sst2, ...) with train.parquet, whose columns are `text` and `label`.
Of each a part of the labels is replaced by others, drawn by lot; then all are scored by cross-validation, as
`encoder-cls review` does. Precision is the part of the first labels, as many as were flipped, that were flipped; labels
that were wrong before count as right ones. cleanlab, if it is installed (`pip install -e '.[labels]'`), ranks by the
same scores: what its `find_label_issues` finds, in its order, then the others by the same quality score.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import config_of
from encoder_cls.evaluation.label_errors import estimated_errors, self_confidence
from encoder_cls.inference.logits import softmax
from encoder_cls.training.nbsvm import out_of_fold_logits
from encoder_cls.training.prepare import prepare
from encoder_cls.training.setup import TrainingSetup

DATA_SETS = ("trec6", "sst2", "banking77")
RANKINGS = ("self_confidence", "normalized_margin")  # of cleanlab


def flipped(labels: NDArray[np.int64], part: float, num_classes: int, seed: int) -> NDArray[np.int64]:
    """Labels of which a part is replaced by other ones, drawn by lot."""
    random = np.random.default_rng(seed)
    chosen = random.choice(len(labels), round(part * len(labels)), replace=False)
    wrong = labels.copy()
    wrong[chosen] = (labels[chosen] + random.integers(1, num_classes, len(chosen))) % num_classes
    return wrong


def cleanlab_order(probabilities: NDArray[np.float64], labels: NDArray[np.int64], by: str) -> NDArray[np.int64]:
    """All texts in the order in which cleanlab would have a person look at them.

    Raises:
        ImportError: it is not installed.
    """
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    found = find_label_issues(labels, probabilities, return_indices_ranked_by=by, n_jobs=1)
    others = np.argsort(get_label_quality_scores(labels, probabilities, method=by), kind="stable")
    return np.concatenate([found, others[~np.isin(others, found)]]).astype(np.int64)


def precisions(setup: TrainingSetup, part: float, seed: int) -> dict[str, float]:
    """The precision at the number of flipped labels of each ranking, and how many times as many are estimated."""
    labels, num_classes = setup.dataset.train.labels, len(setup.dataset.label_names)
    wrong = flipped(labels, part, num_classes, seed)
    linear = setup.recipe.linear
    assert linear
    weights = np.ones(num_classes, dtype=np.float32)
    logits = out_of_fold_logits(setup.train_texts, wrong, class_weights=[weights], **linear._asdict())[0]
    probabilities = softmax(logits).astype(np.float64)
    is_flipped = wrong != labels
    orders = {"review": np.argsort(self_confidence(probabilities, wrong), kind="stable")}
    for by in RANKINGS:
        try:
            orders[f"cleanlab, {by}"] = cleanlab_order(probabilities, wrong, by)
        except ImportError:
            continue
    scores = {name: float(is_flipped[order[: is_flipped.sum()]].mean()) for name, order in orders.items()}
    return scores | {"estimated / flipped": estimated_errors(probabilities, wrong) / int(is_flipped.sum())}


def main() -> None:
    """Print a row for each data set: mean and standard deviation over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=DATA_SETS)
    parser.add_argument("--flipped", type=float, default=0.05)
    parser.add_argument("--texts", type=int, default=7000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for number, name in enumerate(arguments.only or DATA_SETS):
        train = str(arguments.folder / name / "train.parquet")
        fraction = {"data.validation_fraction": 0.01, "data.empty_texts": "drop", "model.encoder": False}
        setup = prepare(config_of({"name": name, "data.train": train, **fraction}, source=name))
        setup = _sampled(setup, arguments.texts)
        found = [precisions(setup, arguments.flipped, seed) for seed in range(arguments.seeds)]
        if number == 0:
            print("| data set | texts | " + " | ".join(found[0]) + " |\n" + "| --- " * (len(found[0]) + 2) + "|")
        cells = [
            f"{np.mean([it[key] for it in found]):.3f} ± {np.std([it[key] for it in found]):.3f}" for key in found[0]
        ]
        print(f"| {name} | {len(setup.dataset.train):,} | " + " | ".join(cells) + " |", flush=True)


def _sampled(setup: TrainingSetup, most: int) -> TrainingSetup:
    """So many of the training texts at most, drawn by lot."""
    train = setup.dataset.train
    if len(train) <= most:
        return setup
    rows = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
    dataset = replace(setup.dataset, train=train.subset(rows))
    return replace(setup, dataset=dataset, texts=setup.texts.take(rows))


if __name__ == "__main__":
    main()
