"""A run without an encoder: the linear model alone is the model."""

from __future__ import annotations

import json
import signal
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
from encoder_cls.linear_training import linear_fit
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system import stop
from encoder_cls.training.prepare import prepare

pytestmark = pytest.mark.usefixtures("blank_plots")


def without_encoder(folder: Path, **values: object) -> Config:
    """Return the config of a run without an encoder, in which `pretrain.epochs` has no effect."""
    return make_config(
        folder, linear=True, pretrain={"epochs": 3}, model={"encoder": False}, **values
    )


@pytest.fixture
def finished_run(tmp_path) -> RunDir:
    """A finished run without an encoder."""
    run = RunDir(tmp_path / "run")
    run_all(without_encoder(tmp_path), run.path)
    return run


def test_the_model_is_the_linear_model_of_a_run_with_both(tmp_path):
    """Features and weights are the same; the scale of the logits is fitted on validation texts."""
    with_both = make_config(tmp_path, linear=True, epochs=1, refit_on_validation=False)
    config = without_encoder(tmp_path, refit_on_validation=False)
    run_all(with_both, tmp_path / "both")
    run_all(config, tmp_path / "alone")
    both = load_classifier(tmp_path / "both")
    alone = load_classifier(tmp_path / "alone")

    # The saved weights are rounded to a small type.
    dataset = prepare(config).dataset
    texts = alone.tokenize(dataset.validation.texts)
    logits = alone.linear.logits(texts)
    assert np.allclose(logits, both.linear.logits(texts), atol=0.1)

    assert alone.parts == ("linear",)
    (expected_weight,), _ = fit_mixture_weights(
        [logits], dataset.validation.labels, RowGroups(dataset.validation.split_groups)
    )
    assert alone.mixture.weights["linear"] == pytest.approx(expected_weight, rel=0.01)
    assert alone.mixture.shares == {"linear": 1.0}


def test_the_report_has_the_scores_of_one_part(tmp_path):
    events = run_all(without_encoder(tmp_path), tmp_path / "run")

    assert [type(event) for event in events] == [Started, Noted, Validated, Finished]
    evaluation = events[-1].report.evaluation
    assert evaluation.parts.keys() == {"combined", "linear"}
    assert evaluation.part_comparison is None
    assert evaluation.parts["linear"] == evaluation.parts["combined"]


def test_the_run_folder_is_complete(finished_run):
    assert finished_run.is_finished()
    assert not finished_run.load_config().model.encoder

    report = json.loads((finished_run.eval / "report.json").read_bytes())
    assert report["mixture_shares"] == {"linear": 1.0}
    assert report["comparison"] is None
    page = (finished_run.eval / "report.html").read_text(encoding="utf-8")
    assert "Texts longer than the linear model reads 0.0%" in page


def test_the_metrics_have_a_validation_and_the_final_result(finished_run):
    rows = metric_rows(finished_run.path)
    assert [row["split"] for row in rows] == ["data", "validation", "best_validation"]

    data, validation, best = rows
    assert "parameters" not in data
    assert validation["loss"] == pytest.approx(best["loss"], abs=0.01)
    assert "confusion_matrix" in best


def test_the_linear_model_reads_eight_times_as_much_of_a_text_as_an_encoder(finished_run):
    """A text counts as truncated only if the linear model does not read it to its end."""
    classifier = load_classifier(finished_run.path)
    assert classifier.max_seq_len == 16
    assert classifier.linear.max_tokens == 128

    texts = [" ".join(["w1"] * num_words) for num_words in (15, 16, 126, 200)]
    predictions = classifier.predict(texts)
    assert [prediction.truncated for prediction in predictions] == [False, False, False, True]


def test_a_stopped_run_starts_again_and_has_the_same_result(tmp_path):
    config = without_encoder(tmp_path)
    run_all(config, tmp_path / "straight")

    with pytest.raises(StoppedError, match="stopped at step 0; a checkpoint is written"):
        run_all(config, tmp_path / "run", stop_signal=stop_after(1))
    run_all(config, tmp_path / "run", resume=True)

    assert model_hash(tmp_path / "run") == model_hash(tmp_path / "straight")
    assert metric_rows(tmp_path / "run") == metric_rows(tmp_path / "straight")


