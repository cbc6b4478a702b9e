"""A data config in, its `Dataset` out: read the first time; with `data.cache`, mapped from files after that.

An entry is that of the settings and of the content of all files: another byte, and the data is read again.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.data.hub import hub_folder, hub_version
from encoder_cls.data.labelled_rows import DiskBackedLocations
from encoder_cls.data.named_files import every_file
from encoder_cls.data.readers import EXAMPLE, Row
from encoder_cls.data.reading import SkippedRows
from encoder_cls.data.records import SourceLocation
from encoder_cls.data.split import Split, Unlabelled, concatenated
from encoder_cls.errors import DataError
from encoder_cls.system.array_cache import Entry, Made, cached
from encoder_cls.system.disk_arrays import DiskBackedTexts, in_chunks
from encoder_cls.system.files import reporting_os_errors

FORMAT = 2  # to be raised with any change of what an entry holds

SPLITS = ("train", "validation", "test")
UNLABELLED = "unlabelled"


def load_or_map_dataset(
    config: DataConfig, *, train_rows: Iterable[Row] | None = None, known: Sequence[str] = ()
) -> Dataset:
    """As `load_dataset`, from the cache where the config names one and all data is in files.

    Raises:
        ConfigError: as `load_dataset`.
        DataError: as `load_dataset`; or a file has changed while it was read.
        EncoderClsError: the disk refuses.
    """
    content = None if config.cache is None or train_rows is not None else _content(config)
    if config.cache is None or content is None:
        return load_dataset(config, train_rows=train_rows, known=known)
    key = {
        "format": FORMAT,
        # What tells rows, classes and equal texts apart.
        "versions": [version("encoder-cls"), version("pyarrow"), unicodedata.unidata_version],
        "config": config.model_dump(mode="json", exclude={"cache"}),
        "known": list(known),
        "content": content,
    }

    def make() -> Made:
        dataset = load_dataset(config, known=known)
        if _content(config) != content:
            raise DataError(f"{config.train}: has changed while it was read; start again once nobody writes the data")
        return _made(dataset)

    return _dataset(cached(Path(config.cache), "rows", key, make))


def _content(config: DataConfig) -> dict[str, str] | None:
    """A hash of what each source of a config holds; none: nobody can tell."""
    named = {role: getattr(config, role) for role in (*SPLITS, UNLABELLED, "corrections")}
    found = {role: _hash_of(source) for role, source in named.items() if source is not None}
    known = {role: content for role, content in found.items() if content is not None}
    return known if len(known) == len(found) else None


def _hash_of(source: str) -> str | None:
    scheme, colon, rest = source.partition(":")
    files: Iterable[Path]
    if colon and scheme == "example":
        files = [EXAMPLE / f"{rest}.csv"]
    elif colon and scheme == "hub":
        folder = hub_folder(rest)
        if folder is None:
            return hub_version(rest)
        files = sorted(folder.rglob("*"))
    else:
        files = every_file(source)
    digest = hashlib.sha256()
    with reporting_os_errors(Path(source), "be read"):
        for file in filter(Path.is_file, files):
            digest.update(f"{file}\n{_file_hash(file)}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _file_hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _made(dataset: Dataset) -> Made:
    """A data set as arrays and values."""
    arrays: dict[str, NDArray[Any]] = {}
    values: dict[str, Any] = {
        "label_names": dataset.label_names,
        "labels_are": dataset.labels_are,
        "of_two_types": dict(dataset.of_two_types),
        "corrected": dict(dataset.corrected),
        "correction_notes": dataset.correction_notes,
        "several": dataset.several,
        "has_names_alone": dataset.has_names_alone,
        "splits": {},
    }
    for role in SPLITS:
        split: Split | None = getattr(dataset, role)
        if split is None:
            continue
        arrays |= {f"{role}.labels": split.labels.reshape(-1)}
        if split.groups is not None:
            arrays |= {f"{role}.groups": split.groups}
        values["splits"][role] = {
            "num_columns": split.labels.shape[1] if split.is_multi_label else None,
            "left_out": split.left_out,
            "first_left_out": split.first_left_out,
            "unseen_names": split.unseen_names,
        }
    for role, texts in _texts(dataset).items():
        content, offsets = concatenated(texts.texts).arrays()
        files, numbers, lines = _locations(texts.where).columns()
        arrays |= {f"{role}.text": content, f"{role}.text_offsets": offsets}
        arrays |= {f"{role}.file_numbers": numbers, f"{role}.lines": lines}
        values[role] = {"files": files, "skipped": texts.skipped, "notes": texts.notes}
    return arrays, values


def _texts(dataset: Dataset) -> dict[str, Split | Unlabelled]:
    parts = {role: getattr(dataset, role) for role in (*SPLITS, UNLABELLED)}
    return {role: part for role, part in parts.items() if part is not None}


def _locations(where: Iterable[str]) -> DiskBackedLocations:
    """Locations as files and lines, whatever they are now."""
    locations = DiskBackedLocations()
    for chunk in in_chunks(where):
        locations.append([_location(text) for text in chunk])
    return locations


def _location(text: str) -> SourceLocation:
    """That which is written so."""
    file, _, line = text.rpartition(":")
    found = SourceLocation(file, int(line)) if line.isdecimal() and line.isascii() else SourceLocation(text)
    return found if str(found) == text else SourceLocation(text)


def _dataset(entry: Entry) -> Dataset:
    values = entry.values
    splits = {role: _split(entry, role, of_split) for role, of_split in values["splits"].items()}
    return Dataset(
        label_names=tuple(values["label_names"]),
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=Unlabelled(**_columns(entry, UNLABELLED)),
        labels_are=values["labels_are"],
        of_two_types={label: (first, second) for label, (first, second) in values["of_two_types"].items()},
        corrected=values["corrected"],
        correction_notes=tuple(values["correction_notes"]),
        several=values["several"],
        has_names_alone=values["has_names_alone"],
    )


def _split(entry: Entry, role: str, values: Mapping[str, Any]) -> Split:
    labels = entry.array(f"{role}.labels").copy()  # PyTorch takes none that cannot be changed
    return Split(
        **_columns(entry, role),
        labels=labels if values["num_columns"] is None else labels.reshape(-1, values["num_columns"]),
        groups=entry.array(f"{role}.groups") if f"{role}.groups" in entry.arrays else None,
        left_out=values["left_out"],
        first_left_out=tuple(values["first_left_out"]),
        unseen_names=tuple(values["unseen_names"]),
    )


def _columns(entry: Entry, role: str) -> dict[str, Any]:
    """What a split and texts without labels have in common."""
    arrays, values = entry.arrays, entry.values[role]
    num_rows, first, reason = values["skipped"]
    return {
        "texts": DiskBackedTexts.of(arrays[f"{role}.text"], arrays[f"{role}.text_offsets"]),
        "where": DiskBackedLocations.of(values["files"], arrays[f"{role}.file_numbers"], arrays[f"{role}.lines"]),
        "skipped": SkippedRows(num_rows, tuple(first), reason),
        "notes": tuple(values["notes"]),
    }
