"""Prediction speed: bulk prediction from a file beside Hugging Face's pipeline, fastText and a linear model."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from peers import TOKEN, fasttext_line
from reporting import NOT_MEASURED, table

from encoder_cls.cli.output_formats import predict_lines
from encoder_cls.cli.request import Request
from encoder_cls.cli.text_inputs import read_inputs
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.torch_engine import TorchEncoder
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN
from encoder_cls.training.nbsvm import fit_linear
from speed_benchmark.hugging_face import bert, quiet, wrapped_tokenizer
from speed_benchmark.plan import Plan
from speed_benchmark.sizes import Size
from speed_benchmark.systems import OURS, OURS_TABLES, OURS_WHOLE
from speed_benchmark.texts import BATCH_SIZE, Corpus, Kind
from speed_benchmark.timing import Measured, in_turns, rates

FEWEST = 16  # texts of a turn

NOTES = """\
Texts a second: the median of {rounds} rounds (lowest to highest). Each system predicts as many of the same texts
as there is time for, {most:,} at most; any first few of them have nearly the mean length. Weights of encoders are
random: they do not change the speed.

- encoder-cls: what `encoder-cls predict --input FILE --format jsonl` does, from the file to the lines, in bfloat16
  where the machine is fast at it; all others are in float32. Plain encoder: without the tables of character n-grams
  and of pairs of words, so the same model as Hugging Face's. Default tables: with both. Default, with linear model:
  beside it one of these texts, as after a default training.
- HF pipeline: `pipeline("text-classification")` on a list, with the same tokenizer; by default a text at a time, or
  in batches of 64. Both cut texts at the same number of tokens.
- fastText: words and pairs of words, 20 dimensions. TF-IDF: of words and pairs of words, with a linear SVM. Neither
  depends on the size of an encoder.

Ratios are those of medians: encoder-cls's plain encoder to the other."""


def cells(plan: Plan) -> list[tuple[Size, Kind]]:
    """Sizes and kinds of texts."""
    return [(size, kind) for size in plan.sizes for kind in plan.kinds]


def measure(plan: Plan, size: Size, kind: Kind) -> dict[str, Any]:
    """All systems in turns."""
    corpus = plan.corpus(kind)
    texts = corpus.spread_out(plan.most_predicted)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        systems: dict[str, Callable[[Sequence[str]], None]] = {
            OURS: _ours(corpus, size, folder / "plain.txt", tables=False),
            OURS_TABLES: _ours(corpus, size, folder / "tables.txt", tables=True),
            OURS_WHOLE: _ours(corpus, size, folder / "whole.txt", tables=True, linear=True),
        }
        if plan.has_transformers:
            systems |= _pipelines(corpus, size)
        if plan.has_fasttext:
            systems["fastText"] = _fasttext(corpus, folder / "train.txt")
        systems["TF-IDF, linear SVM"] = _linear(corpus)
        turns = {name: _Turn(predict, texts, plan.seconds) for name, predict in systems.items()}
        return {"rounds": in_turns(turns, rounds=plan.rounds)}


class _Turn:
    """Predicts as many texts as there is time for; the first call finds out how many these are.

    It doubles their number until they take half of the time: few texts are no measure for many, which share batches.
    """

    def __init__(self, predict: Callable[[Sequence[str]], None], texts: Sequence[str], budget: float) -> None:
        self._predict, self._texts, self._budget = predict, texts, budget
        self._number = 0

    def __call__(self) -> Measured:
        if not self._number:
            self._number = FEWEST
            self._predict(self._texts[:FEWEST])
            while self._timed(self._number) < self._budget / 2 and self._number < len(self._texts):
                self._number *= 2
        return Measured(self._timed(self._number), float(len(self._texts[: self._number])))

    def _timed(self, number: int) -> float:
        began = time.perf_counter()
        self._predict(self._texts[:number])
        return time.perf_counter() - began


def _ours(
    corpus: Corpus, size: Size, path: Path, *, tables: bool, linear: bool = False
) -> Callable[[Sequence[str]], None]:
    classifier = new_classifier(corpus, size, tables=tables, linear=linear)

    def predict(texts: Sequence[str]) -> None:
        path.write_text("".join(f"{' '.join(text.split())}\n" for text in texts), encoding="utf-8")
        lines = predict_lines(classifier, read_inputs(str(path), text_columns=["text"]), Request("jsonl"))
        assert sum(map(len, lines)) == len(texts)

    return predict