def test_a_run_on_other_data_is_not_resumed(tmp_path):
    config = without_encoder(tmp_path)
    with pytest.raises(StoppedError):
        run_all(config, tmp_path / "run", stop_signal=stop_after(1))

    with (tmp_path / "train.csv").open("a") as file:
        file.write("one more red,red\n")
    with pytest.raises(ConfigError, match="training data has changed"):
        run_all(config, tmp_path / "run", resume=True)


def test_a_stopped_fit_writes_nothing_and_ends(tmp_path, monkeypatch):
    """Another process may have resumed the run by then."""
    monkeypatch.setattr(stop, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(stop, "SECONDS_TO_END", 0.01)
    fit_linear = linear_fit.fit_linear_from_stream
    threads = []
    has_stopped = threading.Event()

    def slow_fit_linear(*args, **options):
        threads.append(threading.current_thread())
        has_stopped.wait(30)
        return fit_linear(*args, **options)

    def stop_signal() -> int | None:
        if threads:
            return signal.SIGTERM
        return None

    monkeypatch.setattr(linear_fit, "fit_linear_from_stream", slow_fit_linear)
    run = RunDir(tmp_path / "run")
    with pytest.raises(StoppedError):
        run_all(without_encoder(tmp_path), run.path, stop_signal=stop_signal)

    has_stopped.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert not run.model.exists()


@pytest.fixture
def train_command(tmp_path) -> list[object]:
    """The command that trains a run without an encoder in the folder `run`."""
    write_data(tmp_path, texts=60)
    settings = [
        f"data.train={tmp_path / 'train.csv'}",
        "data.validation=null",
        "data.test=null",
        "model.encoder=false",
    ]

    command: list[object] = ["train", "--run-dir", tmp_path / "run"]
    for setting in settings:
        command += ["--set", setting]
    return command


def test_a_dry_run_says_that_there_is_a_linear_model_alone(cli, train_command):
    outcome = cli(*train_command, "--dry-run")

    assert outcome.code == 0
    assert "data: 54 training, 6 validation texts, 3 classes" in outcome.err
    assert "model: a linear model alone" in outcome.err


def test_train_shows_one_part_and_its_validation(tmp_path, cli, train_command):
    outcome = cli(*train_command)

    assert outcome.code == 0
    assert "\nlinear model: validation loss " in outcome.err
    assert "step" not in outcome.err.replace("without steps", "")
    assert outcome.out.startswith("validation: 6 examples\n")
    assert "alone" not in outcome.out
    assert cli("train", "--run-dir", tmp_path / "run", "--resume").code == 0


def test_predict_explains_but_has_no_attention_to_show(tmp_path, cli, finished_run):
    texts = ["w1 red end", "w2 w3 blue end"]
    command = ["predict", "--model", finished_run.path, *texts]

    explained = cli(*command, "--explain")
    labels = [line.split()[0] for line in explained.out.splitlines()]
    assert labels == ["red", "blue"]

    assert cli(*command, "--attention", tmp_path / "attention.html").code == 2


def test_eval_scores_the_run_unless_its_data_has_changed(tmp_path, cli, finished_run):
    scored = cli("eval", finished_run.path)
    assert "texts longer than the linear model reads 0.0%" in scored.out

    lines = ["text,label"]
    for number in range(9):
        lines += [f"{number} {colour},{colour}" for colour in ("red", "blue", "green")]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")

    changed = cli("eval", finished_run.path)
    assert changed.code == 3
    assert "has changed since the run began" in changed.err


def test_a_run_without_encoder_and_linear_model_is_refused(cli):
    outcome = cli(
        "train", "--set", "model.encoder=false", "--set", "model.linear=false", "--dry-run"
    )

    assert outcome.code == 2
    assert "encoder and linear are both false; set one of them to true" in outcome.err
