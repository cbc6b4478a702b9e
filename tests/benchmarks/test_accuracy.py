"""The benchmark of accuracy: what it measures and in which order, what it keeps, and what the page says."""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encoder_cls.config import load_config
from encoder_cls.data.dataset import load_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import accuracy as bench
from accuracy_benchmark import measure, plan, results, spread
from accuracy_benchmark.document import DESCRIPTIONS, TITLES, document
from accuracy_benchmark.measure import Scores
from accuracy_benchmark.methods import ABLATIONS, DEFAULT, OURS, PLAIN_ENCODER
from accuracy_benchmark.plan import METHODS, Plan, Training
from accuracy_benchmark.results import Result, ResultFile
from accuracy_benchmark.splits import data_hash, nested_order, split_files

SCRIPTS = Path(bench.__file__).parent
CLASSES = {"küche": "soup bread salt", "sport": "ball goal team", "sky": "rain snow cloud"}
HASHES = {"trec6": "files"}
FAILING = "trec6, all texts, seed 1, tfidf-words"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A data set called trec6 in Parquet files."""
    random = np.random.default_rng(0)
    for name, per_class in {"train": 40, "test": 8}.items():
        path = tmp_path / "data" / "trec6" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        labels = [label for label in CLASSES for _ in range(per_class)]
        texts = [" ".join([*random.choice(CLASSES[label].split(), 2), f"n{i}"]) for i, label in enumerate(labels)]
        pq.write_table(pa.table({"text": texts, "label": labels}), path)
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path) -> ResultFile:
    return ResultFile(tmp_path / "results.jsonl", commit="new", any_commit=False, data_hashes=HASHES)


def _result(training: Training, accuracy: float = 0.5, *, commit: str = "new", **more) -> Result:
    scores = Scores(accuracy=accuracy, num_test=100, seconds=2.0, **more)
    found = results.finished(training, scores, commit=commit, data_hashes=HASHES, threads=1)
    return replace(found, cpu="a processor", versions={"torch": "1"})


def _training(method: str = DEFAULT, *, seed: int = 0, size: int | None = None) -> Training:
    return Training(data="trec6", method=method, seed=seed, size=size)


def _plan(folder: Path, *, parts: tuple[str, ...] = plan.PARTS, seeds: int = 2) -> Plan:
    return Plan(folder=folder, data=["trec6"], methods=plan.COMPARED, parts=parts, seeds=seeds)


# What is measured, and when


def test_the_most_telling_results_come_first(folder, monkeypatch):
    """A seed of the main table over all data sets, the next seed, the curves, the ablation; each training once."""
    monkeypatch.setattr(Plan, "num_texts", lambda *_: 500)
    whole = Plan(folder=folder, data=list(plan.SEEDS), methods=plan.COMPARED)
    trainings = whole.trainings()
    assert len(set(trainings)) == len(trainings)
    first = trainings[: len(plan.SEEDS) * len(plan.COMPARED) - 1]
    assert {training.seed for training in first} == {0}
    assert {training.data for training in first} == set(plan.SEEDS)
    kinds = ["curve" if it.size else "ablation" if it.method in ABLATIONS else "main" for it in trainings[:-3]]
    assert kinds == sorted(kinds, key=["main", "curve", "ablation"].index)
    assert {(it.data, it.method) for it in trainings[-3:]} == plan.SLOWEST


def test_parts_and_seeds_can_be_chosen(folder):
    """The curves of a small data set have the sizes that it has texts for, and no plain encoder."""
    (one,) = {(it.method, it.seed) for it in _plan(folder, parts=("ablation",), seeds=1).trainings()} - {
        (name, 0) for name in ABLATIONS
    }
    assert one == (DEFAULT, 0)
    curves = _plan(folder, parts=("curves",), seeds=1).trainings()
    assert {it.size for it in curves} == {100, None}
    assert PLAIN_ENCODER not in {it.method for it in curves}


def test_every_method_can_be_described_and_every_override_is_a_field_of_the_config():
    """No method is without a column, and no variant is refused by the config it is for."""
    assert set(METHODS) == TITLES.keys() == DESCRIPTIONS.keys()
    for overrides in OURS.values():
        load_config(None, overrides)


def test_without_fasttext_its_methods_are_left_out_with_one_line(monkeypatch, capsys):
    """And the line says how to get it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert plan.installed(["fasttext", "tfidf-words", "fasttext-chars"]) == ["tfidf-words"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "[bench]" in line


# Data


def test_subsets_are_nested_and_stratified():
    """Every beginning of the order has each class's share, give or take one, and two of each at least."""
    labels = ["a"] * 700 + ["b"] * 280 + ["c"] * 20
    order = nested_order(labels, seed=0)
    assert sorted(order) == list(range(1000))
    for size in (6, 50, 100, 500):
        found = [labels[index] for index in order[:size]]
        for label, share in (("a", 0.7), ("b", 0.28), ("c", 0.02)):
            assert found.count(label) >= 2
            if size >= 100:
                assert abs(found.count(label) - share * size) <= 2
    assert (nested_order(labels, seed=0) == order).all()
    assert (nested_order(labels, seed=1) != order).any()


def test_a_subset_is_all_that_a_method_sees(folder):
    """Of a subset the tool holds out its validation split, whatever the whole has; the rest has no labels."""
    (folder / "trec6" / "validation.parquet").write_bytes((folder / "trec6" / "test.parquet").read_bytes())
    with split_files(folder, "trec6", seed=1, size=30) as overrides:
        dataset = load_dataset(load_config(None, overrides).data)
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (27, 3, 24)
    parts = (dataset.train.texts, dataset.validation.texts, dataset.unlabelled.texts)
    every = pq.read_table(folder / "trec6" / "train.parquet")["text"].to_pylist()
    assert sorted(text for part in parts for text in part) == sorted(every)


def test_other_files_have_another_hash(folder):
    """A changed file, and one that was not there before."""
    hashes = [data_hash(folder, "trec6")]
    (folder / "trec6" / "validation.parquet").write_bytes(b"a")
    hashes.append(data_hash(folder, "trec6"))
    (folder / "trec6" / "validation.parquet").write_bytes(b"b")
    hashes.append(data_hash(folder, "trec6"))
    assert len(set(hashes)) == 3


# One training


def test_our_methods_go_through_the_command_line(monkeypatch):
    """Overrides, seed and threads reach `encoder-cls train`; of a failure the last line is told."""
    commands = []

    def run(command, **options):
        commands.append((" ".join(command), options["env"]))
        return subprocess.CompletedProcess(command, 2, stdout="", stderr="reading\nerror: no such file\n")

    monkeypatch.setattr(measure.subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"^error: no such file$"):
        measure.train_ours(["data.train=x"], ["model.num_layers=1"], seed=7, threads=3)
    words, environment = commands[0]
    assert "encoder-cls train " in words
    assert words.endswith("--set data.train=x --set model.num_layers=1 --set seed=7")
    assert environment["OMP_NUM_THREADS"] == "3"


# The file of results


def test_a_result_is_read_as_it_was_written(file):
    """Each with all that it depends on, in one line."""
    written = [_result(_training(), ece=0.1), _result(_training(seed=1, size=300), search_seconds=3.0, settings="ä")]
    for result in written:
        file.append(result)
    assert list(file.read().values()) == written
    line = json.loads(file._path.read_text().splitlines()[0])
    assert {"commit", "cpu", "versions", "threads", "settings", "data_hash", "seconds", "accuracy"} <= line.keys()


def test_results_of_another_commit_are_left_out_and_told_of(file, capsys):
    """Unless they are asked for; then those of this commit are taken first, of others the last."""
    for accuracy, commit, seed in (
        (0.1, "old", 0),
        (0.2, "older", 1),
        (0.3, "old", 1),
        (0.4, "new", 2),
        (0.5, "old", 2),
    ):
        file.append(_result(_training(seed=seed), accuracy, commit=commit))
    assert [result.scores.accuracy for result in file.read().values()] == [0.4]
    told = capsys.readouterr().err
    assert "left out 3 result(s) of commit old, not new (--any-commit takes them)" in told
    assert "left out 1 result(s) of commit older" in told
    anyone = ResultFile(file._path, commit="new", any_commit=True, data_hashes=HASHES)
    assert [result.scores.accuracy for result in anyone.read().values()] == [0.1, 0.3, 0.4]
    assert not capsys.readouterr().err


def test_results_of_other_data_are_left_out_and_told_of(file, capsys):
    """Whatever the commit."""
    file.append(replace(_result(_training()), data_hash="other files"))
    assert not file.read()
    assert "left out 1 result(s) of other files of trec6" in capsys.readouterr().err


def test_a_line_that_was_cut_off_costs_that_line_alone(file, capsys):
    """As after a power failure: the next result is on a line of its own."""
    file.append(_result(_training()))
    with file._path.open("a") as stream:
        stream.write('{"data": "trec6", "meth')
    file.append(_result(_training(seed=1)))
    assert [training.seed for training in file.read()] == [0, 1]
    assert "results.jsonl:2: passed over, cut off" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["a text", "[]", '{"data": "trec6"}', '{"data": "trec6"'.replace("{", "")])
