"""What TensorBoard shows of a run."""

from __future__ import annotations

import re

import pytest
from support.reports import report_on, split_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from encoder_cls.config.loading import load_config
from encoder_cls.run.run_folder import read_metrics
from encoder_cls.run.tensorboard import (
    ACCURACY,
    ALWAYS_COMPARED,
    LOSS,
    chosen_settings,
    mistakes_table,
)


@pytest.fixture(scope="module")
def events(trained_run) -> EventAccumulator:
    return EventAccumulator(str(trained_run.path)).Reload()


def test_a_finished_run_has_its_images_and_texts(events):
    """Nothing is there for each head or each bias."""
    tags = events.Tags()
    pictures = ("confusion matrix", "reliability")
    texts = ("settings", "data", "result", "most confident mistakes")
    hparams = {"_hparams_/session_start_info", "_hparams_/session_end_info"}

    assert set(tags["images"]) == {f"result on test/{name}" for name in pictures}
    assert set(tags["tensors"]) - hparams == {f"{text}/text_summary" for text in texts}
    assert tags["histograms"] == []


def test_the_cards_begin_with_accuracy_and_loss(events):
    """A slash is before any letter in TensorBoard's order."""
    tags = [*events.Tags()["scalars"], *events.Tags()["images"]]
    cards = sorted(tags, key=lambda tag: re.sub("[/_]", "\0", tag))

    assert cards[:3] == [f"{ACCURACY}/{name}" for name in ("combined", "encoder", "linear")]
    assert cards[3:5] == [f"{LOSS}/{name}" for name in ("train", "validation")]


def test_a_curve_has_several_points_at_increasing_steps(events):
    """A number that is known once would be a card with a single dot."""
    tags = events.Tags()["scalars"]
    assert len(tags) > 8

    for tag in tags:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) > 1
        assert steps == sorted(set(steps))


def test_the_table_of_runs_has_the_scores_of_the_test_split(events, trained_run):
    """No run declares the columns of the table for all runs."""
    contents = events.PluginTagToContent("hparams")
    assert set(contents) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}

    started = HParamsPluginData.FromString(contents["_hparams_/session_start_info"])
    hparams = started.session_start_info.hparams
    (row,) = [row for row in read_metrics(trained_run.metrics_file) if row["split"] == "test"]
    names = {
        "accuracy": "accuracy",
        "macro_f1": "macro-F1",
        "loss": "loss",
        "ece": "calibration error",
    }
    for key, name in names.items():
        assert hparams[name].number_value == pytest.approx(row[key], rel=1e-5)


def test_the_result_is_the_summary_of_the_report(events, trained_run):
    (row,) = [row for row in read_metrics(trained_run.metrics_file) if row["split"] == "test"]
    (text,) = events.Tensors("result/text_summary")[0].tensor_proto.string_val
    assert f"accuracy {row['accuracy']:.4f}" in text.decode()


def test_a_run_is_called_as_its_folder_is(trained_run):
    """TensorBoard names it after the folder of the one event file, and finds no other below."""
    files = [path for path in trained_run.path.parent.rglob("*") if "tfevents" in path.name]
    assert files == trained_run.event_files
    assert [file.parent.name for file in files] == [trained_run.path.name]


def test_chosen_settings_are_those_that_differ_from_their_defaults():
    """A few settings are always among them."""
    config = load_config(
        None, ["model.dropout=0.3", "model.d_model=64", "train.class_weights=balanced"]
    )
    chosen = chosen_settings(config)

    assert set(chosen) == {"seed", "model.dropout", "train.class_weights", *ALWAYS_COMPARED}
    assert chosen["model.dropout"] == 0.3
    assert chosen["model.d_model"] == 64


def test_markup_in_a_text_is_escaped(classifier):
    """A text is neither Markdown nor HTML, and makes no column of the table."""
    text = "| *a* <b>\n# [x](y) ~~z~~ \\ !"
    report = report_on(classifier, split_of([text]))
    last_line = mistakes_table(report).splitlines()[-1]

    assert last_line.count("|") == 4
    without_escapes = last_line.replace("|", "").replace("&#", "")
    assert not set(without_escapes) & set("*<>[]()`~\\!\n")
