"""Train the tokenizer and tokenize the data, cached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from tokenizers import Tokenizer

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.system.disk_arrays import ConcatenatedTexts, cached
from encoder_cls.system.files import sha256
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import CharNgrams, TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class TokenizedData:
    """A tokenizer, as JSON, and the tokens of a data set, as in `Prepared`."""

    serialized: str
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int = 0

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return parse_tokenizer(self.serialized)


def tokenized_data(dataset: Dataset, config: Config, *, base: Tokenizer | None) -> TokenizedData:
    """Train a tokenizer, or extend that of the base run, and tokenize a data set, or read both from the cache.

    Raises:
        ConfigError: as `train_tokenizer`.
        EncoderClsError: the disk refuses.
    """
    make = partial(_tokenized, dataset, config, base)
    if config.data.cache is None:
        return make()
    key = {
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "max_seq_len": config.model.max_seq_len,
        "texts": [part.fingerprint for part in (dataset.train, dataset.unlabelled, dataset.selection)],
        "former": base and sha256(base.to_str().encode()),
    }
    return cached(Path(config.data.cache), "tokens", key, make, TokenizedData, TokenizedTexts, CharNgrams)


def _tokenized(dataset: Dataset, config: Config, base: Tokenizer | None) -> TokenizedData:
    max_seq_len, long_words = config.model.max_seq_len, 0
    learned_from = ConcatenatedTexts(dataset.train.texts, dataset.unlabelled.texts)
    if base is None and config.tokenizer.type != "word_level":
        base, long_words = run_interruptibly(
            lambda: train_subwords(learned_from, config.tokenizer, max_seq_len=max_seq_len)
        )
    tokenizer, texts = train_and_tokenize(learned_from, config.tokenizer, max_seq_len=max_seq_len, base=base)
    validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
    return TokenizedData(
        serialized=tokenizer.to_str(), texts=texts, validation_texts=validation_texts, long_words=long_words
    )
