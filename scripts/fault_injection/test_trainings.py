"""Trainings that are stopped, meet, diverge, lack memory, or are watched: signals, locks, readers, other settings."""

import json
import signal
import time
from functools import partial

import pytest
import safetensors.torch
from processes import limit_memory
from samples import (
    assert_same_run,
    engine_of,
    last_weights,
    metric_rows,
    predict,
    sha256_of,
    tries,
    variant_of,
)
from servers import wait_until

from encoder_cls.classifier.model_folder import load_classifier

SLOW_MACHINE = 5.0  # seconds that count as at once, where one would do on an idle machine
READERS, READS = 8, 8


@tries(200)
def test_signals(space, draw, number):
    """SIGTERM or SIGINT at any moment: it ends with its code at once, the run is exact."""
    variant, run = variant_of(number), space.new_path("stopped")
    kind = draw.choice([signal.SIGTERM, signal.SIGINT])
    process = space.fork(space.train(variant, run))
    if process.runs_after(draw.uniform(0, 1.5)):
        asked = time.monotonic()
        process.signal(kind)
        ended = process.end()
        waited = time.monotonic() - asked
        assert waited < SLOW_MACHINE, f"ended {waited:.1f} s after the signal"
        # Before the first state to save, SIGTERM ends the process at once.
        assert ended.code in {0, 128 + kind, -kind if kind == signal.SIGTERM else 130}, (
            ended.code,
            ended.err,
        )
        assert "Traceback" not in ended.err, ended.err
        # One validation may just have been at its end.
        assert ended.err.partition("stopping after this step")[2].count("validation loss") <= 1, (
            "it went on training"
        )
        if ended.code == 128 + kind and "stopped at step" in ended.err:
            assert list((run / "checkpoints").glob("step-*")), "no checkpoint was written"
    space.finish(variant, run)


@tries(50)
def test_two_signals(space, draw, number):
    """A second signal ends at once, whatever is being done; the run is exact all the same."""
    variant, run = variant_of(number), space.new_path("stopped-twice")
    process = space.fork(space.train(variant, run))
    if process.runs_after(draw.uniform(0, 1.5)):
        process.signal(signal.SIGTERM)
        time.sleep(draw.uniform(0, 0.02))
        process.signal(signal.SIGTERM)
        asked = time.monotonic()
        ended = process.end()
        assert time.monotonic() - asked < SLOW_MACHINE
        assert ended.code in {0, 143, -signal.SIGTERM}, (ended.code, ended.err)
    space.finish(variant, run)


@tries(50)
def test_two_trainers(space, number):
    """Two real processes started at once: one trains to the end, the other names it within a second."""
    variant, run = variant_of(number), space.new_path("contested")
    both = [space.start(space.train(variant, run)) for _ in range(2)]
    winner, loser = sorted((process.end() for process in both), key=lambda ended: ended.code)
    if loser.code == 0:  # it came when the other had finished, or before it was really there
        assert "this run is finished" in loser.err, loser.err
    else:
        loser.check_error(1, "is training here")
        assert loser.cpu_seconds < 1, f"the loser worked for {loser.cpu_seconds:.2f} s"
    winner.check()
    assert_same_run(run, space.reference(variant))


@tries(8)
def test_predict_while_saving(space, draw, number):
    """Eight readers at once while training replaces the model: each reads a whole one with the right hash."""
    run, often = (
        space.new_path("busy"),
        ["train.validate_every=1", "train.patience=null", "train.epochs=6"],
    )
    trainer = space.fork(space.train("labels", run, *(f"--set={it}" for it in often)))
    wait_until((run / "model" / "model.safetensors").exists, "it saves a model", process=trainer)
    for _ in range(READS):
        time.sleep(draw.uniform(0, 0.05))
        for process in [
            space.fork(predict(run, engine_of(number), "soup and rain")) for _ in range(READERS)
        ]:
            process.end().check()
    trainer.end().check()


CHANGES = [
    f"train.{it}"
    for it in ("log_every=1", "checkpoint_every=1", "checkpoint_every=null", "keep_checkpoints=5")
]
CHANGES += [
    "train.validate_every=2",
    "train.validate_every=7",
    "train.log_every=5 train.checkpoint_every=2",
    "",
]


@pytest.mark.parametrize("changes", CHANGES)
@tries(3)
def test_metamorphic(space, draw, changes, number):
    """Watching more or less often, another place and another hash seed change no weight."""
    variant, is_validated_otherwise = variant_of(number), "validate_every" in changes
    common = ["train.patience=null", "train.learning_rate=0.02"]
    if is_validated_otherwise:  # the best weights of pretraining depend on when it was validated
        common.append("pretrain.epochs=0")
    plain, changed = space.new_path("plain"), space.new_path("another name") / "deeper" / "run"
    space.fork(space.train(variant, plain, *(f"--set={it}" for it in common))).end().check()
    arguments = space.train(
        variant, changed, *(f"--set={it}" for it in [*common, *changes.split()])
    )
    space.start(
        arguments, environment={"PYTHONHASHSEED": str(draw.randint(1, 10_000))}
    ).end().check()
    assert last_weights(plain) == last_weights(changed), "other weights"
    if not is_validated_otherwise:
        best, other_best = (
            sha256_of(run / "model" / "model.safetensors") for run in (plain, changed)
        )
        assert best == other_best, "other best weights"


@tries(30)
def test_divergence(space, draw, number):
    """A learning rate that is far too high: exit 4, the step named, no weight on disk that is no number."""
    run, rate = space.new_path("diverged"), 10 ** draw.uniform(18, 37)
    ended = space.fork(
        space.train(variant_of(number), run, "--set", f"train.learning_rate={rate:.3g}")
    ).end()
    ended.check_error(4, "diverged at step")
    for path in run.rglob("*.safetensors"):
        tensors = safetensors.torch.load_file(path)
        assert all(tensor.isfinite().all() for tensor in tensors.values()), (
            f"{path} holds what is no number"
        )


@tries(40)
def test_memory(space, draw, number):
    """A limit of memory that training meets somewhere; however libraries take it, with enough it goes on exactly."""
    variant, run, room = (
        variant_of(number),
        space.new_path("short-of-memory"),
        round(10 ** draw.uniform(5, 8.3)),
    )
    ended = space.fork(space.train(variant, run), prepare=partial(limit_memory, room)).end()
    # Some libraries abort by themselves: that cannot be put into one line.
    assert ended.code in {0, 1, -signal.SIGABRT, -signal.SIGSEGV}, ended.err
    assert "Traceback" not in ended.err, ended.err
    space.finish(variant, run)


@tries(3)
def test_saved_model(space, number):
    """A model that is saved and loaded is as accurate as at its validation."""
    run = space.reference(variant_of(number))
    ended = space.fork(["eval", run, "--data", space.data["validation"], "--json"]).end().check()
    rows = [row for row in metric_rows(run) if row["split"] == "validation"]
    # The linear model has the row of step 0; an encoder that is not surely better stays out of the model.
    if load_classifier(run, device="cpu").encoder is None:
        rows = [row for row in rows if row["step"] == 0]
    best = min(row["loss"] for row in rows)
    assert abs(json.loads(ended.out)["loss"] - best) < 0.005, best


@tries(6)
def test_resume_finished(space, number):
    """Resuming a finished run changes nothing, and reports that."""
    run = space.reference(variant_of(number))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}
    ended = space.fork(space.train(variant_of(number), run)).end().check()
    assert "this run is finished; nothing to do" in ended.err
    assert before == {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")
    }
