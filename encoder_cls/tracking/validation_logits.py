"""Logits and evidence of validation texts from before the linear classifier learned from them.

Its answers to them now say nothing of new texts, so these are kept in the run's folder.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.errors import EncoderClsError
from encoder_cls.inference.classifier import Classifier, Numbers
from encoder_cls.inference.encoder.torch import torch_encoder
from encoder_cls.inference.folder import load_classifier
from encoder_cls.inference.linear import EVIDENCE_NUMBERS
from encoder_cls.inference.task import Logits
from encoder_cls.system.files import write_file
from encoder_cls.text.tokens import UNK_ID, TokenizedTexts
from encoder_cls.tracking.run_dir import run_of

# The tensors: (texts, classes), (texts, `EVIDENCE_NUMBERS`), and the hash of each text.
LOGITS, EVIDENCE, TEXTS = "linear", "evidence", "texts"


class ValidationLogits:
    """The kept logits, (texts, classes), by the hashes of what the classifier reads of the texts, (texts,)."""

    def __init__(self, logits: Logits, hashes: NDArray[np.uint64], evidence: Numbers | None = None) -> None:
        self.logits, self._evidence = logits, evidence
        self._rows = {number: row for row, number in enumerate(hashes.tolist())}

    def in_place_of(
        self, logits: Logits, numbers: Numbers | None, texts: TokenizedTexts
    ) -> tuple[Logits, Numbers | None]:
        """Replace the logits and the evidence of those texts that the linear classifier has learned from."""
        rows = np.array([self._rows.get(number, -1) for number in _hashes(texts).tolist()], dtype=np.int64)
        is_kept = (rows >= 0)[:, None]
        if numbers is not None and self._evidence is not None:
            evidence = np.where(is_kept, self._evidence[rows], numbers[:, :EVIDENCE_NUMBERS])
            numbers = np.hstack([evidence, numbers[:, EVIDENCE_NUMBERS:]])
        return np.where(is_kept, self.logits[rows], logits), numbers


def classifier_to_score(path: Path, *, device: str = "auto") -> Classifier:
    """Load a run's (or model folder's) classifier to score, compare or judge labels, with the engine for many texts.

    Its `part_logits` of validation texts are from before it learned their labels.

    Raises:
        ConfigError: there is no classifier.
        EncoderClsError: the folder is damaged, or has no such logits of these classes.
    """
    classifier, run = load_classifier(path, device=device), run_of(path)
    if classifier.encoder:
        classifier.encoder = torch_encoder(classifier)
    if classifier.linear and run and run.validation_logits.exists():
        kept = read_validation_logits(run.validation_logits)
        if kept.logits.shape[1:] != (len(classifier.label_names),):
            raise EncoderClsError(f"{run.validation_logits}: is of other classes than the model; train again")
        classifier.before_refit = kept.in_place_of
    return classifier


def write_validation_logits(path: Path, logits: Logits, evidence: Numbers, texts: TokenizedTexts) -> None:
    """Write the logits and the evidence of texts, durably and at once."""
    write_file(path, safetensors.numpy.save({LOGITS: logits, EVIDENCE: evidence, TEXTS: _hashes(texts)}))


def read_validation_logits(path: Path) -> ValidationLogits:
    """Read the logits; `EncoderClsError` if the file cannot be read."""
    try:
        tensors = safetensors.numpy.load_file(path)
        return ValidationLogits(tensors[LOGITS], tensors[TEXTS], tensors.get(EVIDENCE))
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None


def _hashes(texts: TokenizedTexts) -> NDArray[np.uint64]:
    """Hash what is read of each text: the ids of its tokens, and of unknown ones the character n-grams."""
    numbers, ngrams = texts.word_ids.astype(np.int64), texts.char_ngrams
    for word in np.flatnonzero(texts.word_ids == UNK_ID):
        of_word = ngrams.ngrams[ngrams.offsets[word] : ngrams.offsets[word + 1]]
        numbers[word] = -1 - int.from_bytes(blake2b(of_word.tobytes(), digest_size=7).digest(), "little")
    pieces = (numbers[texts.words[a:b]] for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True))
    digests = b"".join(blake2b(piece.tobytes(), digest_size=8).digest() for piece in pieces)
    return np.frombuffer(digests, dtype="<u8")
