"""Trainings that are stopped, meet, diverge, lack memory, or are watched."""

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

# Seconds that count as at once, where one would do on an idle machine.
SLOW_MACHINE = 5.0
# Processes that read at once, and how often.
READERS = 8
READS = 8


@tries(200)
def test_signals(space, draw, number):
    """SIGTERM or SIGINT at any moment: it ends with its code at once, the run is exact."""
    variant = variant_of(number)
    run = space.new_path("stopped")
    kind = draw.choice([signal.SIGTERM, signal.SIGINT])
    process = space.fork(space.train(variant, run))
    if process.runs_after(draw.uniform(0, 1.5)):
        asked = time.monotonic()
        process.signal(kind)
        ended = process.end()
        waited = time.monotonic() - asked
        assert waited < SLOW_MACHINE, f"ended {waited:.1f} s after the signal"

        codes = {0, 128 + kind}
        if kind == signal.SIGTERM:
            # Before the first state to save, it ends the process at once.
            codes.add(-signal.SIGTERM)
        assert ended.code in codes, (ended.code, ended.err)
        assert "Traceback" not in ended.err, ended.err

        # One validation may just have been at its end.
        _, _, said_afterwards = ended.err.partition("stopping after this step")
        assert said_afterwards.count("validation loss") <= 1, "it went on training"
        if ended.code == 128 + kind and "stopped at step" in ended.err:
            assert list((run / "checkpoints").glob("step-*")), "no checkpoint was written"
    space.finish(variant, run)


@tries(50)
def test_two_signals(space, draw, number):
    """A second signal ends at once, whatever is being done; the run is exact all the same."""
    variant = variant_of(number)
    run = space.new_path("stopped-twice")
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
    """Two real processes started at once: one trains, the other names it within a second."""
    variant = variant_of(number)
    run = space.new_path("contested")
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
    """Eight readers at once while training replaces the model: each reads a whole one."""
    run = space.new_path("busy")
    often = ["--set=train.validate_every=1", "--set=train.patience=null", "--set=train.epochs=6"]
    trainer = space.fork(space.train("labels", run, *often))
    wait_until((run / "model" / "model.safetensors").exists, "it saves a model", process=trainer)

    command = predict(run, engine_of(number), "soup and rain")
    for _ in range(READS):
        time.sleep(draw.uniform(0, 0.05))
        readers = [space.fork(command) for _ in range(READERS)]
        for reader in readers:
            reader.end().check()
    trainer.end().check()


# Settings that change no weight.
CHANGES = [
    "train.log_every=1",
    "train.checkpoint_every=1",
    "train.checkpoint_every=null",
    "train.keep_checkpoints=5",
    "train.validate_every=2",
    "train.validate_every=7",
    "train.log_every=5 train.checkpoint_every=2",
    "",
]


@pytest.mark.parametrize("changes", CHANGES)
@tries(3)
def test_metamorphic(space, draw, changes, number):
    """Watching more or less often, another place and another hash seed change no weight."""
    variant = variant_of(number)
    common = ["--set=train.patience=null", "--set=train.learning_rate=0.02"]
    is_validated_otherwise = "validate_every" in changes
    if is_validated_otherwise:
        # The best weights of pretraining depend on when it was validated.
        common.append("--set=pretrain.epochs=0")

    plain = space.new_path("plain")
    space.fork(space.train(variant, plain, *common)).end().check()

    changed = space.new_path("another name") / "deeper" / "run"
    settings = [f"--set={change}" for change in changes.split()]
    arguments = space.train(variant, changed, *common, *settings)
    environment = {"PYTHONHASHSEED": str(draw.randint(1, 10_000))}
    space.start(arguments, environment=environment).end().check()

    assert last_weights(plain) == last_weights(changed), "other weights"
    if not is_validated_otherwise:
        assert best_weights(plain) == best_weights(changed), "other best weights"


def best_weights(run):
    """The hash of the model."""
    return sha256_of(run / "model" / "model.safetensors")


@tries(30)
def test_divergence(space, draw, number):
    """A learning rate far too high: exit 4, the step named, all weights on disk are numbers."""
    run = space.new_path("diverged")
    rate = 10 ** draw.uniform(18, 37)
    setting = f"--set=train.learning_rate={rate:.3g}"
    ended = space.fork(space.train(variant_of(number), run, setting)).end()
    ended.check_error(4, "diverged at step")

    for path in run.rglob("*.safetensors"):
        for name, tensor in safetensors.torch.load_file(path).items():
            assert tensor.isfinite().all(), f"{path}: {name} holds what is no number"


@tries(40)
def test_memory(space, draw, number):
    """A limit of memory that training meets somewhere; with enough memory it goes on exactly."""
    variant = variant_of(number)
    run = space.new_path("short-of-memory")
    room = round(10 ** draw.uniform(5, 8.3))
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
    # The linear model has the row of step 0; an encoder that is not surely better stays out.
    if load_classifier(run, device="cpu").encoder is None:
        rows = [row for row in rows if row["step"] == 0]
    best = min(row["loss"] for row in rows)
    assert abs(json.loads(ended.out)["loss"] - best) < 0.005, best


@tries(6)
def test_resume_finished(space, number):
    """Resuming a finished run changes nothing, and reports that."""
    run = space.reference(variant_of(number))
    before = times_and_sizes(run)
    ended = space.fork(space.train(variant_of(number), run)).end().check()
    assert "this run is finished; nothing to do" in ended.err
    assert times_and_sizes(run) == before


def times_and_sizes(folder):
    """The time and the size of each file and folder inside."""
    found = {}
    for path in folder.rglob("*"):
        state = path.stat()
        found[path] = (state.st_mtime_ns, state.st_size)
    return found
