"""The linear classifier from a stream beside the one that needs all texts at once: accuracy and time.

    python scripts/benchmarks/linear_stream.py FOLDER... [--page docs/benchmarks.md]

Each folder holds `train.parquet` and `test.parquet` with the columns `text` and `label`. Both learn from words and
pairs, in one process, one after the other; `all features` has character n-grams and templates besides, as a run has
them where texts are few enough.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from reporting import put_table

from encoder_cls.config import Config, DataConfig, ModelConfig
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.training.linear_stream import fit_linear_from_stream
from encoder_cls.training.nbsvm import fit_linear
from encoder_cls.training.prepare import prepare

NAME = "linear-stream"
HEADER = (
    "| data set | tokens | all features % | words and pairs % | from a stream % | all features, s | words and pairs, s "
    "| from a stream, s |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def main() -> None:
    """Measure each data set and print a table, or put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    lines = [*HEADER, *map(row, arguments.folders)]
    if arguments.page:
        put_table(lines, arguments.page, name=NAME)
    else:
        print("\n".join(lines))


def row(folder: Path) -> str:
    """A row of the table."""
    data = DataConfig(train=str(folder / "train.parquet"), test=str(folder / "test.parquet"))
    config = Config(name="stream", data=data, model=ModelConfig(encoder=False))
    setup = prepare(config)
    read, test = setup.recipe.linear, setup.dataset.test
    assert read
    assert test
    texts, labels, weights = setup.train_texts, setup.dataset.train.labels, setup.class_weights.numpy()
    of_test = tokenize(setup.tokenizer, test.texts, max_seq_len=config.model.max_seq_len)

    def whole(use_char_ngrams: bool) -> Callable[[], LinearClassifier]:
        return lambda: fit_linear(
            texts, labels, class_weights=weights, max_tokens=read.max_tokens, use_char_ngrams=use_char_ngrams
        )

    choices = [whole(read.use_char_ngrams), whole(False)]
    choices.append(lambda: fit_linear_from_stream(texts, labels, class_weights=weights, max_tokens=read.max_tokens))
    accuracies, seconds = [], []
    for fit in choices:
        started = time.perf_counter()
        classifier = fit()
        seconds.append(f"{time.perf_counter() - started:.1f}")
        accuracies.append(f"{np.mean(classifier.logits(of_test).argmax(axis=1) == test.labels):.2%}".rstrip("%"))
    cells = [folder.name, f"{len(texts.words):,}", *accuracies, *seconds]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