def test_a_file_of_something_else_is_refused(file, line):
    """By its line: nothing is appended to it."""
    file._path.write_text(f"{line}\n")
    with pytest.raises(SystemExit, match=r"results.jsonl:1"):
        file.read()


def test_a_training_is_claimed_by_one_process(file):
    """Another one takes the next; what was made meanwhile is not made again."""
    other = f"""import sys; sys.path.insert(0, {str(SCRIPTS)!r})
from pathlib import Path
from accuracy_benchmark.plan import Training
from accuracy_benchmark.results import ResultFile
file = ResultFile(Path({str(file._path)!r}), commit="new", any_commit=False, data_hashes={{}})
for seed in (0, 1):
    with file.claim(Training(data="trec6", method={DEFAULT!r}, seed=seed)) as is_ours:
        print(is_ours)"""
    with file.claim(_training()) as is_ours:
        assert is_ours
        ended = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True)
        assert ended.stdout.split() == ["False", "True"]
        file.append(_result(_training()))
    with file.claim(_training()) as is_ours:
        assert not is_ours
    with file.claim(_training(seed=1)) as is_ours:
        assert is_ours


def test_the_commit_is_the_last_one_that_changed_the_files(tmp_path):
    """Commits of other files do not count, and changes that are not committed do."""

    def git(*words):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    assert results.code_version([source]).startswith("source ")
    git("init", "-q")
    git("add", "a.py")
    git("commit", "-qm", "one")
    first = git("rev-parse", "HEAD")[:10]
    assert results.code_version([source]) == first
    git("commit", "-qm", "two", "--allow-empty")
    assert results.code_version([source]) == first
    versions = {first}
    for text in ("x = 2\n", "x = 3\n"):
        source.write_text(text)
        versions.add(results.code_version([source]))
    assert len(versions) == 3
    assert all(version.startswith(first) for version in versions)


