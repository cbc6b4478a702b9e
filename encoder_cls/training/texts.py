"""Tokenize the texts of a run, cached; and estimate the time of a large source."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load import reading_of
from encoder_cls.data.sources import every_file, read_rows
from encoder_cls.errors import ConfigError
from encoder_cls.system.disk_arrays import ConcatenatedTexts, cached
from encoder_cls.system.files import sha256
from encoder_cls.system.stop import checking, run_interruptibly
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_trainer import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import CharNgrams, TokenizedTexts

# Of a source of so many bytes, reading so many rows shows the least time of a run, in times of reading alone.
LARGE, TIMED_ROWS, LEAST_WORK = 5_000_000, 5000, 9.0


class TokenizedData(NamedTuple):
    """A tokenizer and the tokens of a data set, as in `Prepared`."""

    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int


def tokenized_data(
    dataset: Dataset, config: Config, *, base: Tokenizer | None, check: Callable[[], None]
) -> TokenizedData:
    """Train a tokenizer, or extend that of the base run, and tokenize a data set, or read both from the cache.

    Training calls `check` now and then, which may raise an error.

    Raises:
        ConfigError: as `train_tokenizer`.
        EncoderClsError: the disk refuses.
    """
    max_seq_len = config.model.max_seq_len

    def tokenized() -> tuple[str, TokenizedTexts, TokenizedTexts, int]:
        known, long_words = base, 0
        learned_from = ConcatenatedTexts(dataset.train.texts, dataset.unlabelled.texts)
        if base is None and config.tokenizer.type != "word_level":
            known, long_words = run_interruptibly(
                lambda: train_subwords(learned_from, config.tokenizer, max_seq_len=max_seq_len)
            )
        tokenizer, texts = train_and_tokenize(learned_from, config.tokenizer, max_seq_len=max_seq_len, base=known)
        validation_texts = tokenize(tokenizer, dataset.selection.texts, max_seq_len=max_seq_len)
        return tokenizer.to_str(), texts, validation_texts, long_words

    with checking(check):
        if config.data.cache is None:
            made = tokenized()
        else:
            key = {
                "tokenizer": config.tokenizer.model_dump(mode="json"),
                "max_seq_len": max_seq_len,
                "texts": [part.fingerprint for part in (dataset.train, dataset.unlabelled, dataset.selection)],
                "former": base and sha256(base.to_str().encode()),
            }
            made = cached(Path(config.data.cache), "tokens", key, tokenized, TokenizedTexts, CharNgrams)
    return TokenizedData(parse_tokenizer(made[0]), *made[1:])


def check_least_fits(config: Config, *, seconds: float | None) -> None:
    """Read a few rows of a large source: their time shows whether a run with all of them is possible."""
    source = config.data.train
    if seconds is None or source is None or ":" in source:
        return
    size = sum(file.stat().st_size for file in every_file(source) if file.is_file())
    if size < LARGE:
        return
    columns, reading = (config.data.text_column, config.data.label_column), reading_of(config.data)
    rows = read_rows(source, role="train", text_columns=columns[0], label_column=columns[1], reading=reading)
    began = time.monotonic()
    read = sum(len(row.text.encode()) for row in islice(rows, TIMED_ROWS))
    least = LEAST_WORK * (time.monotonic() - began) * size / max(1, read)
    if least > seconds:
        raise ConfigError(
            f"train.time_budget: {source} has {size / 1e6:,.0f} MB of text, which takes this machine about "
            f"{least:.0f} s at the least; give it more time, or fewer texts"
        )
