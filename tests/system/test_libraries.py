"""Libraries that are missing."""

from __future__ import annotations

import sys

import pytest

from encoder_cls.errors import ConfigError
from encoder_cls.system import libraries
from encoder_cls.system.libraries import check_training_installed, needs_torch


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["torch"], "needs PyTorch: pip install encoder-cls"),
        (["torch", "scipy"], "needs PyTorch: pip install encoder-cls"),
        (
            ["scipy", "pyarrow"],
            "needs PyTorch: pip install encoder-cls (not installed: scipy, pyarrow)",
        ),
    ],
)
def test_training_without_its_libraries_is_refused(monkeypatch, missing, message):
    check_training_installed()

    for library in missing:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as refused:
        check_training_installed()
    assert str(refused.value) == message


def test_the_runtime_must_be_uninstalled_first(monkeypatch):
    """Both distributions install the same files."""
    monkeypatch.setattr(libraries, "installed_version", lambda: ("encoder-cls-runtime", "1"))
    expected = "needs PyTorch: pip uninstall encoder-cls-runtime, then pip install encoder-cls"
    assert needs_torch() == expected
