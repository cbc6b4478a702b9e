"""Other systems: searches over settings on the same texts, and models that are fitted once.

    python -m shared.peers SYSTEM SEED SECONDS FOLDER    # a search: prints its `Curve` as JSON

FOLDER has train.parquet, validation.parquet and test.parquet. A search ends after so many seconds.
Its curve has the moments at which a model was the best on the validation texts, with its accuracy
on the test texts. fastText, spaCy and Hugging Face's libraries are loaded only where they are used.
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

# A token is a word or a run of punctuation.
TOKEN = r"\w+|[^\w\s]+"
# Training tokens from which fastText and spaCy read the texts less often.
MUCH_TEXT = 1_000_000

Predict = Callable[[Sequence[str]], Sequence[str]]


class Trial(NamedTuple):
    """A trained model: its setting, the seconds that it took alone, and how it predicts.

    The seconds are None if it took all of the search so far.
    """

    setting: str
    seconds: float | None
    predict: Predict


Search = Callable[[Texts, Texts, int], Iterator[Trial]]


@dataclass
class Curve:
    """How a search went.

    Attributes:
        points: for each model that was better than all before, the seconds until then and its
            accuracy on the test texts. To score it takes no time.
        start_up: the seconds of imports, which are not part of `points`.
        seconds: the seconds of the whole search.
        chosen: the setting that was best on the validation texts.
        chosen_seconds: the seconds to train with it.
        num_test: the number of test texts.
    """

    points: list[tuple[float, float]] = field(default_factory=list)
    start_up: float = 0.0
    seconds: float = 0.0
    chosen: str = ""
    chosen_seconds: float = 0.0
    num_test: int = 0


def accuracy(predict: Predict, texts: Texts) -> float:
    """The share of predictions that are correct."""
    predictions = predict(texts.texts)
    are_right = [
        prediction == label for prediction, label in zip(predictions, texts.labels, strict=True)
    ]
    return float(np.mean(are_right))


def classifier_accuracy(classifier: Classifier, texts: Texts) -> float:
    """The share of texts that a classifier of encoder-cls labels correctly."""

    def predict(texts: Sequence[str]) -> list[str]:
        return [prediction.label or "" for prediction in classifier.predict(texts)]

    return accuracy(predict, texts)


def search(system: str, seed: int, limit: float, splits: dict[str, Texts]) -> Curve:
    """Search for so many seconds for the model that is best on the validation texts.

    Of equally good models the first counts.
    """
    loading = time.perf_counter()
    for name in LIBRARIES[system]:
        importlib.import_module(name)
    began = time.perf_counter()

    curve = Curve(start_up=began - loading, num_test=len(splits["test"].texts))
    best_score = -1.0

    def take(trial: Trial) -> bool:
        """Score a model, on the test texts only if it is the best so far; True if time remains."""
        nonlocal began, best_score
        score = accuracy(trial.predict, splits["validation"])
        now = time.perf_counter()
        curve.seconds = now - began
        is_in_time = curve.seconds <= limit

        if is_in_time and score > best_score:
            best_score = score
            curve.chosen = trial.setting
            curve.chosen_seconds = curve.seconds if trial.seconds is None else trial.seconds
            curve.points.append((curve.seconds, accuracy(trial.predict, splits["test"])))
            # The search does not pay for the test texts.
            began += time.perf_counter() - now
        return is_in_time

    with warnings.catch_warnings():
        # Optimizers warn when they stop at their last step; validation judges the result.
        warnings.simplefilter("ignore")
        if system == HF_TRAINER:
            hf_trainer(splits["train"], seed, take)
        else:
            for trial in SEARCHES[system](splits["train"], splits["validation"], seed):
                if not take(trial):
                    break
    return curve


# TF-IDF and linear models

TFIDF_SETTINGS = (
    ("logistic regression", 1.0),
    ("logistic regression", 3.0),
    ("logistic regression", 10.0),
    ("logistic regression", 30.0),
    ("logistic regression", 100.0),
    ("linear SVM", 0.1),
    ("linear SVM", 0.3),
    ("linear SVM", 1.0),
    ("linear SVM", 3.0),
    ("linear SVM", 10.0),
)
# The usual setting comes first.
SVM_SETTINGS = (
    ("linear SVM", 1.0),
    ("linear SVM", 0.3),
    ("linear SVM", 3.0),
    ("linear SVM", 0.1),
    ("linear SVM", 10.0),
)


def tfidf(
    train: Texts,
    _validation: Texts,
    seed: int,
    *,
    settings: Sequence[tuple[str, float]] = TFIDF_SETTINGS,
    chars: Sequence[bool] = (False,),
) -> Iterator[Trial]:
    """Fit linear models to TF-IDF of words and pairs of words, with each value of `chars`.

    Where it is True, character n-grams are features as well.
    """
    for with_chars in chars:
        began = time.perf_counter()
        vectorizer = tfidf_features(chars=with_chars)
        features = vectorizer.fit_transform(train.texts)
        shared_seconds = time.perf_counter() - began

        for kind, c in settings:
            began = time.perf_counter()
            model = _linear_model(kind, c, seed).fit(features, train.labels)
            seconds = shared_seconds + time.perf_counter() - began
            predict = partial(linear_predictions, vectorizer, model)
            yield Trial(f"{kind}, C={c:g}", seconds, predict)


def _linear_model(kind: str, c: float, seed: int) -> Any:
    """A linear model of scikit-learn that is not fitted yet."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if kind == "linear SVM":
        return LinearSVC(C=c, random_state=seed)
    return LogisticRegression(C=c, random_state=seed, max_iter=500)


