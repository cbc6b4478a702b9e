"""Train the tokenizer and tokenize the data, cached."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.system.array_cache import Entry, Made, cached
from encoder_cls.system.disk_arrays import ConcatenatedTexts
from encoder_cls.system.files import sha256
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.char_ngrams import CharNgrams
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import TokenizedTexts

FORMAT = 2  # to be raised with any change of the content of an entry

TRAIN, VALIDATION = "train", "validation"
ARRAYS = ("words", "word_ids", "offsets", "truncated")


@dataclass(frozen=True, kw_only=True)
class TokenizedData:
    """A tokenizer and the tokens of a data set, as in `Prepared`."""

    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int = 0


def tokenized_data(dataset: Dataset, config: Config, *, base: Tokenizer | None) -> TokenizedData:
    """Train a tokenizer, or extend that of the base run, and tokenize the texts of a data set.

    Raises:
        ConfigError: as `train_tokenizer`.
        EncoderClsError: the disk refuses.
    """
    if config.data.cache is None:
        return _tokenized(dataset, config, base)
    key = {
        "format": FORMAT,
        "versions": [version(name) for name in ("encoder-cls", "tokenizers", "pyarrow")],
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "max_seq_len": config.model.max_seq_len,
        "texts": [part.fingerprint for part in (dataset.train, dataset.unlabelled, dataset.selection)],
        "former": base and sha256(base.to_str().encode()),
    }
    return _mapped(cached(Path(config.data.cache), "tokens", key, lambda: _made(_tokenized(dataset, config, base))))


def _tokenized(dataset: Dataset, config: Config, base: Tokenizer | None) -> TokenizedData:
    max_seq_len, long_words = config.model.max_seq_len, 0
    learned_from = ConcatenatedTexts(dataset.train.texts, dataset.unlabelled.texts)
    if base is None and config.tokenizer.type != "word_level":
        base, long_words = run_interruptibly(
            lambda: train_subwords(learned_from, config.tokenizer, max_seq_len=max_seq_len)
        )
    tokenizer, texts = train_and_tokenize(learned_from, config.tokenizer, max_seq_len=max_seq_len, former=base)
    validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
    return TokenizedData(tokenizer=tokenizer, texts=texts, validation_texts=validation_texts, long_words=long_words)


def _made(data: TokenizedData) -> Made:
    """The arrays and values of a cache entry."""
    arrays: dict[str, NDArray[Any]] = {}
    for role, texts in ((TRAIN, data.texts), (VALIDATION, data.validation_texts)):
        arrays |= {f"{role}.{name}": getattr(texts, name) for name in ARRAYS}
        arrays[f"{role}.char_ngrams"] = texts.char_ngrams.ngrams
        arrays[f"{role}.char_ngram_offsets"] = texts.char_ngrams.offsets
    values = {"tokenizer": data.tokenizer.to_str(), "max_seq_len": data.texts.max_seq_len}
    return arrays, values | {"long_words": data.long_words}


def _mapped(entry: Entry) -> TokenizedData:
    return TokenizedData(
        tokenizer=parse_tokenizer(entry.values["tokenizer"]),
        texts=_texts(entry, TRAIN),
        validation_texts=_texts(entry, VALIDATION),
        long_words=entry.values["long_words"],
    )


def _texts(entry: Entry, role: str) -> TokenizedTexts:
    char_ngrams = CharNgrams(
        ngrams=entry.array(f"{role}.char_ngrams"), offsets=entry.array(f"{role}.char_ngram_offsets")
    )
    arrays = {name: entry.array(f"{role}.{name}") for name in ARRAYS}
    return TokenizedTexts(**arrays, char_ngrams=char_ngrams, max_seq_len=entry.values["max_seq_len"])
