"""Other ways to train a text classifier on the same splits: what `accuracy.py` compares encoder-cls with.

    python scripts/benchmarks/peers.py METHOD SEED THREADS [section.key=value ...]    # prints the outcome as JSON

Every function takes a `Dataset` and a seed, makes all its choices on the validation split, and scores the test split
once, with the setting chosen. fastText is loaded only where it is used.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from encoder_cls.config import load_config
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.data.split import Split

TOKEN = r"\w+|[^\w\s]+"  # words and runs of punctuation: all peers but the character n-grams see the same tokens
MUCH_TEXT = 1_000_000  # training tokens from which fastText reads the texts less often

Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a method reached on a data set.

    Attributes:
        accuracy: on the test split, a fraction.
        num_test: texts in the test split.
        seconds: to train with the chosen setting, features included.
        search_seconds: to train with all settings.
        chosen: the setting that was best on the validation split.
    """

    accuracy: float
    num_test: int
    seconds: float
    search_seconds: float
    chosen: str


@dataclass(frozen=True)
class _Trial:
    """A setting that has been trained: its name, its validation accuracy, its time, and its answers on any split."""

    name: str
    validation_accuracy: float
    seconds: float
    predict: Callable[[Split], Labels]


def _best(trials: Iterable[_Trial], test: Split, *, shared_seconds: float = 0.0) -> Outcome:
    """The outcome of the trial best on validation, of equals the first; only that one is kept in memory and scored."""
    best, search_seconds = None, shared_seconds
    for trial in trials:
        search_seconds += trial.seconds
        if best is None or trial.validation_accuracy > best.validation_accuracy:
            best = trial
    if best is None:
        raise RuntimeError("no setting could be trained")
    return Outcome(
        accuracy=_accuracy(best.predict(test), test),
        num_test=len(test),
        seconds=shared_seconds + best.seconds,
        search_seconds=search_seconds,
        chosen=best.name,
    )


def _accuracy(predictions: Labels, split: Split) -> float:
    return float((predictions == split.labels).mean())


def _test(dataset: Dataset) -> Split:
    if dataset.test is None:
        raise ValueError("a benchmark needs a test split")
    return dataset.test


# Linear models on TF-IDF

LINEAR_SETTINGS = [
    *(("logistic regression", c) for c in (1.0, 3.0, 10.0, 30.0, 100.0)),
    *(("linear SVM", c) for c in (0.1, 0.3, 1.0, 3.0, 10.0)),
]


def tfidf(dataset: Dataset, seed: int, *, chars: bool, settings: Sequence[tuple[str, float]] | None = None) -> Outcome:
    """TF-IDF of words and pairs of words, on request also of character n-grams inside words; a linear model on them."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    common: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    parts = [TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, **common)]
    if chars:
        parts.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **common))
    vectorizer = make_union(*parts)
    began = time.perf_counter()
    features = vectorizer.fit_transform(dataset.train.texts)
    seconds = time.perf_counter() - began
    validation = vectorizer.transform(dataset.validation.texts)

    def trials() -> Iterator[_Trial]:
        for kind, c in settings or LINEAR_SETTINGS:
            began = time.perf_counter()
            model = _linear_model(kind, c, seed).fit(features, dataset.train.labels)
            yield _Trial(
                name=f"{kind}, C={c:g}",
                validation_accuracy=_accuracy(model.predict(validation), dataset.validation),
                seconds=time.perf_counter() - began,
                predict=partial(_linear_answers, vectorizer, model),
            )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimizers that stop at their last step: validation judges the result
        return _best(trials(), _test(dataset), shared_seconds=seconds)


def _linear_model(kind: str, c: float, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if kind == "linear SVM":
        return LinearSVC(C=c, random_state=seed)
    return LogisticRegression(C=c, max_iter=500, random_state=seed)


def _linear_answers(vectorizer: Any, model: Any, split: Split) -> Labels:
    answers: Labels = model.predict(vectorizer.transform(split.texts))
    return answers


# fastText


def fasttext_grid(num_tokens: int) -> list[dict[str, float]]:
    """The 16 settings tried on training texts of so many tokens in all."""
    epochs = (3, 10) if num_tokens > MUCH_TEXT else (5, 25)
    axes = {"lr": (0.1, 0.25, 0.5, 1.0), "epoch": epochs, "dim": (20, 100)}
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def fasttext(
    dataset: Dataset, seed: int, *, chars: bool, settings: Sequence[dict[str, float]] | None = None
) -> Outcome:
    """FastText (Joulin et al., 2017) on words and pairs of words, on request also on character n-grams of words.

    It runs on one thread, as its result depends on chance with more.
    """
    library = importlib.import_module("fasttext")
    fixed = {"wordNgrams": 2, "bucket": 500_000, "thread": 1, "seed": seed, "verbose": 0}
    if chars:
        fixed |= {"minn": 2, "maxn": 5}
    lines = [fasttext_line(text) for text in dataset.train.texts]
    num_tokens = sum(line.count(" ") + 1 for line in lines)
    order = np.random.default_rng(seed).permutation(len(lines))  # it keeps to the file's, which may be by class

    def trials(path: str) -> Iterator[_Trial]:
        for setting in settings or fasttext_grid(num_tokens):
            began = time.perf_counter()
            try:
                model = library.train_supervised(input=path, **fixed, **setting)
            except RuntimeError:  # it diverged: the learning rate is too high for these texts
                continue
            yield _Trial(
                name=", ".join(f"{key} {value:g}" for key, value in setting.items()),
                validation_accuracy=_accuracy(fasttext_answers(model, dataset.validation), dataset.validation),
                seconds=time.perf_counter() - began,
                predict=partial(fasttext_answers, model),
            )

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.writelines(f"__label__{dataset.train.labels[place]} {lines[place]}\n" for place in order)
        file.flush()
        return _best(trials(file.name), _test(dataset))


def fasttext_line(text: str) -> str:
    """A text as fastText reads it: on one line, a space between tokens, no token that it would take for a label."""
    return " ".join(re.findall(TOKEN, text.lower())).replace("__label__", "label")


def fasttext_answers(model: Any, split: Split) -> Labels:
    """The labels that it answers, -1 where it has no word of a text."""
    answers, _ = model.predict([fasttext_line(text) for text in split.texts])
    return np.array([int(labels[0].removeprefix("__label__")) if labels else -1 for labels in answers])


# A Transformer encoder as PyTorch tutorials write it


@dataclass(frozen=True, kw_only=True)
class TutorialConfig:
    """The size of encoder-cls's default model, and the usual choices of tutorials."""

    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 4
    d_ff: int = 512
    dropout: float = 0.1
    max_vocab_size: int = 30_000
    batch_size: int = 64
    epochs: int = 10
    learning_rate: float = 1e-3


