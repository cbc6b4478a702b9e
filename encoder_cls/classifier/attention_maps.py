"""The attention maps of a text: how much its tokens attend to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError
from encoder_cls.text.tokenizer import token_spans


class AttentionMaps(NamedTuple):
    """The tokens of a text, and how much they attend to each other.

    Attributes:
        tokens: the tokens as they are in the text, after `[CLS]`.
        weights: the attention weights, (layers, heads, tokens, tokens). `[layer, head, i, j]` is
            how much token `i` attends to token `j`; the weights over `j` sum to 1.
    """

    tokens: list[str]
    weights: NDArray[np.float32]


def attention_maps(classifier: Classifier, text: str) -> AttentionMaps:
    """Compute the attention weights of all layers and heads for a text.

    Raises:
        ConfigError: the classifier has no encoder.
    """
    if not classifier.encoder:
        raise ConfigError("the model has no encoder, so it has no attention")
    spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
    tokens = ["[CLS]", *(text[span.start : span.end] for span in spans)]
    weights = classifier.encoder.attention_maps(classifier.tokenize([text]))
    return AttentionMaps(tokens=tokens, weights=weights)
