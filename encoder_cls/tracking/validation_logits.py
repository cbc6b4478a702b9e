"""The linear classifier's logits of the validation texts, from before it has learned from them.

Where it has, what it says of them now tells nothing, so these are kept in the run's folder.
"""

from __future__ import annotations

from pathlib import Path

import safetensors
import safetensors.numpy

from encoder_cls.errors import EncoderClsError
from encoder_cls.inference.logits import Logits
from encoder_cls.system.files import write_file

NAME = "linear"  # of the tensor, (texts, classes)


def write_validation_logits(path: Path, logits: Logits) -> None:
    """Write them, durably and at once."""
    write_file(path, safetensors.numpy.save({NAME: logits}))


def read_validation_logits(path: Path, *, num_texts: int) -> Logits | None:
    """Read them; none where the classifier has not learned from validation texts, and there is no such file.

    Raises:
        EncoderClsError: the file cannot be read, or is of another number of texts.
    """
    if not path.exists():
        return None
    try:
        logits: Logits = safetensors.numpy.load_file(path)[NAME]
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise EncoderClsError(f"{path}: cannot be read: {error}") from None
    if len(logits) != num_texts:
        raise EncoderClsError(f"{path}: has logits of {len(logits):,} texts, not of {num_texts:,}")
    return logits
