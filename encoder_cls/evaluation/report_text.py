"""The sentences of a report, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from encoder_cls.evaluation.comparisons import COMBINED
from encoder_cls.evaluation.indistinct_classes import indistinct_sentences
from encoder_cls.evaluation.judged_calibration import Calibration, JudgedCalibration
from encoder_cls.evaluation.mistakes import Mistake
from encoder_cls.evaluation.report import Report, RunFindings
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.suggested_threshold import (
    MIN_PREDICTED,
    MIN_TEXTS,
    WANTED_ACCURACY,
    SuggestedThreshold,
)
from encoder_cls.metrics.classification import (
    Confusion,
    Metrics,
    MultiLabelMetrics,
    SingleLabelMetrics,
)
from encoder_cls.metrics.intervals import MIN_TEXTS_PER_CLASS, Interval
from encoder_cls.metrics.scores import ALL_SCORES, SCORES, Place, scores_of_task
from encoder_cls.system.display import aligned, counted, listed, printable, shortened, shown

Sections = dict[str, tuple[str, ...]]
"""The lines of each section, by its title."""

# The names of the whole classifier and of its parts in a report.
PARTS = {COMBINED: "both together", "linear": "linear alone", "encoder": "encoder alone"}
# The option by which a linear model is trained alone.
LINEAR_ALONE = "--set model.encoder=false"
# The note on scores of validation texts.
VALIDATION_NOTE = (
    "the model was tuned on these texts, so expect slightly lower scores on new ones (data.test)"
)


def summary_text(report: Report) -> str:
    """The summary of a report for a terminal, without the titles of its sections."""
    lines = [_first_line(report.evaluation)]
    for section_lines in summary_sections(report).values():
        lines += [f"  {line}" for line in section_lines]
    return "\n".join(lines)


def full_text(report: Report, *, with_tables: bool = True) -> str:
    """The report for a terminal, with the titles of its sections.

    `with_tables` adds the sections that the page of a report has as tables and charts.
    """
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
    """The sections that summarize a report: scores, parts, calibration, threshold and notes."""
    evaluation = report.evaluation
    score = capitalized(evaluation.metrics.main_score.name)
    return _sections_with_lines(
        {
            f"{score} on {evaluation.split_name}": _score_lines(report),
            "Is the encoder worth it?": _part_lines(report),
            "Can the probabilities be trusted?": _calibration_lines(evaluation),
            "Threshold": _threshold_lines(evaluation),
            "Notes": _reservations(evaluation, report.run_findings),
        }
    )


def figure_sections(report: Report) -> Sections:
    """The sections beside the table of scores on the page.

    They have what `summary_sections` has, but for scores that the table shows, and for what the
    first screen of the page says in plain words.
    """
    evaluation = report.evaluation
    findings = report.run_findings
    notes = [length_note(evaluation)]
    if evaluation.new_texts:
        notes.insert(0, learned_note(evaluation))
    for note in _reservations(evaluation, findings):
        if note != VALIDATION_NOTE:
            notes.append(note)
    return _sections_with_lines(
        {
            "Is the encoder worth it?": _part_sentences(report),
            "Can the probabilities be trusted?": _calibration_lines(evaluation),
            "Threshold": _threshold_lines(evaluation),
            "Compared with other runs": _run_comparisons(report),
            "Notes": notes,
        }
    )


def detail_sections(evaluation: SplitEvaluation) -> Sections:
    """The further sections for a terminal, in place of the tables and charts of the page."""
    doubtful = f"labels that may be wrong: {len(evaluation.doubtful_labels):,}"
    return _sections_with_lines(
        {
            "Texts": [length_note(evaluation), doubtful],
            "Classes": _class_table(evaluation.metrics),
            "Confusion (rows: label, columns: prediction)": _confusion_lines(evaluation),
            "Most confident mistakes": _mistake_lines(evaluation.worst_mistakes),
        }
    )


def _sections_with_lines(sections: Mapping[str, Iterable[str]]) -> Sections:
    filled_sections = {}
    for title, lines in sections.items():
        section_lines = tuple(lines)
        if section_lines:
            filled_sections[title] = section_lines
    return filled_sections


def size_note(metrics: Metrics) -> str:
    """The number of examples; multi-label, also the mean number of labels of a text."""
    texts = counted(metrics.num_examples, "example")
    if isinstance(metrics, MultiLabelMetrics):
        return f"{texts}, {metrics.labels_per_text:.2f} labels a text"
    return texts


# The section of the scores


# The smallest change of macro-F1 by rare classes that a report mentions.
MIN_EFFECT_OF_RARE_CLASSES = 0.05


def rare_classes_note(metrics: Metrics) -> Iterator[str]:
    """Yield a sentence if macro-F1 is quite another one without the classes of few texts."""
    rare = []
    f1_of_others = []
    for name, scores in metrics.per_class.items():
        if scores.support >= MIN_TEXTS_PER_CLASS:
            f1_of_others.append(scores.f1 or 0.0)
        elif scores.support:
            rare.append(name)
    if not rare or not f1_of_others:
        return

    without_rare = sum(f1_of_others) / len(f1_of_others)
    if abs(without_rare - metrics.macro_f1) >= MIN_EFFECT_OF_RARE_CLASSES:
        yield (
            f"macro-F1 counts classes of fewer than {MIN_TEXTS_PER_CLASS} texts "
            f"({listed(rare, most=3)}) like all others; without them it is {without_rare:.4f}"
        )


def _score_lines(report: Report) -> Iterator[str]:
    metrics = report.evaluation.metrics
    scores = _scores_with_intervals(report.evaluation.scores)
    calibration_error = f"{SCORES['ece'].name} {metrics.ece:.4f}"
    yield f"{scores}, {calibration_error} (95% intervals in brackets)"

    if report.evaluation.macro_f1_note:
        yield report.evaluation.macro_f1_note
    yield from rare_classes_note(metrics)

    scores_alone = further_scores(metrics)
    if scores_alone:
        yield scores_alone

    learned = learned_note(report.evaluation)
    if learned:
        yield learned

    if report.baseline_scores:
        sample = baseline_note(report.baseline_scores)
        baseline_scores = _scores_with_intervals(report.baseline_scores)
        yield f"TF-IDF baseline (linear SVM{sample}): {baseline_scores}"
    else:
        yield "TF-IDF baseline: none"

    if report.against:
        other_scores = _scores_with_intervals(report.against.scores)
        yield f"{printable(report.against.run)}: {other_scores}"

    yield from _run_comparisons(report)
    if metrics.most_confused:
        yield _most_confused(metrics)


def _run_comparisons(report: Report) -> Iterator[str]:
    """Yield sentences on another run, the base run, and a run with class weights."""
    findings = report.run_findings
    if report.against:
        yield from report.against.sentences()
    if findings.changes_since_base:
        yield from findings.changes_since_base.sentences()
    if findings.class_weights_note:
        yield findings.class_weights_note


def _scores_with_intervals(scores: Mapping[str, Any]) -> str:
    """Format scores, which have the keys of the JSON report, with their intervals in brackets."""
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


def learned_note(evaluation: SplitEvaluation) -> str:
    """A sentence on texts that the classifier has learned from; empty if there are none."""
    new_texts = evaluation.new_texts
    if new_texts is None:
        return ""
    if new_texts.num_texts == 0:
        return "the model has learned from all of these texts: this says nothing about new texts"
    return (
        f"the model has learned from {evaluation.num_learned:,} of these texts; "
        f"the {new_texts.num_texts:,} new ones alone: {_scores_with_intervals(new_texts.scores)}"
    )


def further_scores(metrics: Metrics) -> str:
    """Format the scores that are computed for the whole classifier alone; empty without any."""
    parts = []
    for score in scores_of_task(metrics.task):
        if Place.REPORT in score.shown_in:
            value: float = getattr(metrics, score.key)
            parts.append(f"{score.name} {value:.4f}")
    return ", ".join(parts)


def baseline_note(baseline_scores: Mapping[str, float]) -> str:
    """How many texts and features the baseline was trained on; empty if on all of them."""
    parts = []
    for what in ("texts", "features"):
        number = baseline_scores[what]
        total = baseline_scores[f"of_{what}"]
        if number < total:
            parts.append(f"{number:,} of {total:,} {what}")

    if not parts:
        return ""
    return f", trained on {' and '.join(parts)}"


# The most pairs of confused classes in a summary.
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
    yield from _part_sentences(report)


def _part_sentences(report: Report) -> Iterator[str]:
    """Yield sentences on what the encoder adds, on the gate, and on what to try next."""
    evaluation = report.evaluation
    sentences = (comparison_sentence(evaluation), cascade_sentence(evaluation), advice(report))
    for sentence in sentences:
        if sentence:
            yield sentence


def comparison_sentence(evaluation: SplitEvaluation) -> str:
    """A sentence on what the encoder adds, and on which part has most of the weight.

    It is empty if the classifier has only one part.
    """
    comparison = evaluation.part_comparison
    if comparison is None:
        return ""

    points = 100 * comparison.combined_minus_linear
    if points <= -0.05:
        difference = f"{-points:.1f} points below"
    else:
        # A difference that is shown as 0.0 must not have a minus sign.
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


# The share in the mixture from which a part is said to decide nearly alone.
NEARLY_ALL = 0.97
# The share from which a part is said to have most of the weight.
MOSTLY = 0.6


def _weights(mixture_shares: Mapping[str, float]) -> str:
    """A phrase on which part has most of the weight, by the shares of `linear` and `encoder`."""
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
    """A sentence on the fraction of texts that skip the encoder; empty if there is no gate."""
    if not evaluation.cascade:
        return ""
    skipped = evaluation.cascade["skipped_fraction"]
    gate = evaluation.cascade["gate"]
    return (
        f"the linear model alone classifies {skipped:.0%} of the texts, "
        f"those where its probability is {gate:g} or more"
    )


def advice(report: Report) -> str:
    """A sentence that advises what to try next.

    Texts that there was no time for come first. The sentence is empty if all texts were read, and
    the whole classifier is better than its linear model and than the baseline.
    """
    num_unread = report.run_findings.num_unread
    if num_unread:
        return (
            f"the model has not learned from {counted(num_unread, 'training text')}: a longer "
            "train.time_budget would help most"
        )

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


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A row of the table of scores, of a classifier, a part of it, the baseline or the other run.

    A cell has a score and its 95% interval; None for what was not computed.
    """

    name: str
    cells: list[tuple[float | None, Interval | None]]


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """The scores, by column, of a classifier, its parts, the baseline and the other run, by row."""

    scores: list[str]
    rows: list[ScoreRow]


