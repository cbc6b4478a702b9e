"""What a report has found: each fact once, with the sentence that says it.

`TEXT_SECTIONS` and `PAGE_SECTIONS` say where the terminal and the page show which kinds of facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from encoder_cls.data.codes import Codes
from encoder_cls.evaluation.changes_since_base import ChangesSinceBase
from encoder_cls.evaluation.comparisons import COMBINED, PartComparison, RunComparison
from encoder_cls.evaluation.indistinct_classes import indistinct_sentences
from encoder_cls.evaluation.judged_calibration import Calibration, JudgedCalibration
from encoder_cls.evaluation.levels import LevelsEvaluation
from encoder_cls.evaluation.measured_guarantees import PRECISION
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.suggested_threshold import (
    MIN_PREDICTED,
    MIN_TEXTS,
    WANTED_ACCURACY,
    SuggestedThreshold,
)
from encoder_cls.metrics.classification import Metrics, MultiLabelMetrics
from encoder_cls.metrics.intervals import MIN_TEXTS_PER_CLASS
from encoder_cls.metrics.scores import ALL_SCORES, SCORES, Place, scores_of_task
from encoder_cls.system.display import counted, listed, printable, shortened


class Kind(Enum):
    """What a finding is about."""

    SIZE = "how many texts were scored"
    SCORES = "the scores of the whole classifier"
    NO_INTERVAL = "why macro-F1 has no interval"
    RARE_CLASSES = "what macro-F1 is without the classes of few texts"
    FURTHER_SCORES = "scores that are computed for the whole classifier alone"
    LEARNED = "texts that the classifier has learned from"
    BASELINE = "the scores of the TF-IDF baseline"
    OTHER_RUN = "the scores of the run that this one is compared with"
    COMPARED = "comparisons with other runs"
    CONFUSED = "the classes that are confused most often"

    PARTS = "the scores of the encoder and the linear model alone"
    ENCODER_GAIN = "what the encoder adds, and which part has most of the weight"
    CASCADE = "which texts skip the encoder"
    ADVICE = "what to try next"

    NONE = "texts that belong to none of the classes"
    LEVELS = "the scores of each level of codes"
    LEVELS_TOGETHER = "the scores of all levels of codes together, and answers with back-off"
    PARTED = "the codes at which most mistakes begin"

    CALIBRATION = "how far probabilities can be trusted"
    THRESHOLD = "from which probability predictions are right"

    TUNED = "that the model was tuned on these texts"
    SAMPLE = "that the scored texts are a random sample"
    GROUPS = "texts that belong together"
    REFITTED = "validation texts that the final model has learned from"
    UNSEEN = "labels that never occur in training"
    INDISTINCT = "classes that cannot be told apart"
    LENGTHS = "texts that are too long, and unknown tokens"
    DOUBTFUL = "labels that may be wrong"

    # The plain sentences on the first screen of the page: see `plain_findings`.
    HOW_OFTEN = "how often the classifier is right"
    TRUST = "how far to trust that"
    NOTHING_CONFUSED = "why no classes are confused"
    NEXT_STEP = "what to do next"


class Finding(NamedTuple):
    """A fact, as a phrase without its full stop, or as plain sentences.

    A next step may have a file, and a command, in which `RUN` stands for the run's folder.
    """

    kind: Kind
    sentence: str
    file: str = ""
    command: str = ""


Sections = dict[str, list[str]]
"""The lines of each section, by its title."""

# The kinds in the sections of the report in a terminal: in the first one, which is named after the
# main score, and in the others.
SCORE_KINDS = (
    Kind.SCORES,
    Kind.NO_INTERVAL,
    Kind.RARE_CLASSES,
    Kind.FURTHER_SCORES,
    Kind.LEARNED,
    Kind.BASELINE,
    Kind.OTHER_RUN,
    Kind.COMPARED,
    Kind.CONFUSED,
)
TEXT_SECTIONS = {
    "Is the encoder worth it?": (Kind.PARTS, Kind.ENCODER_GAIN, Kind.CASCADE, Kind.ADVICE),
    "None of the classes": (Kind.NONE,),
    "Levels": (Kind.LEVELS, Kind.LEVELS_TOGETHER, Kind.PARTED),
    "Can the probabilities be trusted?": (Kind.CALIBRATION,),
    "Threshold": (Kind.THRESHOLD,),
    "Notes": (
        Kind.TUNED,
        Kind.SAMPLE,
        Kind.GROUPS,
        Kind.REFITTED,
        Kind.UNSEEN,
        Kind.INDISTINCT,
    ),
}
# The kinds in each section below the table of scores on the page. What the table or the first
# screen shows is left out.
PAGE_SECTIONS = {
    "Is the encoder worth it?": (Kind.ENCODER_GAIN, Kind.CASCADE, Kind.ADVICE),
    "None of the classes": (Kind.NONE,),
    "Can the probabilities be trusted?": (Kind.CALIBRATION,),
    "Threshold": (Kind.THRESHOLD,),
    "Compared with other runs": (Kind.COMPARED,),
    "Notes": (
        Kind.LEARNED,
        Kind.LENGTHS,
        Kind.SAMPLE,
        Kind.GROUPS,
        Kind.REFITTED,
        Kind.UNSEEN,
        Kind.INDISTINCT,
    ),
}


def sentences(findings: Iterable[Finding], *kinds: Kind) -> list[str]:
    """The sentences of some kinds, in their order."""
    findings = list(findings)
    return [finding.sentence for kind in kinds for finding in findings if finding.kind is kind]


def sections_of(
    findings: Iterable[Finding], kinds_by_title: Mapping[str, tuple[Kind, ...]]
) -> Sections:
    """The sections that have a finding."""
    sections = {}
    for title, kinds in kinds_by_title.items():
        lines = sentences(findings, *kinds)
        if lines:
            sections[title] = lines
    return sections


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known only of a run that is scored on its own data.

    Attributes:
        num_refitted: validation texts that the final linear fit includes.
        class_weights_note: empty if they would not help.
        changes_since_base: None without a base run.
        sample_note: which texts are a random sample; empty if any could be held out.
        num_unread: training texts that there was no time to read.
        num_unscored: texts of the split that there was no time to score.
    """

    num_refitted: int = 0
    class_weights_note: str = ""
    changes_since_base: ChangesSinceBase | None = None
    num_unread: int = 0
    num_unscored: int = 0
    sample_note: str = ""


