"""The tokenizer and the tokens of a run, computed from its texts or read from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.system.cache import CacheEntry, cached
from encoder_cls.system.files import sha256
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import checking
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_training import train_and_tokenize
from encoder_cls.text.tokens import CharNgrams, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config


class TokenizedData(NamedTuple):
    """A tokenizer, trained on the training texts, and the tokens of a run.

    Attributes:
        long_words: how many training words are too long for a sub-word tokenizer to learn from.
    """

    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int


def tokenized_data(
    texts: Iterable[str],
    validation_texts: Iterable[str],
    config: Config,
    *,
    fingerprints: Sequence[str],
    groups: Callable[[], NDArray[np.int64]],
    base: Tokenizer | None,
    check: Callable[[], None],
    reporter: Reporter = SILENT,
) -> TokenizedData:
    """Train a tokenizer and tokenize all texts, or read both from the cache.

    The key of the cache has `fingerprints` of all texts and groups, whose numbers, (texts,),
    `groups` computes only if they are needed. A tokenizer `base` is extended. `check` is called
    from time to time, and may raise an error to end the work.

    Raises:
        ConfigError: max_vocab_size is less than the number of single characters.
        EncoderClsError: the cache cannot be written.
    """
    max_seq_len = config.model.max_seq_len

    def compute() -> TokenizedData:
        tokenizer, tokens, long_words = train_and_tokenize(
            texts, config.tokenizer, max_seq_len=max_seq_len, groups=groups(), base=base
        )
        validation_tokens = tokenize(tokenizer, validation_texts, max_seq_len=max_seq_len)
        return TokenizedData(tokenizer, tokens, validation_tokens, long_words)

    with checking(check):
        if config.data.cache is None:
            return compute()

        key = {
            "tokenizer": config.tokenizer.model_dump(mode="json"),
            "max_seq_len": max_seq_len,
            "texts": fingerprints,
            "base": sha256(base.to_str().encode()) if base else None,
        }
        entry = cached(
            Path(config.data.cache), "tokens", key, lambda: _to_entry(compute()), reporter=reporter
        )
    return _from_entry(entry)


def _to_entry(data: TokenizedData) -> CacheEntry:
    values = {
        "tokenizer": data.tokenizer.to_str(),
        "max_seq_len": data.texts.max_seq_len,
        "long_words": data.long_words,
    }
    arrays = {
        **_arrays(data.texts, "texts"),
        **_arrays(data.validation_texts, "validation_texts"),
    }
    return CacheEntry(values, arrays)


def _arrays(texts: TokenizedTexts, prefix: str) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}.words": texts.words,
        f"{prefix}.word_ids": texts.word_ids,
        f"{prefix}.ngrams": texts.char_ngrams.ngrams,
        f"{prefix}.ngram_offsets": texts.char_ngrams.offsets,
        f"{prefix}.offsets": texts.offsets,
        f"{prefix}.truncated": texts.truncated,
        **({} if texts.kinds is None else {f"{prefix}.kinds": texts.kinds}),
    }


def _from_entry(entry: CacheEntry) -> TokenizedData:
    max_seq_len = entry.values["max_seq_len"]
    return TokenizedData(
        tokenizer=parse_tokenizer(entry.values["tokenizer"]),
        texts=_texts(entry.arrays, "texts", max_seq_len),
        validation_texts=_texts(entry.arrays, "validation_texts", max_seq_len),
        long_words=entry.values["long_words"],
    )


def _texts(arrays: Mapping[str, NDArray[Any]], prefix: str, max_seq_len: int) -> TokenizedTexts:
    ngrams = CharNgrams(
        ngrams=arrays[f"{prefix}.ngrams"], offsets=arrays[f"{prefix}.ngram_offsets"]
    )
    return TokenizedTexts(
        words=arrays[f"{prefix}.words"],
        word_ids=arrays[f"{prefix}.word_ids"],
        char_ngrams=ngrams,
        offsets=arrays[f"{prefix}.offsets"],
        max_seq_len=max_seq_len,
        truncated=arrays[f"{prefix}.truncated"],
        kinds=arrays.get(f"{prefix}.kinds"),
    )
