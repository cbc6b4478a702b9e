"""Choose the engine of the encoder, NumPy or PyTorch, and its device, by the size of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.encoder.engine_choice import AutomaticEncoder

# The average number of bytes of a token in English text, to estimate the number of tokens.
BYTES_PER_TOKEN = 6
# The typical number of words of a text. To explain a text, the encoder reads it once for each of
# its words.
EXPLAINED_WORDS = 20


# The number of texts that show which fraction of the texts skips the encoder. Tokenizing them, and
# computing the linear model, takes less than 0.1 seconds.
GATED_TEXTS = 500


def choose_engine(
    classifier: Classifier,
    num_bytes: int,
    *,
    is_explained: bool = False,
    first_texts: Callable[[int], Sequence[str]] = lambda _: (),
) -> None:
    """Let a classifier with the engine "auto" choose between NumPy, PyTorch and a GPU.

    It does nothing if the classifier has no encoder or was loaded with a certain engine.

    Args:
        classifier: the classifier.
        num_bytes: the size of the whole input in bytes; 0 if it is unknown.
        is_explained: whether each text is explained, which takes longer.
        first_texts: returns the first texts of the input, at most so many, if they can be read now.
    """
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return

    num_tokens = num_bytes // BYTES_PER_TOKEN
    if is_explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(
        num_tokens,
        fraction_computed=lambda: fraction_computed(classifier, first_texts(GATED_TEXTS)),
    )


def fraction_computed(classifier: Classifier, texts: Sequence[str]) -> float:
    """The fraction of texts that do not skip the encoder; 1 if there are no texts."""
    if not classifier.linear or not texts:
        return 1.0
    linear_logits = classifier.linear.logits(classifier.tokenize(texts))
    return 1 - float(classifier.skip_encoder(linear_logits).mean())
