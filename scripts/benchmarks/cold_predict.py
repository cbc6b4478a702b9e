"""How soon an answer is there: one text, the start of the process included, and one text of a loaded classifier.

    python scripts/benchmarks/cold_predict.py RUN [--rounds 7] [--output docs/cold_predict.md]

RUN is a finished run of the bundled example. The same is done with fastText, a scikit-learn pipeline, a model2vec
pipeline and Hugging Face's `pipeline`, each with a model of the bundled example's texts; weights of the last two are
random, since time does not depend on them and nothing is downloaded. All are measured in turns; a time is the median.
Others come with `pip install -e '.[bench]' model2vec`; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from reporting import cpu_name, note, table
from speed_benchmark.sizes import SIZES
from speed_benchmark.texts import Corpus, Kind
from tokenizers import Tokenizer

EXAMPLE = Kind(name="example", max_seq_len=512, batch_tokens=8192, words=20, classes=11)
TEXT = (
    "where on earth is my parcel? i ordered it two weeks ago and the page still says that it is in your depot, "
    "please tell me"
)
LOADED = """
import time
{setup}
answer([TEXT])
times = []
for _ in range(100):
    start = time.perf_counter()
    answer([TEXT])
    times.append(time.perf_counter() - start)
import statistics
print(statistics.median(times))
"""
LAUNCH = """
import os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - start, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
# What answers a list of texts, by the lines that make it.
OURS = "from encoder_cls import load_classifier\nanswer = load_classifier({folder!r}).predict"
FASTTEXT = "import fasttext\nanswer = fasttext.load_model({folder!r} + '/fasttext.bin').predict"
SKLEARN = "import joblib\nanswer = joblib.load({folder!r} + '/sklearn.joblib').predict"
MODEL2VEC = """from model2vec.inference import StaticModelPipeline
answer = StaticModelPipeline.from_pretrained({folder!r} + '/model2vec').predict"""
PIPELINE = """from transformers import pipeline
answer = pipeline('text-classification', model={folder!r} + '/bert', device='cpu')"""


def main() -> None:
    """Make the models, measure in turns, print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        codes = {"encoder-cls": OURS.format(folder=str(arguments.run.resolve()))}
        codes |= {name: code.format(folder=folder) for name, code in make_peers(Path(folder)).items()}
        commands = {
            "python -c 'import numpy, tokenizers, typer'": _python("import numpy, tokenizers, typer"),
            "python -c 'import torch'": _python("import torch"),
            "encoder-cls --help": [_program(), "--help"],
            "encoder-cls predict TEXT": [_program(), "predict", "--model", str(arguments.run.resolve()), TEXT],
        }
        commands |= {
            f"{name}, load and answer in Python": _python(f"{code}\nanswer([{TEXT!r}])") for name, code in codes.items()
        }
        cold = in_turns({name: partial(cold_start, command) for name, command in commands.items()}, arguments.rounds)
        loaded = in_turns({name: partial(loaded_answer, code) for name, code in codes.items()}, arguments.rounds)
    text = document(cold, loaded, arguments.rounds)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)


def make_peers(folder: Path) -> dict[str, str]:
    """Models of others in a folder; the code that loads each, by its name."""
    from encoder_cls.config import TokenizerConfig, load_config
    from encoder_cls.data.dataset import load_dataset
    from encoder_cls.text.tokenizer_trainer import train_tokenizer

    dataset = load_dataset(load_config().data)
    texts, names = list(dataset.train.texts), [dataset.label_names[label] for label in dataset.train.labels]
    tokenizer = train_tokenizer(texts, TokenizerConfig(type="word_piece", max_vocab_size=8000))
    corpus = Corpus(kind=EXAMPLE, dataset=dataset, tokenizer=tokenizer)
    made = {}
    if find_spec("fasttext"):
        import fasttext

        lines = [f"__label__{name} {' '.join(text.split())}\n" for text, name in zip(texts, names, strict=True)]
        (folder / "train.txt").write_text("".join(lines))
        model = fasttext.train_supervised(str(folder / "train.txt"), epoch=5, wordNgrams=2, verbose=0, thread=1)
        model.save_model(str(folder / "fasttext.bin"))
        made["fastText"] = FASTTEXT
    made["scikit-learn (TF-IDF, linear SVM)"] = SKLEARN
    _make_sklearn(texts, names, folder)
    if find_spec("model2vec"):
        _make_model2vec(tokenizer, sorted(set(names)), folder)
        made["model2vec"] = MODEL2VEC
    if find_spec("transformers"):
        _make_bert(corpus, folder)
        made["Hugging Face pipeline"] = PIPELINE
    return made


def _make_sklearn(texts: list[str], names: list[str], folder: Path) -> None:
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LinearSVC())
    joblib.dump(model.fit(texts, names), folder / "sklearn.joblib")


def _make_model2vec(tokenizer: Tokenizer, names: list[str], folder: Path) -> None:
    """A pipeline of the size of its small models: vectors of width 256, one linear map."""
    import numpy as np
    from model2vec import StaticModel
    from model2vec.inference import StaticModelPipeline
    from model2vec.inference.mlp import Activation, Layer, MLPHead

    random = np.random.default_rng(0)
    vectors = random.normal(size=(tokenizer.get_vocab_size(), 256)).astype(np.float32)
    layer = Layer(random.normal(size=(len(names), 256)).astype(np.float32), np.zeros(len(names), dtype=np.float32))
    head = MLPHead([layer], Activation.SOFTMAX, np.array(names))
    StaticModelPipeline(StaticModel(vectors, tokenizer), head).save_pretrained(str(folder / "model2vec"))


def _make_bert(corpus: Corpus, folder: Path) -> None:
    """A BERT of our size, with random weights."""
    from speed_benchmark.hugging_face import bert, wrapped_tokenizer

    bert(corpus, SIZES["128/2"]).save_pretrained(folder / "bert")
    wrapped_tokenizer(corpus).save_pretrained(folder / "bert")


def _program() -> str:
    return str(Path(sys.executable).with_name("encoder-cls"))


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def in_turns(tasks: dict[str, Callable[[], tuple[float, float]]], rounds: int) -> dict[str, tuple[float, float]]:
    """The medians of what each task returns, seconds and bytes; a first round does not count."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        note(f"round {number} of {rounds}")
        for name, task in tasks.items():
            measured = task()
            if number:
                found[name].append(measured)
    return {
        name: (statistics.median(seconds for seconds, _ in them), statistics.median(peak for _, peak in them))
        for name, them in found.items()
    }