def score_table(report: Report) -> ScoreTable:
    """Make the table of scores for the page."""
    evaluation = report.evaluation
    scores_by_name: dict[str, Mapping[str, Any]] = {"this model": evaluation.scores}
    if evaluation.part_comparison:
        scores_by_name = {name: evaluation.parts[part] for part, name in PARTS.items()}
    if evaluation.new_texts and evaluation.new_texts.num_texts:
        name = next(iter(scores_by_name))
        scores_by_name[f"{name}, new texts alone"] = evaluation.new_texts.scores
    if report.baseline_scores:
        sample = baseline_note(report.baseline_scores)
        scores_by_name[f"TF-IDF baseline (linear SVM{sample})"] = report.baseline_scores
    if report.against:
        scores_by_name[printable(report.against.run)] = report.against.scores

    shown_scores = [score for score in ALL_SCORES if score.key in evaluation.scores]
    rows = []
    for name, scores in scores_by_name.items():
        cells = []
        for score in shown_scores:
            cells.append((scores.get(score.key), scores.get(score.interval_key)))
        rows.append(ScoreRow(name=name, cells=cells))
    return ScoreTable(scores=[score.name for score in shown_scores], rows=rows)


# The section of calibration


def _calibration_lines(evaluation: SplitEvaluation) -> tuple[str, ...]:
    if evaluation.calibration is None:
        return ()
    return calibration(evaluation.calibration)


