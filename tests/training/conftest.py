"""Fixtures of all tests of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_trainings(bare_trainings, usual_c):
    """Every test of this folder trains in this way."""
