"""A run without an encoder: the linear model alone is the model, and all that reads a run reads this one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from support.events import Finished, Noted, Started, Validated
from support.small_runs import make_config, metric_rows, model_hash, run_all, stop_after, write_data

from encoder_cls.classifier.mixture_weights import fit_mixture_weights
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.errors import ConfigError, StoppedError
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import stop as interruptible
from encoder_cls.training import linear_fit
from encoder_cls.training.prepare import prepare

pytestmark = pytest.mark.usefixtures("blank_plots")


def without_encoder(folder: Path, **values: object) -> Config:
    return make_config(
        folder, linear=True, pretrain={"epochs": 3}, model={"encoder": False}, **values
    )


def test_the_model_is_the_linear_classifier_of_a_run_with_both(tmp_path):
    """The same features, weights and scores; its scale is fitted on the validation texts."""
    run_all(
        make_config(tmp_path, linear=True, epochs=1, refit_on_validation=False), tmp_path / "both"
    )
    config = without_encoder(tmp_path, refit_on_validation=False)
    events = run_all(config, tmp_path / "alone")
    both, alone = (load_classifier(tmp_path / name) for name in ("both", "alone"))
    assert alone.parts == ("linear",)
    setup = prepare(config)
    logits = alone.linear.logits(setup.validation_texts)
    assert np.allclose(logits, both.linear.logits(setup.validation_texts), atol=0.1)  # small types
    labels = setup.dataset.validation.labels
    assert alone.mixture.weights["linear"] == pytest.approx(
        fit_mixture_weights([logits], labels)[0][0], rel=0.01
    )
    assert alone.mixture.shares == {"linear": 1.0}
    assert [type(event) for event in events] == [Started, Noted, Validated, Finished]

    evaluation = events[-1].report.evaluation
    assert evaluation.parts.keys() == {"combined", "linear"}
    assert evaluation.comparison is None
    assert evaluation.parts["linear"] == evaluation.parts["combined"]


def test_the_folder_of_the_run_is_whole(tmp_path):
    """Rows, report, model card, config: and the rows have a validation and its plots."""
    run_all(without_encoder(tmp_path), tmp_path / "run")
    run = RunDir(tmp_path / "run")
    assert run.is_finished()
    assert not run.load_config().model.encoder
    assert [row["split"] for row in metric_rows(run.path)] == [
        "data",
        "validation",
        "best_validation",
    ]
    data, validation, best = metric_rows(run.path)
    assert "parameters" not in data
    assert validation["loss"] == pytest.approx(best["loss"], abs=0.01)
    assert "confusion_matrix" in best
    report = json.loads((run.eval / "report.json").read_bytes())
    assert (report["mixture_shares"], report["comparison"]) == ({"linear": 1.0}, None)
    assert "texts longer than the linear model reads 0.0%" in (run.eval / "report.html").read_text(
        encoding="utf-8"
    )
    classifier = load_classifier(run.path)  # which reads eight times as far as an encoder
    assert (classifier.max_seq_len, classifier.linear.max_tokens) == (16, 128)
    texts = [" ".join(["w1"] * words) for words in (15, 16, 126, 200)]
    assert [prediction.truncated for prediction in classifier.predict(texts)] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("num_checks", [0, 1])
def test_a_run_that_was_stopped_starts_again_and_ends_the_same(tmp_path, num_checks):
    """Wherever it was stopped; of other data it is refused."""
    config = without_encoder(tmp_path)
    run_all(config, tmp_path / "straight")
    with pytest.raises(StoppedError, match="stopped at step 0; a checkpoint is written"):
        run_all(config, tmp_path / "run", stop_signal=stop_after(num_checks))
    run_all(config, tmp_path / "run", resume=True)
    assert model_hash(tmp_path / "run") == model_hash(tmp_path / "straight")
    assert metric_rows(tmp_path / "run") == metric_rows(tmp_path / "straight")
    RunDir(tmp_path / "run").model_card.unlink()
    with (tmp_path / "train.csv").open("a") as file:
        file.write("one more red,red\n")
    with pytest.raises(ConfigError, match="training data has changed"):
        run_all(config, tmp_path / "run", resume=True)


def test_a_stopped_fit_writes_nothing_and_ends(tmp_path, monkeypatch):
    """By then the run may be that of another process."""
    monkeypatch.setattr(interruptible, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(interruptible, "SECONDS_TO_END", 0.01)
    real, threads, is_left = linear_fit.fit_linear, [], threading.Event()

    def slow(*args, **options):
        first = real(*args, **options)
        threads.append(threading.current_thread())
        is_left.wait(30)
        return first

    monkeypatch.setattr(linear_fit, "fit_linear", slow)
    run = RunDir(tmp_path / "run")
    with pytest.raises(StoppedError):
        run_all(without_encoder(tmp_path), run.path, stop_signal=lambda: 15 if threads else None)
    is_left.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert not run.model.exists()


def test_every_command_takes_such_a_run(tmp_path, cli):
    """Dry-run, train, predict with words explained, eval; what needs an encoder says so."""
    write_data(tmp_path, texts=60)
    options = ["--set", f"data.train={tmp_path / 'train.csv'}", "--set", "data.validation=null"]
    options += [
        "--set",
        "data.test=null",
        "--set",
        "model.encoder=false",
        "--run-dir",
        tmp_path / "run",
    ]
    dry = cli("train", *options, "--dry-run")
    assert dry.code == 0
    assert "data: 54 training, 6 validation texts, 3 classes" in dry.err
    assert "model: a linear model alone" in dry.err
    trained = cli("train", *options)
    assert trained.code == 0
    assert "\nlinear model: validation loss " in trained.err
    assert "step" not in trained.err.replace("without steps", "")
    assert trained.out.startswith("validation: 6 examples\n")
    assert "alone" not in trained.out
    assert cli("train", "--run-dir", tmp_path / "run", "--resume").code == 0
    texts = ["w1 red end", "w2 w3 blue end"]
    predicted = cli("predict", "--model", tmp_path / "run", "--explain", *texts)
    assert [line.split()[0] for line in predicted.out.splitlines()] == ["red", "blue"]
    assert (
        cli("predict", "--model", tmp_path / "run", "--attention", tmp_path / "a.html", *texts).code
        == 2
    )
    scored = cli("eval", tmp_path / "run")
    assert "texts longer than the linear model reads 0.0%" in scored.out
    (tmp_path / "train.csv").write_text(
        "text,label\n" + "".join(f"{i} red,red\n{i} blue,blue\n{i} green,green\n" for i in range(9))
    )
    changed = cli("eval", tmp_path / "run")
    assert changed.code == 3
    assert "has changed since the run began" in changed.err


def test_a_run_without_encoder_and_linear_model_is_refused(cli):
    outcome = cli(
        "train", "--set", "model.encoder=false", "--set", "model.linear=false", "--dry-run"
    )
    assert outcome.code == 2
    assert "encoder and linear are both false; set one of them to true" in outcome.err