def report_findings(
    evaluation: SplitEvaluation,
    baseline_scores: Mapping[str, Any] | None,
    against: RunComparison | None,
    facts: RunFacts,
) -> Iterator[Finding]:
    """All findings but the plain ones of the first screen."""
    yield Finding(Kind.SIZE, _size(evaluation.metrics))
    yield from _scores(evaluation)
    yield from _other_scores(baseline_scores, against)
    yield from _comparisons(against, facts)
    if evaluation.metrics.most_confused:
        yield Finding(Kind.CONFUSED, _most_confused(evaluation))

    yield from _parts(evaluation)
    advice = _advice(evaluation, baseline_scores, facts.num_unread)
    if advice:
        yield Finding(Kind.ADVICE, advice)

    if evaluation.none_scores:
        yield Finding(Kind.NONE, evaluation.none_scores.sentence())
    if evaluation.levels and evaluation.codes:
        yield from _levels(evaluation.levels, evaluation.codes)

    if evaluation.calibration:
        for sentence in _calibration(evaluation.calibration):
            yield Finding(Kind.CALIBRATION, sentence)
    for sentence in _threshold(evaluation):
        yield Finding(Kind.THRESHOLD, sentence)
    yield from _notes(evaluation, facts)


# Scores

LEARNED_ALL = "the model has learned from all of these texts: this says nothing about new texts"


def _size(metrics: Metrics) -> str:
    texts = counted(metrics.num_examples, "example")
    if isinstance(metrics, MultiLabelMetrics):
        return f"{texts}, {metrics.labels_per_text:.2f} labels a text"
    return texts


