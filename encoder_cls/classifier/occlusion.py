"""Explain predictions by occlusion: classify a text again without each of its words.

The weight of a word is the log odds of the class for the whole text, minus the log odds without the
word (Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2014,
https://arxiv.org/abs/1311.2901; for words Li et al., "Understanding Neural Networks through
Representation Erasure", 2016, https://arxiv.org/abs/1612.08220).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.explanation import MIN_WEIGHT, Explanation, WordWeight
from encoder_cls.text.tokenizer import Span
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.text.word_pattern import UNSPACED_RANGES

# The most tokens that are read to explain one text. The text is read once for each of its words, so
# this is enough for a text of 2,048 tokens.
MAX_TOKENS = 1 << 22

_UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")

Word = range
"""The positions of the tokens of a word in the text; [CLS] is not counted."""


def explain(
    text: str,
    tokenized: TokenizedTexts,
    spans: Sequence[Span],
    log_odds_of: Callable[[TokenizedTexts], NDArray[np.float64]],
    *,
    max_tokens: int | None = None,
) -> Explanation:
    """Compute the weight of each word of a text for a class.

    In scripts without spaces, a token is a word at first; then neighbours whose weights have the
    same sign are joined, and get a weight of their own.

    Args:
        spans: of the tokens without [CLS]. A token without a place gets no weight.
        log_odds_of: of the class, for each of some variants of the text, (variants,).
        max_tokens: to read, by default `MAX_TOKENS`; if they are too few, the last words get no
            weights, as words behind the last token that the classifier reads.
    """
    words = _words(spans, text)

    # Explain as many words as the limit allows. The text is read once without each of them, and
    # once as a whole.
    num_tokens = int(tokenized.lengths[0])
    affordable = (max_tokens or MAX_TOKENS) // num_tokens - 1
    explained = words[: max(1, affordable)]
    left_out = len(words) - len(explained)

    weights = _weights_of(explained, tokenized, log_odds_of)
    joined = _joined(explained, weights, spans, text)
    if len(joined) < len(explained):
        explained = joined
        weights = _weights_of(joined, tokenized, log_odds_of)

    weighted = []
    for word, weight in zip(explained, weights, strict=True):
        start = spans[word[0]].start
        end = spans[word[-1]].end
        if start < end:
            weighted.append(WordWeight(word=text[start:end], start=start, end=end, weight=weight))

    # Features are read before the words, and shown after them.
    weighted.sort(key=lambda word: word.start)
    return Explanation(weighted, left_out=left_out)


# --- Leave words out ------------------------------------------------------------------------------

# The most tokens of the variants of a text that are in memory at a time, in some 100 MB.
TOKENS_AT_ONCE = 1 << 22


def _weights_of(
    words: Sequence[Word],
    text: TokenizedTexts,
    log_odds_of: Callable[[TokenizedTexts], NDArray[np.float64]],
) -> list[float]:
    log_odds = [log_odds_of(variants) for variants in _variants(text, words)]
    whole, *without_words = np.concatenate(log_odds)
    return [float(whole - without_word) for without_word in without_words]


def _variants(text: TokenizedTexts, words: Sequence[Word]) -> Iterator[TokenizedTexts]:
    """Yield the whole text, then the text without each word, in batches that fit in memory."""
    positions = np.arange(len(text.words))

    # The bounds of the tokens that each variant leaves out: the position of the first one, and the
    # position after the last one. The first variant is the whole text. [CLS] is at position 0, so
    # the words begin at 1.
    bounds = [(0, 0)]
    bounds += [(1 + word.start, 1 + word.stop) for word in words]
    all_bounds = np.array(bounds)

    variants_at_once = max(1, TOKENS_AT_ONCE // len(positions))
    for first in range(0, len(bounds), variants_at_once):
        batch_bounds = all_bounds[first : first + variants_at_once]
        starts = batch_bounds[:, 0, None]
        ends = batch_bounds[:, 1, None]

        # The number of the variant and the position of every token that is kept.
        variants, kept = np.nonzero((positions < starts) | (positions >= ends))
        yield replace(
            text,
            words=text.words[kept],
            offsets=np.searchsorted(variants, np.arange(len(batch_bounds) + 1)),
            truncated=text.truncated.repeat(len(batch_bounds)),
        )


# --- Words ----------------------------------------------------------------------------------------


def _words(spans: Sequence[Span], text: str) -> list[Word]:
    """Group tokens into words, which do not overlap.

    A token of no word, or of a script without spaces, is a word; tokens that share a character,
    such as a ligature, belong to one.
    """
    words: list[Word] = []
    for token, span in enumerate(spans):
        if token > 0 and _are_of_one_word(spans[token - 1], span, text):
            words[-1] = range(words[-1].start, token + 1)
        else:
            words.append(range(token, token + 1))
    return words


def _are_of_one_word(before: Span, span: Span, text: str) -> bool:
    if before.start <= span.start < before.end:
        return True
    if span.word is None or _UNSPACED.match(text, span.start):
        return False
    return span.word == before.word and not _UNSPACED.match(text, before.start)


def _joined(
    words: Sequence[Word], weights: Sequence[float], spans: Sequence[Span], text: str
) -> list[Word]:
    """Join neighbouring words of scripts without spaces if their weights have the same sign."""
    joined: list[Word] = []
    sign_before = 0
    for word, weight in zip(words, weights, strict=True):
        sign = _sign(weight)
        has_same_sign = sign != 0 and sign == sign_before
        if has_same_sign and _are_unspaced_neighbours(joined[-1], word, spans, text):
            joined[-1] = range(joined[-1].start, word.stop)
        else:
            joined.append(word)
        sign_before = sign
    return joined


def _sign(weight: float) -> int:
    """1 or -1; 0 if the weight is smaller than `MIN_WEIGHT`."""
    if weight >= MIN_WEIGHT:
        return 1
    if weight <= -MIN_WEIGHT:
        return -1
    return 0


def _are_unspaced_neighbours(before: Word, word: Word, spans: Sequence[Span], text: str) -> bool:
    start_before = spans[before[0]].start
    start = spans[word[0]].start
    if spans[before[-1]].end != start:
        return False
    return bool(_UNSPACED.match(text, start_before) and _UNSPACED.match(text, start))
