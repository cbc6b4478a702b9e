"""The benchmark of accuracy: what it measures, keeps and says."""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.system import disk_arrays as columns

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import accuracy as bench
import peers

CLASSES = {
    "küche": "soup bread salt pan oven",
    "sport": "ball goal team coach race",
    "sky": "rain snow cloud wind frost",
}
KEY = {"data": "toy", "seed": 0}


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


@pytest.fixture
def folder(tmp_path) -> Path:
    """A data set called trec6 in Parquet files."""
    for name, split in {"train": _split(30, seed=0), "test": _split(8, seed=2)}.items():
        path = tmp_path / "data" / "trec6" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        names = [tuple(CLASSES)[label] for label in split.labels]
        pq.write_table(pa.table({"text": list(split.texts), "label": names}), path)
    return tmp_path / "data"


def _result(accuracy: float, **more) -> bench.Result:
    return bench.Result(accuracy=accuracy, num_test=100, seconds=2.0, **more)


def _settings(folder: Path, *words: str) -> bench.Settings:
    cache = str(folder.parent / "cache")
    return bench.parse([str(folder), "--cache", cache, "--only", "trec6", "--seeds", "2", *words])[0]


# Peers


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
        outcome = peers.PEERS[method].train(dataset, 0, settings=None)
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
    assert outcome == peers.Outcome(accuracy=0.0, seconds=12.0, search_seconds=17.0, chosen="b")


def test_no_token_is_a_label_to_fasttext():
    """A text's own `__label__x` and line breaks do not reach fastText."""
    assert peers._fasttext_line("Pay\n__LABEL__2  now!") == "pay label2 now !"


def test_there_are_sixteen_fasttext_settings_all_different():
    """For little text and for much."""
    for tokens in (1000, 10_000_000):
        assert len({tuple(setting.items()) for setting in peers.fasttext_grid(tokens)}) == 16


# The cache


