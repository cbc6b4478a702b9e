"""Labelled examples in, `Metrics` and a `Report` out: JSON, a picture and a text for the terminal.

Every report sets the encoder beside a linear model on TF-IDF that was trained on the same texts, so that
a person sees whether the encoder earns its keep.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from encoder_cls.calibration import Logits, softmax
from encoder_cls.classifier import Classifier, load_classifier
from encoder_cls.config import DataConfig
from encoder_cls.data import Dataset, Split, load_dataset, load_split
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.run_folder import RunFolder
from encoder_cls.sources import shown
from encoder_cls.storage import to_json, write_file

CALIBRATION_BINS = 15  # as in Guo et al. (2017)
WORST_ERRORS = 20  # kept in the JSON
LARGEST_TABLE = 12  # classes; a wider confusion matrix does not fit a terminal
LARGEST_ANNOTATED = 30  # classes; in more cells numbers cannot be read

# Words, runs of punctuation, and single characters of scripts that are written without spaces.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
WORD_PATTERN = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]+"


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """How well one class is found: fractions from 0 to 1, and its number of examples."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """How well predictions fit labels.

    Attributes:
        num_examples: examples counted.
        accuracy: the part that is right.
        macro_f1: the mean F1 of the classes that occur as label or prediction.
        loss: the mean cross-entropy, in nats.
        ece: the expected calibration error: the mean distance between confidence and accuracy.
        per_class: by class name.
        confusion_matrix: `[label][prediction]` counts, in the order of the class names.
    """

    num_examples: int
    accuracy: float
    macro_f1: float
    loss: float
    ece: float
    per_class: dict[str, ClassMetrics]
    confusion_matrix: list[list[int]]

    def scalars(self) -> dict[str, float]:
        """The metrics that are single numbers."""
        return {"loss": self.loss, "accuracy": self.accuracy, "macro_f1": self.macro_f1, "ece": self.ece}


@dataclass(frozen=True, kw_only=True)
class WrongExample:
    """A text that was given the wrong class, and how sure the classifier was."""

    text: str
    where: str
    label: str
    prediction: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that an evaluation found out.

    Attributes:
        split: what was scored: `test`, `validation` or a file.
        label_names: the classes in the order of the confusion matrix.
        metrics: of the classifier.
        linear_reference: accuracy and macro_f1 of the linear model; none where its training texts are gone.
        worst_errors: the most confident mistakes, worst first.
        truncated_fraction: the part of the texts that was cut.
        unknown_fraction: the part of the tokens that training never showed.
    """

    split: str
    label_names: tuple[str, ...]
    metrics: Metrics
    linear_reference: dict[str, float] | None
    worst_errors: list[WrongExample]
    truncated_fraction: float
    unknown_fraction: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values; the metrics are at the top level."""
        return {
            "split": self.split,
            **asdict(self.metrics),
            "linear_reference": self.linear_reference,
            "label_names": list(self.label_names),
            "truncated_fraction": self.truncated_fraction,
            "unknown_fraction": self.unknown_fraction,
            "worst_errors": [asdict(error) for error in self.worst_errors],
        }


def compute_metrics(logits: Logits, labels: NDArray[np.int64], label_names: Sequence[str]) -> Metrics:
    """Score logits (texts, classes) against labels (texts,)."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    probabilities = softmax(logits)
    predictions = logits.argmax(axis=1)
    of_label = probabilities[np.arange(len(labels)), labels]
    numbers = range(len(label_names))
    precision, recall, f1, support = precision_recall_fscore_support(
        labels, predictions, labels=numbers, zero_division=0
    )
    occurs = np.union1d(labels, predictions)
    return Metrics(
        num_examples=len(labels),
        accuracy=float((predictions == labels).mean()),
        macro_f1=float(f1[occurs].mean()),
        loss=float(-np.log(np.maximum(of_label, np.finfo(np.float64).tiny)).mean()),
        ece=expected_calibration_error(probabilities.max(axis=1), predictions == labels),
        per_class={
            name: ClassMetrics(
                precision=float(precision[i]), recall=float(recall[i]), f1=float(f1[i]), support=int(support[i])
            )
            for i, name in enumerate(label_names)
        },
        confusion_matrix=confusion_matrix(labels, predictions, labels=numbers).tolist(),
    )


def expected_calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """The mean, over bins of equal width, of |accuracy - confidence|, weighted by the bins' sizes.

    Guo et al., "On Calibration of Modern Neural Networks" (2017), https://arxiv.org/abs/1706.04599.
    """
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    surplus = np.bincount(bins, weights=correct - confidence, minlength=CALIBRATION_BINS)
    return float(np.abs(surplus).sum() / len(confidence))