def calibration(judged: JudgedCalibration) -> tuple[str, str]:
    """Two phrases on calibration: how good it is, and how to read a probability."""
    grade = judged.grade
    error = f"(calibration error {judged.measured:.3f}; by chance {judged.by_chance:.3f})"

    if grade is Calibration.UNKNOWN:
        texts = counted(judged.num_predictions, "text")
        return grade.value, f"calibration cannot be judged on {texts} {error}"
    if grade is Calibration.GOOD:
        return grade.value, f"where a probability says 80%, about 80% are right {error}"

    direction = "too low"
    if judged.excess > 0:
        direction = "too high"
    overall = f"{100 * abs(judged.excess):.1f} points {direction} overall"
    gaps = f"{100 * judged.error:.1f} points on average, {overall}"

    if grade is Calibration.FAIR:
        return grade.value, f"probabilities are about right: off by {gaps} {error}"
    return grade.value, f"do not rely on probabilities: they are off by {gaps} {error}"


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
        yield _threshold_line(evaluation.threshold, num_texts=evaluation.num_independent)
    if evaluation.guarantees:
        yield from evaluation.guarantees.sentences()


def _threshold_line(threshold: SuggestedThreshold, *, num_texts: float) -> str:
    """A sentence on the suggested threshold, or on why there is none."""
    probability = threshold.probability
    if probability == 0:
        return (
            f"no threshold is needed: at least {WANTED_ACCURACY:.0%} of all predictions are right"
        )

    if probability is not None:
        return (
            f"--threshold {probability:.3f} keeps {threshold.predicted_fraction:.0%} of the "
            f"predictions, at least {WANTED_ACCURACY:.0%} of them right, on topics seen in training"
        )

    if num_texts < MIN_TEXTS:
        return f"no threshold is suggested: that takes at least {MIN_TEXTS} independent texts"
    return (
        f"no threshold is sure to reach {WANTED_ACCURACY:.0%} precision on new texts and keeps "
        f"{MIN_PREDICTED:.0%} of the predictions"
    )


