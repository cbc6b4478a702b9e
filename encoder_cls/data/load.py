"""Load all data of a config, joined with the data of its base run.

An entry is that of the settings and of the content of all files: another byte, and the data is read again.

A text that the former run has held out, or was tested on, is never learned from, also where the new data has it or
another text of its group.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import Config, DataConfig, load_config, missing_sources
from encoder_cls.data.checks import shared_groups
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.data.holdout import NO_GROUP, equal_texts
from encoder_cls.data.hub import hub_folder, hub_version
from encoder_cls.data.labelled_rows import DiskBackedLocations
from encoder_cls.data.readers import EXAMPLE, Row
from encoder_cls.data.rows import SkippedRows, SourceLocation
from encoder_cls.data.sources import every_file
from encoder_cls.data.split import Split, Unlabelled, concatenated
from encoder_cls.errors import ConfigError, DataError
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


def load_all_data(config: Config, *, train_rows: Iterable[Row] | None = None) -> Dataset:
    """The data set of a config, after that of the run that it goes on from, and so on.

    Args:
        config: names both.
        train_rows: as in `load_dataset`.

    Raises:
        ConfigError: as `load_dataset`; or one of both data sets is multi-label, or neither has labels.
        DataError: as `load_dataset`; or the former run or its data is gone, or has all texts of the new.
    """
    if config.from_run is None:
        return load_or_map_dataset(config.data, train_rows=train_rows)
    former_config = config_of_former(config.from_run)
    for key, source in missing_sources(former_config.data):
        raise DataError(
            f"{config.from_run}: {key}: {source}: no such file or folder, where that run's data was; who goes on from "
            "it needs its data, too"
        )
    former = load_all_data(former_config)
    new = load_or_map_dataset(config.data, train_rows=train_rows, known=former.label_names)
    return joined(former, new, run=config.from_run)


def config_of_former(run: str) -> Config:
    """The config of a run that another goes on from.

    Raises:
        ConfigError: it cannot be read.
        DataError: the run is gone, and with it the place of its data.
    """
    path = Path(run) / "config.yaml"
    if not path.exists():
        raise DataError(f"{path}: no such file, where the run was that this one goes on from; put it back there")
    return load_config(path)


def names_validation(config: Config) -> bool:
    """Whether a run, or one that it goes on from, has a file of validation texts."""
    if config.data.validation is not None or config.from_run is None:
        return config.data.validation is not None
    return names_validation(config_of_former(config.from_run))


def joined(former: Dataset, new: Dataset, *, run: str) -> Dataset:
    """The data of a former run, then what is new in other data.

    Left out of the new is what the former has already: of train, texts that it held out or has with the same label; of
    validation and test, all its texts. So are texts of groups that it has in another split.

    Args:
        former: the data of the run.
        new: the other data.
        run: what to call the run.

    Raises:
        ConfigError: one of both is multi-label, or has no labels.
        DataError: nothing is new.
    """
    if former.is_multi_label != new.is_multi_label:
        one, other = ("several labels", "one label") if former.is_multi_label else ("one label", "several labels")
        raise ConfigError(f"{run}: a text may have {one} there, and {other} in the new data; train one run of each")
    if former.has_names_alone or new.has_names_alone:
        raise ConfigError(
            f"{run}: a run goes on from another with labelled texts, and of one of both no text has a label"
        )
    names = tuple(dict.fromkeys((*former.label_names, *new.label_names)))
    of_former = {role: it for role in ("train", "validation", "test") if (it := getattr(former, role)) is not None}
    texts = {role: equal_texts(it.texts) for role, it in of_former.items()}
    learned = {*zip(texts["train"].tolist(), _labels(former.train, former.label_names), strict=True)}
    notes = []
    if former.train.groups is not None and new.train.groups is None:
        notes.append(f"{run} keeps groups together; name their column of the new data, too, in data.group_column")

    def unseen(split: Split | None, role: str) -> Split | None:
        """What the former run has not seen of a split."""
        if split is None:
            return None
        numbers, others = equal_texts(split.texts), of_former.keys() - {role}
        is_known = np.isin(numbers, np.concatenate([texts[it] for it in (others if role == "train" else texts)]))
        if role == "train":
            labelled = zip(numbers.tolist(), _labels(split, new.label_names), strict=True)
            is_known |= np.array([text in learned for text in labelled])
        is_elsewhere = np.zeros(len(split), dtype=bool)
        for other in others:
            is_elsewhere[shared_groups(of_former[other], split)] = True
        for count, why in (
            (is_known.sum(), f"which {run} has already"),
            ((is_elsewhere & ~is_known).sum(), f"whose groups {run} has in another split"),
        ):
            if count:
                notes.append(f"{role}: {count:,} of {len(split):,} new texts are left out, {why}")
        return split.subset(np.flatnonzero(~is_known & ~is_elsewhere)).of_source(split)

    def both(one: Split | None, other: Split | None) -> Split | None:
        if one is None or other is None:
            split, its = (one, former) if other is None else (other, new)
            return split and _renumbered([(split, its.label_names)], names)
        return _renumbered([(one, former.label_names), (other, new.label_names)], names)

    new_train = unseen(new.train, "train")
    if not new_train:
        raise DataError(f"{new.train.where[0]}: nothing is left to learn from: {'; '.join(notes)}")
    train = both(former.train, new_train)
    validation = both(former.validation, unseen(new.validation, "validation"))
    assert train and validation
    return Dataset(
        label_names=names,
        train=train,
        validation=validation,
        test=both(former.test, unseen(new.test, "test")),
        unlabelled=former.unlabelled.joined(new.unlabelled),
        labels_are=new.labels_are,
        of_two_types={**former.of_two_types, **new.of_two_types},
        corrected={**former.corrected, **new.corrected},
        correction_notes=(*former.correction_notes, *new.correction_notes, *notes),
        several=new.several or former.several,
        former=former,
    )


def _labels(split: Split, label_names: Sequence[str]) -> list[str]:
    """The name of the label of each text, or the names of its labels."""
    names = (*label_names, *split.unseen_names)
    return [split.label_text(row, names) for row in range(len(split))]


def _renumbered(parts: Sequence[tuple[Split, Sequence[str]]], names: Sequence[str]) -> Split:
    """Splits one after the other, each with the names of its classes, with the labels of one list of classes."""
    splits = [split for split, _ in parts]
    of_splits = [(*its, *split.unseen_names) for split, its in parts]
    unseen = [name for its in of_splits for name in its if name not in names]
    numbers_of = {name: number for number, name in enumerate(dict.fromkeys((*names, *unseen)))}
    labels: list[NDArray[Any]] = []
    for split, its in zip(splits, of_splits, strict=True):
        numbers = np.array([numbers_of[name] for name in its], dtype=np.int64)
        if split.is_multi_label:
            matrix = np.zeros((len(split), len(numbers_of)), dtype=np.int8)
            matrix[:, numbers] = split.labels
            labels.append(matrix)
        else:
            labels.append(numbers[split.labels])
    groups = None
    if any(split.groups is not None for split in splits):
        groups = np.concatenate(
            [np.full(len(split), NO_GROUP) if split.groups is None else split.groups for split in splits]
        )
    return Split(
        texts=concatenated(*(split.texts for split in splits)),
        labels=np.concatenate(labels),
        where=concatenated(*(split.where for split in splits)),
        groups=groups,
        left_out=sum(split.left_out for split in splits),
        first_left_out=tuple(where for split in splits for where in split.first_left_out),
        unseen_names=tuple(numbers_of)[len(names) :],
        skipped=next((split.skipped for split in splits if split.skipped.num_rows), splits[0].skipped),
        notes=tuple(note for split in splits for note in split.notes),
    )
