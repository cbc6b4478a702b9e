"""How well texts that belong to none of the classes are told from all others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.system.display import counted

# The share of the texts of a class that must get one, where the recall of none is measured.
ANSWERED = 0.95


@dataclass(frozen=True, kw_only=True)
class NoneScores:
    """Scores of the class `label`, which stands for none of the others.

    Attributes:
        recall: the share of its texts that get no class.
        answered_fraction: the share of other texts that get one.
        recall_at_95_answered: the recall where 95% of the others get a class.
        auroc: of the probability of none.
        unfamiliar_auroc: of the score behind `unfamiliar` on new texts, if measured.
    """

    label: str
    num_examples: int
    recall: float
    answered_fraction: float
    recall_at_95_answered: float
    auroc: float | None
    unfamiliar_auroc: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def sentence(self) -> str:
        """The scores in words."""
        found = (
            f"none of the classes ({self.label}, {counted(self.num_examples, 'text')}): "
            f"{self.recall:.0%} get no class, as {1 - self.answered_fraction:.1%} of the others; "
            f"{self.recall_at_95_answered:.0%} where {ANSWERED:.0%} of the others get one; "
            f"AUROC {self.auroc:.3f}"
        )
        if self.unfamiliar_auroc is None:
            return found
        return f"{found}, by unfamiliar alone {self.unfamiliar_auroc:.3f}"


def none_scores(
    label: str,
    is_none: NDArray[np.bool_],
    probability: NDArray[np.float64],
    gets_none: NDArray[np.bool_],
    *,
    unfamiliar_auroc: float | None,
) -> NoneScores | None:
    """Score texts by the probability of none, and whether it is predicted.

    None without texts of both kinds.
    """
    if is_none.all() or not is_none.any():
        return None
    highest_answered = np.quantile(probability[~is_none], ANSWERED, method="inverted_cdf")
    return NoneScores(
        label=label,
        num_examples=int(is_none.sum()),
        recall=float(gets_none[is_none].mean()),
        answered_fraction=float(1 - gets_none[~is_none].mean()),
        recall_at_95_answered=float((probability[is_none] > highest_answered).mean()),
        auroc=auroc(probability, is_none),
        unfamiliar_auroc=unfamiliar_auroc,
    )


def auroc(scores: NDArray[np.float64], is_positive: NDArray[np.bool_]) -> float | None:
    """How often a positive has a higher score; equal ones count half. None without both kinds."""
    if is_positive.all() or not is_positive.any():
        return None
    negatives = np.sort(scores[~is_positive])
    lower = np.searchsorted(negatives, scores[is_positive], side="left")
    not_higher = np.searchsorted(negatives, scores[is_positive], side="right")
    return float((lower + not_higher).mean() / 2 / len(negatives))