def linear_reference(train: Split, split: Split) -> dict[str, float] | None:
    """Accuracy and macro-F1 of a linear SVM on TF-IDF of words and pairs of words; none where there are no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import f1_score
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True),
        LinearSVC(random_state=0),
    )
    try:
        model.fit(train.texts, train.labels)
    except ValueError:  # of TfidfVectorizer: no text has a word
        return None
    predictions = model.predict(split.texts)
    return {
        "accuracy": float((predictions == split.labels).mean()),
        "macro_f1": float(f1_score(split.labels, predictions, average="macro")),
    }


def evaluate(
    classifier: Classifier,
    split: Split,
    *,
    name: str,
    reference: dict[str, float] | None,
    batch_tokens: int = 8192,
    after_batch: Callable[[], None] | None = None,
) -> tuple[Report, Logits]:
    """Score a classifier on a split.

    Args:
        classifier: the classifier.
        split: the examples; labels are numbers into the classifier's class names.
        name: what to call the split in the report.
        reference: what `linear_reference` says of the split.
        batch_tokens: the most tokens in a batch.
        after_batch: called after each batch; what it raises ends the work.

    Returns:
        The report and the logits, (texts, classes), from which it was made.
    """
    tokenized = classifier.tokenize(split.texts)
    logits = classifier.logits(tokenized, batch_tokens=batch_tokens, after_batch=after_batch)
    report = Report(
        split=name,
        label_names=classifier.label_names,
        metrics=compute_metrics(logits, split.labels, classifier.label_names),
        linear_reference=reference,
        worst_errors=_worst_errors(logits, split, classifier.label_names),
        truncated_fraction=tokenized.truncated_fraction,
        unknown_fraction=tokenized.unknown_fraction,
    )
    return report, logits


def evaluate_run(path: Path, *, data: str | None, warn: Callable[[str], None]) -> Report:
    """Score the classifier of a run (or model) folder; scored on its own data, a run's `eval` folder is written.

    Args:
        path: the folder.
        data: a labelled source; none: the run's test split, else its validation split.
        warn: told what could not be done.

    Raises:
        ConfigError: no classifier there, or no data to score.
        DataError: the data is missing or malformed.
    """
    classifier = load_classifier(path)
    run = RunFolder(path if RunFolder(path).is_run() else path.parent)
    if not run.is_run():
        if data is None:
            raise ConfigError(f"{path}: a model folder without its run has no data of its own; name some with --data")
        config, dataset = DataConfig(train=data), None
    else:
        config = run.load_config().data
        dataset = _dataset_of_run(run, needed=data is None, warn=warn)
    if data is not None:
        split = load_split(data, config, classifier.label_names)
        reference = linear_reference(dataset.train, split) if dataset else None
        return evaluate(classifier, split, name=data, reference=reference)[0]
    assert dataset is not None
    name, split = dataset.reported
    report, logits = evaluate(classifier, split, name=name, reference=linear_reference(dataset.train, split))
    try:
        write_report(run.eval, report, split, logits)
    except EncoderClsError as error:
        warn(f"warning: {error}")
    return report


def _dataset_of_run(run: RunFolder, *, needed: bool, warn: Callable[[str], None]) -> Dataset | None:
    config = run.load_config()
    try:
        return load_dataset(config.data, seed=config.seed)
    except DataError as error:
        if needed:
            raise
        warn(f"warning: no linear reference: {error}")
        return None


def write_report(folder: Path, report: Report, split: Split, logits: Logits) -> None:
    """Write `report.json`, `predictions.jsonl` and `confusion_matrix.png`."""
    write_file(folder / "predictions.jsonl", "".join(_prediction_lines(split, logits, report.label_names)).encode())
    write_file(folder / "confusion_matrix.png", confusion_picture(report.metrics.confusion_matrix, report.label_names))
    write_file(folder / "report.json", to_json(report.to_dict()))


def confusion_picture(matrix: Sequence[Sequence[int]], label_names: Sequence[str]) -> bytes:
    """A confusion matrix as a PNG: each row a label, coloured by the part of its examples."""
    from matplotlib.figure import Figure

    counts = np.array(matrix)
    fractions = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    size = 2.5 + min(16.0, max(3.0, 0.55 * len(label_names)))
    figure = Figure(figsize=(size, size), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    # A dollar sign would start a formula.
    names = [shown(name, limit=24)[1:-1].replace("$", r"\$") for name in label_names]
    font = 9 if len(names) <= LARGEST_ANNOTATED else 6
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=font)
    axes.set_yticks(range(len(names)), names, fontsize=font)
    axes.set(xlabel="predicted", ylabel="label")
    if len(names) <= LARGEST_ANNOTATED:
        for row, column in np.argwhere(counts > 0):
            colour = "white" if fractions[row, column] > 0.5 else "black"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=8)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # such a character is drawn as a box
        figure.savefig(content, format="png")
    return content.getvalue()


def report_text(report: Report) -> str:
    """The report for a terminal."""
    return "\n".join(_report_lines(report))


def most_confused(report: Report, *, limit: int) -> list[tuple[str, str, int]]:
    """The most frequent mistakes as (label, prediction, count), the most frequent first."""
    matrix = np.array(report.metrics.confusion_matrix)
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:limit]
    pairs = zip(*np.unravel_index(order, matrix.shape), strict=True)
    names = report.label_names
    return [(names[row], names[column], int(matrix[row, column])) for row, column in pairs if matrix[row, column]]


def _report_lines(report: Report) -> Iterator[str]:
    metrics, names = report.metrics, [shown(name, limit=28)[1:-1] for name in report.label_names]
    yield f"{report.split}: {metrics.num_examples} examples"
    yield f"  accuracy {metrics.accuracy:.4f}   macro-F1 {metrics.macro_f1:.4f}   calibration error {metrics.ece:.4f}"
    yield from _reference_lines(report)
    yield f"  texts cut {report.truncated_fraction:.1%}   unknown tokens {report.unknown_fraction:.1%}"
    width = max(len(name) for name in [*names, "class"])
    yield f"\n  {'class':{width}}  precision  recall      F1  examples"
    for name, scores in zip(names, metrics.per_class.values(), strict=True):
        yield (
            f"  {name:{width}}  {scores.precision:9.3f}  {scores.recall:6.3f}  {scores.f1:6.3f}  {scores.support:8d}"
        )
    if len(names) <= LARGEST_TABLE:
        yield "\n  confusion matrix (rows: label, columns: prediction)"
        yield f"  {'':{width + 3}}  " + " ".join(f"{number:>4}" for number in range(1, len(names) + 1))
        for number, (name, row) in enumerate(zip(names, metrics.confusion_matrix, strict=True), start=1):
            yield f"  {number:2} {name:{width}}  " + " ".join(f"{count or '.':>4}" for count in row)
    confused = most_confused(report, limit=3)
    if confused:
        yield "\n  most confused: " + "; ".join(
            f"{shown(label)[1:-1]} taken for {shown(prediction)[1:-1]} ({count})"
            for label, prediction, count in confused
        )
    if report.worst_errors:
        yield "\n  most confident mistakes"
    for error in report.worst_errors[:5]:
        yield (
            f"  {error.probability:.2f} {shown(error.prediction)[1:-1]}, "
            f"not {shown(error.label)[1:-1]}: {shown(error.text, limit=90)}"
        )


def _reference_lines(report: Report) -> Iterator[str]:
    reference = report.linear_reference
    if reference is None:
        yield "  linear reference: none (the training texts cannot be read)"
        return
    yield (
        f"  linear reference (TF-IDF, linear SVM): accuracy {reference['accuracy']:.4f}   "
        f"macro-F1 {reference['macro_f1']:.4f}"
    )
    if reference["accuracy"] > report.metrics.accuracy:
        yield "  the linear model is more accurate here: prefer it, or give the encoder more text or more epochs"


def _worst_errors(logits: Logits, split: Split, label_names: Sequence[str]) -> list[WrongExample]:
    probabilities = softmax(logits)
    predictions = logits.argmax(axis=1)
    wrong = np.flatnonzero(predictions != split.labels)
    order = wrong[np.argsort(-probabilities[wrong, predictions[wrong]], kind="stable")]
    return [
        WrongExample(
            text=split.texts[i],
            where=split.where[i],
            label=label_names[split.labels[i]],
            prediction=label_names[predictions[i]],
            probability=float(probabilities[i, predictions[i]]),
        )
        for i in cast("list[int]", order[:WORST_ERRORS].tolist())
    ]


def _prediction_lines(split: Split, logits: Logits, label_names: Sequence[str]) -> Iterator[str]:
    for text, where, label, row in zip(split.texts, split.where, split.labels, softmax(logits), strict=True):
        record = {
            "where": where,
            "text": text,
            "label": label_names[label],
            "prediction": label_names[row.argmax()],
            "probability": float(row.max()),
        }
        yield json.dumps(record, ensure_ascii=False) + "\n"
