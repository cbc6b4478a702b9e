"""Labelled texts of one split, and texts without labels: what is known of each, and parts of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.holdout import NO_GROUP, equal_texts, rows_to_hold_out, rows_to_hold_out_of_several_labels
from encoder_cls.data.rows import NONE_SKIPPED, SkippedRows
from encoder_cls.errors import DataError
from encoder_cls.system.disk_arrays import ConcatenatedTexts, DiskBackedTexts, LazyTexts, in_chunks
from encoder_cls.system.display import counted

MOST_HELD_OUT = 50_000  # texts: more cost time in each validation, where the standard error of accuracy is 0.2% already


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`.

    Attributes:
        texts: the texts.
        labels: their classes, (texts,); those from the number of the data set's classes on are indices into
            `unseen_names`. Multi-label: 1 where a text has a label, else 0, (texts, classes), as int8.
        where: file and line of each.
        groups: the number of the group of each, equal in all splits, where `data.group_column` names them.
        left_out: how many rows of their source had no text, where that is allowed.
        first_left_out: where the first of these are.
        unseen_names: labels of the source that never occur in train.
        skipped: the rows of their source that cannot be read, where these are left out.
        notes: what a person should know of how their source was read.
    """

    texts: Sequence[str]
    labels: NDArray[Any]
    where: Sequence[str]
    groups: NDArray[np.int64] | None = None
    left_out: int = 0
    first_left_out: tuple[str, ...] = ()
    unseen_names: tuple[str, ...] = ()
    skipped: SkippedRows = NONE_SKIPPED
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.labels.ndim == 2

    def class_counts(self, num_classes: int) -> NDArray[np.int64]:
        """How many texts each class has, (classes,)."""
        if self.is_multi_label:
            counts: NDArray[np.int64] = self.labels[:, :num_classes].sum(axis=0, dtype=np.int64)
            return counts
        return np.bincount(self.labels, minlength=num_classes)[:num_classes]

    def has_unseen_label(self, num_classes: int) -> NDArray[np.bool_]:
        """Which examples have a label that never occurs in train, which has so many classes, (texts,)."""
        if self.is_multi_label:
            return np.asarray((self.labels[:, num_classes:] > 0).any(axis=1))
        is_unseen: NDArray[np.bool_] = self.labels >= num_classes
        return is_unseen

    def label_sets(self) -> NDArray[np.int64]:
        """Of each example a number that it has in common with those of equal labels, (texts,)."""
        if not self.is_multi_label:
            return self.labels
        _, numbers = np.unique(np.packbits(self.labels > 0, axis=1), axis=0, return_inverse=True)
        return numbers.reshape(-1)

    def label_text(self, index: int, label_names: Sequence[str]) -> str:
        """The label of an example, or its labels, for a person; of a text without labels nothing."""
        numbers = np.flatnonzero(self.labels[index]).tolist() if self.is_multi_label else [int(self.labels[index])]
        return ", ".join(label_names[number] for number in numbers)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples with these indices, in this order."""
        chosen = Split(
            texts=_selected(self.texts, indices),
            labels=self.labels[indices],
            where=_selected(self.where, indices),
            groups=None if self.groups is None else self.groups[indices],
            unseen_names=self.unseen_names,
        )
        if "together" in vars(self):  # not computed twice: of millions of texts it takes seconds
            vars(chosen)["together"] = self.together[indices]
        return chosen

    def known(self, num_classes: int) -> Split:
        """The examples whose labels occur in train, which has so many classes; all of them: the split itself.

        Multi-label: all examples, without the labels that do not.
        """
        if self.is_multi_label:
            return replace(self, labels=self.labels[:, :num_classes], unseen_names=()) if self.unseen_names else self
        is_known = self.labels < num_classes
        if is_known.all():
            return self
        kept = self.subset(np.flatnonzero(is_known)).of_source(self)
        return replace(kept, unseen_names=())

    def of_source(self, whole: Split) -> Split:
        """This part of a split, with what is known of the whole one's source."""
        return replace(
            self,
            left_out=whole.left_out,
            first_left_out=whole.first_left_out,
            skipped=whole.skipped,
            notes=whole.notes,
        )

    @cached_property
    def together(self) -> NDArray[np.int64]:
        """The number that an example shares with those held out with it: of its group, without one of equal texts."""
        of_texts = equal_texts(self.texts)
        # Not equal texts as well: what everybody says would make one group of them all.
        return of_texts if self.groups is None else np.where(self.groups == NO_GROUP, of_texts, self.groups)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all texts, labels and groups in order: equal data, equal fingerprint."""
        unseen = json.dumps(self.unseen_names).encode() if self.unseen_names else b""
        groups = b"" if self.groups is None else self.groups.tobytes()
        return _hash_of(self.texts, self.labels.tobytes() + unseen + groups)


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts whose classes nobody knows: `texts[i]` was read at `where[i]`; `skipped` and `notes` as of a split."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()
    skipped: SkippedRows = NONE_SKIPPED
    notes: tuple[str, ...] = ()

    def joined(self, more: Unlabelled) -> Unlabelled:
        """These texts, then others."""
        if not more.texts or not self.texts:
            return self if self.texts else more
        texts, where = concatenated(self.texts, more.texts), concatenated(self.where, more.where)
        return Unlabelled(texts=texts, where=where, skipped=self.skipped, notes=(*self.notes, *more.notes))

    @cached_property
    def fingerprint(self) -> str:
        """As that of a split."""
        return _hash_of(self.texts)


NO_TEXTS = Unlabelled()


def hold_out(
    split: Split, *, fraction: float, seed: int, former_labels: NDArray[np.int64] | None = None
) -> tuple[Split, Split]:
    """Divide a split in two, the second part holding about `fraction` of all examples, and of each class if it can.

    Of many examples it holds `MOST_HELD_OUT`.

    Rows of a group are all in one of both, whatever their labels. So are, of rows without a group, texts that differ in
    case and white space at most.

    Args:
        split: the split.
        fraction: of all examples, at the most.
        seed: of the random numbers.
        former_labels: the classes before they were corrected, numbered in their own order; by these is held out, so
            that corrections change no row's side, unless a class would have no example left.

    Raises:
        DataError: each class has a single text, or a single group, so none can be held out.
    """
    fraction = min(fraction, MOST_HELD_OUT / len(split))
    groups = np.unique(split.together, return_inverse=True)[1]
    if split.is_multi_label:
        is_held_out = rows_to_hold_out_of_several_labels(split.labels, groups, fraction=fraction, seed=seed)
    else:
        labels = split.labels if former_labels is None else former_labels
        is_held_out = rows_to_hold_out(labels, groups, fraction=fraction, seed=seed)
        if former_labels is not None and np.setdiff1d(split.labels, split.labels[~is_held_out]).size:
            is_held_out = rows_to_hold_out(split.labels, groups, fraction=fraction, seed=seed)
    if not is_held_out.any() and split.groups is not None:
        raise DataError(
            f"{split.where[0]}: no group can be held out to validate with, since a class would have no text left "
            f"({counted(len(np.unique(groups)), 'group')} in all); name a file in data.validation, or other groups in "
            "data.group_column"
        )
    if not is_held_out.any():
        raise DataError(
            f"{split.where[0]}: each class has only one text, so none is left to validate with; add examples, or "
            "name a file in data.validation"
        )
    kept = split.subset(np.flatnonzero(~is_held_out)).of_source(split)
    return kept, split.subset(np.flatnonzero(is_held_out))


def concatenated(*parts: Sequence[str]) -> DiskBackedTexts:
    """The texts of several columns, one after the other, in a new one."""
    joined = DiskBackedTexts()
    for chunk in in_chunks(ConcatenatedTexts(*parts)):
        joined.append(chunk)
    return joined


def _hash_of(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # Each after its length, since a text may hold any separator.
        digest.update(b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it)))
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, LazyTexts) else [column[i] for i in indices]
