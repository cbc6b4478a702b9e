"""A report as JSON values in, the sentences of its verdict out: how good, how sure that is, what to take from it.

Reports of earlier versions lack some keys, such as `accuracy_interval`, `parts` and `comparison`: of what is not there
nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FEW_TEXTS = 100  # of fewer a calibration error says little: with 15 bins it is large by chance
WELL_CALIBRATED = 0.03
FAIRLY_CALIBRATED = 0.08
NEARLY_ALONE = 0.95  # a share of the weights beyond which the other part hardly counts
PART_NAMES = {"combined": "both together", "linear": "linear alone", "encoder": "encoder alone"}
Row = tuple[str, float, tuple[float, float] | None]


def percent_interval(interval: Any) -> str:
    """An interval of fractions in percent; empty where there is none."""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}%" if interval else ""


def comparison_sentence(values: Mapping[str, Any]) -> str:
    """What the encoder adds to the linear model of the same run; empty where that was not measured."""
    comparison = values.get("comparison")
    if not comparison:
        return ""
    low, high = comparison["interval"]
    sure = "sure" if comparison["is_sure"] else "not sure"
    return (
        f"{_points(comparison['combined_minus_linear'])} over the linear model alone "
        f"({sure}: 95% interval {_points(low)} to {_points(high)})"
    )


def reference_sentence(values: Mapping[str, Any]) -> str:
    """How the classifier stands to the linear model on TF-IDF; empty where there is none."""
    reference = values.get("linear_reference")
    if not reference:
        return ""
    theirs, ours = reference["accuracy"], values["accuracy"]
    if theirs > ours:
        return f"The linear model on TF-IDF is more accurate on these texts: {theirs:.1%}"
    return f"{_points(ours - theirs)} over a linear model on TF-IDF ({theirs:.1%})"


def part_rows(values: Mapping[str, Any]) -> list[Row]:
    """Name, accuracy and interval of each part, and of the linear reference; none where not both parts are."""
    parts = values.get("parts") or {}
    if not (parts.get("linear") and parts.get("encoder")):
        return []
    rows: list[Row] = [
        (name, parts[part]["accuracy"], _pair(parts[part].get("accuracy_interval")))
        for part, name in PART_NAMES.items()
        if part in parts
    ]
    reference = values.get("linear_reference")
    return [*rows, ("TF-IDF model", reference["accuracy"], None)] if reference else rows


def share_sentence(values: Mapping[str, Any]) -> str:
    """What each part weighs in the answer, in words; empty where that is not known."""
    shares = values.get("mixture_shares") or {}
    linear, encoder = shares.get("linear"), shares.get("encoder")
    if linear is None or encoder is None:
        return ""
    if max(linear, encoder) >= NEARLY_ALONE:
        first, second = ("linear model", "encoder") if linear > encoder else ("encoder", "linear model")
        return f"The {first} answers nearly alone: the {second} has {min(linear, encoder):.1%} of the weight."
    return f"Of the weight in the answer the linear model has {linear:.0%} and the encoder {encoder:.0%}."


def calibration(values: Mapping[str, Any]) -> tuple[str, str]:
    """Calibration in words: the gist, and a sentence that says what follows."""
    ece, bins = values["ece"], values["calibration"]
    number = sum(bins["texts"])
    if number < FEW_TEXTS:
        return "too few texts to tell", (
            f"How far a probability can be trusted shows only on more than these {number:,} texts (calibration error "
            f"{ece:.3f})."
        )
    total = sum(
        texts * (confidence - accuracy)
        for confidence, accuracy, texts in zip(bins["confidence"], bins["accuracy"], bins["texts"], strict=True)
    )
    direction = "too sure" if total > 0 else "too cautious"
    lean = f", on the whole {direction} by {100 * abs(total) / number:.1f} points"
    if ece <= WELL_CALIBRATED:
        return "well calibrated", (
            "A probability can be taken at its word: where it says 80%, about 80% are right (calibration error "
            f"{ece:.3f})."
        )
    gist = "fairly calibrated" if ece <= FAIRLY_CALIBRATED else "poorly calibrated"
    follows = (
        "Take a probability as about right" if ece <= FAIRLY_CALIBRATED else "Do not take a probability at its word"
    )
    return gist, f"{follows}: it is off by {100 * ece:.1f} points on average{lean} (calibration error {ece:.3f})."


def _points(difference: float) -> str:
    """A difference of fractions in percentage points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-", "\N{MINUS SIGN}")


def _pair(interval: Any) -> tuple[float, float] | None:
    return (interval[0], interval[1]) if interval else None