def _scores(evaluation: SplitEvaluation) -> Iterator[Finding]:
    metrics = evaluation.metrics
    scores = _scores_with_intervals(evaluation.scores)
    calibration_error = f"{SCORES['ece'].name} {metrics.ece:.4f}"
    yield Finding(Kind.SCORES, f"{scores}, {calibration_error} (95% intervals in brackets)")

    if evaluation.macro_f1_note:
        yield Finding(Kind.NO_INTERVAL, evaluation.macro_f1_note)
    for sentence in _rare_classes(metrics):
        yield Finding(Kind.RARE_CLASSES, sentence)

    further = []
    scalars = metrics.scalars()
    for score in scores_of_task(metrics.task):
        if Place.REPORT in score.shown_in and score.key in scalars:
            further.append(f"{score.name} {scalars[score.key]:.4f}")
    if further:
        yield Finding(Kind.FURTHER_SCORES, ", ".join(further))

    new_texts = evaluation.new_texts
    if new_texts and new_texts.num_texts:
        new_scores = _scores_with_intervals(new_texts.scores)
        learned = (
            f"the model has learned from {evaluation.num_learned:,} of these texts; "
            f"the {new_texts.num_texts:,} new ones alone: {new_scores}"
        )
        yield Finding(Kind.LEARNED, learned)
    elif new_texts:
        yield Finding(Kind.LEARNED, LEARNED_ALL)


def _scores_with_intervals(scores: Mapping[str, Any]) -> str:
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


# The smallest change of macro-F1 by rare classes that a report mentions.
MIN_EFFECT_OF_RARE_CLASSES = 0.05


def _rare_classes(metrics: Metrics) -> Iterator[str]:
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


def _other_scores(
    baseline_scores: Mapping[str, Any] | None, against: RunComparison | None
) -> Iterator[Finding]:
    baseline = "TF-IDF baseline: none"
    if baseline_scores:
        shown_scores = _scores_with_intervals(baseline_scores)
        baseline = f"TF-IDF baseline (linear SVM{baseline_note(baseline_scores)}): {shown_scores}"
    yield Finding(Kind.BASELINE, baseline)

    if against:
        shown_scores = _scores_with_intervals(against.scores)
        yield Finding(Kind.OTHER_RUN, f"{printable(against.run)}: {shown_scores}")


def baseline_note(baseline_scores: Mapping[str, float]) -> str:
    """Texts and features of the baseline; empty if all."""
    parts = []
    for what in ("texts", "features"):
        number = baseline_scores[what]
        total = baseline_scores[f"of_{what}"]
        if number < total:
            parts.append(f"{number:,} of {total:,} {what}")

    if not parts:
        return ""
    return f", trained on {' and '.join(parts)}"


def _comparisons(against: RunComparison | None, facts: RunFacts) -> Iterator[Finding]:
    compared: list[str] = []
    if against:
        compared += against.sentences()
    if facts.changes_since_base:
        compared += facts.changes_since_base.sentences()
    if facts.class_weights_note:
        compared.append(facts.class_weights_note)
    for sentence in compared:
        yield Finding(Kind.COMPARED, sentence)


# The most pairs of confused classes in a summary.
MAX_CONFUSED_PAIRS = 2


def _most_confused(evaluation: SplitEvaluation) -> str:
    metrics = evaluation.metrics
    pairs = []
    for pair in metrics.most_confused[:MAX_CONFUSED_PAIRS]:
        label = name_text(evaluation.shown(pair.label))
        prediction = name_text(evaluation.shown(pair.prediction))
        words = f"{label} taken for {prediction}"
        if isinstance(metrics, MultiLabelMetrics):
            words = f"{label} missed where {prediction} is given"
        pairs.append(f"{words} ({pair.count})")
    return f"most confused: {'; '.join(pairs)}"


def name_text(name: str, *, limit: int = 80) -> str:
    """A class name of at most `limit` characters, on one line."""
    return printable(shortened(name, limit=limit))


# Parts

# The names of the whole classifier and of its parts in a report.
PARTS = {COMBINED: "both together", "linear": "linear alone", "encoder": "encoder alone"}
# The option by which a linear model is trained alone.
LINEAR_ALONE = "--set model.encoder=false"


def _parts(evaluation: SplitEvaluation) -> Iterator[Finding]:
    comparison = evaluation.part_comparison
    if comparison:
        for part in ("linear", "encoder"):
            scores = _scores_with_intervals(evaluation.parts[part])
            yield Finding(Kind.PARTS, f"{PARTS[part]}: {scores}")
        gain = _encoder_gain(comparison)
        if evaluation.mixture_shares:
            gain += f"; {_weights(evaluation.mixture_shares)}"
        yield Finding(Kind.ENCODER_GAIN, gain)

    if evaluation.cascade:
        skipped = evaluation.cascade["skipped_fraction"]
        gate = evaluation.cascade["gate"]
        cascade = (
            f"the linear model alone classifies {skipped:.0%} of the texts, "
            f"those where its probability is {gate:g} or more"
        )
        yield Finding(Kind.CASCADE, cascade)


