"""The scripts that measure: each describes itself and lays out its tables."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts" / "benchmarks"))

from shared.benchmark import Benchmark, cpu_name
from shared.data import Texts, overrides, splits, write
from shared.page import write_section
from shared.peers import search
from shared.readme_table import PARTS_OF_TABLE

ALL = "all"  # runs the others
SCRIPTS = sorted({path.stem for path in Path(sys.path[0]).glob("*.py")} - {ALL})
ROW = {
    "commit": "abc",
    "cpu": "a processor",
    "cores": 2,
    "threads": 1,
    "versions": "Python",
    "finished": "2026",
}
TRAINING = {"first_step": 1.5, "seconds": 3.0, "peak": 100 << 20, "own": 50 << 20, "speed": 2000.0}
# What each script measures of a case, and a line of the tables that are made of it.
FOUND = {
    "accuracy": (
        {"accuracy": 0.9, "num_test": 500, "seconds": 2.0},
        "| trec6 | 500 | 1 | **90.0** |",
    ),
    "anytime": (
        {"points": [[1.0, 0.8], [9.0, 0.9]], "seconds": 20.0},
        "| trec6 | 2.0 s | 80.0 |",
    ),
    "bulk": (
        {"speed": 9000, "peak": 2**28},
        "| encoder-cls, default, Parquet | 100,000 | 9,000 |",
    ),
    "cluster": (
        {"started": 2, "rows": 20, "ids": 20, "equal": True, "speed": 7},
        "| 2 | 20 | 20 | yes | 7 |",
    ),
    "cold": (
        {"seconds": 0.5, "peak": 2e6, "loaded": 0.001},
        "| encoder-cls, in Python | 0.500 | 2 | 1.00 |",
    ),
    "continued": (
        {"second": 0.9, "both": 0.9, "second_seconds": 2, "both_seconds": 8},
        "| sst2 | 90.0 | 90.0 | 2 | 8 | 0.25 | yes |",
    ),
    "distributed": (
        {"speed": 1000},
        "| one process | 1,000 (1.00) |",
    ),
    "drift": (
        {
            "false_alarms": 2,
            "kinds": {"in German": {"alarms": 20, "too_few": 0}},
            "error_of_half": 0.01,
            "held_out": 400,
            "expected": 0.9,
            "interval": [0.88, 0.92],
            "accuracy": 0.91,
            "is_guess": False,
            "verdict": "no drift",
            "verdict_alarms": [],
        },
        "| trec6 | 1.0 | 400 | 90.0 | 88.0 to 92.0 | 91.0 | no | no drift |",
    ),
    "encoder_gain": (
        {"linear": 0.8, "encoder": 0.7, "both": 0.81, "seconds": 9.0},
        "| trec6 | 2,000 | 80.0 | 70.0 | 81.0 | +1.00 | 1 of 1 | 9 |",
    ),
    "engines": (
        {"texts": 9, "different": 0, "largest": 1e-7, "size": 2e6},
        "| trec6 | 9 | 0 | 1.0e-07 | 2.0 |",
    ),
    "features": (
        {"accuracy": 0.9, "seconds": 9.0},
        "| all | noise |  | -0.00 ± 0.00 |  |",
    ),
    "few_labels": (
        {"accuracy": 0.9, "seconds": 30.0},
        "| trec6 | 50 | 90.0 | 90.0 | 90.0 | 90.0 | 30 |",
    ),
    "javascript": (
        {"speed": 2000.0},
        "| RUN | test | Node | 2,000 |",
    ),
    "many_classes": (
        {"accuracy": 0.7, "top_5": 0.8, "seconds": 20.0, "peak_bytes": 1e9},
        "| 800 | 20 | 70.0, 80.0 (20 s, 1.0 GB) | 70.0, 80.0 (20 s, 1.0 GB) |",
    ),
    "memory": (
        {"trainings": [TRAINING]},
        "| 100,000 | 1.5 | 3.0 | 100 | 50 | 2,000 |",
    ),
    "guarantees": (
        {
            "texts": 90,
            "given": [9] * 3,
            "broken": [0] * 3,
            "coverage": 0.9,
            "pairs": [["imdb", 0.9, 0.8, 0.5, 0.1]],
        },
        "| trec6 | imdb | 0.900 | 0.800 | 50% | 10.0% |",
    ),
    "levels": (
        {
            "draws": 9,
            "given": [9] * 3,
            "broken": [0] * 3,
            "answered": [0.9] * 3,
            "by_classes": [0.5] * 3,
        },
        "| right | 0 of 9 | 90% | 50% | 0 of 9 | 90% | 50% | 0 of 9 | 90% | 50% |",
    ),
    "none_label": (
        {"recall": 0.87, "auroc": 0.979, "accuracy": 0.875, "seconds": 20.0},
        "| five classes | yes | 87.0 | 0.979 | 87.5 | 20 |",
    ),
    "published": (
        {"accuracy": 0.979, "num_test": 2189, "seconds": 200.0},
        "| R8 | 2,189 | 1 | 97.9 | 97.3 | 97.1 | 97.8 |",
    ),
    "sib200": (
        {"accuracy": 0.75, "seconds": 41.0},
        "| median | 75.0 | 75.0 | 75.0 | 75.0 |",
    ),
    "size": (
        {"bytes": 2e6, "packages": 32},
        "| pip install encoder-cls-runtime | 2.0 | 32 |",
    ),
    "rare_words": (
        {"accuracy": 0.9, "tokens": 5000, "seconds": 9.0},
        "| all |  |  |  |  |  | +0.00 ± 0.00 | +0.00 ± 0.00 | +0.00 ± 0.00 |  |  |  |",
    ),
    "serve": (
        {"speed": 9, "p50": 1.0, "p99": 2.0},
        "| served, 8 clients | 9 | 1.0 | 2.0 |",
    ),
    "speed": (
        {"speed": 1234},
        "| encoder-cls, plain encoder, float32 | 1,234 |",
    ),
    "estimates": (
        {"estimate": 0.7, "accuracy": 0.72, "is_inside": True, "ece": 0.05},
        "| all | suggest | 72.0 | 70.0 |",
    ),
    "large_data": (
        {"accuracy": 0.9, "seconds": 20.0, "peak_bytes": 1e9, "unread": 500},
        "| 5,000 | 30s | 90.0 (20 s, 1.0 GB, 500 unread) |",
    ),
    "labelling": (
        {
            "50": 0.8,
            "100": 0.9,
            "50 like pool": 0.8,
            "100 like pool": 0.85,
            "shown": {"50": None, "100": {"accuracy": 0.87, "low": 0.8, "high": 0.95}},
        },
        "| trec6 | 100 | 90.0 | 90.0 | 90.0 | 90.0 | 1 of 1 | +2.0 | 15 |",
    ),
    "suggestions": (
        {"curve": [[labels, labels / 2000] for labels in range(100, 1050, 50)]},
        "| 15.0%: 300 (1.00) |",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_describes_itself_and_lays_out_its_tables(name, tmp_path, capsys):
    """A file of measured cases becomes tables in the script's section of a page."""
    benchmark = importlib.import_module(name).BENCHMARK
    found, line = FOUND[name]
    if name == "sib200":
        pyarrow.parquet.write_table(pyarrow.table({"language": ["eng", "fin"]}), "FILE")
    with pytest.raises(SystemExit, match="0"):
        benchmark.main(["--help"])
    assert f"scripts/benchmarks/{name}.py" in capsys.readouterr().out

    positional = re.findall(rf"scripts/benchmarks/{name}\.py ([A-Z]+)\b", benchmark.doc)
    cases = list(benchmark.cases(benchmark.parser().parse_args(positional)))
    results = tmp_path / "results.jsonl"
    page = tmp_path / "page.md"
    rows = [{**ROW, "case": {**case, "round": 0}, "found": found} for case in cases]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.write_text(f"before\n<!-- {name} -->\nearlier lines\n<!-- end -->\nafter\n")
    words = [*positional, "--rounds", "1", "--tables-only"]
    benchmark.main([*words, "--results", str(results), "--output", str(page)])

    text = page.read_text()
    assert line in text
    command = " ".join(["python", f"scripts/benchmarks/{name}.py", *positional, "--rounds 1"])
    assert f"{command} --output {page}" in text
    assert re.fullmatch(r"before\n(?s:.*)<!-- end -->\nafter\n", text)
    assert "earlier lines" not in text


