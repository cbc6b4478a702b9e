"""What TensorBoard shows of a run: curves, images, texts and the table of runs."""

from __future__ import annotations

import re
import threading

import pytest
from support.reports import report_on, split_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from encoder_cls.config.loading import load_config
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.run.tensorboard import (
    ALWAYS_COMPARED,
    TensorBoard,
    chosen_settings,
    mistakes_table,
)

# The tags of TensorBoard's table of all runs.
HPARAMS_TAGS = {"_hparams_/session_start_info", "_hparams_/session_end_info"}


@pytest.fixture(scope="module")
def events(trained_run) -> EventAccumulator:
    """What TensorBoard reads of a finished run."""
    return EventAccumulator(str(trained_run.path)).Reload()


def test_a_finished_run_has_its_images_and_texts(events):
    """There are no curves of single heads or biases."""
    tags = events.Tags()

    assert set(tags["images"]) == {
        "result on test/confusion matrix",
        "result on test/reliability",
    }
    assert set(tags["tensors"]) - HPARAMS_TAGS == {
        "settings/text_summary",
        "data/text_summary",
        "result/text_summary",
        "most confident mistakes/text_summary",
    }
    assert tags["histograms"] == []


def test_the_cards_begin_with_accuracy_and_loss(events):
    """TensorBoard sorts a slash before all letters."""
    tags = [*events.Tags()["scalars"], *events.Tags()["images"]]
    cards = sorted(tags, key=lambda tag: re.sub("[/_]", "\0", tag))

    assert cards[:5] == [
        "accuracy in validation/combined",
        "accuracy in validation/encoder",
        "accuracy in validation/linear",
        "loss/train",
        "loss/validation",
    ]


def test_a_curve_has_several_points_at_increasing_steps(events):
    """A value that is logged only once would be a card with a single point."""
    tags = events.Tags()["scalars"]
    assert len(tags) > 8

    for tag in tags:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) > 1
        assert steps == sorted(set(steps))


@pytest.fixture
def scores(trained_run) -> dict[str, float]:
    """Return the logged scores of the finished run on its test split."""
    rows = read_metrics(trained_run.metrics_file)
    (row,) = [row for row in rows if row["split"] == "test"]
    return row


def test_the_table_of_runs_has_the_scores_of_the_test_split(events, scores):
    """No run declares the columns of the table, since they would apply to all runs."""
    contents = events.PluginTagToContent("hparams")
    assert set(contents) == HPARAMS_TAGS

    data = HParamsPluginData.FromString(contents["_hparams_/session_start_info"])
    columns = data.session_start_info.hparams
    names = {
        "accuracy": "accuracy",
        "macro_f1": "macro-F1",
        "loss": "loss",
        "ece": "calibration error",
    }
    for key, name in names.items():
        assert columns[name].number_value == pytest.approx(scores[key], rel=1e-5)


def test_the_result_is_the_summary_of_the_report(events, scores):
    (event,) = events.Tensors("result/text_summary")
    (text,) = event.tensor_proto.string_val

    assert f"accuracy {scores['accuracy']:.4f}" in text.decode()


def test_a_run_is_called_as_its_folder_is(trained_run):
    """TensorBoard names the run after the folder of its only event file."""
    folder = trained_run.path
    (file,) = folder.parent.rglob("*tfevents*")

    assert trained_run.event_files == [file]
    assert file.parent.name == folder.name


def test_errors_of_the_callers_threads_are_reported(tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    tensorboard = TensorBoard(RunDir(tmp_path), warn=pytest.fail)

    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    tensorboard.close()

    assert [arguments.exc_type for arguments in reported] == [ZeroDivisionError]


def test_chosen_settings_are_those_that_differ_from_their_defaults():
    """A few settings are shown even if they have their default values."""
    overrides = ["model.dropout=0.3", "model.d_model=64", "train.class_weights=balanced"]

    chosen = chosen_settings(load_config(None, overrides))

    assert set(chosen) == {"seed", "model.dropout", "train.class_weights", *ALWAYS_COMPARED}
    assert chosen["model.dropout"] == 0.3
    assert chosen["model.d_model"] == 64


def test_markup_in_a_text_is_escaped(classifier):
    """Markdown and HTML in a text are escaped, and a text adds no column to the table."""
    text = "| *a* <b>\n# [x](y) ~~z~~ \\ !"
    report = report_on(classifier, split_of([text]))

    *_, last_line = mistakes_table(report).splitlines()

    assert last_line.count("|") == 4
    without_escapes = last_line.replace("|", "").replace("&#", "")
    assert not set(without_escapes) & set("*<>[]()`~\\!\n")
