"""Explain predictions by occlusion: measure what changes when a word is left out.

A text is classified again without each of its words. The weight of a word is the log odds of the
class for the whole text, minus the log odds without the word (Zeiler and Fergus, "Visualizing and
Understanding Convolutional Networks", 2014, https://arxiv.org/abs/1311.2901, and for words Li et
al., "Understanding Neural Networks through Representation Erasure", 2016,
https://arxiv.org/abs/1612.08220).
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

# The most tokens that are read to explain one text. The text is read once for each of its words, so
# this is enough for a text of 2,048 tokens.
MAX_TOKENS = 1 << 22

_UNSPACED = re.compile(f"[{UNSPACED_RANGES}]")

Word = range
"""The positions of the tokens of a word in the text; [CLS] is not counted."""


def explain(
    classifier: Classifier,
    texts: Sequence[str],
    tokenized: TokenizedTexts,
    labels: Sequence[str | None],
    *,
    batch_tokens: int | None = None,
    max_tokens: int | None = None,
) -> list[Explanation]:
    """Compute the weight of each word of each text for a class.

    In scripts without spaces, a token is first treated as a word. Then neighbours whose weights
    have the same sign are joined to one word, which gets a weight of its own. Words behind the last
    token that the classifier reads have no weights.

    A blank text has no words, and its label is None. `batch_tokens` is the most tokens in one batch
    of the encoder, padding included. If `max_tokens`, the most tokens that are read to explain one
    text, are too few for all words, the last words of the text get no weights.
    """
    explanations = []
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        # A blank text has no label, and no words whose weights would depend on it.
        class_number = 0
        if label is not None:
            class_number = classifier.label_names.index(label)
        occlusion = _Occlusion(
            classifier,
            tokenized[row : row + 1],
            label=class_number,
            batch_tokens=batch_tokens,
        )
        spans = token_spans(classifier.tokenizer, text, max_seq_len=classifier.max_seq_len)
        words = _words(spans, text)

        # Explain as many words as the limit allows. The text is read once without each of them, and
        # once as a whole.
        affordable = (max_tokens or MAX_TOKENS) // occlusion.num_tokens - 1
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

# The most tokens of the variants of a text that are in memory at a time, in some 100 MB.
TOKENS_AT_ONCE = 1 << 22


class _Occlusion:
    """A text that is classified again without some of its words, to explain the class `label`."""

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
        """The number of tokens of the text, with [CLS]."""
        return int(self._text.lengths[0])

    def weights_of(self, words: Sequence[Word]) -> list[float]:
        """Compute the weight of each word: how much the log odds fall when it is left out."""
        # Predict all variants by the parts that predict the whole text. Otherwise a weight could
        # show the difference between two parts instead of the effect of a word.
        classifier = self._classifier.gated_like(self._text)
        logits = []
        for variants in self._variants(words):
            logits.append(classifier.logits(variants, batch_tokens=self._batch_tokens))
        log_odds = classifier.task.log_odds(np.concatenate(logits).astype(np.float64), self._label)
        whole, *without_words = log_odds
        return [float(whole - without_word) for without_word in without_words]

    def _variants(self, words: Sequence[Word]) -> Iterator[TokenizedTexts]:
        """Yield the whole text, then the text without each word, in batches that fit in memory."""
        text = self._text
        positions = np.arange(len(text.words))

        # The bounds of the tokens that each variant leaves out: the position of the first one, and
        # the position after the last one. The first variant is the whole text. [CLS] is at position
        # 0, so the words begin at 1.
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
    """Group the tokens of a text into words, which do not overlap.

    A token that belongs to no word, or to a script without spaces, is a word by itself. Tokens that
    share a character, such as those of a ligature, belong to one word.
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
    """The sign of a weight, 1 or -1; 0 if the weight is smaller than `MIN_WEIGHT`."""
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
