"""Choose the engine of the encoder, NumPy or PyTorch, by the size of the input."""

from __future__ import annotations

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.encoder.engine_choice import AutomaticEncoder

# The average number of bytes of a token in English text, to estimate the number of tokens.
BYTES_PER_TOKEN = 6
# The typical number of words of a text. To explain a text, the encoder reads it once for each of
# its words.
EXPLAINED_WORDS = 20


def choose_engine(classifier: Classifier, num_bytes: int, *, is_explained: bool = False) -> None:
    """Let a classifier with the engine "auto" choose between NumPy and PyTorch.

    It does nothing if the classifier has no encoder or was loaded with a certain engine.

    Args:
        classifier: the classifier.
        num_bytes: the size of the whole input in bytes; 0 if it is unknown.
        is_explained: whether each text is explained, which takes longer.
    """
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return

    num_tokens = num_bytes // BYTES_PER_TOKEN
    if is_explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(num_tokens)
