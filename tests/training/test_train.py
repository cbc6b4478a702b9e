"""Training a run: what it learns, what it writes, and what does not change its result."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support.events import (
    EncoderStarted,
    Event,
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
from torch.nn import functional

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError, DivergedError, StoppedError
from encoder_cls.run.checkpoint_files import load_newest, newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import disk_arrays
from encoder_cls.system.stop import stopping_at
from encoder_cls.training import pretraining_task
from encoder_cls.training.prepare import prepare
from encoder_cls.weights import dense

# The names of the files that every run in training has.
FILES_OF_TRAINING = {
    ".lock",
    "config.yaml",
    "sources.json",
    "model",
    "checkpoints",
    "metrics.jsonl",
}


def names_in(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


def predicted_label(folder: Path, text: str) -> str:
    """Return the label that the classifier of a run predicts for a text."""
    (prediction,) = load_classifier(folder).predict([text])
    return prediction.label


def test_it_learns_and_reports(tmp_path):
    """A run learns to classify by single words, and its events agree with its report."""
    config = make_config(tmp_path, texts=150, epochs=6, monitor="accuracy")
    started, *events, finished = run_all(config, tmp_path / "run")

    steps = [event for event in events if isinstance(event, Stepped)]
    assert isinstance(started, Started)
    assert len(steps) == started.total_steps == 6 * 15

    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.epoch for event in validations] == [1, 2, 3, 4, 5, 6]
    best = max(validations, key=lambda event: (event.scores["accuracy"], -event.scores["loss"]))
    assert finished.best_step == best.step

    assert finished.report.metrics.accuracy == 1
    assert predicted_label(tmp_path / "run", "w3 blue w1") == "blue"


def test_the_folder_of_a_run_has_its_files_and_no_pickle(tmp_path):
    config = make_config(tmp_path, epochs=1)
    run = RunDir(tmp_path / "run")
    run_all(config, run.path)

    (event_file,) = run.event_files
    assert names_in(run.path) == FILES_OF_TRAINING | {
        "eval",
        "reference.safetensors",
        event_file.name,
    }

    endings = {path.suffix for path in run.path.rglob("*")}
    assert not endings & {".pt", ".pth", ".pkl", ".bin"}
    assert run.load_config() == config


def test_a_finished_run_keeps_no_weights_and_moments_to_resume_from(tmp_path):
    """Only the state of its last checkpoint stays, with hashes of its data."""
    config = make_config(tmp_path, epochs=2, checkpoint_every=3)
    run = RunDir(tmp_path / "run")
    run_all(config, run.path)

    (newest,) = run.checkpoints.iterdir()
    assert names_in(newest) == {"state.json", "manifest.json"}
    assert newest_fingerprint(run.checkpoints)["classes"] == sorted(COLOURS)


def weights_of_parts(classifier: Classifier) -> dict[str, object]:
    """Return the weights of the encoder and the linear model of a classifier, by part and name."""
    weights = {}
    for part in classifier.parts:
        named_weights = dense(getattr(classifier, part).named_weights())
        for name, weight in named_weights.items():
            weights[f"{part}.{name}"] = weight
    return weights


def test_without_a_report_the_model_is_the_same(tmp_path):
    """Weights and metrics are equal to the last bit; only guarantees and report are missing."""
    config = make_config(tmp_path, **WITH_LINEAR, epochs=1)
    run_all(config, tmp_path / "reported")
    *_, finished = run_all(config, tmp_path / "bare", with_report=False, with_tensorboard=False)
    reported = load_classifier(tmp_path / "reported", engine="numpy")
    bare = load_classifier(tmp_path / "bare", engine="numpy")

    # Leave out the last hash, which is that of the model folder, with the guarantees.
    *checkpoint_hashes, _ = weights_hash(tmp_path / "bare").split()
    *expected_hashes, _ = weights_hash(tmp_path / "reported").split()
    assert checkpoint_hashes == expected_hashes

    weights = weights_of_parts(bare)
    expected_weights = weights_of_parts(reported)
    assert weights.keys() == expected_weights.keys()
    for name, weight in weights.items():
        assert (weight == expected_weights[name]).all(), name

    assert bare.mixture == reported.mixture
    assert bare.guarantees is None
    assert reported.guarantees

    rows = metric_rows(tmp_path / "reported")
    rows_before_report = [row for row in rows if row["split"] != "best_validation"]
    assert metric_rows(tmp_path / "bare") == rows_before_report
    assert finished.report is None
    files = FILES_OF_TRAINING | {"held_out_predictions.safetensors"}
    assert names_in(tmp_path / "bare") == files


@pytest.fixture(scope="module")
def pretrained_run(tmp_path_factory) -> tuple[RunDir, list[Event]]:
    """A finished run with pretraining, and its events."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = make_config(folder, texts=120, **WITH_LINEAR, pretrain={"epochs": 4}, epochs=8)
    run = RunDir(folder / "run")
    return run, recorded(prepare(config), run, device=CPU, with_tensorboard=False)


