"""Libraries that are not there: what is said of them."""

from __future__ import annotations

import sys

import pytest

from encoder_cls.errors import ConfigError
from encoder_cls.system.installed import check_installed, check_training_installed, is_installed, needs_torch


def test_a_library_is_installed_or_not(monkeypatch):
    """Also where a finder refuses to answer, and where the library is known to be none."""
    assert is_installed("torch")
    check_installed("torch", needed_by="train")
    assert not is_installed("no_such_library")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not is_installed("torch")
    with pytest.raises(ConfigError, match=r"^train: needs torch: pip install torch$"):
        check_installed("torch", needed_by="train")

    class Refusing:
        def find_spec(self, name, path=None, target=None):
            raise ImportError(name)

    monkeypatch.setattr(sys, "meta_path", [Refusing()])
    assert not is_installed("no_such_library")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["torch"], "needs PyTorch: pip install encoder-cls"),
        (["torch", "pydantic"], "needs PyTorch: pip install encoder-cls"),
        (["pydantic", "yaml"], "needs PyTorch: pip install encoder-cls (not installed: pydantic, yaml)"),
    ],
)
def test_training_without_its_libraries_is_refused(monkeypatch, missing, message):
    """In one line; nothing is said where all are there."""
    check_training_installed()
    with monkeypatch.context() as patch:
        patch.setattr("encoder_cls.system.installed.installed_version", lambda: ("encoder-cls-runtime", "1"))
        assert needs_torch() == "needs PyTorch: pip uninstall encoder-cls-runtime, then pip install encoder-cls"
    for library in missing:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as refused:
        check_training_installed()
    assert str(refused.value) == message
