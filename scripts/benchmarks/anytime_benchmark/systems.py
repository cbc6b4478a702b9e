"""One system, data set and seed in; the test accuracy that its user would have after how many seconds, out.

    python -m anytime_benchmark.systems SYSTEM SEED SECONDS section.key=value ...    # prints a `Curve` as JSON

Run with scripts/benchmarks in PYTHONPATH. Of each system the validation texts choose: a point is there when what they
score has risen, and says what the same model scores on the test texts. Scoring takes no time of the curve. What a
system needs before it reads the first text, imports and start-up, is `start_up`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peers
from reporting import note

from encoder_cls.config import load_config
from encoder_cls.data.dataset import Dataset, load_dataset
from encoder_cls.data.split import Split
from encoder_cls.tracking.run_dir import RunDir

PENALTIES = (1.0, 0.3, 3.0, 0.1, 10.0)  # of TF-IDF's SVM; the usual one first
AUTOTUNED = (10, 30, 60, 120, 300)  # seconds of fastText's search
SECONDS_BETWEEN_LOOKS = 0.1
TRAINER_EPOCHS = 30


@dataclass
class Curve:
    """What a user has: (seconds, test accuracy as a fraction), each point until the next one.

    Attributes:
        start_up: seconds before the first text is read; not part of the points.
        points: seconds increase.
        seconds: when the system had ended.
    """

    start_up: float = 0.0
    points: list[tuple[float, float]] = field(default_factory=list)
    seconds: float = 0.0


class Stopwatch:
    """Seconds since it was made, without those of its pauses."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.perf_counter() - self._began

    def leave_out(self, work: Callable[[], float]) -> float:
        """Do what takes no time of the curve."""
        began = time.perf_counter()
        found = work()
        self._began += time.perf_counter() - began
        return found


def rising(
    trials: Iterator[tuple[float, Callable[[], float]]], watch: Stopwatch, *, seconds: float
) -> list[tuple[float, float]]:
    """The points of models, each with its validation score and what scores it on test, as long as there is time."""
    points, best = [], -1.0
    for score, test in trials:
        if watch.seconds > seconds:
            break
        if score > best:
            best, now = score, watch.seconds
            points.append((now, watch.leave_out(test)))
    return points


def ours(dataset: Dataset, seed: int, seconds: float, overrides: Sequence[str]) -> Curve:
    """The command `encoder-cls train` as it is, looked at from outside: each model that lies in the run's folder."""
    from encoder_cls.inference.serialization import load_classifier

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        copies: list[tuple[float, Path]] = []
        command = [
            str(Path(sys.executable).with_name("encoder-cls")),
            "train",
            "--device",
            "cpu",
            "--run-dir",
            str(run),
        ]
        command += [word for override in [*overrides, f"seed={seed}"] for word in ("--set", override)]
        began = time.monotonic()
        weights, seen, start_up = RunDir(run).weights, 0, None
        log = Path(folder, "log")
        with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
            while process.poll() is None and time.monotonic() - began < seconds:
                if start_up is None and "reading" in log.read_text(encoding="utf-8"):
                    start_up = time.monotonic() - began
                with suppress(FileNotFoundError):
                    changed = weights.stat().st_mtime_ns
                    if changed != seen:
                        copy = Path(folder, str(len(copies)))
                        shutil.copytree(weights.parent, copy)
                        copies.append((time.monotonic() - began, copy))
                        seen = changed
                time.sleep(SECONDS_BETWEEN_LOOKS)
            process.terminate()
        ended = time.monotonic() - began
        if process.returncode and ended < seconds:
            raise RuntimeError(log.read_text(encoding="utf-8").splitlines()[-1])
        start_up = start_up or 0.0
        test, points = _test(dataset), []
        names = np.array(dataset.label_names)[test.labels]
        for moment, copy in copies:
            answers = [it.label for it in load_classifier(copy, engine="torch").predict(list(test.texts))]
            points.append((moment - start_up, float((np.array(answers) == names).mean())))
    return Curve(start_up, points, ended - start_up)


def _test(dataset: Dataset) -> Split:
    assert dataset.test
    return dataset.test


def tfidf_svm(dataset: Dataset, seed: int, seconds: float, _overrides: Sequence[str]) -> Curve:
    """TF-IDF of words and pairs, then with character n-grams besides, and a linear SVM under five penalties each."""
    began = time.perf_counter()
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union
    from sklearn.svm import LinearSVC

    start_up, watch, test = time.perf_counter() - began, Stopwatch(), _test(dataset)
    common: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    words = {"ngram_range": (1, 2), "token_pattern": peers.TOKEN, **common}
    chars = {"analyzer": "char_wb", "ngram_range": (2, 5), **common}

    def trials() -> Iterator[tuple[float, Callable[[], float]]]:
        for parts in ([words], [words, chars]):
            vectorizer = make_union(*(TfidfVectorizer(**part) for part in parts))
            features = vectorizer.fit_transform(dataset.train.texts)
            validation = vectorizer.transform(dataset.validation.texts)
            for penalty in PENALTIES:
                model = LinearSVC(C=penalty, random_state=seed).fit(features, dataset.train.labels)
                score = model.score(validation, dataset.validation.labels)
                yield score, partial(_svm_accuracy, vectorizer, model, test)

    return Curve(start_up, rising(trials(), watch, seconds=seconds), watch.seconds)


def _svm_accuracy(vectorizer: Any, model: Any, split: Split) -> float:
    return float(model.score(vectorizer.transform(split.texts), split.labels))


