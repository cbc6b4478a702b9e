"""The benchmark of speed: that systems do the same work, that it is counted rightly, and what is kept and said."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from encoder_cls.inference.serialization import load_classifier, save_classifier
from encoder_cls.inference.torch_engine import torch_encoder
from encoder_cls.text.char_ngrams import flat_indices
from encoder_cls.text.ngram_features import CHAR_NGRAM_IDS
from encoder_cls.text.token_arrays import PAD_ID
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.training.sampler import BatchSampler

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "benchmarks"))

import speed as bench
from speed_benchmark import breakdown, growth, prediction, starting, systems, training
from speed_benchmark.hugging_face import rows
from speed_benchmark.plan import Plan
from speed_benchmark.sizes import Size
from speed_benchmark.texts import BATCH_SIZE, KINDS, load_corpus, made_up, write_csv
from speed_benchmark.timing import Measured, best_product, in_turns, peak_bytes, rates, repetitions

SIZE = Size(32, 1)
PLAN = Plan(
    folder=None, sizes=[SIZE], kinds=[KINDS["sst2"]], precisions=("float32",), rounds=2, seconds=0.0, quick=True
)


@pytest.fixture(scope="module")
def corpus():
    """One batch of texts."""
    return PLAN.sample(KINDS["sst2"], SIZE)


def _entry(name: str, precision: str = "float32") -> systems.Entry:
    return next(e for e in systems.entries((precision,)) if (e.name, e.precision) == (name, precision))


def _linear_weights(model: nn.Module, part: str) -> int:
    """Numbers in the matrices of the layers."""
    return sum(p.numel() for name, p in model.named_parameters() if part in name and p.dim() == 2)


# Texts


def test_a_sample_of_batches_gives_batches_of_the_whole():
    """Every batch of the sample is one of all texts: as full, and as little padded."""
    whole = load_corpus(None, KINDS["ag_news"], most_texts=2000)
    sample = whole.batches(3)

    def batches(corpus):
        schedule = BatchSampler(corpus.texts.lengths, batch_size=BATCH_SIZE, batch_tokens=8192, seed=0)
        texts = corpus.dataset.train.texts
        return {frozenset(texts[i] for i in schedule.indices(n)) for n in range(schedule.batches_per_epoch)}

    assert len(batches(sample)) == 3
    assert batches(sample) <= batches(whole)
    assert sample.mean_length == pytest.approx(whole.mean_length, rel=0.1)


def test_any_first_texts_have_nearly_the_mean_length():
    """So a system that has time for few texts predicts texts like all of them, each once."""
    corpus = load_corpus(None, KINDS["imdb"], most_texts=200)
    lengths = dict(zip(corpus.dataset.train.texts, corpus.texts.lengths, strict=True))
    for number in (16, 50):
        chosen = corpus.spread_out(number)
        assert len(set(chosen)) == number
        assert np.mean([lengths[text] for text in chosen]) == pytest.approx(corpus.mean_length, rel=0.1)


def test_made_up_texts_are_the_same_each_time_and_as_asked():
    """Lengths are those of the kind, each class occurs, and there are as many words as wanted."""
    kind = KINDS["ag_news"]
    first, second = (made_up(kind, number=300, vocabulary=50) for _ in range(2))
    assert first.train.fingerprint == second.train.fingerprint
    lengths = [len(text.split()) for text in first.train.texts]
    assert np.median(lengths) == pytest.approx(kind.words, rel=0.1)
    assert set(first.train.labels) == set(range(kind.classes))
    assert len({word for text in first.train.texts for word in text.split()}) == 50


def test_texts_come_from_a_folder(tmp_path):
    """The parquet file of the kind, all of it where it is small."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "sst2").mkdir()
    texts, labels = [f"text number {i}" for i in range(40)], ["a", "b"] * 20
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "sst2" / "train.parquet")
    corpus = load_corpus(tmp_path, KINDS["sst2"], most_texts=100)
    assert corpus.dataset.label_names == ("a", "b")
    assert {*corpus.dataset.train.texts, *corpus.dataset.validation.texts} == set(texts)


# Timing


