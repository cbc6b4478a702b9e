"""Other systems: searches over settings on the same texts, and models that are fitted once.

    python -m shared.peers SYSTEM SEED SECONDS FOLDER    # a search: prints its `Curve` as JSON

FOLDER has train.parquet, validation.parquet and test.parquet. A search ends after so many seconds. Its curve has the
moments at which a model was the best on the validation texts, with its accuracy on the test texts. fastText, spaCy and
Hugging Face's libraries are loaded only where they are used.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shared.benchmark import note
from shared.data import Texts, read

if TYPE_CHECKING:
    from encoder_cls import Classifier

TOKEN = r"\w+|[^\w\s]+"  # words and runs of punctuation
MUCH_TEXT = 1_000_000  # training tokens from which fastText and spaCy read the texts less often
SPACY_EPOCHS = (20, 5)  # at most, of little and of much text
AUTOTUNED = (10, 30, 60, 120, 300)  # seconds of fastText's own search
TFIDF_SETTINGS = [
    *(("logistic regression", c) for c in (1.0, 3.0, 10.0, 30.0, 100.0)),
    *(("linear SVM", c) for c in (0.1, 0.3, 1.0, 3.0, 10.0)),
]
SVM_SETTINGS = [("linear SVM", c) for c in (1.0, 0.3, 3.0, 0.1, 10.0)]  # the usual one first
FASTTEXT = {"bucket": 500_000, "thread": 1, "verbose": 0}

Predict = Callable[[Sequence[str]], Sequence[str]]


class Trial(NamedTuple):
    """A trained model: its setting, the seconds that it took alone, and its answers."""

    setting: str
    seconds: float
    predict: Predict


Search = Callable[[Texts, Texts, int], Iterator[Trial]]


@dataclass
class Curve:
    """How a search went: seconds and test accuracy of each model that was better than all before."""

    points: list[tuple[float, float]] = field(default_factory=list)  # scoring takes no time
    start_up: float = 0.0  # seconds of imports, which are not part of `points`
    seconds: float = 0.0  # of the whole search
    chosen: str = ""  # the setting that was best on the validation texts
    chosen_seconds: float = 0.0  # to train with it
    num_test: int = 0  # test texts


def accuracy(predict: Predict, texts: Texts) -> float:
    """The part of answers that are right."""
    return float(np.mean([a == b for a, b in zip(predict(texts.texts), texts.labels, strict=True)]))


def classifier_accuracy(classifier: Classifier, texts: Texts) -> float:
    """The share of texts that a classifier of encoder-cls labels correctly."""

    def predict(texts: Sequence[str]) -> list[str]:
        return [prediction.label or "" for prediction in classifier.predict(texts)]

    return accuracy(predict, texts)


def search(system: str, seed: int, limit: float, splits: dict[str, Texts]) -> Curve:
    """Search for so many seconds for the model that is best on the validation texts, of equals the first."""
    loading = time.perf_counter()
    for name in LIBRARIES[system]:
        importlib.import_module(name)
    began, best = time.perf_counter(), -1.0
    curve = Curve(start_up=began - loading, num_test=len(splits["test"].texts))

    def take(trial: Trial) -> bool:
        """Score a model, on the test texts only if it is the best so far; whether time remains."""
        nonlocal began, best
        score = accuracy(trial.predict, splits["validation"])
        now = time.perf_counter()
        curve.seconds = now - began
        is_in_time = curve.seconds <= limit
        if is_in_time and score > best:
            best, curve.chosen, curve.chosen_seconds = score, trial.setting, trial.seconds
            curve.points.append((curve.seconds, accuracy(trial.predict, splits["test"])))
            began += time.perf_counter() - now
        return is_in_time

    with warnings.catch_warnings():
        # Of optimizers that stop at their last step: validation judges the result.
        warnings.simplefilter("ignore")
        if system == HF_TRAINER:
            hf_trainer(splits["train"], seed, take)
        else:
            all(map(take, SEARCHES[system](splits["train"], splits["validation"], seed)))
    return curve


def tfidf(
    train: Texts,
    _validation: Texts,
    seed: int,
    *,
    settings: Sequence[tuple[str, float]] = TFIDF_SETTINGS,
    chars: Sequence[bool] = (False,),
) -> Iterator[Trial]:
    """TF-IDF of words and pairs of words, on request with character n-grams besides, and linear models on it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    for with_chars in chars:
        began = time.perf_counter()
        vectorizer = tfidf_features(chars=with_chars)
        features = vectorizer.fit_transform(train.texts)
        shared = time.perf_counter() - began
        for kind, c in settings:
            began = time.perf_counter()
            is_svm = kind == "linear SVM"
            empty: Any = LinearSVC if is_svm else partial(LogisticRegression, max_iter=500)
            model = empty(C=c, random_state=seed).fit(features, train.labels)
            seconds = shared + time.perf_counter() - began
            yield Trial(f"{kind}, C={c:g}", seconds, partial(_linear_answers, vectorizer, model))


