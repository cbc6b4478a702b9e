"""The sentences of a report, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from encoder_cls.evaluation.comparisons import COMBINED
from encoder_cls.evaluation.mistakes import Mistake
from encoder_cls.evaluation.report import Report, RunFindings
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.suggested_threshold import (
    MIN_PREDICTED,
    MIN_PREDICTIONS,
    WANTED_ACCURACY,
    SuggestedThreshold,
)
from encoder_cls.metrics.classification import (
    Confusion,
    Metrics,
    MultiLabelMetrics,
    SingleLabelMetrics,
)
from encoder_cls.metrics.intervals import Interval
from encoder_cls.metrics.scores import ALL_SCORES, SCORES, Place, scores_of_task
from encoder_cls.system.display import aligned, counted, listed, printable, shortened, shown

Sections = dict[str, tuple[str, ...]]
"""The lines of each section, by its title."""

# The names of the classifier and its parts in a report.
PARTS = {COMBINED: "both together", "linear": "linear alone", "encoder": "encoder alone"}
# How to train the linear model alone.
LINEAR_ALONE = "--set model.encoder=false"
# Of scores on validation texts.
VALIDATION_NOTE = (
    "the model was tuned on these texts, so expect slightly lower scores on new ones (data.test)"
)


def summary_text(report: Report) -> str:
    """The summary for a terminal, without titles."""
    lines = [_first_line(report.evaluation)]
    for section_lines in summary_sections(report).values():
        lines += [f"  {line}" for line in section_lines]
    return "\n".join(lines)


def full_text(report: Report, *, with_tables: bool = True) -> str:
    """The report for a terminal."""
    sections = summary_sections(report)
    if with_tables:
        sections |= detail_sections(report.evaluation)

    lines = [_first_line(report.evaluation)]
    for title, section_lines in sections.items():
        lines.append(f"  {title}")
        lines += [f"    {line}" for line in section_lines]
    return "\n".join(lines)


def _first_line(evaluation: SplitEvaluation) -> str:
    return f"{evaluation.split_name}: {size_note(evaluation.metrics)}"


def summary_sections(report: Report) -> Sections:
    """The sections that summarize a training."""
    evaluation = report.evaluation
    score = capitalized(evaluation.metrics.main_score.name)
    return _sections_with_lines(
        {
            f"{score} on {evaluation.split_name}": _score_lines(report),
            "Is the encoder worth it?": _part_lines(report),
            "Can the probabilities be trusted?": calibration(evaluation.metrics),
            "Threshold": _threshold_lines(evaluation),
            "Notes": _reservations(evaluation, report.run_findings),
        }
    )


def detail_sections(evaluation: SplitEvaluation) -> Sections:
    """The further sections of a terminal; the page has tables and charts instead."""
    doubtful = f"labels that are probably wrong: {len(evaluation.doubtful_labels):,}"
    return _sections_with_lines(
        {
            "Texts": [length_note(evaluation), doubtful],
            "Classes": _class_table(evaluation.metrics),
            "Confusion (rows: label, columns: prediction)": _confusion_lines(evaluation),
            "Most confident mistakes": _mistake_lines(evaluation.worst_mistakes),
        }
    )


def _sections_with_lines(sections: Mapping[str, Iterable[str]]) -> Sections:
    found = {}
    for title, lines in sections.items():
        section_lines = tuple(lines)
        if section_lines:
            found[title] = section_lines
    return found


def size_note(metrics: Metrics) -> str:
    """The number of examples, and of labels where a text may have several."""
    texts = counted(metrics.num_examples, "example")
    if isinstance(metrics, MultiLabelMetrics):
        return f"{texts}, {metrics.labels_per_text:.2f} labels a text"
    return texts


# The section of the scores


def _score_lines(report: Report) -> Iterator[str]:
    metrics = report.evaluation.metrics
    scores = _scores_with_intervals(report.evaluation.scores)
    calibration_error = f"{SCORES['ece'].name} {metrics.ece:.4f}"
    yield f"{scores}, {calibration_error} (95% intervals in brackets)"

    further_scores = _scores_without_intervals(metrics)
    if further_scores:
        yield further_scores

    if report.baseline_scores:
        sample = baseline_note(report.baseline_scores)
        baseline_scores = _scores_with_intervals(report.baseline_scores)
        yield f"TF-IDF baseline (linear SVM{sample}): {baseline_scores}"
    else:
        yield "TF-IDF baseline: none"

    if report.against:
        other_scores = _scores_with_intervals(report.against.scores)
        yield f"{printable(report.against.run)}: {other_scores}"
        yield from report.against.sentences()

    findings = report.run_findings
    if findings.changes_since_base:
        yield from findings.changes_since_base.sentences()
    if findings.class_weights_note:
        yield findings.class_weights_note

    if metrics.most_confused:
        yield _most_confused(metrics)


def _scores_with_intervals(scores: Mapping[str, Any]) -> str:
    """Scores as in JSON, with their intervals in brackets."""
    parts = []
    for score in ALL_SCORES:
        if score.key not in scores:
            continue
        part = f"{score.name} {scores[score.key]:.4f}"
        interval = scores.get(score.interval_key)
        if interval:
            low, high = interval
            part += f" [{low:.3f}, {high:.3f}]"
        parts.append(part)
    return ", ".join(parts)


def _scores_without_intervals(metrics: Metrics) -> str:
    """The further scores of a report; empty in a task that has none."""
    parts = []
    for score in scores_of_task(is_multi_label=metrics.is_multi_label):
        if Place.REPORT in score.shown_in:
            value: float = getattr(metrics, score.key)
            parts.append(f"{score.name} {value:.4f}")
    return ", ".join(parts)


def baseline_note(baseline_scores: Mapping[str, float]) -> str:
    """How many texts and features the TF-IDF baseline was trained on, where not on all."""
    parts = []
    for what in ("texts", "features"):
        number = baseline_scores[what]
        total = baseline_scores[f"of_{what}"]
        if number < total:
            parts.append(f"{number:,} of {total:,} {what}")

    if not parts:
        return ""
    return f", trained on {' and '.join(parts)}"


# Pairs of confused classes in a summary.
MAX_CONFUSED_PAIRS = 2


def _most_confused(metrics: Metrics) -> str:
    pairs = []
    for pair in metrics.most_confused[:MAX_CONFUSED_PAIRS]:
        pairs.append(_confused_pair(pair, is_multi_label=isinstance(metrics, MultiLabelMetrics)))
    return f"most confused: {'; '.join(pairs)}"


def _confused_pair(pair: Confusion, *, is_multi_label: bool) -> str:
    label = name_text(pair.label)
    prediction = name_text(pair.prediction)
    if is_multi_label:
        return f"{label} missed where {prediction} is given ({pair.count})"
    return f"{label} taken for {prediction} ({pair.count})"


# The section of the parts


def _part_lines(report: Report) -> Iterator[str]:
    evaluation = report.evaluation
    if evaluation.part_comparison:
        for part in ("linear", "encoder"):
            yield f"{PARTS[part]}: {_scores_with_intervals(evaluation.parts[part])}"

    sentences = (comparison_sentence(evaluation), cascade_sentence(evaluation), advice(report))
    for sentence in sentences:
        if sentence:
            yield sentence


def comparison_sentence(evaluation: SplitEvaluation) -> str:
    """What the encoder adds, and which part decides; empty without both parts."""
    comparison = evaluation.part_comparison
    if comparison is None:
        return ""

    points = 100 * comparison.combined_minus_linear
    if points <= -0.05:
        difference = f"{-points:.1f} points below"
    else:
        # A difference that is shown as zero has no minus.
        difference = f"{max(points, 0):+.1f} points over"

    sure = "not sure"
    if comparison.is_sure:
        sure = "sure"
    low, high = comparison.interval
    interval = f"95% interval {100 * low:+.1f} to {100 * high:+.1f}"
    sentence = f"{difference} the linear model alone ({sure}; {interval})"

    if evaluation.mixture_shares:
        sentence += f"; {_weights(evaluation.mixture_shares)}"
    return sentence


# The share of the sum of the logits from which a part decides nearly alone.
NEARLY_ALL = 0.97
# The share from which a part has most of the weight.
MOSTLY = 0.6


def _weights(mixture_shares: Mapping[str, float]) -> str:
    """Which part decides, by the shares of `linear` and `encoder`."""
    names = {"linear": "the linear model", "encoder": "the encoder"}
    largest_first = sorted(mixture_shares, key=lambda part: mixture_shares[part], reverse=True)
    part = largest_first[0]
    share = mixture_shares[part]

    if share >= NEARLY_ALL:
        shown_share = "100%"
        if share < 1:
            shown_share = f"{share:.1%}"
        return f"{names[part]} decides nearly alone ({shown_share} of the weight)"

    if share >= MOSTLY:
        return f"{names[part]} has most of the weight ({share:.0%})"

    shares = ", ".join(f"{names[part]} {mixture_shares[part]:.0%}" for part in largest_first)
    return f"both weigh about the same ({shares})"


def cascade_sentence(evaluation: SplitEvaluation) -> str:
    """The fraction of texts that skip the encoder; empty without a cascade."""
    if not evaluation.cascade:
        return ""
    skipped = evaluation.cascade["skipped_fraction"]
    gate = evaluation.cascade["gate"]
    return (
        f"the linear model alone classifies {skipped:.0%} of the texts, "
        f"those where its probability is {gate:g} or more"
    )


def advice(report: Report) -> str:
    """A next step, by the scores; empty where the classifier is the best one."""
    evaluation = report.evaluation
    comparison = evaluation.part_comparison
    if comparison:
        is_encoder_worth_it = comparison.is_sure and comparison.combined_minus_linear > 0
        if not is_encoder_worth_it:
            return f"the linear model alone may do as well, and trains in seconds: {LINEAR_ALONE}"

    baseline_scores = report.baseline_scores
    score = evaluation.metrics.main_score.key
    if not baseline_scores or baseline_scores[score] <= evaluation.scores[score]:
        return ""
    if "linear" in evaluation.parts:
        return "the TF-IDF baseline is more accurate here; more labelled texts would help most"
    return f"the TF-IDF baseline is more accurate here; a linear model alone: {LINEAR_ALONE}"


def part_rows(report: Report) -> list[tuple[str, float, Interval | None]]:
    """The score and its interval of the classifier, its parts and the TF-IDF baseline.

    There are none without both parts.
    """
    evaluation = report.evaluation
    if evaluation.part_comparison is None:
        return []

    scores: dict[str, Mapping[str, Any]] = {}
    for part, name in PARTS.items():
        scores[name] = evaluation.parts[part]
    if report.baseline_scores:
        scores["TF-IDF baseline"] = report.baseline_scores

    score = evaluation.metrics.main_score
    rows = []
    for name, part_scores in scores.items():
        rows.append((name, part_scores[score.key], part_scores.get(score.interval_key)))
    return rows


# The section of calibration

# With fewer texts, a calibration error of 15 bins is large by chance.
FEW_TEXTS = 100
# The highest calibration error of a classifier that is well calibrated.
WELL_CALIBRATED = 0.03
# The highest calibration error of one that is fairly calibrated.
FAIRLY_CALIBRATED = 0.08


def calibration(metrics: Metrics) -> tuple[str, str]:
    """Calibration in words: the gist, then how to read a probability."""
    ece = metrics.ece
    bins = metrics.calibration
    num_texts = sum(bins.texts)
    error = f"(calibration error {ece:.3f})"

    if num_texts < FEW_TEXTS:
        return (
            "too few texts to judge",
            f"calibration cannot be judged on {num_texts:,} texts {error}",
        )
    if ece <= WELL_CALIBRATED:
        return (
            "well calibrated",
            f"where a probability says 80%, about 80% are right {error}",
        )

    # How much higher confidence is than accuracy, over all bins.
    excess = np.dot(bins.texts, np.subtract(bins.confidence, bins.accuracy)) / num_texts
    direction = "too low"
    if excess > 0:
        direction = "too high"
    gaps = f"{100 * ece:.1f} points on average, {100 * abs(excess):.1f} points {direction} overall"

    if ece <= FAIRLY_CALIBRATED:
        return "fairly calibrated", f"probabilities are about right: off by {gaps} {error}"
    return "poorly calibrated", f"do not rely on probabilities: they are off by {gaps} {error}"


# The section of the threshold


def _threshold_lines(evaluation: SplitEvaluation) -> Iterator[str]:
    metrics = evaluation.metrics
    if isinstance(metrics, MultiLabelMetrics):
        yield (
            "a text gets each label whose probability reaches the label's threshold, chosen on "
            f"validation texts: {metrics.predicted_per_text:.2f} labels a text; "
            "--threshold sets one threshold for all labels"
        )
    if evaluation.threshold:
        yield _threshold_line(evaluation.threshold, num_texts=metrics.num_examples)
    if evaluation.guarantees:
        yield from evaluation.guarantees.sentences()


def _threshold_line(threshold: SuggestedThreshold, *, num_texts: int) -> str:
    """The suggested threshold, or why there is none."""
    probability = threshold.probability
    if probability == 0:
        return (
            f"no threshold is needed: at least {WANTED_ACCURACY:.0%} of all predictions are right"
        )

    if probability is not None:
        return (
            f"--threshold {probability:.3f} keeps {threshold.predicted_fraction:.0%} of the "
            f"predictions, {WANTED_ACCURACY:.0%} of them right, on topics seen in training"
        )

    if num_texts < MIN_PREDICTIONS:
        return f"no threshold is suggested: that takes at least {MIN_PREDICTIONS} predictions"
    return (
        f"no threshold reaches {WANTED_ACCURACY:.0%} precision and still keeps "
        f"{MIN_PREDICTED:.0%} of the predictions, and at least {MIN_PREDICTIONS}"
    )


# The section of notes


def _reservations(evaluation: SplitEvaluation, findings: RunFindings) -> Iterator[str]:
    is_validation = evaluation.split_name == "validation"
    if is_validation:
        yield VALIDATION_NOTE

    if findings.num_refitted:
        texts = counted(findings.num_refitted, "validation text")
        note = f"the final linear model was also trained on {texts}"
        if is_validation:
            note += "; the scores here are from before"
        yield note

    if evaluation.metrics.unseen_labels:
        yield _unseen_note(evaluation.metrics.unseen_labels)


def _unseen_note(unseen_labels: Mapping[str, int]) -> str:
    num_texts = sum(unseen_labels.values())
    texts = f"{num_texts:,} texts have labels that never occur"
    if num_texts == 1:
        texts = "1 text has a label that never occurs"
    names = listed(list(unseen_labels))
    return (
        f"{texts} in the training data ({names}): this counts as a mistake, "
        "and is left out of the loss and the calibration error"
    )


# Further sections of a terminal


def length_note(evaluation: SplitEvaluation) -> str:
    """The fractions of texts longer than the classifier reads, and of unknown tokens."""
    part = "linear model"
    if "encoder" in evaluation.parts:
        part = "encoder"
    longer = f"texts longer than the {part} reads {evaluation.truncated_fraction:.1%}"
    return f"{longer}, unknown tokens {evaluation.unknown_fraction:.1%}"


# Characters of a class name in a column.
LONGEST_NAME = 28


def _class_table(metrics: Metrics) -> Iterator[str]:
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    if isinstance(metrics, MultiLabelMetrics):
        columns["average_precision"] = "average precision"
        columns["threshold"] = "threshold"

    rows = [["class", *columns.values(), "examples"]]
    for name, scores in metrics.per_class.items():
        row = [name_text(name, limit=LONGEST_NAME)]
        for key in columns:
            row.append(score_text(getattr(scores, key)))
        row.append(str(scores.support))
        rows.append(row)
    yield from aligned(rows)


# The most classes of a confusion matrix that fits a terminal.
LARGEST_TABLE = 12


def _confusion_lines(evaluation: SplitEvaluation) -> Iterator[str]:
    if not isinstance(evaluation.metrics, SingleLabelMetrics):
        return

    num_classes = len(evaluation.label_names)
    matrix = evaluation.metrics.confusion_matrix
    if not matrix or num_classes > LARGEST_TABLE:
        instead = "the matrix"
        if not matrix:
            instead = "the pairs confused most often"
        yield (
            f"no matrix here: {num_classes} classes are more than the {LARGEST_TABLE} that fit; "
            f"report.html has {instead}"
        )
        return

    # Columns have numbers, which come before the names of the rows.
    header = [""]
    for number in range(1, num_classes + 1):
        header.append(f"{number:3}")

    rows = [header]
    names = evaluation.label_names
    for number, (name, counts) in enumerate(zip(names, matrix, strict=True), start=1):
        row = [f"{number:2} {name_text(name, limit=LONGEST_NAME)}"]
        for count in counts:
            row.append(str(count or "."))
        rows.append(row)
    yield from aligned(rows)


# Mistakes in a terminal.
MAX_MISTAKES = 5


def _mistake_lines(mistakes: Sequence[Mistake]) -> Iterator[str]:
    for mistake in mistakes[:MAX_MISTAKES]:
        prediction = name_text(mistake.prediction)
        if mistake.kind:
            predicted = f"{mistake.kind} {prediction}"
        else:
            labels = ", ".join(name_text(label) for label in mistake.labels)
            predicted = f"{prediction}, not {labels}"
        yield f"{mistake.probability:.2f} {predicted}: {shown(mistake.text, limit=90)}"


def capitalized(words: str) -> str:
    """The words with the first letter in upper case."""
    return f"{words[:1].upper()}{words[1:]}"


def score_text(score: float | None) -> str:
    """A score with three digits, a dash for None."""
    if score is None:
        return "-"
    return f"{score:.3f}"


def name_text(name: str, *, limit: int = 80) -> str:
    """A class name, short and on one line."""
    return printable(shortened(name, limit=limit))
