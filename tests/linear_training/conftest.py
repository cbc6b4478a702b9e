"""What holds in all tests here that train: see `bare_trainings`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _bare_trainings(bare_trainings):
    """In every test of this folder."""
