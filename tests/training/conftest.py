"""Fixtures of all tests of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _bare_trainings(bare_trainings):
    """Every test of this folder trains in this way."""