def test_systems_take_turns_after_warming_up():
    """Each is called once unmeasured, then once in each round, of which another begins each."""
    calls = []

    def system(name):
        def run():
            calls.append(name)
            return Measured(1.0, float(len(calls)))

        return run

    measured = in_turns({name: system(name) for name in "abc"}, rounds=2)
    assert "".join(calls) == "abc" + "abc" + "bca"
    assert [m.amount for m in measured["a"]] == [4.0, 9.0]


def test_rates_are_medians_of_rounds():
    """By hand, also of what was read from JSON."""
    assert rates([Measured(2.0, 10.0), Measured(1.0, 1.0), [1.0, 7.0]]) == (5.0, 1.0, 7.0)


def test_repetitions_fill_the_budget():
    """At least one, at most what there is."""
    assert [repetitions(s, most=5, budget=2.0) for s in (9.0, 0.7, 0.1)] == [1, 3, 5]


def test_the_ceiling_counts_two_operations_a_product():
    """Of an m x k by k x n product: 2 m k n."""
    measured = best_product("bfloat16", [(2, 3, 5)], seconds=0.0)
    assert measured.amount % (2 * 2 * 3 * 5) == 0 < measured.amount


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak in /proc")
def test_the_peak_of_memory_is_this_process_s():
    """It rises with what is touched beyond what was resident ever before."""
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    before, more = peak_bytes(), 100_000_000
    touched = np.ones(before - resident + more, dtype=np.int8)
    assert peak_bytes() - before == pytest.approx(more, rel=0.4)
    assert touched.nbytes >= more


# Training


def test_flops_of_a_token():
    """PaLM's appendix B by hand: d = 32, one layer, texts all of 10 tokens."""
    corpus = SimpleNamespace(texts=SimpleNamespace(lengths=np.array([10, 10])))
    assert training.flops_per_token(corpus, SIZE) == 6 * (12 * 32 * 32) + 12 * 32 * 10


def test_an_epoch_of_ours_learns_each_text_once(corpus):
    """Real tokens, never padding; time passes, and the last call leaves nothing open."""
    with systems.running(_entry(systems.OURS), corpus, SIZE, 0.0) as ours:
        for _ in range(2):
            measured = ours()
            assert measured.amount == corpus.texts.lengths.sum()
            assert measured.seconds > 0
        assert ours.setup.vocab_size == corpus.tokenizer.get_vocab_size()
        assert ours.setup.config.model.bigram_buckets == ours.setup.config.model.char_ngram_buckets == 0
    with systems.running(_entry(systems.OURS_TABLES), corpus, SIZE, 0.0) as ours:
        assert ours.setup.config.model.bigram_buckets > 0
        assert ours.setup.config.model.char_ngram_buckets > 0


def test_the_tutorial_counts_no_padding(corpus):
    """One step of a batch that holds all texts."""
    with systems.running(_entry(systems.TUTORIAL), corpus, SIZE, 0.0) as tutorial:
        tutorial()
        assert tutorial().amount == corpus.texts.lengths.sum()


@pytest.mark.parametrize("name", [systems.HF_DEFAULT, systems.HF_BEST])
def test_the_trainer_learns_the_same_tokens(corpus, name):
    """Through its own `train`; the steps that warm up do not count."""
    for library in ("transformers", "accelerate"):
        pytest.importorskip(library, reason="pip install -e '.[bench]'")
    with systems.running(_entry(name), corpus, SIZE, 0.0) as trainer:
        trainer()
        weights = [p.clone() for p in trainer._model.parameters()]
        measured = trainer()
        assert measured.amount == corpus.texts.lengths.sum()
        assert measured.seconds > 0
        assert any((p != before).any() for p, before in zip(trainer._model.parameters(), weights, strict=True))


def test_all_models_have_one_size(corpus):
    """The same numbers in the matrices of their layers, the same vocabulary and classes."""
    pytest.importorskip("transformers", reason="pip install -e '.[bench]'")
    from speed_benchmark.hugging_face import bert

    ours = torch_encoder(prediction.new_classifier(corpus, SIZE, tables=False)).model
    tutorial = systems.Tutorial(corpus, SIZE, 0.0)._model
    theirs = bert(corpus, SIZE)
    expected = 12 * SIZE.d_model**2 * SIZE.num_layers
    assert _linear_weights(ours, "layers") == expected
    assert _linear_weights(tutorial, "encoder.layers") == expected
    assert _linear_weights(theirs, "encoder.layer") == expected
    vocabularies = {ours.encoder.embedding.tokens.weight.shape, tutorial.tokens.weight.shape}
    assert vocabularies == {theirs.bert.embeddings.word_embeddings.weight.shape}


