"""The reference of a run: what it keeps of its held-out texts, to compare later texts with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.metrics.logits import Logits
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.files import write_file
from encoder_cls.text.tokens import TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Figures of held-out texts with words, predicted by a model that had not learned from them.

    It has neither texts nor words.

    Attributes:
        num_predicted: texts predicted to have each class, (classes,).
        prediction_probabilities: of each text's prediction, (texts,).
        is_right: multi-label, in all labels, (texts,).
        num_words: those read of each text, (texts,).
        unknown_words: those outside the vocabulary, (texts,).
        is_unfamiliar: (texts,), or (0,) if that was not measured.
        groups: equal for texts that belong together, (texts,).
        group_column: by which texts belong together; None without one.
    """

    num_predicted: NDArray[np.int64]
    mean_probabilities: NDArray[np.float64]
    prediction_probabilities: NDArray[np.float64]
    is_right: NDArray[np.bool_]
    num_words: NDArray[np.int64]
    unknown_words: NDArray[np.int32]
    is_unfamiliar: NDArray[np.bool_]
    groups: NDArray[np.int64]
    group_column: str | None = None

    @classmethod
    def of(
        cls,
        classifier: Classifier,
        texts: TokenizedTexts,
        labels: NDArray[Any],
        groups: NDArray[np.int64],
        *,
        logits: Logits,
        is_unfamiliar: NDArray[np.bool_],
    ) -> Reference:
        """Collect the figures of texts with words, from calibrated logits."""
        task = classifier.task
        probabilities = task.probabilities(logits)
        predictions = task.predictions(probabilities, classifier.thresholds)
        num_classes = len(classifier.label_names)
        return cls(
            num_predicted=task.indicators(predictions, num_classes).sum(axis=0),
            mean_probabilities=probabilities.sum(axis=0) / max(1, len(probabilities)),
            prediction_probabilities=task.prediction_probabilities(probabilities, predictions),
            is_right=task.are_correct(predictions, labels),
            num_words=texts.num_words,
            unknown_words=texts.unknown,
            is_unfamiliar=is_unfamiliar,
            groups=groups,
        )

    def write(self, path: Path) -> None:
        """Write the reference to a file, durably and atomically."""
        tensors = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                tensors[field.name] = np.ascontiguousarray(value)
        write_file(path, safetensors.numpy.save(tensors))


def read_reference(path: str | Path) -> Reference:
    """Read the reference of a run, from its folder or that of its model.

    Raises:
        ConfigError: no run is finished there, or it has no reference.
        EncoderClsError: the file is damaged.
    """
    run = run_of(Path(path))
    if run is None:
        raise ConfigError(
            f"{path}: not the folder of a run, which keeps the figures of its held-out texts; a "
            "model alone does not have them"
        )
    file = run.reference
    if not file.is_file():
        raise ConfigError(
            f"{run.path}: has no {file.name}, which a training writes at its end, with the figures "
            "of its held-out texts; finish the run, or train again if it is of an older version"
        )
    try:
        tensors = safetensors.numpy.load_file(file)
        return Reference(**tensors, group_column=run.load_config().data.group_column)
    except (OSError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise EncoderClsError(f"{file}: cannot be read ({error}); train again") from None
