"""Explain predictions by occlusion: the weights of words.

A text is classified again without each word, whose weight is the difference of the log odds
(Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", 2014,
https://arxiv.org/abs/1311.2901, and for words Li et al., "Understanding Neural Networks through
Representation Erasure", 2016, https://arxiv.org/abs/1612.08220).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import MIN_WEIGHT, Explanation, WordWeight
from encoder_cls.text.tokenizer import UNSPACED_RANGES, Span, token_spans
from encoder_cls.text.tokens import TokenizedTexts

# An explanation reads the text once for each word, up to this number of tokens: enough for a text
# of 2,048.
MAX_TOKENS = 1 << 22

_UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")

Word = range
"""The tokens of a word, without [CLS]."""


def explain(
    classifier: Classifier,
    texts: Sequence[str],
    tokenized: TokenizedTexts,
    labels: Sequence[str | None],
    *,
    batch_tokens: int | None = None,
    most_tokens: int | None = None,
) -> list[Explanation]:
    """Compute the weights of the words of each text for its label.

    In scripts without spaces, neighbours whose weights have the same sign are left out together, as
    one word. Words beyond the classifier's limit have no weights.

    Args:
        classifier: predicts the texts.
        texts: to explain.
        tokenized: the same texts, by the classifier.
        labels: a class for each text; None if it is blank.
        batch_tokens: the most tokens in a batch.
        most_tokens: the most tokens that are read for a text; its last words get no weights where
            they would take more. By default `MAX_TOKENS`.
    """
    explanations = []
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        class_number = 0
        if label:
            class_number = classifier.label_names.index(label)
        occlusion = _Occlusion(
            classifier,
            tokenized[row : row + 1],
            label=class_number,
            batch_tokens=batch_tokens,
        )
        spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
        words = _words(spans, text)

        # The text is read once for each of these words, and once as a whole.
        affordable = (most_tokens or MAX_TOKENS) // occlusion.num_tokens - 1
        explained = words[: max(1, affordable)]
        left_out = len(words) - len(explained)

        weights = occlusion.weights_of(explained)
        joined = _joined(explained, weights, spans, text)
        if len(joined) < len(explained):
            explained = joined
            weights = occlusion.weights_of(joined)

        weighted = []
        for word, weight in zip(explained, weights, strict=True):
            start = spans[word[0]].start
            end = spans[word[-1]].end
            weighted.append(WordWeight(word=text[start:end], start=start, end=end, weight=weight))
        explanations.append(Explanation(weighted, left_out=left_out))
    return explanations


# --- Leave words out ------------------------------------------------------------------------------

# The tokens of the variants of a text that are made at a time, in some 100 MB.
TOKENS_AT_ONCE = 1 << 22


class _Occlusion:
    """A text that is classified again without some of its words.

    Args:
        classifier: predicts the text.
        text: a single one.
        label: the number of the class.
        batch_tokens: the most tokens in a batch.
    """

    def __init__(
        self,
        classifier: Classifier,
        text: TokenizedTexts,
        *,
        label: int,
        batch_tokens: int | None,
    ) -> None:
        self._classifier = classifier
        self._text = text
        self._label = label
        self._batch_tokens = batch_tokens

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the text."""
        return int(self._text.lengths[0])

    def weights_of(self, words: Sequence[Word]) -> list[float]:
        """The weight of each word: by how much the log odds fall without it."""
        # The same parts predict all variants, so that no weight is the difference of two parts.
        classifier = self._classifier.gated_like(self._text)
        logits = []
        for variants in self._variants(words):
            logits.append(classifier.logits(variants, batch_tokens=self._batch_tokens))
        log_odds = classifier.task.log_odds(np.concatenate(logits).astype(np.float64), self._label)
        whole, *without_words = log_odds
        return [float(whole - without_word) for without_word in without_words]

    def _variants(self, words: Sequence[Word]) -> Iterator[TokenizedTexts]:
        """The whole text, then the text without each word, in batches that fit in memory."""
        text = self._text
        tokens = np.arange(len(text.words))

        # The first token that is left out, and the one after the last. [CLS] is before the words.
        bounds = [(0, 0)]
        bounds += [(1 + word.start, 1 + word.stop) for word in words]
        starts_and_ends = np.array(bounds)

        variants_at_once = max(1, TOKENS_AT_ONCE // len(tokens))
        for first in range(0, len(bounds), variants_at_once):
            some = starts_and_ends[first : first + variants_at_once]
            starts = some[:, 0, None]
            ends = some[:, 1, None]
            variants, kept = np.nonzero((tokens < starts) | (tokens >= ends))
            yield replace(
                text,
                words=text.words[kept],
                offsets=np.searchsorted(variants, np.arange(len(some) + 1)),
                truncated=text.truncated.repeat(len(some)),
            )


# --- Words ----------------------------------------------------------------------------------------


def _words(spans: Sequence[Span], text: str) -> list[Word]:
    """Group tokens into whole words.

    A token of no word, or of a script without spaces, is a word by itself. Tokens that share a
    character, as those of a ligature do, are in one word: so words are disjoint.
    """
    words: list[Word] = []
    for token, span in enumerate(spans):
        if token > 0 and _are_of_one_word(spans[token - 1], span, text):
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
    """The sign of a weight; 0 if it is too small to count."""
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