def test_hugging_face_reads_the_same_ids(corpus):
    """Its wrapped tokenizer cuts and marks texts as ours does, unknown words too."""
    pytest.importorskip("transformers", reason="pip install -e '.[bench]'")
    from speed_benchmark.hugging_face import wrapped_tokenizer

    text = " ".join([*corpus.dataset.train.texts[:12], "Unknown-word"])
    ours = tokenize(corpus.tokenizer, [text, "Ünknown a"], max_seq_len=corpus.kind.max_seq_len)
    theirs = wrapped_tokenizer(corpus)([text, "Ünknown a"], truncation=True)["input_ids"]
    read = flat_indices(ours.offsets[:-1], ours.lengths)
    assert [ids for row in theirs for ids in row] == ours.input_ids(read).tolist()


@pytest.mark.parametrize("pad_to", [None, 9])
def test_hugging_face_learns_from_what_an_encoder_reads(corpus, pad_to):
    """Its rows are cut and padded: what ours keeps beyond, for the linear classifier, is not in them."""
    few = replace(corpus, kind=replace(corpus.kind, max_seq_len=5))
    found = rows(few, np.array([3, 0]), pad_to=pad_to)
    for number, index in enumerate([3, 0]):
        read = corpus.tokenizer.encode(corpus.dataset.train.texts[index]).ids[:5]
        padding = 0 if pad_to is None else pad_to - len(read)
        assert found["input_ids"][number] == read + [PAD_ID] * padding
        assert found["attention_mask"][number] == [1] * len(read) + [0] * padding
    assert found["label"][:] == corpus.dataset.train.labels[[3, 0]].tolist()


def test_the_training_part_from_measuring_to_tables(monkeypatch):
    """With encoder-cls and the tutorial; every row has numbers, ratios are of the plain encoder to the others."""
    monkeypatch.setattr(Plan, "has_transformers", False)
    result = json.loads(json.dumps(training.measure(PLAN, SIZE, KINDS["sst2"])))
    names = {"encoder-cls, plain encoder", "encoder-cls, default tables", "nn.TransformerEncoder loop", "ceiling"}
    assert {name.split("|")[0] for name in result["rounds"]} == names
    assert all(len(rounds) == PLAN.rounds for rounds in result["rounds"].values())
    result["rounds"] = {
        "encoder-cls, plain encoder|float32": [[1.0, 3000.0], [1.0, 5000.0]],
        "nn.TransformerEncoder loop|float32": [[2.0, 800.0]],
        "ceiling|float32": [[1.0, 4e9]],
    }
    result["flops_per_token"] = 1e5
    text = "\n".join(training.section(PLAN, {(SIZE, KINDS["sst2"]): result}))
    assert "| sst2 | 32/1 | nn.TransformerEncoder loop | float32 | 400 (400 to 400) | 10.0 |" in text
    assert "| sst2 | 32/1 | encoder-cls, plain encoder | float32 | 0.004 | 0.10 | 40,000 | 4,000 | 0.10 |" in text


# Prediction


def test_the_prediction_part_asks_each_text_of_everybody(monkeypatch):
    """As many answers as texts, from whoever is installed."""
    monkeypatch.setattr(Plan, "has_transformers", False)
    monkeypatch.setattr(Plan, "has_fasttext", False)
    result = prediction.measure(PLAN, SIZE, KINDS["sst2"])
    names = {systems.OURS, systems.OURS_TABLES, systems.OURS_WHOLE, "TF-IDF, linear SVM"}
    assert set(result["rounds"]) == names
    text = "\n".join(prediction.section(PLAN, {(SIZE, KINDS["sst2"]): result}))
    assert text.count("| sst2 | 32/1 |") == 4


