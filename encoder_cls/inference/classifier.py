"""The classifier: an encoder and a linear classifier, combined; texts in, calibrated probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from encoder_cls.config import ModelConfig
from encoder_cls.inference.calibration import Logits, combine_logits, softmax
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.torch_engine import compute_logits
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the classifier says of one text.

    Attributes:
        label: the most probable class.
        probability: its probability.
        probabilities: of all classes, by name.
        truncated: the text was longer than the encoder reads.
        unknown_words: how many of its tokens the classifier has never seen.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int

    def top(self, k: int) -> list[tuple[str, float]]:
        """The `k` most probable classes with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]


class Classifier:
    """A trained encoder, and perhaps a linear classifier beside it, with their tokenizer and class names.

    Wide and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792): what a few words say by themselves is
    learnt best from their counts, what they say together by an encoder; the scores of both are added up.

    Attributes:
        linear: the linear classifier, if there is one.
        scales: by which scores are multiplied, the encoder's and the linear classifier's, so that probabilities are as
            often right as they say.
    """

    def __init__(
        self,
        model: EncoderClassifier,
        tokenizer: Tokenizer,
        config: ModelConfig,
        label_names: Sequence[str],
        *,
        linear: LinearClassifier | None = None,
        scales: tuple[float, ...] | None = None,
    ) -> None:
        self.model = model
        self.linear = linear
        self.scales = scales or (1.0,) * (2 if linear else 1)
        self.tokenizer = tokenizer
        self.config = config
        self.label_names = tuple(label_names)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of, also one for another process."""
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A tokenizer that copied itself would take "[PAD]" in a text for the padding.
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    def predict(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts, any number and any length of them; the order is kept.

        Args:
            texts: the texts.
            batch_tokens: the most tokens in a batch, padding counted; none: what the device is fast with.

        Raises:
            TypeError: a single text, which would be taken for many of one character each.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes several texts; put a single one in a list: predict([text])[0]")
        tokenized = self.tokenize(texts)
        logits = self.logits(tokenized, batch_tokens=batch_tokens)
        return [
            Prediction(
                label=self.label_names[row.argmax()],
                probability=float(row.max()),
                probabilities=dict(zip(self.label_names, row.tolist(), strict=True)),
                truncated=bool(truncated),
                unknown_words=int(unknown),
            )
            for row, truncated, unknown in zip(softmax(logits), tokenized.truncated, tokenized.unknown, strict=True)
        ]

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """Token ids of texts, cut where the classifier reads no further."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.config.max_seq_len)

    def logits(
        self, texts: TokenizedTexts, *, batch_tokens: int | None, after_batch: Callable[[], None] | None = None
    ) -> Logits:
        """Calibrated logits of all texts, (texts, classes); arguments as in `in_batches`."""
        scores = [compute_logits(self.model, texts, batch_tokens=batch_tokens, after_batch=after_batch)]
        if self.linear:
            scores.append(self.linear.scores(texts))
        return combine_logits(scores, self.scales).astype(np.float32)