class TutorialEncoder(nn.Module):
    """`nn.TransformerEncoder` with learned positions, the mean over real tokens and a linear map; 0 is padding."""

    def __init__(self, config: TutorialConfig, *, vocab_size: int, length: int, num_classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model, padding_idx=0)
        self.positions = nn.Embedding(length, config.d_model)
        layer = nn.TransformerEncoderLayer(
            config.d_model, config.num_heads, config.d_ff, config.dropout, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.num_layers, enable_nested_tensor=False)
        self.linear = nn.Linear(config.d_model, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """(texts, length) ids -> (texts, classes) logits."""
        is_padding = ids == 0
        vectors = self.tokens(ids) + self.positions.weight
        vectors = self.encoder(vectors, src_key_padding_mask=is_padding).masked_fill(is_padding[:, :, None], 0)
        logits: Tensor = self.linear(vectors.sum(dim=1) / (~is_padding).sum(dim=1, keepdim=True))
        return logits


def torch_tutorial(dataset: Dataset, seed: int, *, config: TutorialConfig | None = None) -> Outcome:
    """Adam in float32 on texts padded to the length that 95% of them keep to; the epoch best on validation."""
    config = config or TutorialConfig()
    torch.manual_seed(seed)
    began = time.perf_counter()
    words = [re.findall(TOKEN, text.lower()) for text in dataset.train.texts]
    counts = Counter(itertools.chain.from_iterable(words))
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common(config.max_vocab_size - 2), start=2)}
    length = max(1, int(np.percentile([len(text) for text in words], 95)))
    model = TutorialEncoder(config, vocab_size=len(numbers) + 2, length=length, num_classes=len(dataset.label_names))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    ids, labels = _padded(dataset.train, numbers, length), torch.from_numpy(dataset.train.labels)

    def trials(began: float) -> Iterator[_Trial]:
        for epoch in range(1, config.epochs + 1):
            _train_epoch(model, optimizer, ids, labels, config.batch_size)
            answers = _tutorial_answers(model, numbers, length, dataset.validation)
            # An epoch needs all before it: the time is that since the start, and the weights are copied if best.
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            yield _Trial(
                name=f"epoch {epoch}",
                validation_accuracy=_accuracy(answers, dataset.validation),
                seconds=time.perf_counter() - began,
                predict=partial(_restored_answers, model, weights, numbers, length),
            )
            began = time.perf_counter()

    outcome = _best(trials(began), _test(dataset))
    # The best epoch is known only after the last: training takes all of them.
    return replace(outcome, seconds=outcome.search_seconds)


def _padded(split: Split, numbers: dict[str, int], length: int) -> Tensor:
    """Token ids, (texts, length): 0 padding, 1 unknown words; a text has one token at least."""
    ids = torch.zeros(len(split), length, dtype=torch.long)
    for row, text in zip(ids, split.texts, strict=True):
        found = [numbers.get(word, 1) for word in re.findall(TOKEN, text.lower())[:length]] or [1]
        row[: len(found)] = torch.tensor(found)
    return ids


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor, labels: Tensor, batch_size: int
) -> None:
    model.train()
    for batch in torch.split(torch.randperm(len(ids)), batch_size):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(ids[batch]), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _tutorial_answers(model: nn.Module, numbers: dict[str, int], length: int, split: Split) -> Labels:
    model.eval()
    with torch.inference_mode():
        logits = [model(batch) for batch in torch.split(_padded(split, numbers, length), 256)]
    answers: Labels = torch.cat(logits).argmax(dim=1).numpy()
    return answers


def _restored_answers(
    model: nn.Module, weights: dict[str, Tensor], numbers: dict[str, int], length: int, split: Split
) -> Labels:
    model.load_state_dict(weights)
    return _tutorial_answers(model, numbers, length, split)


PEERS: dict[str, Callable[[Dataset, int], Outcome]] = {
    "fasttext": partial(fasttext, chars=False),
    "fasttext-chars": partial(fasttext, chars=True),
    "tfidf-words": partial(tfidf, chars=False),
    "tfidf-chars": partial(tfidf, chars=True),
    "torch-tutorial": torch_tutorial,
}


def main(method: str, seed: int, threads: int, overrides: Sequence[str]) -> None:
    """Train a peer on the data that config overrides name, and print its outcome as JSON."""
    torch.set_num_threads(threads)
    dataset = load_dataset(load_config(None, overrides).data)
    print(json.dumps(asdict(PEERS[method](dataset, seed))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