def tfidf_features(*, chars: bool) -> Any:
    """What turns texts into TF-IDF features."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    common: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    parts = [TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, **common)]
    parts += [TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **common)] if chars else []
    return make_union(*parts)


def _linear_answers(vectorizer: Any, model: Any, texts: Sequence[str]) -> Sequence[str]:
    answers: Sequence[str] = model.predict(vectorizer.transform(texts))
    return answers


def fasttext(
    train: Texts, _validation: Texts, seed: int, *, usual_first: bool = False
) -> Iterator[Trial]:
    """FastText (Joulin et al., 2017) on words and pairs of words, on one thread, with 16 settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = fasttext_file(Path(folder, "train.txt"), train, seed)
        many = (
            sum(len(line.split()) for line in path.read_text(encoding="utf-8").splitlines())
            > MUCH_TEXT
        )
        axes = {
            "lr": (0.1, 0.25, 0.5, 1.0),
            "epoch": (3, 10) if many else (5, 25),
            "dim": (20, 100),
        }
        grid = [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]
        for setting in [*([{}] if usual_first else []), *({"wordNgrams": 2, **it} for it in grid)]:
            began = time.perf_counter()
            with suppress(
                RuntimeError
            ):  # it diverged: the learning rate is too high for these texts
                predict = fasttext_model(path, train.classes, {"seed": seed, **FASTTEXT, **setting})
                name = ", ".join(f"{key} {value:g}" for key, value in setting.items())
                yield Trial(name, time.perf_counter() - began, predict)


def fasttext_autotune(train: Texts, validation: Texts, seed: int) -> Iterator[Trial]:
    """FastText's own search on the validation texts, made once for each of so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            fasttext_file(Path(folder, name), it, seed)
            for name, it in (("train", train), ("val", validation))
        ]
        common = {"thread": 1, "verbose": 0, "seed": seed, "autotuneValidationFile": str(paths[1])}
        for duration in AUTOTUNED:
            options = {**common, "autotuneDuration": duration}
            try:
                yield Trial("", duration, fasttext_model(paths[0], train.classes, options))
            except RuntimeError as error:  # the chosen setting diverges, and gives no model
                note(f"fastText's autotune of {duration} s: {error}")


def fasttext_file(path: Path, texts: Texts, seed: int = 0) -> Path:
    """Write texts as fastText reads them, in random order: it keeps to the file's, which may be by class."""
    numbers = {name: number for number, name in enumerate(texts.classes)}
    order = np.random.default_rng(seed).permutation(len(texts.texts))
    lines = (
        f"__label__{numbers[texts.labels[row]]} {fasttext_line(texts.texts[row])}\n"
        for row in order
    )
    path.write_text("".join(lines), encoding="utf-8")
    return path


def fasttext_line(text: str) -> str:
    """A text on one line, a space between tokens, no token that fastText would take for a label."""
    return " ".join(re.findall(TOKEN, text.lower())).replace("__label__", "label")


def fasttext_model(path: Path, classes: Sequence[str], options: dict[str, Any]) -> Predict:
    """Train fastText on a file; the answer is "" where it knows no word of a text."""
    model = importlib.import_module("fasttext").train_supervised(input=str(path), **options)

    def predict(texts: Sequence[str]) -> Sequence[str]:
        answers, _ = model.predict([fasttext_line(text) for text in texts])
        return [classes[int(it[0].removeprefix("__label__"))] if it else "" for it in answers]

    return predict


