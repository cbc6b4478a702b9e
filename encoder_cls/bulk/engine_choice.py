"""Choose the engine of the encoder for a whole input, by its size."""

from __future__ import annotations

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.encoder.engines import AutomaticEncoder

# The number of tokens is estimated by the bytes of a token, in English text.
BYTES_PER_TOKEN = 6
# To explain a text, the encoder reads it once for each of its words. Texts have about so many.
EXPLAINED_WORDS = 20


def choose_engine(classifier: Classifier, num_bytes: int, *, is_explained: bool = False) -> None:
    """Let the classifier choose its engine, unless a person has chosen one.

    Args:
        classifier: the classifier of all texts of the input.
        num_bytes: the size of the input; 0: unknown.
        is_explained: whether each text is explained.
    """
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return

    num_tokens = num_bytes // BYTES_PER_TOKEN
    if is_explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(num_tokens)
