"""Linear models with the usual C, since choosing their C takes half the time of a tiny run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from encoder_cls.linear_training import cost, model_selection


@contextmanager
def trying_usual_c_alone() -> Iterator[None]:
    """Linear models try a single value of C."""
    with pytest.MonkeyPatch.context() as patch:
        for task, svm_c in model_selection.USUAL_C.items():
            patch.setitem(model_selection.C_VALUES, task, (svm_c,))

        # What a fit expects to do depends on this number.
        for module in (model_selection, cost):
            patch.setattr(module, "C_VALUES_TRIED", 1)
        yield
