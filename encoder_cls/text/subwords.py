"""The vocabularies of trained sub-word tokenizers: what they must not depend on, or not hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from encoder_cls.text.row_tokens import kind_of_token
from encoder_cls.text.tokenizer import with_cls_template
from encoder_cls.text.tokens import SPECIAL_TOKENS, UNK_ID, WORD, TokenizedTexts

# What word_piece writes before a sub-word that continues a word.
CONTINUATION = "##"

# The number of decimal places to which the scores of a unigram model are rounded.
SCORE_PLACES = 6


def reproducible(trained: Tokenizer, own_tokens: Sequence[str]) -> Tokenizer:
    """Rebuild a trained tokenizer without what depends on the order of a hash table.

    `own_tokens` are its first ones, which are not learned.
    """
    model = json.loads(trained.to_str())["model"]
    if model["type"] == "Unigram":
        vocabulary = _rounded_scores(model["vocab"], len(own_tokens))
        return _with_model(trained, models.Unigram(vocab=vocabulary, unk_id=UNK_ID))

    # Training has marked the continuations of word_piece as special tokens. In a new tokenizer,
    # they are ordinary tokens.
    return _with_model(trained, _word_piece(model["vocab"]))


def _rounded_scores(
    vocabulary: list[tuple[str, Any]], num_own_tokens: int
) -> list[tuple[str, float]]:
    """Round the scores of learned sub-words, and sort by them again.

    The trainer adds up scores in the order of a hash table, so their last digits, and the order of
    equal ones, differ from run to run.
    """
    special = [(piece, score) for piece, score in vocabulary[:num_own_tokens]]
    learned = []
    for piece, score in vocabulary[num_own_tokens:]:
        learned.append((piece, round(score or 0, SCORE_PLACES)))

    def rank(entry: tuple[str, float]) -> tuple[float, str]:
        piece, score = entry
        return -score, piece

    learned.sort(key=rank)
    return [*special, *learned]


def without_rare_subwords(
    trained: Tokenizer,
    texts: TokenizedTexts,
    words: list[str],
    groups: NDArray[np.int64],
    *,
    min_groups: int,
) -> Tokenizer:
    """Leave out sub-words of several characters that are not in texts of enough groups.

    `words` are all distinct words of the texts.
    """
    subwords = [token for token in trained.get_vocab() if _is_subword(token)]
    rare = {_characters(subword) for subword in subwords if len(_characters(subword)) > 1}
    longest = max(map(len, rare), default=0)
    words = ["" if word in SPECIAL_TOKENS else word for word in words]

    # What is inside a frequent word is frequent.
    is_frequent = texts.group_counts(groups) >= min_groups
    for word in compress(words, is_frequent):
        rare -= _parts(word, longest)

    # List the groups of what is inside other words, each of which is in few groups.
    is_in_rare_word = ~is_frequent[texts.words]
    rare_words = texts.words[is_in_rare_word].tolist()
    groups_of_words = np.repeat(groups, np.diff(texts.offsets))[is_in_rare_word].tolist()
    groups_of_subwords = defaultdict(set)
    for number, group in set(zip(rare_words, groups_of_words, strict=True)):
        for subword in rare & _parts(words[number], longest):
            groups_of_subwords[subword].add(group)

    rare -= {subword for subword, found in groups_of_subwords.items() if len(found) >= min_groups}
    return _without(trained, rare)


def _is_subword(token: str) -> bool:
    return token not in SPECIAL_TOKENS and kind_of_token(token) == WORD


def _characters(subword: str) -> str:
    return subword.removeprefix(CONTINUATION)


def _parts(word: str, longest: int) -> set[str]:
    ends = range(2, len(word) + 1)
    return {word[start:end] for end in ends for start in range(max(0, end - longest), end - 1)}


def _without(trained: Tokenizer, rare: Set[str]) -> Tokenizer:
    """Leave out sub-words; those of which a kept one is merged are inside it, and so kept."""
    model = json.loads(trained.to_str())["model"]
    if model["type"] == "Unigram":
        scored = [(subword, score) for subword, score in model["vocab"] if subword not in rare]
        return _with_model(trained, models.Unigram(vocab=scored, unk_id=UNK_ID))

    kept = [subword for subword in model["vocab"] if _characters(subword) not in rare]
    kept.sort(key=model["vocab"].__getitem__)
    vocabulary = {subword: token_id for token_id, subword in enumerate(kept)}
    if model["type"] == "WordPiece":
        return _with_model(trained, _word_piece(vocabulary))

    merges = [(first, second) for first, second in model["merges"] if first + second in vocabulary]
    bpe = models.BPE(vocab=vocabulary, merges=merges, unk_token=SPECIAL_TOKENS[UNK_ID])
    return _with_model(trained, bpe)


def _word_piece(vocabulary: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(vocab=vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])


def _with_model(trained: Tokenizer, model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return with_cls_template(tokenizer)