def tfidf_features(*, chars: bool) -> Any:
    """A transformer of texts into TF-IDF features."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    common: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    parts = [TfidfVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, **common)]
    if chars:
        parts.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **common))
    return make_union(*parts)


def linear_predictions(vectorizer: Any, model: Any, texts: Sequence[str]) -> Sequence[str]:
    """The labels that a linear model of scikit-learn predicts."""
    predictions: Sequence[str] = model.predict(vectorizer.transform(texts))
    return predictions


# fastText

FASTTEXT = {"bucket": 500_000, "thread": 1, "verbose": 0}
# Seconds of fastText's own search.
AUTOTUNED = (10, 30, 60, 120, 300)


def fasttext(
    train: Texts, _validation: Texts, seed: int, *, usual_first: bool = False
) -> Iterator[Trial]:
    """Train fastText (Joulin et al., 2017) on words and pairs of words, with 16 settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = fasttext_file(Path(folder, "train.txt"), train, seed)
        num_tokens = len(path.read_text(encoding="utf-8").split())

        settings: list[dict[str, float]] = [{}] if usual_first else []
        settings += _fasttext_grid(is_much_text=num_tokens > MUCH_TEXT)
        for setting in settings:
            began = time.perf_counter()
            # A model diverges where the learning rate is too high for these texts.
            with suppress(RuntimeError):
                predict = fasttext_model(path, train.classes, {"seed": seed, **FASTTEXT, **setting})
                name = ", ".join(f"{key} {value:g}" for key, value in setting.items())
                yield Trial(name, time.perf_counter() - began, predict)


def _fasttext_grid(*, is_much_text: bool) -> list[dict[str, float]]:
    """All settings of fastText that are tried."""
    learning_rates = (0.1, 0.25, 0.5, 1.0)
    epochs = (3, 10) if is_much_text else (5, 25)
    dimensions = (20, 100)

    grid = []
    for rate, epoch, dimension in itertools.product(learning_rates, epochs, dimensions):
        grid.append({"wordNgrams": 2, "lr": rate, "epoch": epoch, "dim": dimension})
    return grid


