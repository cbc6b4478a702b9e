"""The summary sentences of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.evaluation.scores import COMBINED, Interval

if TYPE_CHECKING:
    from encoder_cls.evaluation.report import AnyReport

FEW_TEXTS = 100  # of fewer a calibration error says little: with 15 bins it is large by chance
WELL_CALIBRATED, FAIRLY_CALIBRATED = 0.03, 0.08
# Of the larger share in the sum of the logits, from which the answer is said to be nearly, or mostly, that part's.
NEARLY_ALL, MOSTLY = 0.97, 0.6
LINEAR_ALONE = "model.encoder=false"  # which trains the linear part alone, in seconds


class PartRow(NamedTuple):
    """A part, or a model beside it, with its accuracy (multi-label: micro-F1) and the interval of that, if known."""

    name: str
    score: float
    interval: Interval | None


def percent_interval(interval: Interval) -> str:
    """An interval of fractions in percent."""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}%"


def difference_sentence(report: AnyReport) -> str:
    """What the encoder adds to the linear model of the same run; nothing where there are not both."""
    if report.comparison is None:
        return ""
    points, interval = 100 * report.comparison.combined_minus_linear, report.comparison.interval
    # As it is shown: no sign before a zero.
    by = f"{abs(points):.1f} points below" if points <= -0.05 else f"{max(points, 0):+.1f} points over"
    sure = "sure" if report.comparison.is_sure else "not sure"
    return f"{by} the linear model alone ({sure}; 95% interval {100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"


def weight_sentence(report: AnyReport) -> str:
    """Which part decides; nothing where there are not both, or a model that does not tell."""
    shares = report.mixture_shares
    if not shares or len(shares) < 2:
        return ""
    names = {"linear": "the linear model", "encoder": "the encoder"}
    larger, smaller = sorted(shares, key=lambda name: -shares[name])
    if shares[larger] >= NEARLY_ALL:
        return f"{names[larger]} decides nearly alone ({_percent(shares[larger])} of the weight)"
    if shares[larger] >= MOSTLY:
        return f"{names[larger]} has most of the weight ({_percent(shares[larger])})"
    of_each = f"{names[larger]} {_percent(shares[larger])}, {names[smaller]} {_percent(shares[smaller])}"
    return f"both weigh about the same ({of_each})"


def comparison_sentence(report: AnyReport) -> str:
    """Both of these sentences in one."""
    difference = difference_sentence(report)
    return "; ".join(filter(None, (difference, weight_sentence(report)))) if difference else ""


def advice(report: AnyReport) -> str:
    """What a person may try next, going by the scores; nothing where the classifier is the best there is."""
    comparison, reference = report.comparison, report.linear_reference
    if comparison and not (comparison.is_sure and comparison.combined_minus_linear > 0):
        return f"the linear model alone may do as well, and trains in seconds: --set {LINEAR_ALONE}"
    if reference and reference[report.score_name] > report.parts[COMBINED].score:
        if "linear" not in report.parts:
            return f"the linear reference is more accurate here; a linear model alone: --set {LINEAR_ALONE}"
        return "the linear reference is more accurate here; more labelled texts would help most"
    return ""


def part_rows(report: AnyReport) -> list[PartRow]:
    """The classifier, its parts and the linear reference; nothing where there are not both parts."""
    if report.comparison is None:
        return []
    names = {COMBINED: "both together", "linear": "linear alone", "encoder": "encoder alone"}
    rows = [PartRow(name, report.parts[part].score, report.parts[part].score_interval) for part, name in names.items()]
    reference = report.linear_reference
    if not reference:
        return rows
    interval = reference.get(f"{report.score_name}_interval")
    return [*rows, PartRow("TF-IDF model", reference[report.score_name], interval)]


def calibration(report: AnyReport) -> tuple[str, str]:
    """Calibration in words: the gist, and a sentence that says what follows."""
    ece, bins = report.metrics.ece, report.metrics.calibration
    number = sum(bins.texts)
    if number < FEW_TEXTS:
        return "too few texts to tell", (
            f"How far a probability can be trusted shows only on more than these {number:,} texts (calibration error "
            f"{ece:.3f})."
        )
    if ece <= WELL_CALIBRATED:
        return "well calibrated", (
            "A probability can be taken at its word: where it says 80%, about 80% are right (calibration error "
            f"{ece:.3f})."
        )
    is_fair = ece <= FAIRLY_CALIBRATED
    follows = "Take a probability as about right" if is_fair else "Do not take a probability at its word"
    total = sum(
        texts * (confidence - accuracy)
        for confidence, accuracy, texts in zip(bins.confidence, bins.accuracy, bins.texts, strict=True)
    )
    direction = "too sure" if total > 0 else "too cautious"
    off = f"it is off by {100 * ece:.1f} points on average, on the whole {direction} by {100 * abs(total) / number:.1f}"
    return "fairly calibrated" if is_fair else "poorly calibrated", f"{follows}: {off} (calibration error {ece:.3f})."


def _percent(share: float) -> str:
    """A share, with as many digits as show that it is not everything."""
    return f"{share:.1%}" if NEARLY_ALL <= share < 1 else f"{share:.0%}"