# The section of notes


def _reservations(evaluation: SplitEvaluation, findings: RunFindings) -> Iterator[str]:
    is_validation = evaluation.split_name == "validation"
    if is_validation:
        yield VALIDATION_NOTE
    if findings.sample_note:
        yield findings.sample_note
    if findings.num_unscored:
        yield _sample_note(evaluation, findings)

    groups = groups_note(evaluation)
    if groups:
        yield groups

    if findings.num_refitted:
        texts = counted(findings.num_refitted, "validation text")
        note = f"the final linear model was also trained on {texts}"
        if is_validation:
            note += "; the scores here are from before"
        yield note

    if evaluation.metrics.unseen_labels:
        yield _unseen_note(evaluation.metrics.unseen_labels)

    if evaluation.metrics_of_new is not None:
        yield from indistinct_sentences(
            evaluation.metrics_of_new, independent=evaluation.independent_share
        )


def _sample_note(evaluation: SplitEvaluation, findings: RunFindings) -> str:
    """A sentence on a report that scores only as many texts as there was time for."""
    num_scored = evaluation.metrics.num_examples
    num_texts = num_scored + findings.num_unscored
    return (
        f"scored {num_scored:,} of the {num_texts:,} {evaluation.split_name} texts, chosen at "
        "random: there was no time for more (train.time_budget); `encoder-cls eval` scores all"
    )


