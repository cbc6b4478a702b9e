"""Predictions of the linear model for texts of its own run, from before it learned from them.

At the end of a run, the linear model may be fitted again with the validation texts. What it
predicts for them then says nothing about new texts. So the run keeps its earlier predictions as a
table, by row, and everything that measures the model on these rows reads the table. Texts of other
splits and files are scored as the model predicts them, also where they are equal to a text of the
table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures
from encoder_cls.data.dataset import Split
from encoder_cls.errors import DataError, EncoderClsError
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.files import sha256, write_file

# The splits in the names of tensors.
VALIDATION = "validation"
TRAIN = "train"

# The entry of the metadata that has both hashes.
HASHES = "hashes"
# The hash of all texts of the validation split.
TEXTS_HASH = "texts_sha256"
# The hash of the table itself.
TABLE_HASH = "table_sha256"


class Predictions(NamedTuple):
    """The predictions for some texts of a split.

    Attributes:
        rows: the indices of the texts in their split, (texts,).
        logits: of the linear model, (texts, classes).
        familiarity_features: as `LinearModel.logits_and_familiarity` measures them, (texts, numbers).
    """

    rows: NDArray[np.int64]
    logits: Logits
    familiarity_features: FamiliarityFeatures


@dataclass(frozen=True, kw_only=True)
class HeldOutPredictions:
    """The table of a run.

    Attributes:
        validation: predictions for the validation texts that the linear model learned from in the
            end.
        train: predictions for the training texts, out of fold; without rows where there was no
            cross-validation.
        texts_sha256: the hash of the texts of the validation split.
    """

    validation: Predictions
    train: Predictions
    texts_sha256: str

    @classmethod
    def read(cls, path: Path) -> HeldOutPredictions:
        """Read the file of a run.

        Raises:
            EncoderClsError: it is damaged.
        """
        try:
            tensors = {}
            with safetensors.safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                for name in file.keys():  # noqa: SIM118
                    tensors[name] = file.get_tensor(name)

            hashes = json.loads(metadata[HASHES])
            texts_sha256 = hashes[TEXTS_HASH]
            if hashes[TABLE_HASH] != _hash_of(tensors, texts_sha256):
                raise EncoderClsError(f"{path}: has changed since it was written; train again")

            return cls(
                validation=_predictions_of(VALIDATION, tensors),
                train=_predictions_of(TRAIN, tensors),
                texts_sha256=texts_sha256,
            )
        except (OSError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
            raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None

    @classmethod
    def of_run(cls, path: Path) -> HeldOutPredictions | None:
        """Read the file of a run, as `read` does; None where the run has none."""
        if not path.exists():
            return None
        return cls.read(path)

    def write(self, path: Path) -> None:
        """Write the file durably and atomically."""
        tensors = {}
        for split, predictions in ((VALIDATION, self.validation), (TRAIN, self.train)):
            for name, array in predictions._asdict().items():
                tensors[f"{split}.{name}"] = np.ascontiguousarray(array)

        table_sha256 = _hash_of(tensors, self.texts_sha256)
        hashes = {TEXTS_HASH: self.texts_sha256, TABLE_HASH: table_sha256}
        # One entry of metadata, so that equal runs give equal files: safetensors writes several in
        # random order.
        write_file(path, safetensors.numpy.save(tensors, {HASHES: json.dumps(hashes)}))


def _predictions_of(split: str, tensors: Mapping[str, NDArray[Any]]) -> Predictions:
    """The predictions for a split from the tensors of the file; a `KeyError` if one is missing."""
    return Predictions(
        rows=tensors[f"{split}.rows"],
        logits=tensors[f"{split}.logits"],
        familiarity_features=tensors[f"{split}.familiarity_features"],
    )


@dataclass(frozen=True)
class ValidationPredictions:
    """The earlier predictions of a run for its own validation texts, with the split of these."""

    split: Split
    predictions: Predictions

    @classmethod
    def of_run(
        cls, table_file: Path, classifier: Classifier, validation: Split
    ) -> ValidationPredictions | None:
        """Read the table of a run, which has this classifier and validation split.

        Returns:
            None where the run has no table.

        Raises:
            EncoderClsError: the table is damaged, or of other classes.
            DataError: the validation texts are not those that the table was made for.
        """
        if classifier.linear is None:
            return None
        table = HeldOutPredictions.of_run(table_file)
        if table is None:
            return None

        if table.validation.logits.shape[1:] != (len(classifier.label_names),):
            raise EncoderClsError(f"{table_file}: is of other classes than the model; train again")
        if table.texts_sha256 != validation.texts_fingerprint:
            raise DataError(
                table_file,
                "the texts that the run held out for validation have changed since it began",
                "restore its data, name labelled data with --data, or train again",
            )
        return cls(validation, table.validation)

    def places_in(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the texts of the table in a split: its rows, and their indices in `predictions`.

        A text is found by its row, which is the place that it was read from, not by its words: an
        equal text elsewhere is another row.
        """
        if split is self.split:
            return self.predictions.rows, np.arange(len(self.predictions.rows))

        rows_of_places = {place: row for row, place in enumerate(_places(split))}
        own_places = _places(self.split)

        rows = []
        indices = []
        for index, own_row in enumerate(self.predictions.rows.tolist()):
            row = rows_of_places.get(own_places[own_row])
            if row is not None:
                rows.append(row)
                indices.append(index)
        return np.array(rows, dtype=np.int64), np.array(indices, dtype=np.int64)

    def in_place_of(self, part_logits: Mapping[str, Logits], split: Split) -> dict[str, Logits]:
        """Replace the linear part's logits of those texts of a split that are in the table."""
        rows, indices = self.places_in(split)
        linear = part_logits["linear"].copy()
        linear[rows] = self.predictions.logits[indices]
        return {**part_logits, "linear": linear}


def logits_before_refit(
    classifier: Classifier, split: Split, own: ValidationPredictions | None
) -> Logits:
    """The calibrated logits of the texts of a split, (texts, classes).

    Texts in the table `own` have their earlier logits.
    """
    part_logits = classifier.part_logits(classifier.tokenize(split.texts))
    if own:
        part_logits = own.in_place_of(part_logits, split)
    return classifier.combined(part_logits)


def _places(split: Split) -> list[tuple[str, str]]:
    """Where each text was read, and the text, since a file may have changed."""
    return [(str(where), text) for where, text in zip(split.where, split.texts, strict=True)]


def _hash_of(tensors: Mapping[str, NDArray[Any]], texts_sha256: str) -> str:
    """A hash of all that is in the file."""
    content = [texts_sha256.encode()]
    for name in sorted(tensors):
        array = tensors[name]
        content.append(f"{name} {array.dtype} {array.shape}".encode())
        content.append(array.tobytes())
    return sha256(b"".join(content))
