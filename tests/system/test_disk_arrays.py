"""Arrays on disk are read back as they were appended, from memory or from a file without a name."""

from __future__ import annotations

import errno
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.errors import EncoderClsError
from encoder_cls.system import disk_arrays
from encoder_cls.system.disk_arrays import DiskBackedArray

NUMBERS = list(range(100))


@pytest.fixture(params=[1 << 20, 5], ids=["memory", "file"], autouse=True)
def max_in_memory(request, tmp_path, monkeypatch) -> int:
    """The maximum number of bytes that stay in memory."""
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", request.param)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return request.param


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 50, 1], [7] * 20])
def test_parts_make_one_array(dtype, lengths):
    random = np.random.default_rng(0)
    parts = [random.integers(0, 2, length) for length in lengths]
    numbers = DiskBackedArray(dtype)
    for part in parts:
        numbers.append(part)

    expected = np.concatenate([np.zeros(0, dtype=dtype), *parts])
    for _ in range(2):
        assert numbers.array().dtype == dtype
        assert numbers.array().tolist() == expected.tolist()
        numbers.forget()


def test_the_file_has_no_name(tmp_path, max_in_memory):
    """The file is in the folder for temporary files, and nothing can be left behind there."""
    numbers = DiskBackedArray(np.int64)
    numbers.append(NUMBERS)

    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    has_file = any(name.startswith(str(tmp_path)) for name in opened)
    assert has_file == (max_in_memory == 5)
    assert numbers.array().tolist() == NUMBERS
    assert list(tmp_path.iterdir()) == []


def test_only_a_file_is_mapped(max_in_memory):
    """A mapped array is a plain one: each slice of a `np.memmap` would be another one."""
    numbers = DiskBackedArray(np.int64)
    numbers.append(NUMBERS)

    array = numbers.array()
    assert type(array) is np.ndarray
    assert isinstance(array.base, np.memmap) == (max_in_memory == 5)
    numbers.forget()
    assert array.tolist() == NUMBERS


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class FullDisk(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", 5)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: FullDisk())
    numbers = DiskBackedArray(np.int64)

    message = rf"{tmp_path}: cannot write .*: No space left on device .*TMPDIR"
    with pytest.raises(EncoderClsError, match=message):
        numbers.append(NUMBERS)
        numbers.append(NUMBERS)
