"""Train the tokenizer and tokenize the data, cached."""

from __future__ import annotations

from collections.abc import Callable
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
from encoder_cls.text.char_ngrams import CharNgrams
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.interruptible import run_interruptibly

FORMAT = 2  # to be raised with any change of what an entry holds

TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True, kw_only=True)
class TokenizedData:
    """A tokenizer and what it makes of the texts of a data set.

    Attributes:
        tokenizer: trained on all texts but those of validation and test.
        texts: those texts: those with labels, then those without.
        validation_texts: the validation texts that choose the weights (`Dataset.selection`).
        long_words: how many words were too long for a sub-word tokenizer to learn from.
    """

    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int = 0


def tokenized_data(
    dataset: Dataset, config: Config, *, former: Tokenizer | None, stop_if_asked: Callable[[], None] = lambda: None
) -> TokenizedData:
    """Train a tokenizer, and tokenize the texts of a data set.

    Args:
        dataset: the data.
        config: of the run.
        former: the tokenizer of the run that this one goes on from.
        stop_if_asked: called now and then while a sub-word tokenizer is trained; what it raises ends the work.

    Raises:
        ConfigError: as `train_tokenizer`.
        EncoderClsError: the disk refuses.
    """

    def tokenized() -> TokenizedData:
        return _tokenized(dataset, config, former, stop_if_asked)

    if config.data.cache is None:
        return tokenized()
    key = {
        "format": FORMAT,
        "versions": [version(name) for name in ("encoder-cls", "tokenizers", "pyarrow")],
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "max_seq_len": config.model.max_seq_len,
        "texts": [part.fingerprint for part in (dataset.train, dataset.unlabelled, dataset.selection)],
        "former": former and sha256(former.to_str().encode()),
    }
    return _mapped(cached(Path(config.data.cache), "tokens", key, lambda: _made(tokenized())))


def _tokenized(
    dataset: Dataset, config: Config, former: Tokenizer | None, stop_if_asked: Callable[[], None]
) -> TokenizedData:
    max_seq_len, long_words = config.model.max_seq_len, 0
    texts_to_learn_from = ConcatenatedTexts(dataset.train.texts, dataset.unlabelled.texts)
    if former is None and config.tokenizer.type != "word_level":
        former, long_words = run_interruptibly(
            lambda: train_subwords(texts_to_learn_from, config.tokenizer, max_seq_len=max_seq_len), stop_if_asked
        )
    tokenizer, texts = train_and_tokenize(texts_to_learn_from, config.tokenizer, max_seq_len=max_seq_len, former=former)
    validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
    return TokenizedData(tokenizer=tokenizer, texts=texts, validation_texts=validation_texts, long_words=long_words)


def _made(data: TokenizedData) -> Made:
    """Tokens as arrays and values."""
    arrays: dict[str, NDArray[Any]] = {}
    for role, texts in ((TRAIN, data.texts), (VALIDATION, data.validation_texts)):
        of_role: dict[str, NDArray[Any]] = {
            "words": texts.words,
            "word_ids": texts.word_ids,
            "offsets": texts.offsets,
            "truncated": texts.truncated,
            "char_ngrams": texts.char_ngrams.ngrams,
            "char_ngram_offsets": texts.char_ngrams.offsets,
        }
        arrays |= {f"{role}.{name}": array for name, array in of_role.items()}
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
    return TokenizedTexts(
        words=entry.array(f"{role}.words"),
        word_ids=entry.array(f"{role}.word_ids"),
        char_ngrams=CharNgrams(
            ngrams=entry.array(f"{role}.char_ngrams"), offsets=entry.array(f"{role}.char_ngram_offsets")
        ),
        offsets=entry.array(f"{role}.offsets"),
        max_seq_len=entry.values["max_seq_len"],
        truncated=entry.array(f"{role}.truncated"),
    )
