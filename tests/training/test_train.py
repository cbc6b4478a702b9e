"""Training: it learns and reports, stage by stage, and whatever only watches it changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from support.events import (
    EncoderStarted,
    Started,
    Stepped,
    Validated,
    Warned,
    recorded,
    train_until,
)
from support.small_runs import (
    COLOURS,
    CPU,
    FEW_LABELS,
    PRETRAINED,
    WITH_LINEAR,
    make_config,
    metric_rows,
    model_hash,
    result,
    run_all,
    stop_after,
    weights_hash,
)

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder import training as encoder_training
from encoder_cls.errors import ConfigError, DivergedError, StoppedError
from encoder_cls.run.checkpoint import load_newest
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import disk_arrays
from encoder_cls.training import encoder as training_encoder
from encoder_cls.training.prepare import prepare
from encoder_cls.weights import dense


def test_it_learns_and_reports(tmp_path):
    """A task that a word decides is learned; the events and the folder agree."""
    config = make_config(tmp_path, texts=300, epochs=6, monitor="accuracy")
    events = run_all(config, tmp_path / "run")
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, Stepped) for event in events) == events[0].total_steps == 6 * 30
    assert events[-1].report.metrics.accuracy == 1
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.epoch for event in validations] == list(range(1, 7))
    best = max(validations, key=lambda event: (event.scores["accuracy"], -event.scores["loss"]))
    assert events[-1].best_step == best.step
    assert load_classifier(tmp_path / "run").predict(["w3 blue w1"])[0].label == "blue"
    folder = tmp_path / "run"
    (event_file,) = RunDir(folder).event_files
    assert {path.name for path in folder.iterdir()} == {
        *(
            ".lock",
            "config.yaml",
            "sources.json",
            "model",
            "checkpoints",
            "metrics.jsonl",
            "eval",
        ),
        event_file.name,
    }
    assert not [
        path for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".pkl", ".bin"}
    ]
    assert RunDir(folder).load_config() == config


def test_without_a_report_the_model_is_the_same(tmp_path):
    """Weights and metrics, to the bit; nothing is written but what the model and a resume need, nothing guaranteed."""
    config = make_config(tmp_path, **WITH_LINEAR)
    run_all(config, tmp_path / "reported")
    events = run_all(config, tmp_path / "bare", with_report=False)
    of_model = len(model_hash(tmp_path / "bare"))
    assert (
        weights_hash(tmp_path / "bare")[:-of_model]
        == weights_hash(tmp_path / "reported")[:-of_model]
    )
    bare, reported = (
        load_classifier(tmp_path / name, engine="numpy") for name in ("bare", "reported")
    )
    for part in bare.parts:
        weights, expected = (dense(getattr(it, part).named_weights()) for it in (bare, reported))
        assert all((weights[name] == expected[name]).all() for name in expected)
    assert (bare.mixture, bare.guarantees) == (reported.mixture, None)
    assert reported.guarantees
    rows = [row for row in metric_rows(tmp_path / "reported") if row["split"] != "best_validation"]
    assert metric_rows(tmp_path / "bare") == rows
    assert events[-1].report is None
    assert {path.name for path in (tmp_path / "bare").iterdir()} == {
        *(".lock", "config.yaml", "sources.json", "model", "checkpoints", "metrics.jsonl"),
        "held_out_predictions.safetensors",
    }


def test_pretraining_comes_before_the_labels(tmp_path):
    """It is a stage of its own with validations of its own, and nothing but the model is kept."""
    config = make_config(tmp_path, texts=120, **WITH_LINEAR, pretrain={"epochs": 4}, epochs=8)
    run = RunDir(tmp_path / "run")
    *events, finished = recorded(prepare(config), run, device=CPU)
    started = [tuple(event) for event in events if isinstance(event, EncoderStarted)]
    scores = [(event.name, event.epoch) for event in events if isinstance(event, Validated)]
    assert started == [("pretraining", 0, 12 * 13), ("model", 4 * 13, 12 * 13)]
    epochs = {"pretraining": 4, "model": 8}
    assert scores == [
        ("model", 0),
        *((name, epoch) for name, many in epochs.items() for epoch in range(1, many + 1)),
    ]
    assert finished.report.metrics.accuracy == 1
    assert not run.pretrained.exists()
    assert load_classifier(run.path).predict(["w3 blue w1"])[0].label == "blue"
    rows = metric_rows(run.path)
    assert list(dict.fromkeys(row["split"] for row in rows)) == [
        "data", "validation", "pretraining/train", "pretraining/validation", "train", "best_validation"
    ]  # fmt: skip
    assert [row["step"] for row in rows if row["split"] == "validation"] == [
        0,
        *(13 * n for n in range(5, 13)),
    ]
    losses = [row["loss"] for row in rows if row["split"] == "pretraining/validation"]
    assert losses[-1] < losses[0]


def test_where_the_data_is_kept_changes_nothing(tmp_path, monkeypatch):
    """Texts, sources and tokens from memory, and all of them from files: the same weights, numbers and report."""
    config = make_config(tmp_path, **PRETRAINED)
    run_all(config, tmp_path / "memory")
    monkeypatch.setattr(disk_arrays, "MOST_IN_MEMORY", 1)
    run_all(config, tmp_path / "files")
    one, other = (tmp_path / name for name in ("memory", "files"))
    assert weights_hash(one) == weights_hash(other)
    assert metric_rows(one) == metric_rows(other)
    for name in ("report.json", "predictions.jsonl"):
        assert (one / "eval" / name).read_bytes() == (other / "eval" / name).read_bytes()


def test_the_seed_decides_and_watching_changes_nothing(tmp_path):
    """Other intervals for logs and checkpoints give the same weights, another seed others."""
    watched = {"log_every": 5, "checkpoint_every": 1, "keep_checkpoints": 1}
    hashes = []
    for name, values in (("a", {}), ("b", watched), ("c", {"seed": 2})):
        run_all(make_config(tmp_path, **values), tmp_path / name)
        hashes.append(model_hash(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_model_starts_from_what_was_best_in_pretraining(tmp_path, monkeypatch):
    """Which may not be its last weights; in pretraining there is no linear model yet."""
    losses = iter([0.5, 0.4, 0.6])
    monkeypatch.setattr(training_encoder, "summed_loss", lambda *_, **__: (next(losses), 1.0))
    run = RunDir(tmp_path / "run")
    best = []

    def is_training_on_labels(event) -> bool:
        if isinstance(event, Validated) and event.name == "pretraining" and event.is_best:
            best.append(load_classifier(run.pretrained))
        return isinstance(event, EncoderStarted) and event.name == "model"

    setup = prepare(make_config(tmp_path, linear=True, pretrain={"epochs": 3}))
    train_until(is_training_on_labels, setup, run, device=CPU)
    first = load_newest(run.checkpoints)[0].weights
    for classifier, is_first in zip(best, (False, True), strict=True):
        assert classifier.linear is None
        assert (
            all(
                torch.equal(first[name], it)
                for name, it in classifier.encoder.torch().model.state_dict().items()
            )
            == is_first
        )


def test_unlabelled_texts_are_learnt_from(tmp_path):
    """Their words are known, pretraining reads them, the model their pseudo-labels; others are refused."""
    more = tmp_path / "more.txt"
    more.write_text("".join(f"w{i} violet {COLOURS[i % 3]}\n" for i in range(24)))
    config = make_config(
        tmp_path, **FEW_LABELS, pretrain={"epochs": 1}, data={"unlabelled": str(more)}
    )
    setup = prepare(config)
    assert setup.tokenizer.token_to_id("violet")
    plan = setup.plan
    assert plan.pretraining.steps_per_epoch == plan.training.steps_per_epoch == 9
    assert (setup.where(47).rpartition("/")[2], setup.where(48)) == ("train.csv:61", f"{more}:1")
    run_all(config, tmp_path / "straight")
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "stopped", stop_signal=stop_after(5))
    run_all(config, tmp_path / "stopped", resume=True)
    assert result(tmp_path / "stopped") == result(tmp_path / "straight")
    (tmp_path / "straight" / "model" / "README.md").unlink()
    more.write_text("other words\n")
    with pytest.raises(ConfigError, match="unlabelled texts have changed"):
        run_all(config, tmp_path / "straight", resume=True)


def test_divergence_stops_before_the_update(tmp_path, monkeypatch):
    """A loss that is no number ends the run with its step and examples; the last checkpoint stays good."""
    config = make_config(tmp_path)
    real = encoder_training.functional.cross_entropy
    calls = []

    def poisoned(*args, **kwargs):
        calls.append(1)
        return real(*args, **kwargs) * (math.nan if len(calls) == 9 else 1)

    monkeypatch.setattr(encoder_training.functional, "cross_entropy", poisoned)
    with pytest.raises(DivergedError, match=r"step 9: loss nan.*train\.csv:\d+") as diverged:
        run_all(config, tmp_path / "run")
    assert diverged.value.exit_code == 4
    monkeypatch.undo()
    run_all(config, tmp_path / "run", resume=True)
    assert RunDir(tmp_path / "run").is_finished()


def test_a_folder_is_never_overwritten(tmp_path):
    """A run, another config's run, foreign files and a plain file are refused; a finished run stays as it is."""
    config, run = make_config(tmp_path, epochs=1), tmp_path / "run"
    run_all(config, run)
    with pytest.raises(ConfigError, match="--resume"):
        run_all(config, run)
    with pytest.raises(ConfigError, match=r"another train\.epochs"):
        run_all(make_config(tmp_path, epochs=2), run, resume=True)
    assert run_all(config, run, resume=True) == []
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="other files"):
        run_all(config, tmp_path / "foreign", resume=True)
    with pytest.raises(ConfigError, match="is a file"):
        run_all(config, tmp_path / "foreign" / "thesis.txt")


def test_mixed_precision_trains(tmp_path):
    run_all(make_config(tmp_path, texts=300, precision="bfloat16", epochs=6), tmp_path / "run")
    classifier = load_classifier(tmp_path / "run")
    assert {tensor.dtype for tensor in classifier.encoder.torch().model.state_dict().values()} == {
        torch.float32
    }
    assert classifier.predict(["red end", "w1 green", "blue"])[1].label == "green"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains(tmp_path):
    """The same loop learns the same task on a GPU; going on there warns that bits may differ."""
    config = make_config(tmp_path, texts=300, epochs=6)
    run, device = RunDir(tmp_path / "run"), torch.device("cuda")
    events = recorded(prepare(config), run, device=device)
    assert events[-1].report.metrics.accuracy > 0.9
    run.model_card.unlink()
    events = recorded(prepare(config), run, device=device, resume=True)
    assert any(isinstance(event, Warned) and "on a GPU" in event.message for event in events)
    assert events[-1].report.metrics.accuracy > 0.9
