"""The attention maps of a text: how much its tokens attend to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError
from encoder_cls.system.row_text import readable
from encoder_cls.text.tokenizer import token_spans


class AttentionMaps(NamedTuple):
    """The tokens of a text after `[CLS]`, and how much they attend to each other.

    `weights[layer, head, i, j]` is how much token `i` attends to token `j`; they sum to 1 over `j`.
    """

    tokens: list[str]
    weights: NDArray[np.float32]


def attention_maps(classifier: Classifier, text: str) -> AttentionMaps:
    """Compute the attention weights of a text; a `ConfigError` if there is no encoder."""
    if not classifier.encoder:
        raise ConfigError("the model has no encoder, so it has no attention")
    spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
    shown = readable(text)
    tokens = ["[CLS]", *(shown[span.start : span.end] for span in spans)]
    weights = classifier.encoder.attention_maps(classifier.tokenize([text]))
    return AttentionMaps(tokens=tokens, weights=weights)