def spacy_ensemble(train: Texts, _validation: Texts, seed: int) -> Iterator[Trial]:
    """SpaCy's TextCatEnsemble, n-grams and a small network that are trained together, as `spacy train`, by epochs."""
    import spacy
    from spacy.training import Example
    from spacy.util import fix_random_seed, registry

    fix_random_seed(seed)
    began, nlp = time.perf_counter(), spacy.blank("en")
    nlp.add_pipe("textcat")  # its default is the ensemble
    usual, random = nlp.config["training"], np.random.default_rng(seed)
    batches_of = registry.resolve({"batcher": usual["batcher"]})["batcher"]
    categories = {
        label: {it: float(it == label) for it in train.classes} for label in train.classes
    }
    pairs = zip(map(nlp.make_doc, train.texts), train.labels, strict=True)
    examples = [Example.from_dict(doc, {"cats": categories[label]}) for doc, label in pairs]
    optimizer = nlp.initialize(lambda: examples)

    def predict(texts: Sequence[str]) -> Sequence[str]:
        return [max(doc.cats, key=doc.cats.__getitem__) for doc in nlp.pipe(texts)]

    many = sum(len(it.reference) for it in examples) > MUCH_TEXT
    for epoch in range(1, SPACY_EPOCHS[many] + 1):
        for batch in batches_of([examples[row] for row in random.permutation(len(examples))]):
            nlp.update(batch, sgd=optimizer, drop=usual["dropout"])
        yield Trial(f"{epoch} epochs", time.perf_counter() - began, predict)


def hf_trainer(train: Texts, seed: int, take: Callable[[Trial], bool]) -> None:
    """Hugging Face's Trainer with a BERT from random weights, of the size of encoder-cls's default, epoch by epoch."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import set_seed

    from shared.hugging_face import Bert, fit

    set_seed(seed)
    wordpiece = BertWordPieceTokenizer()
    wordpiece.train_from_iterator(train.texts, vocab_size=30_000, show_progress=False)
    bert = Bert(wordpiece._tokenizer, train.classes, max_length=512)
    options: dict[str, Any] = {
        "learning_rate": 5e-4,
        "warmup_steps": 100,
        "weight_decay": 0.01,
        "seed": seed,
    }
    fit(
        bert,
        train,
        after_epoch=lambda: take(Trial("", 0.0, bert.predict)),
        num_train_epochs=30,
        **options,
    )


HF_TRAINER, SPACY = "hf-trainer", "spacy-ensemble"
SEARCHES: dict[str, Search] = {
    "fasttext": fasttext,
    "tfidf-words": tfidf,
    "tfidf-chars": partial(tfidf, chars=(True,)),
    "tfidf-svm": partial(tfidf, settings=SVM_SETTINGS, chars=(False, True)),
    "fasttext-usual-first": partial(fasttext, usual_first=True),
    "fasttext-autotune": fasttext_autotune,
    SPACY: spacy_ensemble,
}
LIBRARIES = {
    **{
        name: (("fasttext",) if name.startswith("fasttext") else ("sklearn.linear_model",))
        for name in SEARCHES
    },
    HF_TRAINER: ("transformers", "accelerate", "torch"),
    SPACY: ("spacy",),
}


def installed(systems: Sequence[str]) -> list[str]:
    """The systems whose libraries are installed; a note names the others."""
    needed = {it: {name.partition(".")[0] for name in LIBRARIES.get(it, ())} for it in systems}
    missing = [it for it, names in needed.items() if not all(map(find_spec, names))]
    if missing:
        note(f"not installed (pip install -e '.[bench]'), so left out: {', '.join(missing)}")
    return [it for it in systems if it not in missing]


def main(system: str, seed: str, seconds: str, folder: str) -> None:
    """Run a search, and print its curve as JSON."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    splits = {
        name: read(Path(folder, f"{name}.parquet")) for name in ("train", "validation", "test")
    }
    print(json.dumps(asdict(search(system, int(seed), float(seconds), splits))))


if __name__ == "__main__":
    main(*sys.argv[1:])
