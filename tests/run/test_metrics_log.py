"""What is logged: `metrics.jsonl` and TensorBoard say the same, once a step."""

from __future__ import annotations

import errno
import re
from types import MappingProxyType

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.run.metrics_log import ACCURACY, LOSS, MetricLog
from encoder_cls.run.run_folder import RunDir, read_metrics


def open_log(folder, resume_after=MappingProxyType({}), warn=pytest.fail):
    return MetricLog(
        RunDir(folder), load_config(), ("a", "b"), resume_after=resume_after, warn=warn
    )


def scalars(folder, tag):
    events = EventAccumulator(str(folder)).Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]


def test_rows_and_tensorboard_agree(tmp_path):
    with open_log(tmp_path) as metric_log:
        for step in (2, 4):
            metric_log.log(step, "train", {"loss": 1 / step, "note": "text"})
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert all(row.pop("time") for row in rows)
    assert rows == [
        {"step": 2, "split": "train", "loss": 0.5, "note": "text"},
        {"step": 4, "split": "train", "loss": 0.25, "note": "text"},
    ]
    assert scalars(tmp_path, "loss/train") == [(2, 0.5), (4, 0.25)]
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()
    assert tags["scalars"] == ["loss/train"]
    assert "settings/text_summary" in tags["tensors"]


def test_a_resumed_run_has_neither_gaps_nor_overlaps(tmp_path):
    """What was logged after the checkpoint is forgotten, in the file and in TensorBoard."""
    with open_log(tmp_path) as metric_log:
        for step in range(1, 7):
            metric_log.log(step, "train", {"loss": float(step)})
        metric_log.log(4, "validation", {"loss": 4.0})
        metric_log.log(6, "validation", {"loss": 6.0})
    with open_log(tmp_path, {"train": 4, "validation": 2}) as metric_log:
        metric_log.log(4, "validation", {"loss": 40.0})
        metric_log.log(5, "train", {"loss": 50.0})
    rows = [
        (row["split"], row["step"], row["loss"]) for row in read_metrics(tmp_path / "metrics.jsonl")
    ]
    assert rows == [
        *(("train", step, float(step)) for step in range(1, 5)), ("validation", 4, 40.0), ("train", 5, 50.0)
    ]  # fmt: skip
    assert scalars(tmp_path, "loss/validation") == [(4, 40.0)]
    assert [step for step, _ in scalars(tmp_path, "loss/train")] == [1, 2, 3, 4, 5]


def test_of_an_earlier_stage_only_what_tells_whether_it_learns_is_shown(tmp_path):
    """And of no split what is an axis; `metrics.jsonl` has it all."""
    with open_log(tmp_path) as metric_log:
        metric_log.log(
            1, "pretraining/validation", {"loss": 1.0, "accuracy": 0.5, "epoch": 1.0, "f1/a": 0.1}
        )
        metric_log.log(2, "validation", {"loss": 1.0, "accuracy": 0.5, "epoch": 1.0, "f1/a": 0.1})
    shown = {
        "pretraining/loss in validation",
        "loss/validation",
        "accuracy in validation/combined",
        "validation F1/a",
    }
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()
    assert set(tags["scalars"]) == shown
    assert all(
        row["f1/a"] == 0.1 and row["epoch"] == 1.0
        for row in read_metrics(tmp_path / "metrics.jsonl")
    )


DRAWN = {
    "confusion_matrix": [[3, 1], [0, 2]],
    "calibration": {"confidence": [0.9], "accuracy": [0.8], "texts": [6]},
}


def images(folder, name) -> dict[int, bytes]:
    events = EventAccumulator(str(folder)).Reload()
    return {event.step: event.encoded_image_string for event in events.Images(name)}


