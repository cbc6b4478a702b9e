"""Devices and precisions by name, memory, and numbers in the environment."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from encoder_cls.errors import ConfigError
from encoder_cls.system.machine import release_memory, resolve_device, resolve_precision
from encoder_cls.system.processes import usable_processes

CPU = torch.device("cpu")
PROBES = ["_is_amx_tile_supported", "_is_avx512_bf16_supported"]


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "cuda:x", "cuda:", "cuda:99", ""])
def test_a_device_that_is_not_here_is_refused(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="--device"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("name", "num_gpus", "expected"),
    [
        ("cpu", 2, "cpu"),
        ("cuda", 2, "cuda"),
        ("cuda:1", 2, "cuda:1"),
        ("auto", 0, "cpu"),
        ("auto", 1, "cuda"),
    ],
)
def test_devices_by_name(name, num_gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    assert resolve_device(name) == torch.device(expected)


@pytest.mark.parametrize(
    ("has_amx", "has_avx512", "expected"),
    [
        (False, False, torch.float32),
        (True, False, torch.bfloat16),
        (False, True, torch.bfloat16),
    ],
)
def test_auto_precision_follows_the_processor(has_amx, has_avx512, expected, monkeypatch):
    amx_probe, avx512_probe = PROBES
    monkeypatch.setattr(torch.cpu, amx_probe, lambda: has_amx, raising=False)
    monkeypatch.setattr(torch.cpu, avx512_probe, lambda: has_avx512, raising=False)
    assert resolve_precision("auto", CPU) == expected


def test_auto_precision_is_float32_where_torch_has_no_probes(monkeypatch):
    for probe in PROBES:
        monkeypatch.delattr(torch.cpu, probe, raising=False)
    assert resolve_precision("auto", CPU) == torch.float32


def test_precisions_by_name():
    assert resolve_precision("bfloat16", CPU) == torch.bfloat16
    assert resolve_precision("float32", CPU) == torch.float32


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), torch.float32), ((9, 0), torch.bfloat16)]
)
def test_auto_precision_follows_the_gpu(capability, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve_precision("auto", torch.device("cuda")) == expected


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc is known to keep what is freed"
)
def test_freed_memory_goes_back_to_the_system():
    """Every other of many blocks is freed, so that no gap reaches the end of the heap."""
    blocks = [b"x" * 100_000 for _ in range(2_000)]
    del blocks[::2]

    before = _resident_bytes()
    release_memory()
    freed = before - _resident_bytes()
    assert freed > 80_000_000
    assert len(blocks) == 1_000


def _resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("written", ["abc", "0", "-3", "1.5", "2 cores"])
def test_an_environment_variable_that_is_no_number_is_named(cli, monkeypatch, written):
    """The message says how to mend it."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", written)
    message = f"^LOKY_MAX_CPU_COUNT: .* is '{written}'.* from 1; correct or unset it"
    with pytest.raises(ConfigError, match=message):
        usable_processes()

    monkeypatch.setenv("WORLD_SIZE", written)
    ended = cli("train", "--dry-run")
    assert ended.code == 2
    assert "error: WORLD_SIZE: " in ended.err


def test_processes_without_an_address_are_named(cli, monkeypatch):
    """A job of a cluster may start several processes without a way to find each other."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    ended = cli("train", "--dry-run")
    assert ended.code == 2
    assert "WORLD_SIZE is 2, but the processes cannot reach each other" in ended.err
