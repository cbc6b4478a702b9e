"""Time the first prediction of a new process, and a prediction of a loaded classifier.

    python scripts/benchmarks/cold.py RUN [--rounds N] [--output docs/results.md]

RUN is a finished run of the bundled example. fastText, a scikit-learn pipeline and Hugging Face's
`pipeline` do the same, each with a model of the same texts; the weights of the last one are random:
time does not depend on them, and nothing is downloaded. Others come with `pip install -e
'.[bench]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import joblib
from shared.benchmark import Benchmark, Case, Found, Row, grouped, median
from shared.commands import run, work_folder
from shared.data import EXAMPLE, path_of, read
from shared.hugging_face import Size
from shared.page import NOT_MEASURED, table
from shared.peers import fasttext_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

TEXT = (
    "where on earth is my parcel? i ordered it two weeks ago and the page still says that it is in "
    "your depot, please tell me"
)
LOADED = """
import statistics, time
predict([TEXT])
times = []
for _ in range(100):
    start = time.perf_counter()
    predict([TEXT])
    times.append(time.perf_counter() - start)
print(statistics.median(times))
"""
# The library of each system, and the lines that define `predict`, which takes a list of texts.
SYSTEMS = {
    "encoder-cls": (
        "encoder_cls",
        "import encoder_cls\npredict = encoder_cls.load_classifier({run!r}).predict",
    ),
    "fastText": (
        "fasttext",
        "import fasttext\npredict = fasttext.load_model({folder!r} + '/fasttext.bin').predict",
    ),
    "scikit-learn": (
        "sklearn",
        "import joblib\npredict = joblib.load({folder!r} + '/sklearn.joblib').predict",
    ),
    "Hugging Face pipeline": (
        "transformers",
        "from transformers import pipeline\n"
        "predict = pipeline('text-classification', model={folder!r} + '/bert', device='cpu')",
    ),
}
# The libraries that predicting needs, and the one that training needs besides.
LIBRARIES = "import numpy, pydantic, tokenizers, typer"
TORCH = "import torch"
COMMANDS = {
    "encoder-cls --help": ["--help"],
    "encoder-cls predict TEXT": ["predict", "--model", "RUN", TEXT],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run."""
    parser.add_argument("run", type=Path)


def cases(_arguments: argparse.Namespace) -> list[Case]:
    """Programs, then each system in Python."""
    systems = [name for name, (library, _) in SYSTEMS.items() if find_spec(library)]
    return [{"what": what} for what in (LIBRARIES, TORCH, *COMMANDS, *systems)]


def measure(arguments: argparse.Namespace, case: Case) -> Found:
    """Seconds and memory of a process, and the seconds of a prediction once it is loaded."""
    what = case["what"]
    model = str(arguments.run.resolve())
    if what in COMMANDS:
        program = str(Path(sys.executable).with_name("encoder-cls"))
        words = [model if word == "RUN" else word for word in COMMANDS[what]]
        return cold([program, *words])
    if what not in SYSTEMS:
        return cold([sys.executable, "-c", what])

    _, load = SYSTEMS[what]
    code = f"TEXT = {json.dumps(TEXT)}\n{load.format(run=model, folder=str(peers()))}"
    loaded = float(run([sys.executable, "-c", code + LOADED]).output.split()[-1])
    return {**cold([sys.executable, "-c", f"{code}\npredict([TEXT])"]), "loaded": loaded}


def cold(command: Sequence[str]) -> Found:
    """Run a command twice, first so that its files are in memory, and measure the second time."""
    run(command)
    ended = run(command)
    return {"seconds": ended.seconds, "peak": ended.peak_bytes}


@cache
def peers() -> Path:
    """Train the other systems; returns the folder with their models."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    texts = read(path_of(Path(), EXAMPLE, "train"))
    folder = work_folder() / "peers"
    folder.mkdir()

    if find_spec("fasttext"):
        import fasttext

        path = fasttext_file(folder / "train.txt", texts)
        model = fasttext.train_supervised(str(path), epoch=5, wordNgrams=2, verbose=0, thread=1)
        model.save_model(str(folder / "fasttext.bin"))

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LinearSVC())
    joblib.dump(model.fit(texts.texts, texts.labels), folder / "sklearn.joblib")

    if find_spec("transformers"):
        from shared.hugging_face import Bert
        from tokenizers import BertWordPieceTokenizer

        wordpiece = BertWordPieceTokenizer()
        wordpiece.train_from_iterator(texts.texts, vocab_size=8000, show_progress=False)
        bert = Bert(wordpiece._tokenizer, texts.classes, max_length=512, size=Size(128, 2))
        bert.model.save_pretrained(folder / "bert")
        bert.tokenizer.save_pretrained(folder / "bert")
    return folder


def lines(rows: Sequence[Row]) -> list[str]:
    """A row for each program, medians over the rounds."""
    cells = []
    for (what,), group in grouped(rows, "what").items():
        name = f"python -c '{what}'"
        loaded = NOT_MEASURED
        if what in SYSTEMS:
            name = f"{what}, in Python"
            loaded = f"{1000 * median(group, 'loaded'):.2f}"
        elif what in COMMANDS:
            name = what

        seconds = median(group, "seconds")
        megabytes = median(group, "peak") / 1e6
        cells.append([name, f"{seconds:.3f}", f"{megabytes:.0f}", loaded])
    return table(["one text, cold", "seconds", "memory, MB", "loaded, ms"], cells)


BENCHMARK = Benchmark("cold", __doc__, add_arguments, cases, measure, lines, rounds=7)

if __name__ == "__main__":
    BENCHMARK.main()