def test_pretraining_comes_before_the_labels(pretrained_run):
    """Pretraining has its own validations, and its weights are removed in the end."""
    run, (*events, finished) = pretrained_run

    # An epoch takes 13 steps.
    started = [event for event in events if isinstance(event, EncoderStarted)]
    steps = [(event.name, event.step, event.total_steps) for event in started]
    assert steps == [("pretraining", 0, 12 * 13), ("model", 4 * 13, 12 * 13)]

    # The linear model is validated before both trainings of the encoder.
    validated = [(event.name, event.epoch) for event in events if isinstance(event, Validated)]
    in_pretraining = [("pretraining", epoch) for epoch in range(1, 5)]
    on_labels = [("model", epoch) for epoch in range(1, 9)]
    assert validated == [("model", 0), *in_pretraining, *on_labels]

    assert finished.report.metrics.accuracy == 1
    assert not run.pretrained.exists()
    assert predicted_label(run.path, "w3 blue w1") == "blue"


def test_the_metrics_of_pretraining_have_splits_of_their_own(pretrained_run):
    run, _ = pretrained_run
    rows = metric_rows(run.path)

    splits = []
    for row in rows:
        if row["split"] not in splits:
            splits.append(row["split"])
    assert splits == [
        "data",
        "validation",
        "pretraining/train",
        "pretraining/validation",
        "train",
        "best_validation",
    ]

    steps = [row["step"] for row in rows if row["split"] == "validation"]
    assert steps == [0, *range(5 * 13, 13 * 13, 13)]

    losses = [row["loss"] for row in rows if row["split"] == "pretraining/validation"]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_data_on_disk_gives_the_same_result_as_in_memory(tmp_path, monkeypatch):
    """Texts and tokens on disk give the same weights, metrics and report as in memory."""
    config = make_config(tmp_path, **PRETRAINED, epochs=1)
    in_memory = tmp_path / "memory"
    in_files = tmp_path / "files"

    run_all(config, in_memory)
    monkeypatch.setattr(disk_arrays, "MAX_IN_MEMORY", 1)
    run_all(config, in_files)

    assert weights_hash(in_files) == weights_hash(in_memory)
    assert metric_rows(in_files) == metric_rows(in_memory)
    for name in ("report.json", "predictions.jsonl"):
        content = (in_files / "eval" / name).read_bytes()
        assert content == (in_memory / "eval" / name).read_bytes()


def test_only_the_seed_changes_the_weights_not_logs_or_checkpoints(tmp_path):
    """Other intervals of logs and checkpoints give the same weights; another seed does not."""

    def trained(name: str, **values: object) -> str:
        run_all(make_config(tmp_path, **values, epochs=1), tmp_path / name)
        return model_hash(tmp_path / name)

    expected = trained("plain")
    assert trained("watched", log_every=5, checkpoint_every=1, keep_checkpoints=1) == expected
    assert trained("seed", seed=2) != expected


def test_training_on_labels_starts_from_the_best_weights_of_pretraining(tmp_path, monkeypatch):
    """The best weights may not be the last ones. They are saved without a linear model."""
    losses = iter([0.5, 0.4, 0.6])
    monkeypatch.setattr(pretraining_task, "summed_loss", lambda *_, **__: (next(losses), 1.0))
    run = RunDir(tmp_path / "run")
    saved = []

    def is_training_on_labels(event) -> bool:
        if isinstance(event, Validated) and event.name == "pretraining" and event.is_best:
            saved.append(load_classifier(run.pretrained))
        return isinstance(event, EncoderStarted) and event.name == "model"

    setup = prepare(make_config(tmp_path, linear=True, pretrain={"epochs": 3}))
    train_until(is_training_on_labels, setup, run, device=CPU)

    checkpoint, _ = load_newest(run.checkpoints)
    after_first_epoch, after_second_epoch = saved
    assert has_weights(after_second_epoch, checkpoint.weights)
    assert not has_weights(after_first_epoch, checkpoint.weights)
    assert after_first_epoch.linear is None
    assert after_second_epoch.linear is None


def has_weights(classifier: Classifier, weights: dict[str, torch.Tensor]) -> bool:
    """Return whether the encoder of a classifier has exactly these weights."""
    state = classifier.encoder.torch().model.state_dict()
    return all(torch.equal(weights[name], weight) for name, weight in state.items())


@pytest.fixture
def unlabelled(tmp_path) -> Path:
    """A file of unlabelled texts, with a word that no labelled text has."""
    path = tmp_path / "more.txt"
    lines = [f"w{number} violet {COLOURS[number % 3]}\n" for number in range(24)]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def unlabelled_config(tmp_path, unlabelled) -> Config:
    """The config of a run whose encoder learns from unlabelled texts in both trainings."""
    data = {"unlabelled": str(unlabelled)}
    return make_config(tmp_path, **FEW_LABELS, pretrain={"epochs": 1}, epochs=1, data=data)


