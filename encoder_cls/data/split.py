"""Labelled texts of one split, and texts without labels: what is known of each, and parts of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.reading import NONE_SKIPPED, SkippedRows
from encoder_cls.system.disk_arrays import ConcatenatedTexts, DiskBackedTexts, LazyTexts, in_chunks


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
        return Split(
            texts=_selected(self.texts, indices),
            labels=self.labels[indices],
            where=_selected(self.where, indices),
            groups=None if self.groups is None else self.groups[indices],
            unseen_names=self.unseen_names,
        )

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

    def fingerprint(self) -> str:
        """A SHA-256 of all texts, labels and groups in order: equal data, equal fingerprint."""
        unseen = json.dumps(self.unseen_names).encode() if self.unseen_names else b""
        groups = b"" if self.groups is None else self.groups.tobytes()
        return _fingerprint(self.texts, self.labels.tobytes() + unseen + groups)


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

    def fingerprint(self) -> str:
        """As that of a split."""
        return _fingerprint(self.texts)


NO_TEXTS = Unlabelled()


def concatenated(*parts: Sequence[str]) -> DiskBackedTexts:
    """The texts of several columns, one after the other, in a new one."""
    joined = DiskBackedTexts()
    for chunk in in_chunks(ConcatenatedTexts(*parts)):
        joined.append(chunk)
    return joined


def _fingerprint(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # Each after its length, since a text may hold any separator.
        digest.update(b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it)))
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, LazyTexts) else [column[i] for i in indices]
