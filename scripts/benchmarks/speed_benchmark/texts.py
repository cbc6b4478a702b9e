"""Texts to measure with: from a folder of data sets, or made up with the lengths of these."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.config import DataConfig, TokenizerConfig
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.data.split import Split
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_trainer import train_tokenizer
from encoder_cls.training.sampler import BatchSampler

BATCH_SIZE = 64
LENGTH_SIGMA = 0.45  # of the logarithm of made-up texts' lengths
MADE_UP_WORDS = 30_000
ZIPF = 1.1  # word number r of made-up texts is as frequent as r to the power of minus this


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Texts as those of a data set.

    Attributes:
        name: of the data set.
        max_seq_len: the most tokens that are read; what a system with fixed lengths pads to.
        batch_tokens: the most tokens in a batch, padding counted.
        words: of a made-up text, in the middle.
        classes: of made-up texts.
    """

    name: str
    max_seq_len: int
    batch_tokens: int
    words: int
    classes: int


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="sst2", max_seq_len=128, batch_tokens=8192, words=18, classes=2),
        Kind(name="ag_news", max_seq_len=128, batch_tokens=8192, words=45, classes=4),
        # Half the tokens: with the usual 8192 a step of the largest model takes long on a small machine.
        Kind(name="imdb", max_seq_len=512, batch_tokens=4096, words=230, classes=2),
    )
}


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Labelled texts of a kind, and the tokenizer that all systems share."""

    kind: Kind
    dataset: Dataset
    tokenizer: Tokenizer

    @cached_property
    def texts(self) -> TokenizedTexts:
        """The training texts as tokens, cut at the kind's length."""
        return tokenize(self.tokenizer, self.dataset.train.texts, max_seq_len=self.kind.max_seq_len)

    @property
    def mean_length(self) -> float:
        """Tokens of a text."""
        return float(self.texts.lengths.mean())

    @property
    def fixed_batch_size(self) -> int:
        """Texts in a batch where each is padded to the longest that may come."""
        return min(BATCH_SIZE, self.kind.batch_tokens // self.kind.max_seq_len, len(self.texts))

    def batches(self, number: int) -> Corpus:
        """The texts of so many batches, spread evenly over all batches by length.

        A batch holds texts of similar length, so these texts give the same batches again, as full and as little
        padded as those of all texts. Random texts, being fewer, would differ more within a batch.
        """
        schedule = BatchSampler(self.texts.lengths, batch_size=BATCH_SIZE, batch_tokens=self.kind.batch_tokens, seed=0)
        every = [schedule.indices(i) for i in range(schedule.batches_per_epoch)]
        by_length = sorted((batch for batch in every), key=lambda batch: float(self.texts.lengths[batch].mean()))
        full = [batch for batch in by_length if self._is_full(batch)] or by_length
        chosen = [full[int((i + 0.5) * len(full) / number)] for i in range(number)]
        train = self.dataset.train.subset(np.unique(np.concatenate(chosen)))
        dataset = Dataset(
            label_names=self.dataset.label_names, train=train, validation=self.dataset.validation, test=None
        )
        return Corpus(kind=self.kind, dataset=dataset, tokenizer=self.tokenizer)

    def spread_out(self, number: int) -> list[str]:
        """So many texts, of which any first few have nearly the mean length: short ones and long ones in turns."""
        by_length = np.argsort(self.texts.lengths, kind="stable")
        places = np.argsort((np.arange(len(by_length)) * GOLDEN) % 1.0, kind="stable")
        ranks = np.argsort(places, kind="stable")[:number]
        return [self.dataset.train.texts[i] for i in by_length[ranks]]

    def _is_full(self, batch: NDArray[np.int64]) -> bool:
        padded = len(batch) * int(self.texts.lengths[batch].max())
        return len(batch) == BATCH_SIZE or padded > 0.8 * self.kind.batch_tokens


GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are spread evenly, however many of them there are


@cache
def load_corpus(folder: Path | None, kind: Kind, *, most_texts: int) -> Corpus:
    """Texts of a kind, chosen by chance, and a tokenizer of the default config trained on them."""
    if folder is None:
        dataset = made_up(kind, number=most_texts)
    else:
        data = load_dataset(DataConfig(train=str(folder / kind.name / "train.parquet")))
        chosen = np.sort(np.random.default_rng(0).permutation(len(data.train))[:most_texts])
        dataset = Dataset(
            label_names=data.label_names,
            train=data.train.subset(chosen),
            validation=data.validation.subset(np.arange(min(BATCH_SIZE, len(data.validation)))),
            test=None,
        )
    return Corpus(kind=kind, dataset=dataset, tokenizer=train_tokenizer(dataset.train.texts, TokenizerConfig()))


def made_up(kind: Kind, *, number: int, vocabulary: int = MADE_UP_WORDS, sigma: float = LENGTH_SIGMA) -> Dataset:
    """Random texts: log-normal lengths, words by Zipf's law, labels by chance; each class occurs."""
    random = np.random.default_rng(0)
    lengths = np.maximum(1, np.exp(random.normal(np.log(kind.words), sigma, number + BATCH_SIZE)).round().astype(int))
    weights = np.arange(1, vocabulary + 1) ** -ZIPF
    numbers = random.choice(vocabulary, size=int(lengths.sum()), p=weights / weights.sum())
    words = [_word(i) for i in range(vocabulary)]
    ends = np.cumsum(lengths)
    texts = [" ".join(words[i] for i in numbers[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    labels = random.permutation(np.arange(len(texts)) % kind.classes)
    split = Split(texts=texts, labels=labels, where=[f"text {i}" for i in range(len(texts))])
    return Dataset(
        label_names=tuple(f"class {i}" for i in range(kind.classes)),
        train=split.subset(np.arange(number)),
        validation=split.subset(np.arange(number, len(texts))),
        test=None,
    )


def write_csv(path: Path, split: Split, label_names: Sequence[str]) -> None:
    """Labelled texts as a file that encoder-cls reads."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = zip(split.texts, (label_names[label] for label in split.labels), strict=True)
        csv.writer(file).writerows([("text", "label"), *rows])


def _word(number: int) -> str:
    """A word of its own for each number, longer ones for larger numbers, as rare words are."""
    letters = ""
    number += 26
    while number:
        number, digit = divmod(number, 26)
        letters += "etaoinshrdlucmfwypvbgkjqxz"[digit]
    return letters