@pytest.mark.parametrize("name", ["validation/confusion matrix", "validation/reliability"])
def test_images_are_drawn_from_rows_and_drawn_again_on_a_resume(tmp_path, name):
    """Each at its step, the same as before, and none of what was logged after the checkpoint."""
    with open_log(tmp_path) as metric_log:
        metric_log.log(1, "validation", {"loss": 1.0})
        for step in (2, 4):
            metric_log.log(step, "validation", {"loss": 1.0, **DRAWN})
    before = images(tmp_path, name)
    assert sorted(before) == [2, 4]
    assert all(png.startswith(b"\x89PNG") for png in before.values())
    with open_log(tmp_path, {"train": 3, "validation": 2}) as metric_log:
        metric_log.log(6, "validation", {"loss": 1.0, **DRAWN})
    assert images(tmp_path, name) == {2: before[2], 6: before[4]}


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x1c", "\r"])
def test_rows_are_read_whatever_a_class_is_called(tmp_path, character):
    """Characters at which Python, though not JSON lines, would end a line."""
    for resume_after in ({}, {"validation": 1}):
        with open_log(tmp_path, resume_after) as metric_log:
            if not resume_after:
                metric_log.log(1, "validation", {f"f1/a{character}b": 0.5})
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert row[f"f1/a{character}b"] == 0.5


def test_a_row_cut_short_by_a_crash_is_left_out(tmp_path):
    """The half row of a killed process does not hinder the next."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "split": "train", "time": 1.5, "loss": 1.0}\n{"step": 2, "spl')
    with open_log(tmp_path, {"train": 1, "validation": 0}) as metric_log:
        metric_log.log(2, "train", {"loss": 2.0})
    assert [row["step"] for row in read_metrics(path)] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"junk",
        b"\xff\x00",
        b"[1, 2]",
        b'{"loss": 1.0}',
        b'{"step": "x", "split": 1}',
        b"[" * 99_999,
    ],
)
def test_lines_that_are_no_rows_are_left_out(tmp_path, line):
    """Such as a damaged disk leaves, or another program."""
    path = tmp_path / "metrics.jsonl"
    row = b'{"step": 1, "split": "train", "time": 1.5, "loss": 1.0}'
    path.write_bytes(b"\n".join([line, row, line]))
    assert [row["step"] for row in read_metrics(path)] == [1]


@pytest.mark.parametrize("moment", ["open", "write"])
def test_without_tensorboard_training_goes_on(tmp_path, monkeypatch, moment):
    """A disk that refuses the curves costs the curves, with one warning; every number is in the file."""
    warnings = []
    if moment == "open":
        monkeypatch.setattr(SummaryWriter, "__init__", refuse)
    with open_log(tmp_path, warn=warnings.append) as metric_log:
        if moment == "write":
            monkeypatch.setattr(SummaryWriter, "add_scalar", refuse)
        for step in (1, 2, 3):
            metric_log.log(step, "train", {"loss": 1.0})
            metric_log.flush()
    assert len(warnings) == 1
    assert re.search(r": cannot write: .*goes on without TensorBoard", warnings[0])
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def refuse(*_arguments, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_number_that_cannot_be_kept_is_an_error(tmp_path):
    """`metrics.jsonl` is the truth: without it there is no going on."""
    with open_log(tmp_path) as metric_log:
        (tmp_path / "metrics.jsonl").unlink()
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(EncoderClsError, match=r"metrics\.jsonl: cannot write: No space left"):
            metric_log.log(1, "train", {"loss": 1.0})


def test_tensorboard_opens_with_accuracy_and_loss(trained_run):
    """Of combined, encoder and linear, in training and validation: a slash is before any letter in its order."""
    tags = EventAccumulator(str(trained_run.path)).Reload().Tags()
    cards = sorted([*tags["scalars"], *tags["images"]], key=lambda tag: re.sub("[/_]", "\0", tag))
    assert cards[:3] == [f"{ACCURACY}/{name}" for name in ("combined", "encoder", "linear")]
    assert cards[3:5] == [f"{LOSS}/{name}" for name in ("train", "validation")]


def test_no_card_has_a_single_dot(trained_run):
    """What is known once is text, or beside the settings; a curve has several points, of increasing steps."""
    events = EventAccumulator(str(trained_run.path)).Reload()
    assert len(events.Tags()["scalars"]) > 8
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) > 1
        assert steps == sorted(set(steps))
