"""Runs whose encoder joins the linear model.

The few validation texts of a small run do not show that an encoder surely helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from encoder_cls.classifier import validation_result


@contextmanager
def encoders_joining() -> Iterator[None]:
    """Every encoder joins: no loss counts as too much higher than that of the linear model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation_result, "STANDARD_ERRORS_TO_JOIN", -1e9)
        yield