# The command


@pytest.fixture
def asked(monkeypatch):
    """Every training that is made, with made-up scores; one fails at first."""
    made = []

    def score(_folder, training, *, threads):
        made.append(training)
        if training.seed == 1 and str(training) == FAILING and made.count(training) == 1:
            raise RuntimeError("no memory")
        accuracy = 0.5 + (len(str(training)) + 3 * training.seed) % 7 / 20
        return Scores(accuracy=accuracy, num_test=24, seconds=float(len(training.method) * threads))

    monkeypatch.setattr(bench, "measure", score)
    monkeypatch.setattr(bench, "code_version", lambda: "abc1234567")
    return made


def _run(folder: Path, name: str, *words: str) -> Path:
    output = folder.parent / name / "page.md"
    common = ["--results", str(folder.parent / name / "results.jsonl"), "--output", str(output), "--only", "trec6"]
    sys.argv = ["accuracy.py", str(folder), *common, "--seeds", "2", *words]
    bench.main()
    return output


@pytest.fixture(autouse=True)
def _arguments(monkeypatch):
    """What a test does to the arguments and to signals ends with it."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_an_interrupted_benchmark_ends_with_the_same_page(folder, asked, monkeypatch, capsys):
    """Interrupted again and again it makes each training once, and page and picture are those of one call."""
    with pytest.raises(SystemExit, match="1 failed; the next run tries again"):
        _run(folder, "whole")
    assert f"{FAILING}: FAILED: RuntimeError: no memory" in capsys.readouterr().err
    whole = _run(folder, "whole")
    expected = [*asked]
    asked.clear()

    score = bench.measure

    def interrupted(*arguments, **options):
        if len(asked) % 4 == 3 and asked[-1] is not None:
            asked.append(None)
            raise KeyboardInterrupt
        return score(*arguments, **options)

    monkeypatch.setattr(bench, "measure", interrupted)
    interruptions = 0
    while True:
        try:
            page = _run(folder, "parts")
        except SystemExit as ended:
            assert ended.code == bench.INTERRUPTED or "failed" in str(ended.code)
            interruptions += ended.code == bench.INTERRUPTED
            continue
        break
    assert interruptions > 3
    assert sorted(map(str, filter(None, asked))) == sorted(map(str, expected))
    assert page.read_bytes() == whole.read_bytes()
    pictures = [path.with_name("page_curves.png").read_bytes() for path in (page, whole)]
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")


def test_the_page_names_no_path_of_this_machine(folder, asked):
    """The command has stand-ins for what is given; commit and data are told."""
    with pytest.raises(SystemExit):
        _run(folder, "whole", "--part", "main")
    text = (folder.parent / "whole" / "page.md").read_text()
    assert str(folder.parent) not in text
    command = "accuracy.py FOLDER --results RESULTS.jsonl --only trec6 --part main --seeds 2 --output docs/accuracy.md"
    assert command in text
    assert "Commit abc1234567, on" in text


def test_tables_only_trains_nothing(folder, asked):
    """The page of no result says that nothing is measured."""
    text = _run(folder, "whole", "--tables-only").read_text()
    assert not asked
    assert "| trec6 | - | 2 | not measured | not measured |" in text
    assert not (folder.parent / "whole" / "page_curves.png").exists()


def test_a_result_of_changing_code_is_not_kept(folder, asked, monkeypatch):
    """Nobody knows which of both it is of."""
    versions = iter(["abc1234567", "def", "def"])
    monkeypatch.setattr(bench, "code_version", lambda: next(versions))
    with pytest.raises(SystemExit, match="the code changed meanwhile: abc1234567 is def now"):
        _run(folder, "whole")
    assert not (folder.parent / "whole" / "results.jsonl").exists()


def test_missing_data_is_told(tmp_path, capsys):
    """Before anything is measured."""
    with pytest.raises(SystemExit):
        bench.parse([str(tmp_path), "--results", "r"])
    assert "train.parquet is missing" in capsys.readouterr().err
    assert bench.parse([str(tmp_path), "--results", "r", "--only", "example"]).only == ["example"]


@pytest.mark.slow
def test_a_real_training_from_the_command_to_the_page(folder, tmp_path):
    """A peer in a process of its own; its result is in the file and on the page."""
    words = ["--results", tmp_path / "r.jsonl", "--only", "trec6", "--method", "tfidf-words", "--part", "main"]
    command = [sys.executable, SCRIPTS / "accuracy.py", folder, *words, "--seeds", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "| trec6 | 24 | 1 | **100.0** |" in ended.stdout
    (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert json.loads(line)["accuracy"] == 1.0


# Numbers and the page


def test_differences_and_their_standard_errors():
    """By hand: means 82 and 79, variances 4 and 1, two seeds each."""
    ours, theirs = [82 - math.sqrt(2), 82 + math.sqrt(2)], [79 - math.sqrt(0.5), 79 + math.sqrt(0.5)]
    assert spread.difference(ours, theirs) == "+3.0 ± 1.6"  # the root of 4 / 2 + 1 / 2
    assert spread.difference(ours[:1], theirs) == "+1.6"
    assert spread.mean_and_spread(ours) == "82.0 ± 2.0"
    assert spread.mean_and_spread(ours[:1]) == "80.6"
    assert spread.mean_and_spread([]) == "not measured"
    assert spread.binomial_error(80.0, 100) == pytest.approx(math.sqrt(2 * 80 * 20 / 100))


def test_the_page_says_what_is_there(folder):
    """The best mean in bold, missing seeds, calibration, time, and differences over the seeds that both have."""
    found = {}
    for seed, (ours, peer, variant) in enumerate([(0.92, 0.90, 0.88), (0.94, 0.91, 0.89)]):
        for method, accuracy, more in (
            (DEFAULT, ours, {"ece": 0.02}),
            ("tfidf-words", peer, {"search_seconds": 9.0}),
            ("no pretraining", variant, {}),
        ):
            found[_training(method, seed=seed)] = _result(_training(method, seed=seed), accuracy, **more)
    found[_training("tfidf-chars")] = _result(_training("tfidf-chars"), 0.8, commit="old")
    text = document(_plan(folder), found, command="a command", picture="curves.png")
    assert (
        "| trec6 | 100 | 2 | **93.0 ± 1.4** | not measured | not measured | 90.5 ± 0.7 | 80.0 (1 of 2 seeds) |" in text
    )
    assert "| trec6 | 0.020 | - | 2.0 | - | - | 2.0 (9) | 2.0 |" in text
    assert "| no pretraining | -4.5 ± 1.1 |" in text
    assert "| no linear classifier | - |" in text
    assert "Commit new (6 trainings); old (1 trainings), on a processor, 1 thread(s) a training, with torch 1." in text
    assert "![Accuracy by the number of labelled texts](curves.png)" in text
    assert "{" not in text