@pytest.mark.parametrize(("seconds_each", "expected"), [(0.001, 1000), (0.01, 64), (1.0, 16)])
def test_a_turn_of_prediction_takes_half_of_the_time_at_least(monkeypatch, seconds_each, expected):
    """Or all texts; the texts that were asked for are those that are counted."""
    now, texts = [0.0], ["text"] * 1000

    def predict(some):
        now[0] += seconds_each * len(some)

    monkeypatch.setattr(prediction, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    turn = prediction._Turn(predict, texts, 1.2)
    for _ in range(2):
        assert turn() == (pytest.approx(expected * seconds_each), expected)


def test_the_whole_classifier_has_what_a_default_training_leaves(corpus, tmp_path):
    """Tables, and a linear model that knows character n-grams, too; it can be saved and asked."""
    save_classifier(prediction.new_classifier(corpus, SIZE, tables=True, linear=True), tmp_path)
    found = load_classifier(tmp_path, device="cpu")
    assert found.encoder.architecture.bigram_buckets > 0
    assert found.linear.feature_ids[-1] >= CHAR_NGRAM_IDS
    assert len(found.predict(corpus.dataset.train.texts[:3])) == 3


def test_pipelines_answer(corpus):
    """One by one and in batches."""
    pytest.importorskip("transformers", reason="pip install -e '.[bench]'")
    for answer in prediction._pipelines(corpus, SIZE).values():
        answer(corpus.dataset.train.texts[:3])


def testfasttext_answers(corpus, tmp_path):
    """It learns from a file, and answers each text."""
    pytest.importorskip("fasttext", reason="pip install -e '.[bench]'")
    prediction._fasttext(corpus, tmp_path / "train.txt")(corpus.dataset.train.texts[:3])


# Start and memory

STAND_IN = """\
import json, sys, time
from pathlib import Path
run = Path(sys.argv[sys.argv.index("--run-dir") + 1])
run.mkdir()
for line in ("reading x", "data: 3 texts", "training in y"):
    print(line, file=sys.stderr, flush=True)
with (run / "metrics.jsonl").open("w") as file:
    for step in (0, 1):
        print(json.dumps({"step": step, "split": "train", "time": time.time()}), file=file, flush=True)
        time.sleep(0.05)
time.sleep(60)
"""


def test_the_first_step_is_timed_and_the_training_stopped(tmp_path, monkeypatch):
    """Phases add up; the row of step 0, which is of facts, is no step."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(starting, "COMMAND", [sys.executable, str(tmp_path / "stand_in.py")])
    found = starting.first_step([])
    assert found["in all"] == pytest.approx(sum(found[phase] for phase in starting.PHASES), abs=0.01)
    assert 0.04 < found["first step"] < 10
    assert found["peak"] > 1_000_000


def test_a_training_that_fails_says_why(tmp_path, monkeypatch):
    """The last line of the command is the message."""
    (tmp_path / "stand_in.py").write_text("import sys; sys.exit('error: no such file')")
    monkeypatch.setattr(starting, "COMMAND", [sys.executable, str(tmp_path / "stand_in.py")])
    with pytest.raises(RuntimeError, match="error: no such file"):
        starting.first_step([])


def test_the_lines_that_mark_phases_are_those_of_the_command(trained_run, cli, tmp_path):
    """`encoder-cls train` writes them, in this order."""
    options = ["--set", "train.epochs=1", "--run-dir", tmp_path / "run"]
    lines = cli("train", "--config", trained_run.path.parent / "tiny.yaml", *options).err.splitlines()
    first = [next(i for i, line in enumerate(lines) if line.startswith(start)) for start in starting.LINES]
    assert first == sorted(first)


# Where time goes


def test_sections_cover_the_step_and_leave_no_hooks(corpus, tmp_path):
    """Each section took time, together all of it, and hooks are gone afterwards."""
    ours = systems.Ours(systems.prepared(corpus, systems.LABELS_ALONE, tmp_path), tmp_path)
    ours()
    spent = breakdown.sections(ours, epochs=1)
    operations = breakdown.operations(ours)
    ours.close()
    assert set(spent) == set(breakdown.SECTIONS)
    assert min(spent.values()) > 0
    assert operations["matrix products"] > 0
    assert operations["optimizers"] > 0
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks


def test_operations_are_told_apart():
    """By name, but within an optimizer's step they are the optimizer's."""

    def event(name, parent=None):
        return SimpleNamespace(name=name, cpu_parent=parent)

    step = event(breakdown.UPDATE)
    assert breakdown._group(event("aten::addmm")) == "matrix products"
    assert breakdown._group(event("aten::_softmax_backward_data")) == "softmax"
    assert breakdown._group(event("aten::mul", event("aten::x", step))) == "optimizers"
    assert breakdown._group(event("aten::nonzero_like_nothing", None)) != "optimizers"


# Growth


def test_growth_is_an_exponent():
    """Twice the size, four times the time: 2; none between equal sizes."""
    assert growth.exponent({"step": 1.0}, {"step": 4.0}, 10, 10, "step") == "-"
    assert growth.exponent({"step": 1.0}, {"step": 4.0}, 10, 20, "step") == "2.00"


def test_one_thing_grows_at_a_time():
    """Number, length, words, classes."""
    assert len(growth.grown("texts", 90, texts=50).train) == 90
    assert {len(text.split()) for text in growth.grown("tokens a text", 9, texts=50).train.texts} == {8}
    words = {word for text in growth.grown("words", 30, texts=200).train.texts for word in text.split()}
    assert len(words) == 30
    assert len(growth.grown("classes", 7, texts=50).label_names) == 7


def test_a_point_of_growth_and_the_picture(tmp_path):
    """Measured in this process; all panels are drawn."""
    path = tmp_path / "train.csv"
    dataset = growth.grown("texts", 80, texts=0)
    write_csv(path, dataset.train, dataset.label_names)
    found = growth.point(path, "texts")
    assert found["epoch"] >= found["step"] > 0
    results = {(axis, value): found for axis, values in growth.QUICK.items() for value in values[-1:]}
    growth.picture(results, tmp_path / "cost.png")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    text = "\n".join(growth.section(PLAN, results))
    assert "| classes | 4 |" in text
    assert f"| words | {found['vocabulary']:,} |" in text


# The command


@pytest.fixture
def part(monkeypatch):
    """One part with two cells, of which the second fails at first."""
    asked = []

    def measure(plan, number):
        asked.append(number)
        if number == 2 and asked.count(2) == 1:
            raise RuntimeError("no memory")
        return {"n": number}

    found = bench.Part(lambda plan: [(1,), (2,)], measure, lambda plan, results: [f"cells {sorted(results)}"])
    monkeypatch.setattr(bench, "PARTS", {"train": found})
    return asked


def test_results_are_kept_failures_are_told_and_tried_again(part, tmp_path, monkeypatch, capsys):
    """The second run measures only what failed, the third nothing; the page names no path of this machine."""
    words = ["speed.py", "--quick", f"--cache={tmp_path / 'cache'}", "--output", str(tmp_path / "speed.md")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="1 failed"):
        bench.main()
    assert "train-2: FAILED: RuntimeError: no memory" in capsys.readouterr().err
    bench.main()
    bench.main()
    assert part == [1, 2, 2]
    text = (tmp_path / "speed.md").read_text()
    assert "cells [(1,), (2,)]" in text
    assert "python scripts/benchmarks/speed.py --cache CACHE --quick --output docs/speed.md" in text
    assert str(tmp_path) not in text


def test_what_a_result_depends_on_is_in_its_key(monkeypatch):
    """Other rounds, another machine, another torch: measured anew."""
    keys = [bench.key(PLAN, "train", (SIZE,)), bench.key(Plan(folder=None), "train", (SIZE,))]
    monkeypatch.setattr(bench, "machine", lambda: "another")
    keys.append(bench.key(PLAN, "train", (SIZE,)))
    monkeypatch.setattr(bench, "versions", lambda: {"torch": "0"})
    keys.append(bench.key(PLAN, "train", (SIZE,)))
    assert len({json.dumps(key) for key in keys}) == 4


def test_all_parts_by_default_and_missing_data_is_told(tmp_path, capsys):
    """A folder without the texts that are asked for is refused before anything is measured."""
    assert bench.parse(["--cache", "c"]).part == list(bench.PARTS)
    assert bench.parse(["--cache", "c", "--part", "start"]).part == ["start"]
    with pytest.raises(SystemExit):
        bench.parse([str(tmp_path), "--cache", "c"])
    assert "train.parquet is missing" in capsys.readouterr().err


def test_the_page_says_what_the_processor_can_do():
    """So that figures of bfloat16 can be judged."""
    assert torch.backends.cpu.get_cpu_capability() in bench.abilities()
