"""Processes that are killed at any moment: trainings, alone or several, searches, and readers."""

import json
import os
import signal
import socket
import time
from functools import cache, partial

from processes import kill_at_file_event
from samples import (
    VARIANTS,
    assert_same_run,
    damage,
    engine_of,
    hashes_of,
    last_weights,
    metric_rows,
    tries,
    variant_of,
)

# Seconds until a real command is killed; in the first 2.5 it has not begun to train.
LONGEST_TRAINED = 6.5
# How often a training touches names in its run's folder, and in a cache.
FILE_EVENTS_OF_A_RUN = 240
FILE_EVENTS_OF_A_CACHE = 60
SHARDS = 4
# Seconds until the others end, after one of several processes has been killed: most are spent where
# it was killed before it met them.
LONGEST_UNTIL_ALL_END = 30.0
# Several processes have the losses of one but for rounding, which grows with each step.
EARLY_STEPS = 12
ROUNDING = 1e-3
# Budgets of a search.
BUDGET = "4s"
MIN_BUDGET = "0.001s"


@tries(60)
def test_kill_real(space, draw, number):
    """Real processes, killed at any moment, started again, until one comes to the end."""
    variant = variant_of(number)
    run = space.new_path("killed")
    for _ in range(draw.randint(1, 4)):
        seconds = draw.uniform(0.1, LONGEST_TRAINED)
        space.start(space.train(variant, run)).kill(after=seconds)
    space.finish(variant, run, begin=space.start)


@tries(300)
def test_kill_forked(space, draw, number):
    """Copies of this process, half of which are killed just as they change names in the run."""
    kill_and_finish(space, draw, variant_of(number))


@tries(100)
def test_kill_continued(space, draw, number):
    """A run that goes on from another, killed in these ways: exact, and the other is unchanged."""
    variant = space.continued(variant_of(number))
    other = space.reference(variant_of(number))
    before = hashes_of(other)
    kill_and_finish(space, draw, variant)
    assert hashes_of(other) == before, "the run that was gone on from has changed"


def kill_and_finish(space, draw, variant):
    """Kill a run some times; it ends as if nothing had happened."""
    run = space.new_path("killed")
    command = space.train(variant, run)
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.5:
            event = draw.randint(1, FILE_EVENTS_OF_A_RUN)
            ended = space.fork(command, prepare=partial(kill_at_file_event, event, run)).end()
        else:
            ended = space.fork(command).kill(after=draw.uniform(0, 1.5))
        assert ended.code in {0, -signal.SIGKILL}, ended.err
    space.finish(variant, run)


@tries(100)
def test_kill_and_read(space, draw, number):
    """Whatever a killed training left, predict has a whole model or reports that there is none."""
    variant = variant_of(number)
    engine = engine_of(number, kinds=len(VARIANTS))
    run = space.new_path("abandoned")
    event = draw.randint(1, FILE_EVENTS_OF_A_RUN)
    prepare = partial(kill_at_file_event, event, run)
    space.fork(space.train(variant, run), prepare=prepare).end()

    ended = space.predict(run, engine, "--format", "jsonl", "soup and rain with a ball")
    if (run / "model" / "model.safetensors").exists():
        assert json.loads(ended.check().out)["label"]
    else:
        ended.check_error(2, str(run))


@tries(20)
def test_kill_rank(space, draw, number):
    """Any process of two to four is killed at any moment; as by torchrun, all are restarted."""
    variant = space.sharded(variant_of(number))
    run = space.new_path("rank-killed")
    ranks = started(space, variant, run, draw.randint(2, SHARDS))
    victim = draw.randrange(len(ranks))
    ranks[victim].kill(after=draw.uniform(0, 2.5))

    killed = time.monotonic()
    ended = [rank.end() for rank in ranks]
    waited = time.monotonic() - killed
    if ended[victim].code == -signal.SIGKILL:
        errors = [rank.err for rank in ended]
        # torch itself may write lines about a lost connection.
        reports = [error for error in errors if "error:" in error]
        assert waited < LONGEST_UNTIL_ALL_END, f"ended {waited:.1f} s after one was killed"
        assert not any("Traceback" in error for error in errors), errors
        assert reports in ([], errors[:1]), errors

    for rank in started(space, variant, run, len(ranks), attempt=1):
        rank.end().check()
    assert_same_run(run, undisturbed(space, variant, len(ranks)))