def test_unlabelled_texts_are_learned_from(unlabelled, unlabelled_config):
    """Unlabelled texts add to the vocabulary, to pretraining, and to the training on labels."""
    setup = prepare(unlabelled_config)

    # With 8 texts in a batch, the 24 unlabelled texts take three of the nine steps of an epoch.
    assert setup.tokenizer.token_to_id("violet")
    assert setup.plan.pretraining.steps_per_epoch == 9
    assert setup.plan.training.steps_per_epoch == 9
    assert setup.where(47).endswith("/train.csv:61")
    assert setup.where(48) == f"{unlabelled}:1"


@pytest.mark.slow
def test_a_run_with_unlabelled_texts_resumes_exactly(tmp_path, unlabelled_config):
    run_all(unlabelled_config, tmp_path / "straight")

    with pytest.raises(StoppedError):
        run_all(unlabelled_config, tmp_path / "stopped", stop_signal=stop_after(5))
    run_all(unlabelled_config, tmp_path / "stopped", resume=True)

    assert result(tmp_path / "stopped") == result(tmp_path / "straight")


def test_a_run_with_other_unlabelled_texts_is_not_resumed(tmp_path, unlabelled, unlabelled_config):
    with pytest.raises(StoppedError):
        run_all(unlabelled_config, tmp_path / "run", stop_signal=stop_after(5))

    unlabelled.write_text("other words\n")
    with pytest.raises(ConfigError, match="unlabelled texts have changed"):
        run_all(unlabelled_config, tmp_path / "run", resume=True)


def test_divergence_stops_before_the_update(tmp_path, monkeypatch):
    """The error names the step and some of its texts, and the newest checkpoint stays usable."""
    config = make_config(tmp_path)
    cross_entropy = functional.cross_entropy
    num_calls = 0

    def poisoned_cross_entropy(*args, **options):
        nonlocal num_calls
        num_calls += 1
        loss = cross_entropy(*args, **options)
        if num_calls == 9:
            return loss * math.nan
        return loss

    monkeypatch.setattr(functional, "cross_entropy", poisoned_cross_entropy)
    with pytest.raises(DivergedError, match=r"step 9: loss nan.*train\.csv:\d+") as diverged:
        run_all(config, tmp_path / "run")
    assert diverged.value.exit_code == 4

    run_all(config, tmp_path / "run", resume=True)
    assert RunDir(tmp_path / "run").is_finished()


def test_a_run_is_never_overwritten(tmp_path):
    """A run is refused without --resume, and a finished run stays as it is when it is resumed."""
    config = make_config(tmp_path, epochs=1)
    other_config = make_config(tmp_path, epochs=2)
    folder = tmp_path / "run"
    run_all(config, folder)

    with pytest.raises(ConfigError, match="--resume"):
        run_all(config, folder)
    with pytest.raises(ConfigError, match=r"another train\.epochs"):
        run_all(other_config, folder, resume=True)
    assert run_all(config, folder, resume=True) == []


def test_other_files_are_never_overwritten(tmp_path):
    config = make_config(tmp_path, epochs=1)
    folder = tmp_path / "foreign"
    folder.mkdir()
    file = folder / "thesis.txt"
    file.write_text("mine")

    with pytest.raises(ConfigError, match="other files"):
        run_all(config, folder, resume=True)
    with pytest.raises(ConfigError, match="is a file"):
        run_all(config, file)


def test_mixed_precision_trains(tmp_path):
    """The weights are float32, although the computation is in bfloat16."""
    config = make_config(tmp_path, texts=150, precision="bfloat16", epochs=6)
    run_all(config, tmp_path / "run")

    classifier = load_classifier(tmp_path / "run")
    weights = classifier.encoder.torch().model.state_dict().values()
    assert {weight.dtype for weight in weights} == {torch.float32}

    predictions = classifier.predict(["red end", "w1 green", "blue"])
    assert predictions[1].label == "green"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains(tmp_path):
    """The same loop learns the task on a GPU; a resumed run warns that last digits may differ."""
    config = make_config(tmp_path, texts=300, epochs=6)
    run = RunDir(tmp_path / "run")
    device = torch.device("cuda")

    with stopping_at(stop_after(8)), pytest.raises(StoppedError):
        recorded(prepare(config), run, device=device)

    *events, finished = recorded(prepare(config), run, device=device, resume=True)
    warnings = [event.message for event in events if isinstance(event, Warned)]
    assert any("on a GPU" in warning for warning in warnings)
    assert finished.report.metrics.accuracy > 0.9
