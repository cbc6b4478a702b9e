"""`encoder-cls review`.

Labels of training texts are judged by a linear classifier that was trained on the others, by cross-validation; those of
the other splits by the run's classifier, as it was before it learned any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from encoder_cls.cli.evaluate_run import dataset_of_run
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.split import Split
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.labels import LabelRow, by_score, estimated_errors, label_rows, mistakes
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.task import MULTI_LABEL, Logits, softmax
from encoder_cls.system.installed import check_training_installed
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed
from encoder_cls.tracking.run_dir import classifier_to_score, run_of
from encoder_cls.training.linear.svm import out_of_fold_logits


class Review(NamedTuple):
    """What was found out.

    Attributes:
        rows: those whose label is not the most probable class, and those that `data.corrections` has mended, so that
            the new file can take the place of the former; the most doubtful first.
        texts: how many were looked at.
        estimated_errors: about how many labels are wrong, as confident learning has it: too many where the classifier
            is weak.
    """

    rows: list[LabelRow]
    texts: int
    estimated_errors: int


def review_run(path: Path, *, tell: Callable[[str], None]) -> Review:
    """Judge the labels of all splits of a run.

    Args:
        path: its folder.
        tell: told what a person should know.

    Raises:
        ConfigError: it is no run, or has no classifier yet, no labels, or several a text.
        DataError: its data is gone, or no longer what it was trained on.
    """
    classifier, run = classifier_to_score(path), run_of(path)
    if run is None:
        raise ConfigError(f"{path}: a model folder without its run has no data to review; name the run")
    if classifier.task is MULTI_LABEL:
        raise ConfigError(f"{path}: review is for data with one label a text; here a text may have several")
    dataset = dataset_of_run(run, run.load_config(), classifier.label_names, needed=True, warn=tell)
    assert dataset is not None
    if dataset.has_names_alone:
        raise ConfigError(f"{path}: learned from the names of the classes alone, so there are no labels to review")
    rows: list[LabelRow] = []
    texts, errors = 0, 0
    for name, split, logits in _judged(dataset, classifier):
        is_judged = _has_others(split) if name == "train" else np.ones(len(split), dtype=bool)
        texts += int(is_judged.sum())
        errors += estimated_errors(softmax(logits[is_judged]), split.labels[is_judged])
        is_mended = np.array([where in dataset.corrected for where in split.where]) if dataset.corrected else False
        is_wrong = np.zeros(len(split), dtype=bool)
        is_wrong[mistakes(split, logits)] = True
        chosen = np.flatnonzero((is_wrong & is_judged) | is_mended)
        rows += label_rows(split, logits, (*classifier.label_names, *split.unseen_names), chosen, name=name)
    return Review(by_score(rows), texts, errors)


def _judged(dataset: Dataset, classifier: Classifier) -> list[tuple[str, Split, Logits]]:
    """Each split with the logits of a classifier that has not seen its labels."""
    train, linear = dataset.train, classifier.linear
    (out_of_fold,) = out_of_fold_logits(
        classifier.tokenize(train.texts),
        train.labels,
        class_weights=[np.ones(len(classifier.label_names), dtype=np.float32)],
        max_tokens=linear.max_tokens if linear else classifier.max_seq_len,
        use_char_ngrams=bool(linear and len(linear.frequent_token_ids)),
        together=train.together,
    )
    judged = [("train", train, out_of_fold)]
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split:
            logits = classifier.combined(classifier.part_logits(classifier.tokenize(split.texts)))
            judged.append((name, split, logits))
    return judged


def _has_others(split: Split) -> NDArray[np.bool_]:
    """Which texts share their class with texts that are not held out with them."""
    pairs = np.unique([split.labels, split.together], axis=1)
    several: NDArray[np.bool_] = np.bincount(pairs[0])[split.labels] > 1
    return several


SHOWN = 10  # rows on standard output


def review_command(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write all doubtful labels to this CSV file; with mended cells it is data.corrections of a new run.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON.")] = False,
) -> None:
    """List labels that seem to be wrong, the most doubtful first."""
    check_training_installed()

    from encoder_cls.answers.outputs import check_outputs

    if output and output.suffix.lower() != ".csv":
        raise ConfigError(f"--output {output}: a review is a CSV file; let its name end in .csv")
    check_outputs([output] if output else [], model=run, is_printing=True)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.evaluation.labels import label_table
    from encoder_cls.system.display import printable, shortened, shown
    from encoder_cls.system.files import to_json, write_output

    found = review_run(run, tell=note)
    if output:
        write_output(output, b"".join(label_table(found.rows)))
    if as_json:
        rows = [row._asdict() for row in found.rows]
        print_out(
            to_json({"estimated_errors": found.estimated_errors, "texts": found.texts, "rows": rows}).decode() + "\n"
        )
    else:
        for row in found.rows[:SHOWN]:
            names = (printable(shortened(name, limit=28)) for name in (row.label, row.suggested))
            text, where = shown(row.text, limit=70), printable(_from_here(row.where))
            print_out(f"{row.score:.3f}  {' -> '.join(names)}  {text}  {where}\n")
    note(
        f"{found.texts:,} labels looked at: for {len(found.rows):,} another is more probable, confidently for "
        f"{found.estimated_errors:,}; look at the first of them until labels are right"
    )
    if output:
        note(f"wrote {output}: mend its column label, then train with --set data.corrections={output}")


def _from_here(where: str) -> str:
    """A place as the current folder has it: a run records absolute ones."""
    return where.removeprefix(f"{Path.cwd()}{os.sep}")
