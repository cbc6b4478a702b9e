"""Runs whose encoder joins the linear model, though their validation texts are too few to show that it surely helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from encoder_cls.classifier import mixture


@contextmanager
def encoders_joining() -> Iterator[None]:
    """Every encoder joins, as no loss is too much higher than that of the linear model alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "STANDARD_ERRORS_TO_JOIN", -1e9)
        yield