def cold_start(command: list[str]) -> tuple[float, float]:
    """Seconds from start to end of a process, and its peak of resident memory.

    It is started by a small process: a child's peak begins with what its parent had.
    """
    outcome = subprocess.run([sys.executable, "-S", "-c", LAUNCH, *command], capture_output=True, text=True, check=True)
    seconds, peak, code = outcome.stdout.split()
    if code != "0":
        sys.exit(f"failed: {shlex.join(command)}")
    return float(seconds), float(peak) * (1024 if sys.platform == "linux" else 1)


def loaded_answer(code: str) -> tuple[float, float]:
    """Seconds of an answer to one text, one thread, once the classifier is loaded and warm."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    program = f"TEXT = {json.dumps(TEXT)}\n" + LOADED.format(setup=code)
    outcome = subprocess.run(_python(program), env=os.environ | one_thread, capture_output=True, text=True, check=True)
    return float(outcome.stdout.split()[-1]), 0.0


def document(cold: dict[str, tuple[float, float]], loaded: dict[str, tuple[float, float]], rounds: int) -> str:
    """The page."""
    torch_seconds = cold["python -c 'import torch'"][0]
    libraries = cold["python -c 'import numpy, tokenizers, typer'"][0]
    rows = [
        [name, f"{seconds:.3f}", f"{seconds / torch_seconds:.2f}", f"{seconds / libraries:.2f}", f"{peak / 1e6:.0f}"]
        for name, (seconds, peak) in cold.items()
    ]
    command = shlex.join(["python", "scripts/benchmarks/cold_predict.py", "RUN", "--rounds", str(rounds)])
    return "\n".join(
        [
            "# The first answer",
            "",
            f"On {cpu_name()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}. Made by `{command}`;",
            "RUN is a run of the bundled example. In turns, medians, from start to end of a process. Memory is a peak.",
            "",
            *table(["one text, cold", "seconds", "of `import torch`", "of the libraries", "memory, MB"], rows),
            "",
            "Loaded, one text of 30 tokens, one thread:",
            "",
            *table(["", "ms"], [[name, f"{1000 * seconds:.2f}"] for name, (seconds, _) in loaded.items()]),
            "",
        ]
    )


if __name__ == "__main__":
    main()
