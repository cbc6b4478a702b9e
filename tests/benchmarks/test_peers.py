"""The peers of the accuracy benchmark: that they learn, and choose on validation alone."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from encoder_cls.data.dataset import Dataset
from encoder_cls.data.split import Split

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import peers

CLASSES = {
    "küche": "soup bread salt pan oven",
    "sport": "ball goal team coach race",
    "sky": "rain snow cloud wind frost",
}


def _split(per_class: int, *, seed: int) -> Split:
    random = np.random.default_rng(seed)
    words = [words.split() for words in CLASSES.values()]
    labels = np.arange(len(words)).repeat(per_class)  # grouped by class, as many files are
    texts = [" ".join([*random.choice(words[label], 3), "the", "A", "!"]) for label in labels]
    return Split(texts=texts, labels=labels, where=[str(i) for i in range(len(texts))])


@pytest.fixture
def dataset() -> Dataset:
    return Dataset(
        label_names=tuple(CLASSES), train=_split(30, seed=0), validation=_split(5, seed=1), test=_split(8, seed=2)
    )


@pytest.mark.parametrize("method", ["tfidf-words", "tfidf-chars", "fasttext", "fasttext-chars"])
def test_a_peer_learns(method, dataset):
    """A peer finds the words of each class, and says what it chose and how long it took."""
    if method.startswith("fasttext"):
        pytest.importorskip("fasttext", reason="fastText is not installed (extra `bench`)")
        # Beside what other tests have loaded it finds numbers that are none: the benchmark gives it a process too.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            settings = [{"lr": 1.0, "epoch": 20, "dim": 10}]
            chars = method == "fasttext-chars"
            outcome = pool.submit(peers.fasttext, dataset, 0, chars=chars, settings=settings).result()
    else:
        outcome = peers.PEERS[method](dataset, 0)
    assert outcome.accuracy > 0.9
    assert 0 < outcome.seconds <= outcome.search_seconds
    assert outcome.chosen


def test_the_tutorial_encoder_learns(dataset):
    """It learns with a config of its own, and twice the same with the same seed."""
    config = peers.TutorialConfig(
        d_model=16, d_ff=32, num_heads=2, num_layers=1, batch_size=8, epochs=4, learning_rate=1e-2
    )
    outcomes = [peers.torch_tutorial(dataset, 3, config=config) for _ in range(2)]
    assert outcomes[0].accuracy > 0.9
    assert outcomes[0].chosen == outcomes[1].chosen
    assert outcomes[0].accuracy == outcomes[1].accuracy


def test_validation_chooses_and_test_is_scored_once(dataset):
    """The setting best on validation is scored, though another would be better on test."""
    right, wrong = dataset.test.labels, np.full(len(dataset.test), -1)
    trials = [
        peers._Trial("a", 0.5, 1.0, lambda split: right),
        peers._Trial("b", 0.8, 2.0, lambda split: wrong),
        peers._Trial("c", 0.8, 4.0, lambda split: right),
    ]
    outcome = peers._best(iter(trials), dataset.test, shared_seconds=10.0)
    assert outcome == peers.Outcome(accuracy=0.0, num_test=24, seconds=12.0, search_seconds=17.0, chosen="b")


def test_no_token_is_a_label_to_fasttext():
    """A text's own `__label__x` and line breaks do not reach fastText."""
    assert peers.fasttext_line("Pay\n__LABEL__2  now!") == "pay label2 now !"


def test_there_are_sixteen_fasttext_settings_all_different():
    """For little text and for much."""
    for tokens in (1000, 10_000_000):
        assert len({tuple(setting.items()) for setting in peers.fasttext_grid(tokens)}) == 16


def test_a_peer_as_a_process_prints_its_outcome(tmp_path):
    """From files that overrides name to one line of JSON."""
    for name, split in {"train": _split(30, seed=0), "test": _split(8, seed=2)}.items():
        rows = (f"{text},{label}\n" for text, label in zip(split.texts, split.labels, strict=True))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(rows))
    files = [f"data.{name}={tmp_path}/{name}.csv" for name in ("train", "test")]
    command = [sys.executable, peers.__file__, "tfidf-words", "0", "1", *files, "data.validation=null"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome = peers.Outcome(**json.loads(ended.stdout))
    assert outcome.accuracy == 1.0
    assert outcome.num_test == 24