def new_classifier(corpus: Corpus, size: Size, *, tables: bool, linear: bool = False) -> Classifier:
    """A classifier whose encoder has random weights, on request with a linear model of the texts beside it."""
    torch.manual_seed(0)
    config = size.model_config(corpus.kind.max_seq_len, tables=tables)
    names = corpus.dataset.label_names
    model = EncoderClassifier(config, vocab_size=corpus.tokenizer.get_vocab_size(), num_classes=len(names))
    beside = _fitted(corpus) if linear else None
    encoder = TorchEncoder(model.eval(), config)
    return Classifier(encoder, corpus.tokenizer, names, max_seq_len=config.max_seq_len, linear=beside)


def _fitted(corpus: Corpus) -> LinearClassifier:
    weights = np.ones(len(corpus.dataset.label_names), dtype=np.float32)
    labels, max_tokens = corpus.dataset.train.labels, KEPT_PER_TOKEN * corpus.kind.max_seq_len
    return fit_linear(corpus.texts, labels, class_weights=weights, max_tokens=max_tokens, use_char_ngrams=True)


def _pipelines(corpus: Corpus, size: Size) -> dict[str, Callable[[Sequence[str]], None]]:
    from transformers import pipeline

    quiet()
    answer: Any = pipeline(
        "text-classification", model=bert(corpus, size).eval(), tokenizer=wrapped_tokenizer(corpus), device="cpu"
    )

    def one_by_one(texts: Sequence[str]) -> None:
        assert len(answer(list(texts), truncation=True)) == len(texts)

    def in_batches(texts: Sequence[str]) -> None:
        assert len(answer(list(texts), truncation=True, batch_size=BATCH_SIZE)) == len(texts)

    return {"HF pipeline, default": one_by_one, "HF pipeline, batched": in_batches}


def _fasttext(corpus: Corpus, path: Path) -> Callable[[Sequence[str]], None]:
    library = importlib.import_module("fasttext")
    train = corpus.dataset.train
    lines = (f"__label__{label} {fasttext_line(text)}\n" for text, label in zip(train.texts, train.labels, strict=True))
    path.write_text("".join(lines), encoding="utf-8")
    # In a process whose memory was used before, its training at times ends in NaN.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        process.submit(_train_fasttext, str(path), str(path.with_suffix(".bin"))).result()
    model = library.load_model(str(path.with_suffix(".bin")))

    def predict(texts: Sequence[str]) -> None:
        answers, _ = model.predict([fasttext_line(text) for text in texts])
        assert len(answers) == len(texts)

    return predict


def _train_fasttext(source: str, target: str) -> None:
    library = importlib.import_module("fasttext")
    options = {"wordNgrams": 2, "bucket": 500_000, "dim": 20, "epoch": 1, "thread": 1, "verbose": 0}
    library.train_supervised(input=source, **options).save_model(target)


def _linear(corpus: Corpus) -> Callable[[Sequence[str]], None]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    train = corpus.dataset.train
    features = TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, sublinear_tf=True, dtype=np.float32)
    model = make_pipeline(features, LinearSVC(random_state=0, max_iter=20, tol=0.1))
    model.fit(train.texts, train.labels)

    def predict(texts: Sequence[str]) -> None:
        assert len(model.predict(texts)) == len(texts)

    return predict


def section(plan: Plan, results: dict[tuple[Size, Kind], dict[str, Any]]) -> list[str]:
    """Markdown."""
    rows = []
    for (size, kind), result in results.items():
        ours = rates(result["rounds"][OURS]).median
        for name, values in result["rounds"].items():
            speed = rates(values)
            ratio = NOT_MEASURED if name in {OURS, OURS_TABLES, OURS_WHOLE} else f"{ours / speed.median:.2g}"
            spread = f"{speed.median:,.0f} ({speed.lowest:,.0f} to {speed.highest:,.0f})"
            rows.append([kind.name, str(size), name, spread, ratio])
    notes = NOTES.format(rounds=plan.rounds, most=plan.most_predicted)
    return ["## Prediction", "", notes, "", *table(["texts", "size", "system", "texts/s", "ratio"], rows, left=3)]
