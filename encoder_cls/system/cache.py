"""A cache of arrays on disk (`data.cache`), which several processes can share.

An entry is a folder, written atomically, with a `NAME.npy` for each array and a `record.json`: the
SHA-256 of its second line, in which are those of the arrays' files and all other values. A damaged
entry is made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import (
    locked,
    remove_leftovers,
    reporting_os_errors,
    sha256,
    write_folder,
)
from encoder_cls.system.reporter import SILENT, Reporter

# The packages whose code makes entries, `data` and `text`, with those that they import.
CODE = Path(__file__).parents[1]
PACKAGES = ("config", "data", "system", "text")
# The libraries on whose versions the content of an entry depends.
LIBRARIES = ("encoder-cls", "pyarrow", "tokenizers")

RECORD_FILE = "record.json"
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class CacheEntry:
    """The content of an entry.

    Arrays that were read are memory maps whose changes are not written to the disk.
    """

    values: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def cached(
    folder: Path,
    kind: str,
    key: Mapping[str, Any],
    make: Callable[[], CacheEntry],
    *,
    reporter: Reporter = SILENT,
) -> CacheEntry:
    """Return the entry for a key, made the first time and read from then on.

    Of several processes, one makes it and the others wait. The key has all on which the entry
    depends, except for the code and the versions of libraries. A note says whether it was made or
    read.

    Raises:
        EncoderClsError: the entry cannot be read or written.
    """
    path = folder / f"{kind}-{_hash_of_key(key)}"
    entry = _read(path)
    if entry:
        reporter.note(f"data.cache: {kind} read from {path}")
        return entry

    with reporting_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK_FILE):
        remove_leftovers(folder)

        # Another process may have made the entry while this process waited for the lock.
        entry = _read(path)
        if entry is None:
            _write(path, make())
            reporter.note(f"data.cache: {kind} written to {path}")
            entry = _read(path)

    if entry is None:
        raise EncoderClsError(f"{path}: differs from what was just written; check the disk")
    return entry


def _hash_of_key(key: Mapping[str, Any]) -> str:
    """The hash of a key and of the code on which an entry depends."""
    versions = [version(library) for library in LIBRARIES]
    whole_key = {**key, "versions": [_hash_of_code(), *versions, unicodedata.unidata_version]}
    return sha256(json.dumps(whole_key, sort_keys=True).encode())[:32]


def _hash_of_code() -> str:
    """Hash the code, since other code may read or tokenize otherwise."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((CODE / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, entry: CacheEntry) -> None:
    files: dict[str, list[bytes | memoryview]] = {}
    digests = {}
    for name, array in entry.arrays.items():
        parts = _npy_file(array)
        files[f"{name}.npy"] = parts
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        digests[name] = digest.hexdigest()

    record = json.dumps({"arrays": digests, "values": entry.values}).encode()
    files[RECORD_FILE] = [sha256(record).encode(), b"\n", record]
    write_folder(path, files)


def _npy_file(array: NDArray[Any]) -> list[bytes | memoryview]:
    """The parts of an `.npy` file; the numbers are not copied."""
    in_order = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(in_order))
    return [header.getvalue(), in_order.data]


def _read(path: Path) -> CacheEntry | None:
    arrays = {}
    try:
        digest, _, content = (path / RECORD_FILE).read_bytes().partition(b"\n")
        if digest != sha256(content).encode():
            return None

        record = json.loads(content)
        for name, digest_of_array in record["arrays"].items():
            array_file = path / f"{name}.npy"
            if not _has_digest(array_file, digest_of_array):
                return None
            # Convert the `np.memmap` to a plain array, which is faster to slice: each slice of a
            # `np.memmap` is a new `np.memmap`.
            arrays[name] = np.asarray(np.load(array_file, mmap_mode="c"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot be read: {error.strerror or error}") from error

    return CacheEntry(record["values"], arrays)


def _has_digest(path: Path, expected: str) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == expected
