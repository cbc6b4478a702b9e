"""What a model promised and the labels of other texts in; what became of its promises out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.promises import Promises

PROMISED_PRECISION, PROMISED_COVERAGE = 0.95, 0.9  # that a report looks at, the precision where it can be promised


@dataclass(frozen=True, kw_only=True)
class KeptPromises:
    """Promises of held-out texts, on other texts.

    Attributes:
        promised_precision: `PROMISED_PRECISION`, or the highest that can be promised; 0 where none can be.
        threshold: the probability from which there are answers.
        precision: how often these are right; none where there is no answer.
        answered_fraction: how many of the texts have one.
        promised_coverage: `PROMISED_COVERAGE`, or the highest that can be promised.
        coverage: how often the label of a text is in its set.
        mean_set_size: how many classes a set has.
    """

    promised_precision: float
    threshold: float | None
    precision: float | None
    answered_fraction: float
    promised_coverage: float
    coverage: float | None
    mean_set_size: float | None


def keep_promises(promises: Promises, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> KeptPromises:
    """What becomes of promises.

    Args:
        promises: of the model.
        probabilities: (texts, classes), of other texts than those they were made on.
        labels: their classes, (texts,); those beyond the classes are mistakes.
    """
    precision = PROMISED_PRECISION
    threshold = promises.precision_threshold(precision)
    if threshold is None and promises.highest_precision < precision:
        precision = promises.highest_precision
        threshold = promises.precision_threshold(precision)
    confidence, best = probabilities.max(axis=1), probabilities.argmax(axis=1)
    is_answered = confidence >= (np.inf if threshold is None else threshold)
    coverage = min(PROMISED_COVERAGE, promises.highest_coverage)
    set_threshold = promises.coverage_threshold(coverage)
    sets = probabilities >= (np.inf if set_threshold is None else set_threshold)
    sets[np.arange(len(best)), best] = True
    is_known = labels < probabilities.shape[1]
    is_covered = np.zeros(len(labels), dtype=bool)
    is_covered[is_known] = sets[is_known, labels[is_known]]
    return KeptPromises(
        promised_precision=precision,
        threshold=threshold,
        precision=float((best == labels)[is_answered].mean()) if is_answered.any() else None,
        answered_fraction=float(is_answered.mean()),
        promised_coverage=coverage,
        coverage=None if set_threshold is None else float(is_covered.mean()),
        mean_set_size=None if set_threshold is None else float(sets.sum(axis=1).mean()),
    )


def promise_sentences(kept: KeptPromises | None) -> Iterator[str]:
    """What a person is told of them; nothing where nothing was promised."""
    if kept is None:
        return
    if not kept.promised_precision:
        yield "no precision can be promised (--min-precision): there are too few held-out texts"
        return
    option = f"--min-precision {kept.promised_precision:g}"
    got = "no text is answered" if kept.precision is None else (
        f"got {kept.precision:.3f}, answers {kept.answered_fraction:.0%}")  # fmt: skip
    is_lower = ", the highest that can be" if kept.promised_precision < PROMISED_PRECISION else ""
    yield f"{option}: promised {kept.promised_precision:g}{is_lower}, {got}"
    if kept.coverage is not None:
        yield (
            f"--coverage {kept.promised_coverage:g}: promised {kept.promised_coverage:g}, got {kept.coverage:.3f}, "
            f"{kept.mean_set_size:.1f} classes in a set"
        )