def test_the_same_command_goes_on_with_what_is_missing(tmp_path, capsys):
    """A case that fails is measured again; lines of another processor are not in the table."""
    measured = []

    def measure(_arguments, case):
        measured.append((case["n"], case["round"]))
        if len(measured) == 2:
            raise RuntimeError("no luck")
        return {"n": case["n"]}

    def lines(rows):
        return [f"{row.case['n']} on {row.cpu}" for row in rows]

    benchmark = Benchmark(
        "test", "", lambda parser: None, lambda _: [{"n": 1}, {"n": 2}], measure, lines, rounds=1
    )
    other = {**ROW, "case": {"n": 1, "round": 0}, "found": {}}
    Path("test.jsonl").write_text(json.dumps(other) + '\n{"cut off')

    with pytest.raises(SystemExit, match="n 2, round 0: RuntimeError: no luck"):
        benchmark.main([])
    benchmark.main([])
    with pytest.raises(SystemExit, match="nothing is measured"):
        benchmark.main(["--tables-only", "--results", "none.jsonl"])

    assert measured == [(1, 0), (2, 0), (2, 0)]
    assert f"1 on {cpu_name()}\n2 on {cpu_name()}" in capsys.readouterr().out


def test_tables_of_complete_parts_are_written(tmp_path, monkeypatch, capsys):
    """The others stay as they are, and README's table is made once all of its parts are there."""
    run_all = importlib.import_module(ALL)
    monkeypatch.setattr(run_all, "ROOT", tmp_path)
    parts = [part for part in run_all.PARTS if part.name in {*PARTS_OF_TABLE, "cold"}]
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "docs").mkdir()
    sections = [f"<!-- {part.name} -->\nold {part.name}\n<!-- end -->\n" for part in parts]
    (tmp_path / "docs" / "results.md").write_text("".join(sections))
    readme = tmp_path / "README.md"
    readme.write_text("<!-- compared -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(sys, "argv", ["all", str(results), "--data", str(tmp_path), "--write-docs"])

    def add_rows(part):
        found, _ = FOUND[part.name]
        words = run_all.words_of(part, results, tmp_path)
        arguments = part.benchmark.parser().parse_args(words)
        cases = part.benchmark.cases_of_rounds(arguments)
        rows = [{**ROW, "case": case, "found": found} for case in cases]
        path = results / f"{part.name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for part in parts:
        if part.name not in {"bulk", "cold"}:
            add_rows(part)
    run_all.main()
    assert "old\n" in readme.read_text()
    assert "README's table stays: it needs bulk" in capsys.readouterr().err

    add_rows(next(part for part in parts if part.name == "bulk"))
    run_all.main()
    page = (tmp_path / "docs" / "results.md").read_text()
    assert re.findall("^old (.*)", page, re.MULTILINE) == ["cold"]
    assert "| trec6 | 500 | 3 | **90.0 ± 0.0** |" in page
    table = readme.read_text()
    assert "| accuracy, TREC-6 (4,906 texts) | **90.0** |" in table
    assert "| predictions a second, sentences, file to file, 2 cores | 9,000 |" in table
    assert "a processor, 2 cores" in table


def test_a_free_answer_names_its_first_class():
    class_named = importlib.import_module("sib200").class_named
    assert class_named("This is Science and technology, not travel.") == "science/technology"
    assert class_named("I'm sorry.") is None


def test_a_page_without_the_section_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no section between <!-- speed -->"):
        write_section(tmp_path / "page.md", "speed", ["a line"])


def test_other_systems_learn_from_the_splits_that_a_training_reads(tmp_path):
    """Without a validation file, a tenth of train validates, another one with each seed."""
    texts = Texts([], [])
    for number in range(40):
        texts.texts.extend([f"rain number {number}", f"soup number {number}"])
        texts.labels.extend(["a", "b"])
    (tmp_path / "trec6").mkdir()
    for split in ("train", "test"):
        write(tmp_path / "trec6" / f"{split}.parquet", texts)

    first = splits(tmp_path, "trec6", 0)
    assert [len(first[name].texts) for name in ("train", "validation", "test")] == [72, 8, 80]
    assert sorted(first["validation"].labels) == ["a"] * 4 + ["b"] * 4
    assert splits(tmp_path, "trec6", 1) != first
    assert {"data.validation=null", "data.split_seed=1"} < set(overrides(tmp_path, "trec6", 1))

    curve = search("tfidf-words", 0, 100.0, first)
    _, accuracy = curve.points[-1]
    assert accuracy == 1.0
    assert curve.num_test == 80
    assert curve.chosen == "logistic regression, C=1"
    assert search("tfidf-words", 0, 0.0, first).points == []


@pytest.mark.slow
def test_a_server_is_asked_by_several_clients(trained_run):
    serve = importlib.import_module("serve")
    with serve.server(trained_run.path) as port:
        asking = serve.prediction_times(port, ["rain and snow", "soup"], 0.2, clients=4)
        seconds, elapsed = asyncio.run(asking)
    assert len(seconds) >= 4
    assert 0 < min(seconds) <= max(seconds) <= elapsed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_by_little_with_each_text(tmp_path):
    """Neither texts nor tokens stay in memory; a few numbers of each text do."""
    memory = importlib.import_module("memory")
    settings = [
        f"data.train={tmp_path / 'train.csv'}",
        "data.validation=null",
        "data.test=null",
        *memory.TINY,
    ]

    def peak():
        return memory.watched(settings, tmp_path / "run", "--dry-run")["own"]

    # On a busy machine a peak may be 10 MB higher than the same work needs: try again if it is.
    memory.write_texts(tmp_path / "train.csv", 60_000, vocabulary=2000)
    few = min(peak(), peak())
    largest = few + 240_000 * 200
    memory.write_texts(tmp_path / "train.csv", 300_000, vocabulary=2000)
    assert any(peak() < largest for _ in range(3))


@pytest.mark.parametrize("script", ["speed", "bulk"])
def test_a_gpu_is_refused_where_there_is_none(monkeypatch, capsys, script):
    """Its tables can be made anywhere, and are in a section of their own."""
    benchmark = importlib.import_module(script).BENCHMARK
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit, match="--device cuda: this machine has no GPU"):
        benchmark.main(["FOLDER", "--device", "cuda", "--results", "none.jsonl"])
    with pytest.raises(SystemExit, match="nothing is measured"):
        benchmark.main(["FOLDER", "--device", "cuda", "--tables-only"])

    assert not Path("none.jsonl").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_speed_on_a_gpu_misses_its_target_where_the_trainer_is_not_far_behind(monkeypatch, capsys):
    """The medians of the rounds count, and measured cases of a CPU stay out of the table."""
    speed = importlib.import_module("speed")
    monkeypatch.setattr(speed, "installed", list)
    results = Path("speed.jsonl")
    found = {
        ("128/2", speed.OURS_DEFAULT): [600, 610, 100],
        ("128/2", speed.HF_BEST): [200, 200, 900],
        ("512/6", speed.OURS_DEFAULT): [190, 190, 190],
        ("512/6", speed.HF_BEST): [100, 100, 100],
    }
    rows = []
    for (size, system), speeds in found.items():
        for number, value in enumerate(speeds):
            case = {"data": "ag_news", "size": size, "system": f"{system}, bfloat16"}
            on_gpu = {**case, "device": "cuda", "round": number}
            rows.append({**ROW, "case": on_gpu, "found": {"speed": value, "gpu": "a card"}})
            rows.append({**ROW, "case": {**case, "round": number}, "found": {"speed": 1}})
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))

    with pytest.raises(SystemExit) as ended:
        speed.BENCHMARK.main(["FOLDER", "--device", "cuda", "--tables-only"])

    assert ended.value.code == "ag_news 512/6: 1.90 times the Trainer, not 2"
    table = capsys.readouterr().out
    assert "On one a card." in table
    assert f"| {speed.OURS_DEFAULT}, bfloat16 | 600 | 190 |" in table


def test_bulk_prediction_where_there_is_a_gpu_is_compared_by_the_device(capsys):
    bulk = importlib.import_module("bulk")
    results = Path("bulk.jsonl")
    rows = []
    for device, speed in {"cpu": 100, "cuda": 200, "auto": 199}.items():
        case = {"system": bulk.DEFAULT, "format": "csv", "texts": 100_000, "device": device}
        found = {"speed": speed, "peak": 1, "gpu": "a card"}
        rows.append({**ROW, "case": {**case, "round": 0}, "found": found})
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))

    bulk.BENCHMARK.main(["FOLDER", "--device", "cuda", "--tables-only"])

    table = capsys.readouterr().out
    assert "On one a card." in table
    assert "| --device cpu | --device cuda | --device auto |" in table
    assert f"| {bulk.DEFAULT}, 100,000 texts | 100 | 200 | 199 |" in table
