"""The log of metrics: `metrics.jsonl` and TensorBoard have the same values, once per step."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from encoder_cls.config.loading import load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.run.metrics_log import MetricsLog
from encoder_cls.run.run_folder import RunDir, read_metrics


def open_log(folder, resume_after: Mapping[str, int] | None = None, warn=pytest.fail) -> MetricsLog:
    """Open the log of a run of two classes. Without `resume_after`, no earlier row is kept."""
    return MetricsLog(
        RunDir(folder), load_config(), ("a", "b"), resume_after=resume_after or {}, warn=warn
    )


def steps_of(metrics_file) -> list[int]:
    """Return the steps of all rows."""
    return [row["step"] for row in read_metrics(metrics_file)]


def read_events(folder) -> EventAccumulator:
    """Return what TensorBoard reads of a run."""
    return EventAccumulator(str(folder)).Reload()


def points_of(folder, tag: str) -> list[tuple[int, object]]:
    """Return the points of a curve, as step and value."""
    scalars = read_events(folder).Scalars(tag)
    return [(scalar.step, pytest.approx(scalar.value)) for scalar in scalars]


def test_rows_and_tensorboard_agree(tmp_path):
    with open_log(tmp_path) as log:
        for step in (2, 4):
            log.log(step, "train", {"loss": 1 / step, "note": "text"})

    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert all(row.pop("time") for row in rows)
    assert rows == [
        {"step": 2, "split": "train", "loss": 0.5, "note": "text"},
        {"step": 4, "split": "train", "loss": 0.25, "note": "text"},
    ]
    assert points_of(tmp_path, "loss/train") == [(2, 0.5), (4, 0.25)]

    tags = read_events(tmp_path).Tags()
    assert tags["scalars"] == ["loss/train"]
    assert "settings/text_summary" in tags["tensors"]


def test_a_resumed_run_has_neither_gaps_nor_overlaps(tmp_path):
    """Rows that were logged after the checkpoint are removed, in the file and in TensorBoard."""
    with open_log(tmp_path) as log:
        for step in range(1, 7):
            log.log(step, "train", {"loss": float(step)})
        log.log(4, "validation", {"loss": 4.0})
        log.log(6, "validation", {"loss": 6.0})

    with open_log(tmp_path, {"train": 4, "validation": 2}) as log:
        log.log(4, "validation", {"loss": 40.0})
        log.log(5, "train", {"loss": 50.0})

    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [(row["split"], row["step"], row["loss"]) for row in rows] == [
        ("train", 1, 1.0),
        ("train", 2, 2.0),
        ("train", 3, 3.0),
        ("train", 4, 4.0),
        ("validation", 4, 40.0),
        ("train", 5, 50.0),
    ]
    assert points_of(tmp_path, "loss/validation") == [(4, 40.0)]
    steps = [step for step, _ in points_of(tmp_path, "loss/train")]
    assert steps == [1, 2, 3, 4, 5]


def test_rows_of_pretraining_are_kept_up_to_the_step_of_the_training(tmp_path):
    with open_log(tmp_path) as log:
        for step in (1, 2, 3):
            log.log(step, "pretraining/train", {"loss": 1.0})

    with open_log(tmp_path, {"train": 2}):
        pass

    assert steps_of(tmp_path / "metrics.jsonl") == [1, 2]


def test_pretraining_has_a_curve_of_its_loss_alone(tmp_path):
    """Scores of pretraining are only in `metrics.jsonl`, and the epoch has no curve."""
    values = {"loss": 1.0, "accuracy": 0.5, "epoch": 1.0, "f1/a": 0.1}
    with open_log(tmp_path) as log:
        log.log(1, "pretraining/validation", values)
        log.log(2, "validation", values)

    tags = read_events(tmp_path).Tags()
    assert set(tags["scalars"]) == {
        "pretraining/loss in validation",
        "loss/validation",
        "accuracy in validation/combined",
        "validation F1/a",
    }
    for row in read_metrics(tmp_path / "metrics.jsonl"):
        assert row["f1/a"] == 0.1
        assert row["epoch"] == 1.0


@pytest.mark.parametrize("name", ["confusion matrix", "reliability"])
def test_a_result_is_drawn_at_its_step(tmp_path, name):
    """The images of the best weights on the validation split are in the group of that split."""
    values = {
        "confusion_matrix": [[3, 1], [0, 2]],
        "calibration": {"confidence": [0.9], "accuracy": [0.8], "texts": [6]},
    }
    with open_log(tmp_path) as log:
        log.log(2, "validation", {"loss": 1.0})
        log.log(2, "best_validation", values)

    (image,) = read_events(tmp_path).Images(f"result on validation/{name}")
    assert image.step == 2
    assert image.encoded_image_string.startswith(b"\x89PNG")


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x1c", "\r"])
def test_rows_are_read_if_a_class_name_has_line_separators(tmp_path, character):
    """Python's `splitlines` would end a line at these characters, but JSON lines does not."""
    key = f"f1/a{character}b"
    with open_log(tmp_path) as log:
        log.log(1, "validation", {key: 0.5})

    with open_log(tmp_path, {"validation": 1}):
        pass

    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert row[key] == 0.5


ROW = '{"step": 1, "split": "train", "time": 1.5, "loss": 1.0}'


def test_a_row_cut_short_by_a_crash_is_left_out(tmp_path):
    """The incomplete row of a killed process is skipped."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{ROW}\n{{"step": 2, "spl')

    with open_log(tmp_path, {"train": 1, "validation": 0}) as log:
        log.log(2, "train", {"loss": 2.0})

    assert steps_of(path) == [1, 2]


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
    """A damaged disk or another program may leave lines that are not rows."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([line, ROW.encode(), line]))

    assert steps_of(path) == [1]


def refuse(*_arguments: object, **_options: object) -> None:
    """Raise the error of a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("__init__", id="open"),
        pytest.param("add_scalar", id="write"),
    ],
)
def test_training_continues_without_tensorboard(tmp_path, monkeypatch, method):
    """If the curves cannot be written, there is one warning, and the file still has all rows."""
    monkeypatch.setattr(SummaryWriter, method, refuse)
    warnings = []

    with open_log(tmp_path, warn=warnings.append) as log:
        for step in (1, 2, 3):
            log.log(step, "train", {"loss": 1.0})
            log.flush()

    (warning,) = warnings
    assert re.search(r": cannot write: .*continues without TensorBoard", warning)
    assert steps_of(tmp_path / "metrics.jsonl") == [1, 2, 3]


def test_a_row_that_cannot_be_written_is_an_error(tmp_path):
    """Training does not continue if `metrics.jsonl` cannot be written."""
    path = tmp_path / "metrics.jsonl"
    with open_log(tmp_path) as log:
        path.unlink()
        path.symlink_to("/dev/full")

        with pytest.raises(EncoderClsError, match=r"metrics\.jsonl: cannot write: No space left"):
            log.log(1, "train", {"loss": 1.0})