def fasttext(dataset: Dataset, seed: int, seconds: float, _overrides: Sequence[str]) -> Curve:
    """FastText on words and pairs, its usual settings first, then those of `peers.fasttext_grid`."""
    library, start_up = _fasttext()
    watch, test = Stopwatch(), _test(dataset)
    with tempfile.TemporaryDirectory() as folder:
        train = _fasttext_file(Path(folder, "train.txt"), dataset.train, seed=seed)
        num_tokens = sum(len(line.split()) for line in train.read_text(encoding="utf-8").splitlines())

        def trials() -> Iterator[tuple[float, Callable[[], float]]]:
            fixed = {"bucket": 500_000, "thread": 1, "seed": seed, "verbose": 0}
            for setting in ({}, *({"wordNgrams": 2, **it} for it in peers.fasttext_grid(num_tokens))):
                with suppress(RuntimeError):  # it diverged
                    model = library.train_supervised(input=str(train), **fixed, **setting)
                    score = _fasttext_accuracy(model, dataset.validation)
                    yield score, partial(_fasttext_accuracy, model, test)

        return Curve(start_up, rising(trials(), watch, seconds=seconds), watch.seconds)


def fasttext_autotune(dataset: Dataset, seed: int, seconds: float, _overrides: Sequence[str]) -> Curve:
    """FastText's own search on the validation texts, made once for each of so many seconds."""
    library, start_up = _fasttext()
    test, points = _test(dataset), []
    with tempfile.TemporaryDirectory() as folder:
        train = _fasttext_file(Path(folder, "train.txt"), dataset.train, seed=seed)
        validation = _fasttext_file(Path(folder, "validation.txt"), dataset.validation, seed=seed)
        for duration in AUTOTUNED:
            if duration > seconds:
                break
            watch = Stopwatch()
            options = {"autotuneValidationFile": str(validation), "autotuneDuration": duration}
            try:
                model = library.train_supervised(input=str(train), thread=1, seed=seed, verbose=0, **options)
            except RuntimeError as error:  # "Encountered NaN": what it has chosen diverges, and there is no model
                note(f"fastText's autotune of {duration} s: {error}")
                continue
            points.append((watch.seconds, _fasttext_accuracy(model, test)))
    return Curve(start_up, points, points[-1][0] if points else 0.0)


def _fasttext() -> tuple[Any, float]:
    began = time.perf_counter()
    import fasttext as library

    return library, time.perf_counter() - began


def _fasttext_file(path: Path, split: Split, *, seed: int) -> Path:
    order = np.random.default_rng(seed).permutation(len(split))
    texts = list(split.texts)
    path.write_text(
        "".join(f"__label__{split.labels[row]} {peers.fasttext_line(texts[row])}\n" for row in order), encoding="utf-8"
    )
    return path


def _fasttext_accuracy(model: Any, split: Split) -> float:
    return float((peers.fasttext_answers(model, split) == split.labels).mean())


def hf_trainer(dataset: Dataset, seed: int, seconds: float, _overrides: Sequence[str]) -> Curve:
    """Hugging Face's Trainer with a BERT from random weights, of the shape of ours, scored after each epoch."""
    began = time.perf_counter()
    from tokenizers import BertWordPieceTokenizer
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        DataCollatorWithPadding,
        PreTrainedTokenizerFast,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    shape = load_config(None).model
    start_up, watch = time.perf_counter() - began, Stopwatch()
    set_seed(seed)
    wordpiece = BertWordPieceTokenizer()
    wordpiece.train_from_iterator(list(dataset.train.texts), vocab_size=30_000, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=wordpiece._tokenizer,
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip

    def encoded(split: Split) -> list[dict[str, Any]]:
        found = tokenizer(list(split.texts), truncation=True, max_length=shape.max_seq_len)
        return [
            {"input_ids": ids, "labels": int(label)}
            for ids, label in zip(found["input_ids"], split.labels, strict=True)
        ]

    splits = {name: encoded(it) for name, it in (("train", dataset.train), ("validation", dataset.validation))}
    test, points = encoded(_test(dataset)), []
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=shape.d_model,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            intermediate_size=shape.d_ff,
            max_position_embeddings=shape.max_seq_len,
            num_labels=len(dataset.label_names),
        )
    )

    class Scores(TrainerCallback):  # type: ignore[misc]
        best = -1.0

        def on_epoch_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            score = accuracy(splits["validation"])
            if score > self.best:
                self.best, now = score, watch.seconds
                points.append((now, watch.leave_out(lambda: accuracy(test))))
            control.should_training_stop = watch.seconds > seconds

    def accuracy(rows: list[dict[str, Any]]) -> float:
        found = trainer.predict(rows)
        model.train()
        return float((found.predictions.argmax(axis=1) == found.label_ids).mean())

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder, num_train_epochs=TRAINER_EPOCHS, per_device_train_batch_size=32,
                per_device_eval_batch_size=128, learning_rate=5e-4, warmup_steps=100, weight_decay=0.01, seed=seed,
                save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
            ),
            train_dataset=splits["train"],
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Scores()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return Curve(start_up, points, watch.seconds)


SYSTEMS: dict[str, Callable[[Dataset, int, float, Sequence[str]], Curve]] = {
    "encoder-cls": ours,
    "tfidf-svm": tfidf_svm,
    "fasttext": fasttext,
    "fasttext-autotune": fasttext_autotune,
    "hf-trainer": hf_trainer,
}


def main() -> None:
    """Measure one curve."""
    system, seed, seconds, *overrides = sys.argv[1:]
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    dataset = load_dataset(load_config(None, overrides).data)
    print(json.dumps(asdict(SYSTEMS[system](dataset, int(seed), float(seconds), overrides))))


if __name__ == "__main__":
    main()