@cache
def undisturbed(space, variant, size):
    """A run of so many processes that nothing disturbed, to compare with bit for bit.

    Its own measure is the run of a single process, which sums no gradients: it must have the same
    losses but for rounding.
    """
    run = space.folder / f"reference-{variant}-{size}"
    for rank in started(space, variant, run, size):
        rank.end().check()

    expected = early_losses(space.reference(variant))
    found = early_losses(run)
    assert found.keys() == expected.keys(), f"{size} processes validate at other steps than one"
    for place, loss in found.items():
        assert abs(loss - expected[place]) < ROUNDING, f"{size} processes, {place}: another loss"
    return run


def early_losses(run):
    """The losses of the first steps, by step and split."""
    losses = {}
    for row in metric_rows(run):
        if "loss" in row and row["step"] <= EARLY_STEPS:
            losses[row["step"], row["split"]] = row["loss"]
    return losses


def started(space, variant, run, size, *, attempt=0):
    """Start the processes of one training, as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }

    def be_rank(rank):
        os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))

    command = space.train(variant, run)
    processes = []
    for rank in range(size):
        processes.append(space.fork(command, prepare=partial(be_rank, rank)))
    return processes


@tries(20)
def test_kill_tune(space, draw, number):
    """Two processes share a search, and one is killed: no trial is lost, or made twice.

    In half of the tries a power cut tears the last line of the journal before another goes on.
    """
    folder = space.new_path("search")

    def tune(budget, *more):
        config = ["--config", space.config(variant_of(number)), "--run-dir", folder]
        return space.fork(["tune", *config, "--budget", budget, "--device", "cpu", *more])

    first = tune(BUDGET)
    second = tune(BUDGET)
    first.kill(after=draw.uniform(0, 5))
    if number % 2:
        second.end()
        journal = folder / "study.journal"
        os.truncate(journal, journal.stat().st_size - draw.randrange(1, 30))
    third = tune(BUDGET)
    second.end().check()
    third.end().check()

    found = json.loads(tune(MIN_BUDGET, "--json").end().check().out)
    numbers = [trial["number"] for trial in found["trials"]]
    folders = sorted(int(path.name) for path in (folder / "trials").iterdir())
    assert folders == list(range(len(folders))), folders
    # The trial of the killed process may wait until there is time for it.
    waiting = {*folders} - {*numbers}
    assert len(numbers) + len(waiting) == len(folders), (numbers, folders)
    assert len(waiting) <= 1, waiting

    for trial in {0, found["best"]["number"]}:
        run = folder / "trials" / f"{trial:03}"
        undisturbed_run = space.new_path("undisturbed")
        again = ["train", "--config", run / "config.yaml", "--run-dir", undisturbed_run]
        space.fork([*again, "--device", "cpu"]).end().check()
        assert validations(run) == validations(undisturbed_run), f"trial {trial} went another way"


def validations(run):
    """The rows of metrics on the validation texts."""
    return [row for row in metric_rows(run) if row["split"] == "validation"]


@tries(40)
def test_kill_cache(space, draw, number):
    """Two trainings share an empty cache, and one is killed: both end as without a cache.

    No half entry stays.
    """
    variant, cache = space.cached(variant_of(number))
    killed = space.new_path("killed")
    beside = space.new_path("beside")
    kill = partial(kill_at_file_event, draw.randint(1, FILE_EVENTS_OF_A_CACHE), cache)
    first = space.fork(space.train(variant, killed), prepare=kill)
    second = space.fork(space.train(variant, beside))
    assert first.end().code in {0, -signal.SIGKILL}
    second.end().check()

    assert_same_run(beside, space.reference(variant))
    space.finish(variant, killed)
    plain = space.reference(variant_of(number))
    assert last_weights(killed) == last_weights(plain), "the cache has changed the weights"
    check_whole(cache)


@tries(30)
def test_damage_cache(space, draw, number):
    """A bit, or the end, of a file of a cache is lost, in half of the tries of its record.

    The file is made again.
    """
    variant, cache = space.cached(variant_of(number))
    command = space.train(variant, space.new_path("first"), "--dry-run")
    space.fork(command).end().check()
    files = sorted(path for path in cache.rglob("*/*") if path.stat().st_size)
    records = [path for path in files if path.name == "record.json"]
    chosen = draw.choice([files, records])
    file = draw.choice(chosen)
    damage(file, draw, cut=0.5)

    damaged = file.read_bytes()
    space.finish(variant, space.new_path("second"))
    assert file.read_bytes() != damaged
    check_whole(cache)


def check_whole(cache):
    """Fail unless the cache has an entry of rows, one of tokens, and nothing else."""
    names = sorted(path.name for path in cache.iterdir() if path.name != ".lock")
    kinds = [name.partition("-")[0] for name in names]
    assert kinds == ["rows", "tokens"], names