def _encoder_gain(comparison: PartComparison) -> str:
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
    return f"{difference} the linear model alone ({sure}; {interval})"


# The share in the mixture from which a part is said to decide nearly alone.
NEARLY_ALL = 0.97
# The share from which a part is said to have most of the weight.
MOSTLY = 0.6


def _weights(mixture_shares: Mapping[str, float]) -> str:
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


def _advice(
    evaluation: SplitEvaluation, baseline_scores: Mapping[str, Any] | None, num_unread: int
) -> str:
    """What to try next, first time for unread texts; empty if all is well."""
    if num_unread:
        return (
            f"the model has not learned from {counted(num_unread, 'training text')}: a longer "
            "train.time_budget would help most"
        )

    comparison = evaluation.part_comparison
    if comparison:
        is_encoder_worth_it = comparison.is_sure and comparison.combined_minus_linear > 0
        if not is_encoder_worth_it:
            return f"the linear model alone may do as well, and trains in seconds: {LINEAR_ALONE}"

    score = evaluation.metrics.main_score.key
    if not baseline_scores or baseline_scores[score] <= evaluation.scores[score]:
        return ""
    if "linear" in evaluation.parts:
        return "the TF-IDF baseline is more accurate here; more labelled texts would help most"
    return f"the TF-IDF baseline is more accurate here; a linear model alone: {LINEAR_ALONE}"


# Levels

# The most pairs of codes that are named in sentences.
MAX_PARTED = 3


def _levels(levels: LevelsEvaluation, codes: Codes) -> Iterator[Finding]:
    for scores in levels.levels:
        low, high = scores.accuracy_interval
        top = "".join(f", top-{k} accuracy {share:.4f}" for k, share in scores.top.items())
        scored = f"accuracy {scores.accuracy:.4f} [{low:.3f}, {high:.3f}]"
        scored += f", macro-F1 {scores.macro_f1:.4f}{top}"
        of_level = f"level {scores.level} ({counted(scores.num_codes, 'code')})"
        yield Finding(Kind.LEVELS, f"{of_level}: {scored}")

    precision = f"precision {levels.hierarchical_precision:.4f}"
    recall = f"recall {levels.hierarchical_recall:.4f}"
    f1 = f"hierarchical F1 {levels.hierarchical_f1:.4f} ({precision}, {recall})"
    yield Finding(Kind.LEVELS_TOGETHER, f1)
    shares = []
    for scores in levels.levels:
        shares.append(f"{scores.sure_share:.0%} at level {scores.level}")
    answered = f"of the surest answers, {PRECISION:.0%} are right if so many are given: "
    yield Finding(Kind.LEVELS_TOGETHER, f"{answered}{', '.join(shares)}")
    if levels.back_off:
        yield Finding(Kind.LEVELS_TOGETHER, levels.back_off.sentence())

    for parted in levels.parted[:MAX_PARTED]:
        label = name_text(codes.shown(parted.label))
        prediction = name_text(codes.shown(parted.prediction))
        words = f"{label} taken for {prediction} ({parted.count})"
        yield Finding(Kind.PARTED, f"at level {parted.level}, {words}")


# Calibration


def _calibration(judged: JudgedCalibration) -> tuple[str, str]:
    error = f"(calibration error {judged.measured:.3f}; by chance {judged.by_chance:.3f})"
    if judged.grade is Calibration.UNKNOWN:
        texts = counted(judged.num_predictions, "text")
        return judged.grade.value, f"calibration cannot be judged on {texts} {error}"
    return judged.grade.value, f"{reading_of_probabilities(judged)} {error}"