def test_a_result_is_computed_once(tmp_path):
    """The second call finds the file of the first; another key does not."""
    calls = []

    def compute():
        calls.append(1)
        return _result(0.5)

    for _ in range(2):
        assert bench.cached(tmp_path, "toy", lambda: KEY, compute) == _result(0.5)
    assert len(calls) == 1
    bench.cached(tmp_path, "toy", lambda: KEY | {"seed": 1}, compute)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [lambda text: text[: len(text) // 2], lambda text: "", lambda text: "{}"])
def test_a_damaged_file_is_not_trusted(tmp_path, damage):
    """A half-written or emptied file is computed anew and replaced."""
    bench.cached(tmp_path, "toy", lambda: KEY, lambda: _result(0.5))
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    assert bench.load_result(path, KEY) is None
    assert bench.cached(tmp_path, "toy", lambda: KEY, lambda: _result(0.7)) == _result(0.7)
    assert bench.load_result(path, KEY) == _result(0.7)


def test_a_file_of_something_else_is_not_trusted(tmp_path):
    """The key inside the file counts, not its name alone."""
    bench.cached(tmp_path, "toy", lambda: KEY, lambda: _result(0.5))
    (path,) = tmp_path.iterdir()
    assert bench.load_result(path, KEY | {"seed": 1}) is None


def test_nothing_is_kept_if_the_source_changed_meanwhile(tmp_path):
    """A result of nobody knows which source is an error, not a file."""
    keys = iter([KEY, KEY | {"source": "new"}])
    with pytest.raises(RuntimeError, match="changed"):
        bench.cached(tmp_path, "toy", lambda: next(keys), lambda: _result(0.5))
    assert not list(tmp_path.iterdir())


def test_comments_do_not_change_the_source_hash_and_code_does(tmp_path):
    """What runs is hashed, not how it is written."""
    path = tmp_path / "a.py"
    hashes = []
    for text in ("x = 1\n", "x  =  1  # one\n", "x = 2\n"):
        path.write_text(text)
        hashes.append(bench.source_hash([path]))
    assert hashes[0] == hashes[1] != hashes[2]


def test_our_key_names_source_overrides_and_splits(dataset):
    """Methods, seeds, data and threads have keys of their own, and each key can be written as JSON."""
    job = bench.Job(case=bench.Case(data="toy", seed=0), overrides=(), dataset=dataset, threads=1)
    fewer = Dataset(
        label_names=dataset.label_names, train=dataset.validation, validation=dataset.validation, test=dataset.test
    )
    others = [
        bench.Job(case=bench.Case(data="toy", seed=1), overrides=(), dataset=dataset, threads=1),
        bench.Job(case=bench.Case(data="toy", seed=0), overrides=(), dataset=fewer, threads=1),
        bench.Job(case=bench.Case(data="toy", seed=0), overrides=(), dataset=dataset, threads=2),
    ]
    keys = [j.key("encoder-cls") for j in [job, *others]] + [job.key("plain"), job.key("tfidf-words")]
    assert len({json.dumps(key) for key in keys}) == len(keys)
    assert job.key("plain")["source"] == keys[0]["source"] != job.key("tfidf-words")["source"]


def test_a_failure_is_told_and_tried_again(folder, monkeypatch, capsys):
    """A failed result is not kept; the other methods go on, and the next run tries again."""
    settings = _settings(folder, "--method", "tfidf-words", "--method", "tfidf-chars", "--part", "main")
    asked = []

    def run(job, method):
        asked.append(method)
        if method == "tfidf-words" and len(asked) < 4:
            raise RuntimeError("no memory")
        return _result(0.5)

    monkeypatch.setattr(bench.Job, "run", run)
    results, failures = bench.measure_all(settings)
    assert (len(results), failures) == (2, 2)
    assert "trec6, all texts, seed 0, tfidf-words: FAILED: RuntimeError: no memory" in capsys.readouterr().err
    results, failures = bench.measure_all(settings)
    assert (len(results), failures) == (4, 0)
    assert asked == ["tfidf-words", "tfidf-chars"] * 2 + ["tfidf-words"] * 2


def test_our_methods_go_through_the_command_line(monkeypatch):
    """The overrides and the seed reach `encoder-cls train`; of a failure the last line is told."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return bench.subprocess.CompletedProcess(command, 2, stdout="", stderr="reading\nerror: no such file\n")

    monkeypatch.setattr(bench.subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"^error: no such file$"):
        bench.train_ours(["data.train=x", "model.num_layers=1"], 7)
    words = " ".join(commands[0])
    assert "encoder-cls train " in words
    assert words.endswith("--set data.train=x --set model.num_layers=1 --set seed=7")


def test_every_override_is_a_field_of_the_config():
    """No variant is refused by the config it is for."""
    for overrides in bench.OURS.values():
        bench.load_config(None, overrides)


# Data


def test_subsets_are_nested_and_stratified():
    """Every beginning of the order has each class's share, give or take one, and two of each at least."""
    labels = ["a"] * 700 + ["b"] * 280 + ["c"] * 20
    order = bench.nested_order(labels, seed=0)
    assert sorted(order) == list(range(1000))
    for size in (6, 50, 100, 500):
        found = [labels[place] for place in order[:size]]
        for label, share in (("a", 0.7), ("b", 0.28), ("c", 0.02)):
            assert found.count(label) >= 2
            if size >= 100:
                assert abs(found.count(label) - share * size) <= 2
    assert (bench.nested_order(labels, seed=0) == order).all()
    assert (bench.nested_order(labels, seed=1) != order).any()


def test_a_subset_is_all_that_a_method_sees(folder):
    """Of a subset the tool holds out its validation split, as of a whole; the rest has no labels."""
    case = bench.Case(data="trec6", seed=1, size=30)
    with bench.split_files(folder, case) as overrides:
        dataset = bench.load_dataset(bench.load_config(None, overrides).data, seed=1)
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (27, 3, 24)
    parts = (dataset.train.texts, dataset.validation.texts, dataset.unlabelled.texts)
    assert sorted(text for part in parts for text in part) == sorted(_split(30, seed=0).texts)


# Numbers and tables


def test_differences_and_their_standard_errors():
    """By hand: means 0.82 and 0.79, variances 0.0004 and 0.0001, two seeds each, 100 test texts."""
    ours = [_result(0.82 - math.sqrt(0.0002)), _result(0.82 + math.sqrt(0.0002))]
    theirs = [_result(0.79 - math.sqrt(0.00005)), _result(0.79 + math.sqrt(0.00005))]
    gap = bench.difference(ours, theirs)
    assert gap.points == pytest.approx(3.0)
    assert gap.over_seeds == pytest.approx(100 * math.sqrt(0.0004 / 2 + 0.0001 / 2))  # 1.58
    assert gap.binomial == pytest.approx(100 * math.sqrt((0.82 * 0.18 + 0.79 * 0.21) / 100))  # 5.60
    assert bench.beyond(gap.points, gap.over_seeds) == "3.2: not exceeded"
    assert bench.beyond(-3.3, 1.6) == "3.2: exceeded"


def test_one_seed_has_no_standard_error_over_seeds():
    """Nothing is invented for it."""
    gap = bench.difference([_result(0.8)], [_result(0.7)])
    assert gap.over_seeds is None
    assert bench.beyond(gap.points, gap.over_seeds) == "-"


def test_what_is_missing_is_a_dash(folder):
    """With no result at all, no table holds a number that is a result."""
    text = bench.document(_settings(folder), {}, "command")
    assert "| trec6 | encoder-cls | 0 of 2 | - | - | - | - |" in text
    assert "| trec6 | - | 92.0 | - | - | - | - | - | - |" in text
    assert "| no linear model | - |" in text
    assert "| tfidf-words | - |" in text
    assert "±" not in text.replace("mean ± standard", "").replace("; ± is", "")


def test_tables_say_what_is_there(folder):
    """Means and spreads, the best peer, the target, and differences over the seeds that both have."""
    settings = _settings(folder, "--part", "main", "--part", "ablation")
    results = {}
    for seed, (ours, peer, variant) in enumerate([(0.92, 0.90, 0.88), (0.94, 0.91, 0.89)]):
        case = bench.Case(data="trec6", seed=seed)
        results |= {
            (case, "encoder-cls"): _result(ours, ece=0.02),
            (case, "tfidf-words"): _result(peer, search_seconds=9.0),
            (case, "labels alone"): _result(variant),
        }
    results[bench.Case(data="trec6", seed=0), "tfidf-chars"] = _result(0.8)
    text = bench.document(settings, results, "command")
    assert "| trec6 | encoder-cls | 2 | 93.0 ± 1.4 | 2.0 | - | 0.020 |" in text
    assert "| trec6 | tfidf-chars | 1 of 2 | 80.0 | 2.0 | - | - |" in text
    comparison = "| met | tfidf-words (not all are measured) | 90.5 ± 0.7 | +2.5 | 2.2: exceeded | 7.8: not exceeded |"
    assert f"| trec6 | 93.0 ± 1.4 | 92.0 {comparison}" in text
    assert "| labels alone | -4.5 ± 1.1 |" in text


def test_a_target_is_judged_only_when_all_seeds_are_there(folder):
    """One lucky seed meets no target."""
    results = {(bench.Case(data="trec6", seed=0), "encoder-cls"): _result(0.99)}
    text = bench.document(_settings(folder, "--part", "main"), results, "command")
    assert "| trec6 | 99.0 | 92.0 | - |" in text


def test_without_fasttext_its_methods_are_left_out_with_one_line(monkeypatch, capsys):
    """And the line says how to get it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert bench.installed(["fasttext", "tfidf-words", "fasttext-chars"]) == ["tfidf-words"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "[bench]" in line


def test_a_whole_run_writes_the_tables_and_no_paths(folder, monkeypatch):
    """From the command line to Markdown with a real peer; started again, it runs nothing."""
    monkeypatch.setattr(bench, "SEEDS", bench.SEEDS | {"trec6": 1})
    monkeypatch.setattr(columns, "MOST_PENDING", 0)  # as with much data: texts are in a file without a name
    cache, output = folder.parent / "cache", folder.parent / "accuracy.md"
    words = [str(folder), f"--cache={cache}", "--only", "trec6", "--method", "tfidf-words", "--part", "main"]
    words += ["--output", "accuracy.md"]
    monkeypatch.setattr(sys, "argv", ["accuracy.py", *words])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    bench.main()
    text = output.read_text()
    assert "| trec6 | tfidf-words | 1 | 100.0 |" in text
    assert "accuracy.py FOLDER --cache CACHE --only trec6" in text
    assert str(folder.parent) not in text
    monkeypatch.setattr(bench.Job, "run", lambda job, method: pytest.fail("it ran again"))
    bench.main()
    assert output.read_text() == text