def fasttext_autotune(train: Texts, validation: Texts, seed: int) -> Iterator[Trial]:
    """FastText's own search on the validation texts, made once for each of so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = fasttext_file(Path(folder, "train"), train, seed)
        validation_path = fasttext_file(Path(folder, "val"), validation, seed)
        common = {
            "thread": 1,
            "verbose": 0,
            "seed": seed,
            "autotuneValidationFile": str(validation_path),
        }

        for duration in AUTOTUNED:
            options = {**common, "autotuneDuration": duration}
            try:
                yield Trial("", duration, fasttext_model(path, train.classes, options))
            except RuntimeError as error:  # the chosen setting diverges, and gives no model
                note(f"fastText's autotune of {duration} s: {error}")


def fasttext_file(path: Path, texts: Texts, seed: int = 0) -> Path:
    """Write texts as fastText reads them, in random order.

    FastText learns in the order of the file, which may be sorted by class.
    """
    numbers = {name: number for number, name in enumerate(texts.classes)}
    lines = []
    for row in np.random.default_rng(seed).permutation(len(texts.texts)):
        number = numbers[texts.labels[row]]
        lines.append(f"__label__{number} {fasttext_line(texts.texts[row])}\n")

    path.write_text("".join(lines), encoding="utf-8")
    return path


def fasttext_line(text: str) -> str:
    """A text on one line, a space between tokens, no token that fastText would take for a label."""
    return " ".join(re.findall(TOKEN, text.lower())).replace("__label__", "label")


def fasttext_model(path: Path, classes: Sequence[str], options: dict[str, Any]) -> Predict:
    """Train fastText on a file; it predicts "" where it knows no word of a text."""
    model = importlib.import_module("fasttext").train_supervised(input=str(path), **options)

    def predict(texts: Sequence[str]) -> Sequence[str]:
        best_labels, _ = model.predict([fasttext_line(text) for text in texts])
        predictions = []
        for labels in best_labels:
            if labels:
                number = int(labels[0].removeprefix("__label__"))
                predictions.append(classes[number])
            else:
                predictions.append("")
        return predictions

    return predict


# spaCy

# The most epochs of little and of much text.
SPACY_EPOCHS = 20
SPACY_EPOCHS_OF_MUCH_TEXT = 5


def spacy_ensemble(train: Texts, _validation: Texts, seed: int) -> Iterator[Trial]:
    """Train spaCy's TextCatEnsemble as `spacy train` does, epoch by epoch.

    It is a model of n-grams and a small network that are trained together.
    """
    import spacy
    from spacy.training import Example
    from spacy.util import fix_random_seed, registry

    fix_random_seed(seed)
    began = time.perf_counter()
    nlp = spacy.blank("en")
    nlp.add_pipe("textcat")  # its default is the ensemble

    examples = []
    for text, label in zip(train.texts, train.labels, strict=True):
        categories = {name: float(name == label) for name in train.classes}
        examples.append(Example.from_dict(nlp.make_doc(text), {"cats": categories}))
    optimizer = nlp.initialize(lambda: examples)

    def predict(texts: Sequence[str]) -> Sequence[str]:
        return [max(doc.cats, key=doc.cats.__getitem__) for doc in nlp.pipe(texts)]

    usual = nlp.config["training"]
    batches_of = registry.resolve({"batcher": usual["batcher"]})["batcher"]
    random = np.random.default_rng(seed)
    num_tokens = sum(len(example.reference) for example in examples)
    epochs = SPACY_EPOCHS_OF_MUCH_TEXT if num_tokens > MUCH_TEXT else SPACY_EPOCHS
    for epoch in range(1, epochs + 1):
        shuffled = [examples[row] for row in random.permutation(len(examples))]
        for batch in batches_of(shuffled):
            nlp.update(batch, sgd=optimizer, drop=usual["dropout"])
        yield Trial(f"{epoch} epochs", time.perf_counter() - began, predict)


# Hugging Face


def hf_trainer(train: Texts, seed: int, take: Callable[[Trial], bool]) -> None:
    """Train a BERT from random weights by Hugging Face's Trainer, until `take` returns False.

    It has the size of encoder-cls's default, and is scored after each epoch.
    """
    from tokenizers import BertWordPieceTokenizer
    from transformers import set_seed

    from shared.hugging_face import Bert, fit

    set_seed(seed)
    wordpiece = BertWordPieceTokenizer()
    wordpiece.train_from_iterator(train.texts, vocab_size=30_000, show_progress=False)
    bert = Bert(wordpiece._tokenizer, train.classes, max_length=512)
    fit(
        bert,
        train,
        after_epoch=lambda: take(Trial("", None, bert.predict)),
        num_train_epochs=30,
        learning_rate=5e-4,
        warmup_steps=100,
        weight_decay=0.01,
        seed=seed,
    )


# All searches

HF_TRAINER = "hf-trainer"
SPACY = "spacy-ensemble"
SEARCHES: dict[str, Search] = {
    "fasttext": fasttext,
    "tfidf-words": tfidf,
    "tfidf-chars": partial(tfidf, chars=(True,)),
    "tfidf-svm": partial(tfidf, settings=SVM_SETTINGS, chars=(False, True)),
    "fasttext-usual-first": partial(fasttext, usual_first=True),
    "fasttext-autotune": fasttext_autotune,
    SPACY: spacy_ensemble,
}
# What each search imports before its time begins.
LIBRARIES = {
    "fasttext": ("fasttext",),
    "tfidf-words": ("sklearn.linear_model",),
    "tfidf-chars": ("sklearn.linear_model",),
    "tfidf-svm": ("sklearn.linear_model",),
    "fasttext-usual-first": ("fasttext",),
    "fasttext-autotune": ("fasttext",),
    "fasttext-hs": ("fasttext",),
    "fasttext-ova": ("fasttext",),
    SPACY: ("spacy",),
    HF_TRAINER: ("transformers", "accelerate", "torch"),
}


def installed(systems: Sequence[str]) -> list[str]:
    """The systems whose libraries are installed; a note names the others."""
    found = []
    missing = []
    for system in systems:
        packages = {name.partition(".")[0] for name in LIBRARIES.get(system, ())}
        if all(find_spec(package) for package in packages):
            found.append(system)
        else:
            missing.append(system)

    if missing:
        note(f"not installed (pip install -e '.[bench]'), so left out: {', '.join(missing)}")
    return found


def main(system: str, seed: str, seconds: str, folder: str) -> None:
    """Run a search, and print its curve as JSON."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    names = ("train", "validation", "test")
    splits = {name: read(Path(folder, f"{name}.parquet")) for name in names}
    curve = search(system, int(seed), float(seconds), splits)
    print(json.dumps(asdict(curve)))


if __name__ == "__main__":
    main(*sys.argv[1:])
