"""The fixture that all tests of this folder use."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _bare_trainings(bare_trainings):
    """Apply `bare_trainings` to every test of this folder."""
