"""Turn a data set into an entry of the cache (`data.cache`), and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from pydantic import TypeAdapter

from encoder_cls.data.dataset import Dataset, Split, Unlabelled
from encoder_cls.data.reading.locations import DiskBackedLocations
from encoder_cls.data.reading.reading import Notes
from encoder_cls.system.cache import CacheEntry
from encoder_cls.system.lazy_sequences import DiskBackedTexts

# The type of `Dataset.sources`, to write its notes as JSON values and to read them.
_SOURCES = TypeAdapter(tuple[tuple[str, Notes], ...])


def entry_of(dataset: Dataset) -> CacheEntry:
    """An entry of a data set without its base run."""
    arrays: dict[str, NDArray[Any]] = {}
    unlabelled_files = _add_rows(
        arrays, "unlabelled", dataset.unlabelled.texts, dataset.unlabelled.where
    )
    split_values = {}
    for name, split in dataset.splits.items():
        split_values[name] = _add_split(arrays, name, split)

    values = {
        "label_names": dataset.label_names,
        "labels_are": dataset.labels_are,
        "corrected": dict(dataset.labels_before_corrections),
        "several": dataset.first_multi_label_row,
        "sources": _SOURCES.dump_python(dataset.sources, mode="json"),
        "unlabelled_files": unlabelled_files,
        "splits": split_values,
    }
    return CacheEntry(values, arrays)


def dataset_of(entry: CacheEntry) -> Dataset:
    """The data set of an entry, whose texts and labels stay on disk."""
    values = entry.values
    splits = {}
    for name, split_values in values["splits"].items():
        splits[name] = _split(entry.arrays, name, split_values)

    return Dataset(
        label_names=tuple(values["label_names"]),
        train=splits["train"],
        validation=splits["validation"],
        test=splits.get("test"),
        unlabelled=Unlabelled(
            texts=_texts(entry.arrays, "unlabelled"),
            where=_where(entry.arrays, "unlabelled", values["unlabelled_files"]),
        ),
        labels_are=values["labels_are"],
        labels_before_corrections=values["corrected"],
        first_multi_label_row=values["several"],
        sources=_SOURCES.validate_python(values["sources"]),
    )


def _add_split(arrays: dict[str, NDArray[Any]], name: str, split: Split) -> dict[str, Any]:
    files = _add_rows(arrays, name, split.texts, split.where)
    arrays[f"{name}.labels"] = split.labels
    if split.groups is not None:
        arrays[f"{name}.groups"] = split.groups
    if split.weights is not None:
        arrays[f"{name}.weights"] = split.weights
    # Keep `split_groups` if it has been computed, as it has if texts were held out: to compute it
    # again would take seconds for millions of texts.
    if "split_groups" in vars(split):
        arrays[f"{name}.split_groups"] = split.split_groups
    return {"files": files, "unseen_names": split.unseen_names}


def _split(arrays: Mapping[str, NDArray[Any]], name: str, values: Mapping[str, Any]) -> Split:
    split = Split(
        texts=_texts(arrays, name),
        labels=arrays[f"{name}.labels"],
        where=_where(arrays, name, values["files"]),
        groups=arrays.get(f"{name}.groups"),
        weights=arrays.get(f"{name}.weights"),
        unseen_names=tuple(values["unseen_names"]),
    )
    if f"{name}.split_groups" in arrays:
        vars(split)["split_groups"] = arrays[f"{name}.split_groups"]
    return split


def _add_rows(
    arrays: dict[str, NDArray[Any]], name: str, texts: Sequence[str], where: Sequence[Any]
) -> list[str]:
    if not isinstance(texts, DiskBackedTexts):
        texts = DiskBackedTexts(texts)
    content, offsets = texts.arrays()
    arrays[f"{name}.texts"] = content
    arrays[f"{name}.text_offsets"] = offsets

    if not isinstance(where, DiskBackedLocations):
        where = DiskBackedLocations(where)
    files, numbers, lines = where.arrays()
    arrays[f"{name}.files"] = numbers
    arrays[f"{name}.lines"] = lines
    return files


def _texts(arrays: Mapping[str, NDArray[Any]], name: str) -> DiskBackedTexts:
    return DiskBackedTexts.from_arrays(arrays[f"{name}.texts"], arrays[f"{name}.text_offsets"])


def _where(
    arrays: Mapping[str, NDArray[Any]], name: str, files: Sequence[str]
) -> DiskBackedLocations:
    return DiskBackedLocations.from_arrays(files, arrays[f"{name}.files"], arrays[f"{name}.lines"])
