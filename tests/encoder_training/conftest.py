"""The fixtures that all tests of this folder use."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_trainings(bare_trainings, usual_c):
    """Apply `bare_trainings` and `usual_c` to every test of this folder."""
