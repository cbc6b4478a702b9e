"""What TensorBoard shows of a finished run besides curves."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread
from support.reports import split_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard import SummaryWriter

from encoder_cls.config.loading import load_config
from encoder_cls.evaluation.figures import SQUARE
from encoder_cls.evaluation.report import evaluate
from encoder_cls.run.metrics_log import (
    ALWAYS_COMPARED,
    add_embedding,
    chosen_settings,
    mistakes_table,
)
from encoder_cls.run.run_folder import read_metrics

PICTURES = ("confusion matrix", "reliability")


@pytest.fixture(scope="module")
def tags(trained_run) -> dict[str, list[str]]:
    return EventAccumulator(str(trained_run.path)).Reload().Tags()


def test_a_finished_run_has_its_images_curves_and_tables(tags, classifier):
    """Each by its name; nothing is there for each head or each bias."""
    assert set(tags["images"]) == {f"result on test/{name}" for name in PICTURES}
    assert {f"precision and recall/{name}" for name in classifier.label_names} <= set(
        tags["tensors"]
    )
    assert not set(tags["tensors"]) & set(tags["scalars"])  # a class may be called as a metric is
    texts = ("settings", "data", "result", "most confident mistakes")
    assert {f"{text}/text_summary" for text in texts} <= set(tags["tensors"])
    assert tags["histograms"] == []


def test_the_table_of_runs_has_the_scores_of_the_best_weights(trained_run):
    """What stands beside the settings is what the test split says; no run says which columns all have."""
    events = EventAccumulator(str(trained_run.path)).Reload()
    contents = events.PluginTagToContent("hparams")
    assert set(contents) == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
    started = HParamsPluginData.FromString(contents["_hparams_/session_start_info"])
    shown = {name: value.number_value for name, value in started.session_start_info.hparams.items()}
    (row,) = [row for row in read_metrics(trained_run.metrics_file) if row["split"] == "test"]
    names = {
        "accuracy": "accuracy",
        "macro_f1": "macro-F1",
        "loss": "loss",
        "ece": "calibration error",
    }
    for key, name in names.items():
        assert shown[name] == pytest.approx(row[key], rel=1e-5)
    (text,) = events.Tensors("result/text_summary")[0].tensor_proto.string_val
    assert f"accuracy {row['accuracy']:.4f}" in text.decode()


def test_a_run_is_called_as_its_folder_is(trained_run):
    """TensorBoard calls it as the folder of the one event file, and finds no other below."""
    files = [path for path in trained_run.path.parent.rglob("*") if "tfevents" in path.name]
    assert files == trained_run.event_files
    assert [file.parent.name for file in files] == [trained_run.path.name]


def test_the_projector_has_a_point_for_each_text(trained_run, classifier):
    """Label and text of each in one line, its vector, and a square in the colour of its label."""
    (folder,) = trained_run.tensorboard.glob("texts")
    header, *rows = [
        line.split("\t") for line in (folder / "metadata.tsv").read_text("utf-8").splitlines()
    ]
    assert header == ["label", "text"]
    assert len(rows) == 15
    assert all(len(row) == 2 for row in rows)
    vectors = np.loadtxt(folder / "tensors.tsv", dtype=np.float32)
    expected = classifier.embed([text for _, text in rows])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    sheet = (255 * imread(folder / "sprite.png")).round().astype(int)
    colours = sheet[SQUARE // 2 :: SQUARE, SQUARE // 2 :: SQUARE].reshape(-1, 3)[:15].tolist()
    assert len({(label, *colour) for (label, _), colour in zip(rows, colours, strict=True)}) == 3


def test_what_is_compared_is_what_was_chosen():
    """A few settings always, beside them those that are not as by default."""
    chosen = chosen_settings(
        load_config(None, ["model.dropout=0.3", "model.d_model=64", "train.class_weights=balanced"])
    )
    assert set(chosen) == {"seed", "model.dropout", "train.class_weights", *ALWAYS_COMPARED}
    assert chosen["model.dropout"] == 0.3
    assert chosen["model.d_model"] == 64


def test_points_are_in_the_projector_whatever_is_in_their_texts(tmp_path):
    """A row each, of two fields; the vectors to the last bit, and images of one colour a label."""
    labels, texts = ["b", "a\tb", "b"], ["x\ty\n\u2028z", "", "half \ud800 and \x1b"]
    vectors = np.array([[0.1, 1e-30], [1 / 3, 0], [-1e30, 2]], dtype=np.float32)
    with SummaryWriter(str(tmp_path)) as writer:
        add_embedding(writer, vectors, labels, texts)
    folder = tmp_path / "tensorboard/texts"
    lines = (folder / "metadata.tsv").read_text("utf-8").split("\n")
    assert lines == ["label\ttext", "b\tx y z", "a b\t", "b\thalf \ufffd and \ufffd", ""]
    assert (np.loadtxt(folder / "tensors.tsv", dtype=np.float32) == vectors).all()
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert all(
        f'"tensorboard/texts/{name}"' in config
        for name in ("tensors.tsv", "metadata.tsv", "sprite.png")
    )


def test_a_text_is_no_markdown(classifier):
    """Nor HTML, nor a column of the table, whatever is in it."""
    text = "| *a* <b>\n# [x](y) ~~z~~ \\ !"
    report = evaluate(classifier, split_of([text]), name="test")
    *_, line = mistakes_table(report).splitlines()
    assert line.count("|") == 4
    assert not set(line.replace("|", "").replace("&#", "")) & set("*<>[]()`~\\!\n")