def reading_of_probabilities(judged: JudgedCalibration) -> str:
    """How to read a probability of known calibration."""
    if judged.grade is Calibration.GOOD:
        return "where a probability says 80%, about 80% are right"

    direction = "too low"
    if judged.excess > 0:
        direction = "too high"
    # The error has no chance in it. The excess has, and without it is never the larger one.
    excess = min(abs(judged.excess), judged.error)
    overall = f"{100 * excess:.1f} points {direction} overall"
    gaps = f"{100 * judged.error:.1f} points on average, {overall}"

    if judged.grade is Calibration.FAIR:
        return f"probabilities are about right: off by {gaps}"
    return f"do not rely on probabilities: they are off by {gaps}"


# The threshold


def _threshold(evaluation: SplitEvaluation) -> Iterator[str]:
    metrics = evaluation.metrics
    if isinstance(metrics, MultiLabelMetrics):
        yield (
            "a text gets each label whose probability reaches the label's threshold, chosen on "
            f"validation texts: {metrics.predicted_per_text:.2f} labels a text; "
            "--threshold sets one threshold for all labels"
        )
    if evaluation.threshold:
        yield _suggestion(evaluation.threshold, num_texts=evaluation.num_independent)
    if evaluation.guarantees:
        yield from evaluation.guarantees.sentences()


def _suggestion(threshold: SuggestedThreshold, *, num_texts: float) -> str:
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


# Notes

# The note on scores of validation texts.
TUNED = (
    "the model was tuned on these texts, so expect slightly lower scores on new ones (data.test)"
)
# The share of groups among texts from which they are not mentioned: nearly all texts stand alone.
NEARLY_ALL_ALONE = 0.95


def _notes(evaluation: SplitEvaluation, facts: RunFacts) -> Iterator[Finding]:
    is_validation = evaluation.split_name == "validation"
    if is_validation:
        yield Finding(Kind.TUNED, TUNED)
    if facts.sample_note:
        yield Finding(Kind.SAMPLE, facts.sample_note)
    if facts.num_unscored:
        yield Finding(Kind.SAMPLE, _scored_in_time(evaluation, facts.num_unscored))

    groups = evaluation.predictions.groups
    if groups.num_groups <= NEARLY_ALL_ALONE * groups.num_rows:
        texts = counted(groups.num_rows, "text")
        note = (
            f"the {texts} form {counted(groups.num_groups, 'group')} (copies, similar texts, or "
            "data.group_column), so intervals and tests count fewer independent texts"
        )
        yield Finding(Kind.GROUPS, note)

    if facts.num_refitted:
        texts = counted(facts.num_refitted, "validation text")
        note = f"the final linear model was also trained on {texts}"
        if is_validation:
            note += "; the scores here are from before"
        yield Finding(Kind.REFITTED, note)

    if evaluation.metrics.unseen_labels:
        yield Finding(Kind.UNSEEN, _unseen(evaluation.metrics.unseen_labels))

    if evaluation.metrics_of_new is not None:
        for sentence in indistinct_sentences(
            evaluation.metrics_of_new, independent=evaluation.independent_share
        ):
            yield Finding(Kind.INDISTINCT, sentence)

    yield Finding(Kind.LENGTHS, _lengths(evaluation))
    doubtful = f"labels that may be wrong: {len(evaluation.doubtful_labels):,}"
    yield Finding(Kind.DOUBTFUL, doubtful)


def _scored_in_time(evaluation: SplitEvaluation, num_unscored: int) -> str:
    num_scored = evaluation.metrics.num_examples
    num_texts = num_scored + num_unscored
    return (
        f"scored {num_scored:,} of the {num_texts:,} {evaluation.split_name} texts, chosen at "
        "random: there was no time for more (train.time_budget); `encoder-cls eval` scores all"
    )


def _unseen(unseen_labels: Mapping[str, int]) -> str:
    num_texts = sum(unseen_labels.values())
    texts = f"{num_texts:,} texts have labels that never occur"
    if num_texts == 1:
        texts = "1 text has a label that never occurs"
    names = listed(list(unseen_labels))
    return (
        f"{texts} in the training data ({names}): this counts as a mistake, "
        "and is left out of the loss and the calibration error"
    )


def _lengths(evaluation: SplitEvaluation) -> str:
    part = "linear model"
    if "encoder" in evaluation.parts:
        part = "encoder"
    longer = f"texts longer than the {part} reads {evaluation.truncated_fraction:.1%}"
    return f"{longer}, unknown tokens {evaluation.unknown_fraction:.1%}"
