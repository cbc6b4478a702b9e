"""Held-out predictions: those of a linear model for texts that it had not learned from yet.

At its end, a run may fit the model once more, with the validation texts, which it then knows by
heart. So their predictions are saved before, and everything that measures the model on validation
rows uses these. Other texts are scored as the final model predicts them, also equal ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
from encoder_cls.text.tokens import TokenizedTexts

# The file has the tensors of two splits. The name of a split is the first part of their names.
VALIDATION = "validation"
TRAIN = "train"

# The key of the metadata of the file. Its value is a JSON object with the two hashes.
HASHES = "hashes"
# The key of the hash of all texts of the validation split.
TEXTS_HASH = "texts_sha256"
# The key of the hash of the content of the file.
CONTENT_HASH = "content_sha256"


class LinearPredictions(NamedTuple):
    """Predictions of a linear model for some `rows` of a split, and how familiar the texts are."""

    rows: NDArray[np.int64]
    logits: Logits
    familiarity_features: FamiliarityFeatures


@dataclass(frozen=True, kw_only=True)
class HeldOutPredictions:
    """The held-out predictions of a run, as its file has them.

    Attributes:
        validation: for texts that the final fit includes.
        train: out of fold; no rows without cross-validation.
        texts_sha256: of the validation split, which shows whether it has changed.
    """

    validation: LinearPredictions
    train: LinearPredictions
    texts_sha256: str

    @classmethod
    def of_run(cls, path: Path) -> HeldOutPredictions | None:
        """Read the file of a run; None without one: then the final fit has no validation texts.

        Raises:
            EncoderClsError: the file is damaged.
        """
        if not path.exists():
            return None

        try:
            tensors = {}
            with safetensors.safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                for name in file.keys():  # noqa: SIM118
                    tensors[name] = file.get_tensor(name)

            hashes = json.loads(metadata[HASHES])
            texts_sha256 = hashes[TEXTS_HASH]
            if hashes[CONTENT_HASH] != _hash_of(tensors, texts_sha256):
                raise EncoderClsError(f"{path}: has changed since it was written; train again")

            return cls(
                validation=_predictions_of(VALIDATION, tensors),
                train=_predictions_of(TRAIN, tensors),
                texts_sha256=texts_sha256,
            )
        except (OSError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
            raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None

    def write(self, path: Path) -> None:
        """Write them to a file, durably and atomically."""
        tensors = {}
        for split, predictions in ((VALIDATION, self.validation), (TRAIN, self.train)):
            for name, array in predictions._asdict().items():
                tensors[f"{split}.{name}"] = np.ascontiguousarray(array)

        content_sha256 = _hash_of(tensors, self.texts_sha256)
        hashes = {TEXTS_HASH: self.texts_sha256, CONTENT_HASH: content_sha256}
        # Both hashes are in one entry of the metadata. safetensors writes several entries in random
        # order, so that equal runs would have different files.
        write_file(path, safetensors.numpy.save(tensors, {HASHES: json.dumps(hashes)}))


def _predictions_of(split: str, tensors: Mapping[str, NDArray[Any]]) -> LinearPredictions:
    return LinearPredictions(
        rows=tensors[f"{split}.rows"],
        logits=tensors[f"{split}.logits"],
        familiarity_features=tensors[f"{split}.familiarity_features"],
    )


@dataclass(frozen=True)
class ValidationPredictions:
    """The held-out predictions of a run for `rows` of its validation `split`."""

    split: Split
    predictions: LinearPredictions

    @classmethod
    def of_run(
        cls, file: Path, classifier: Classifier, validation: Split
    ) -> ValidationPredictions | None:
        """Read those of a run, and check that they fit its validation split; None without any."""
        if classifier.linear is None:
            return None
        held_out_predictions = HeldOutPredictions.of_run(file)
        if held_out_predictions is None:
            return None

        num_classes = len(classifier.label_names)
        if held_out_predictions.validation.logits.shape[1:] != (num_classes,):
            raise EncoderClsError(f"{file}: has other classes than the model; train again")
        if held_out_predictions.texts_sha256 != validation.texts_fingerprint:
            raise DataError(
                file,
                "the texts that the run held out for validation have changed since it began",
                "restore its data, name labelled data with --data, or train again",
            )
        return cls(validation, held_out_predictions.validation)

    def find_in(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find those texts of a split for which there are held-out predictions.

        They were read from the same place of the same file. The result is their rows in `split` and
        their indices in `predictions`.
        """
        if split is self.split:
            return self.predictions.rows, np.arange(len(self.predictions.rows))

        # Only the places of the validation texts are in memory: the other split may be large.
        validation_texts = self.split.subset(self.predictions.rows)
        index_of_place = {place: index for index, place in enumerate(_places(validation_texts))}

        rows = []
        indices = []
        for row, place in enumerate(_places(split)):
            index = index_of_place.get(place)
            if index is not None:
                rows.append(row)
                indices.append(index)
        return np.array(rows, dtype=np.int64), np.array(indices, dtype=np.int64)


def held_out_logits(
    classifier: Classifier, split: Split, validation_predictions: ValidationPredictions | None
) -> Logits:
    """Compute calibrated logits as if the classifier had not learned from the texts.

    Held-out predictions replace the logits of the linear model; None if it has not learned from
    validation texts.
    """
    tokenized = classifier.tokenize(split.texts)
    part_logits, _ = held_out_part_logits(classifier, split, tokenized, validation_predictions)
    return classifier.combined(part_logits)


def held_out_part_logits(
    classifier: Classifier,
    split: Split,
    tokenized: TokenizedTexts,
    validation_predictions: ValidationPredictions | None,
    *,
    batch_tokens: int | None = None,
    with_familiarity: bool = False,
) -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
    """The logits of each part, before they are combined, and the linear model's familiarity.

    That is None if it is not asked for, or without a linear model.
    """

    def computed() -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
        if with_familiarity:
            return classifier.part_logits_and_familiarity(tokenized, batch_tokens=batch_tokens)
        return classifier.part_logits(tokenized, batch_tokens=batch_tokens), None

    if validation_predictions is None:
        return computed()

    rows, indices = validation_predictions.find_in(split)
    known = validation_predictions.predictions
    if classifier.encoder is None and len(rows) == len(split):
        # All predictions are known.
        part_logits = {"linear": np.zeros((len(split), len(classifier.label_names)), np.float32)}
        num_features = known.familiarity_features.shape[1]
        linear_features: FamiliarityFeatures | None = np.zeros((len(split), num_features))
    else:
        part_logits, linear_features = computed()

    part_logits["linear"][rows] = known.logits[indices]
    if linear_features is not None:
        linear_features[rows] = known.familiarity_features[indices]
    return part_logits, linear_features


def _places(split: Split) -> Iterator[tuple[str, str]]:
    """Yield where each text was read from, and the text, because a file may have changed."""
    for where, text in zip(split.where, split.texts, strict=True):
        yield str(where), text


def _hash_of(tensors: Mapping[str, NDArray[Any]], texts_sha256: str) -> str:
    content = [texts_sha256.encode()]
    for name in sorted(tensors):
        array = tensors[name]
        content.append(f"{name} {array.dtype} {array.shape}".encode())
        content.append(array.tobytes())
    return sha256(b"".join(content))