# The share of groups among texts from which they are not mentioned: nearly all texts stand alone.
NEARLY_ALL_ALONE = 0.95


def groups_note(evaluation: SplitEvaluation) -> str:
    """A sentence on texts that belong together; empty if nearly all stand alone."""
    groups = evaluation.predictions.groups
    if groups.num_groups > NEARLY_ALL_ALONE * groups.num_rows:
        return ""
    texts = counted(groups.num_rows, "text")
    return (
        f"the {texts} form {counted(groups.num_groups, 'group')} (copies, similar texts, or "
        "data.group_column), so intervals and tests count fewer independent texts"
    )


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
    """A phrase with the fraction of texts that are too long, and the fraction of unknown tokens."""
    part = "linear model"
    if "encoder" in evaluation.parts:
        part = "encoder"
    longer = f"texts longer than the {part} reads {evaluation.truncated_fraction:.1%}"
    return f"{longer}, unknown tokens {evaluation.unknown_fraction:.1%}"


# The most characters of a class name in a column of a table.
MAX_NAME_LENGTH = 28


def _class_table(metrics: Metrics) -> Iterator[str]:
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    if isinstance(metrics, MultiLabelMetrics):
        columns["average_precision"] = "average precision"
        columns["threshold"] = "threshold"

    rows = [["class", *columns.values(), "examples"]]
    for name, scores in metrics.per_class.items():
        row = [name_text(name, limit=MAX_NAME_LENGTH)]
        for key in columns:
            row.append(score_text(getattr(scores, key)))
        row.append(str(scores.support))
        rows.append(row)
    yield from aligned(rows)


# The most classes of a confusion matrix that fits in a terminal.
MAX_MATRIX_SIZE = 12


def _confusion_lines(evaluation: SplitEvaluation) -> Iterator[str]:
    if not isinstance(evaluation.metrics, SingleLabelMetrics):
        return

    num_classes = len(evaluation.label_names)
    matrix = evaluation.metrics.confusion_matrix
    if not matrix or num_classes > MAX_MATRIX_SIZE:
        instead = "the matrix"
        if not matrix:
            instead = "the pairs confused most often"
        yield (
            f"no matrix here: {num_classes} classes are more than the {MAX_MATRIX_SIZE} that fit; "
            f"report.html has {instead}"
        )
        return

    # The columns are numbered, and the names of the rows start with the same numbers.
    header = [""]
    for number in range(1, num_classes + 1):
        header.append(f"{number:3}")

    rows = [header]
    names = evaluation.label_names
    for number, (name, counts) in enumerate(zip(names, matrix, strict=True), start=1):
        row = [f"{number:2} {name_text(name, limit=MAX_NAME_LENGTH)}"]
        for count in counts:
            row.append(str(count or "."))
        rows.append(row)
    yield from aligned(rows)


# The most mistakes that are listed in a terminal.
MAX_LISTED_MISTAKES = 5


def _mistake_lines(mistakes: Sequence[Mistake]) -> Iterator[str]:
    for mistake in mistakes[:MAX_LISTED_MISTAKES]:
        prediction = name_text(mistake.prediction)
        if mistake.kind:
            predicted = f"{mistake.kind} {prediction}"
        else:
            labels = ", ".join(name_text(label) for label in mistake.labels)
            predicted = f"{prediction}, not {labels}"
        yield f"{mistake.probability:.2f} {predicted}: {shown(mistake.text, limit=90)}"


def capitalized(words: str) -> str:
    """Write the first letter of some words in upper case, and leave the others as they are."""
    return f"{words[:1].upper()}{words[1:]}"


def score_text(score: float | None) -> str:
    """Format a score with three digits; None is a dash."""
    if score is None:
        return "-"
    return f"{score:.3f}"


def name_text(name: str, *, limit: int = 80) -> str:
    """Shorten a class name to `limit` characters, and write it on one line."""
    return printable(shortened(name, limit=limit))
