"""Explain answers by the weights of words, and by attention maps.

A text is classified again without each word, whose weight is the difference of the log odds (occlusion; Zeiler and
Fergus, "Visualizing and Understanding Convolutional Networks", 2014, https://arxiv.org/abs/1311.2901, and for words Li
et al., "Understanding Neural Networks through Representation Erasure", 2016, https://arxiv.org/abs/1612.08220).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError
from encoder_cls.system.columns import in_chunks
from encoder_cls.text.tokenizer import UNSPACED_RANGES, Span, token_spans
from encoder_cls.text.tokens import TokenizedTexts

# An explanation reads the text once for each word, up to this number of tokens: enough for a text of 2,048.
MOST_TOKENS = 1 << 22
TOKENS_AT_ONCE = 1 << 22  # of variants of a text, in some 100 MB
STRONG = 2.0  # log odds from which a word has its full colour
LEAST_WEIGHT = 0.1  # of a word that is listed or coloured
_UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")
Word = range  # of its tokens, without [CLS]


@dataclass(frozen=True, kw_only=True)
class WordWeight:
    """A word of a text, `text[start:end]`, and its weight for a class.

    The weight is the log odds ln(p / (1 - p)) of the class, minus those without the word: above 0, evidence for it.
    """

    word: str
    start: int
    end: int
    weight: float


class Explanation(list[WordWeight]):
    """The words of a text with their weights, in order; `left_out` is the number of those not explained, for time."""

    def __init__(self, words: Iterable[WordWeight] = (), *, left_out: int = 0) -> None:
        super().__init__(words)
        self.left_out = left_out


def marked(text: str, weights: Sequence[WordWeight]) -> list[tuple[str, float]]:
    """Split a text into pieces, each with its weight, which is 0 between words."""
    pieces, end = [], 0
    for word in weights:
        pieces += [(text[end : word.start], 0.0), (text[word.start : word.end], word.weight)]
        end = word.end
    return [(piece, weight) for piece, weight in [*pieces, (text[end:], 0.0)] if piece]


class AttentionMaps(NamedTuple):
    """The tokens of a text, `[CLS]` first, and their attention weights as in `NumpyEncoder.attention_maps`."""

    tokens: list[str]
    weights: NDArray[np.float32]


def explain(
    classifier: Classifier,
    texts: Sequence[str],
    tokenized: TokenizedTexts,
    labels: Sequence[str | None],
    *,
    batch_tokens: int | None = None,
    most_tokens: int | None = None,
) -> list[Explanation]:
    """Compute the weights of the words of each text, `tokenized` by the classifier, for its label, None if it is blank.

    In scripts without spaces, neighbours whose weights have the same sign are left out together, as one word. Words
    beyond the classifier's limit have no weights, nor have the last words of a text for which more than `most_tokens`
    (by default `MOST_TOKENS`) would be read.
    """
    most_tokens = most_tokens or MOST_TOKENS

    def weights_of(words: Sequence[Word], tokens: TokenizedTexts, number: int) -> list[float]:
        # So that no weight is the difference between two parts.
        same = classifier.with_parts_of(tokens)
        logits = [same.logits(some, batch_tokens=batch_tokens) for some in _variants(tokens, words)]
        whole, *without = classifier.task.log_odds(
            np.concatenate(logits).astype(np.float64), number
        )
        return [float(whole - odds) for odds in without]

    explanations = []
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        tokens, number = (
            tokenized[row : row + 1],
            classifier.label_names.index(label) if label else 0,
        )
        spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
        words = _words(spans, text)
        explained = words[: max(1, most_tokens // int(tokens.lengths[0]) - 1)]
        left_out = len(words) - len(explained)
        weights = weights_of(explained, tokens, number)
        joined = _joined(explained, weights, spans, text)
        if len(joined) < len(explained):
            explained, weights = joined, weights_of(joined, tokens, number)
        places = ((spans[word[0]].start, spans[word[-1]].end) for word in explained)
        weighted = (
            WordWeight(word=text[start:end], start=start, end=end, weight=weight)
            for (start, end), weight in zip(places, weights, strict=True)
        )
        explanations.append(Explanation(weighted, left_out=left_out))
    return explanations


def attention_maps(classifier: Classifier, text: str) -> AttentionMaps:
    """The attention weights of all layers and heads for a text; a `ConfigError` if there is no encoder."""
    if not classifier.encoder:
        raise ConfigError("the model has no encoder, so it has no attention")
    spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
    tokens = ["[CLS]", *(text[span.start : span.end] for span in spans)]
    return AttentionMaps(
        tokens=tokens, weights=classifier.encoder.attention_maps(classifier.tokenize([text]))
    )


def _variants(tokenized: TokenizedTexts, words: Sequence[Word]) -> Iterator[TokenizedTexts]:
    """The whole text, then the text without each of the words, in batches that fit in memory."""
    places = np.arange(len(tokenized.words))
    left_out = np.array([(0, 0), *((1 + word.start, 1 + word.stop) for word in words)])
    for some in in_chunks(left_out, max(1, TOKENS_AT_ONCE // len(places))):
        starts, ends = np.transpose(some)[:, :, None]
        rows, kept = np.nonzero((places < starts) | (places >= ends))
        yield replace(
            tokenized,
            words=tokenized.words[kept],
            offsets=np.searchsorted(rows, np.arange(len(some) + 1)),
            truncated=tokenized.truncated.repeat(len(some)),
        )


def _words(spans: Sequence[Span], text: str) -> list[Word]:
    """Group tokens into whole words; a token of no word, or of a script without spaces, is a word by itself.

    Tokens that share a character, as those of a ligature do, are in one word: so words are disjoint.
    """
    words: list[Word] = []
    for token, span in enumerate(spans):
        before = spans[token - 1] if token else None
        if before is not None and _are_of_one_word(before, span, text):
            words[-1] = range(words[-1].start, token + 1)
        else:
            words.append(range(token, token + 1))
    return words


def _are_of_one_word(before: Span, span: Span, text: str) -> bool:
    if span.start < before.end:
        return True
    if span.word is None or _UNSPACED.match(text, span.start):
        return False
    return span.word == before.word and not _UNSPACED.match(text, before.start)


def _joined(
    words: Sequence[Word], weights: Sequence[float], spans: Sequence[Span], text: str
) -> list[Word]:
    """Join neighbours in a script without spaces whose weights have the same sign."""
    joined: list[Word] = []
    signs = [(weight >= LEAST_WEIGHT) - (weight <= -LEAST_WEIGHT) for weight in weights]
    for word, sign, before in zip(words, signs, [0, *signs], strict=False):
        last = joined[-1] if joined else word
        starts, end = [spans[it[0]].start for it in (last, word)], spans[last[-1]].end
        are_unspaced = end == starts[1] and all(_UNSPACED.match(text, start) for start in starts)
        if sign and sign == before and are_unspaced:
            joined[-1] = range(last.start, word.stop)
        else:
            joined.append(word)
    return joined
