"""Choose the number of processes and the engine of the encoder by the size of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.encoder.engine_choice import AutomaticEncoder
from encoder_cls.system.processes import usable_processes

# The input size in bytes from which several processes share the work. Two processes are as fast
# as one process at 4 MB, and 1.3 times as fast at 10 MB.
SHARED_BYTES = 5_000_000


def processes_for(num_bytes: int) -> int:
    """How many processes classify an input of this size; 1 is this one alone."""
    if num_bytes < SHARED_BYTES:
        return 1
    return usable_processes()


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
    num_processes: int = 1,
    first_texts: Callable[[int], Sequence[str]] = lambda _: (),
) -> None:
    """Let a classifier with the engine "auto" choose between NumPy, PyTorch and a GPU.

    `num_bytes` is 0 if unknown; `first_texts` returns at most so many texts, if they can be read
    now.
    """
    if not isinstance(classifier.encoder, AutomaticEncoder):
        return

    num_tokens = num_bytes // BYTES_PER_TOKEN
    if is_explained:
        num_tokens *= EXPLAINED_WORDS
    classifier.encoder.choose_engine(
        num_tokens,
        fraction_computed=lambda: _fraction_computed(classifier, first_texts(GATED_TEXTS)),
        num_processes=num_processes,
    )


def _fraction_computed(classifier: Classifier, texts: Sequence[str]) -> float:
    if not classifier.linear or not texts:
        return 1.0
    linear_logits = classifier.linear.logits(classifier.tokenize(texts))
    return 1 - float(classifier.skip_encoder(linear_logits).mean())
