"""Processes that are killed at any moment: trainings, alone or several, searches, and what reads meanwhile."""

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
FILE_EVENTS_OF_A_RUN, FILE_EVENTS_OF_A_CACHE = 240, 60
SHARDS = 4
LONGEST_UNTIL_ALL_END = 10.0  # seconds after one of several processes has been killed
BUDGET, LEAST_BUDGET = "4s", "0.001s"  # of a search


@tries(60)
def test_kill_real(space, draw, number):
    """Real processes, killed at any moment, started again, until one comes to the end."""
    variant, run = variant_of(number), space.new_path("killed")
    for _ in range(draw.randint(1, 4)):
        space.start(space.train(variant, run)).kill(after=draw.uniform(0.1, LONGEST_TRAINED))
    space.finish(variant, run, begin=space.start)


@tries(300)
def test_kill_forked(space, draw, number):
    """Copies of this process: many kills, half of them just as a file or folder is made, renamed or removed."""
    kill_and_finish(space, draw, variant_of(number))


@tries(100)
def test_kill_continued(space, draw, number):
    """A run that goes on from another, killed in the same ways: exact, and the other run has no byte changed."""
    variant, other = space.continued(variant_of(number)), space.reference(variant_of(number))
    before = hashes_of(other)
    kill_and_finish(space, draw, variant)
    assert hashes_of(other) == before, "the run that was gone on from has changed"


def kill_and_finish(space, draw, variant):
    """Kill a run some times; it ends as if nothing had happened."""
    run = space.new_path("killed")
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.5:
            prepare = partial(kill_at_file_event, draw.randint(1, FILE_EVENTS_OF_A_RUN), run)
            ended = space.fork(space.train(variant, run), prepare=prepare).end()
        else:
            ended = space.fork(space.train(variant, run)).kill(after=draw.uniform(0, 1.5))
        assert ended.code in {0, -signal.SIGKILL}, ended.err
    space.finish(variant, run)


@tries(100)
def test_kill_and_read(space, draw, number):
    """Whatever a killed training left, predict answers from a complete model or reports that none exists yet."""
    variant, run, engine = (
        variant_of(number),
        space.new_path("abandoned"),
        engine_of(number, kinds=len(VARIANTS)),
    )
    event = draw.randint(1, FILE_EVENTS_OF_A_RUN)
    space.fork(space.train(variant, run), prepare=partial(kill_at_file_event, event, run)).end()
    ended = space.predict(run, engine, "--format", "jsonl", "soup and rain with a ball")
    if (run / "model" / "model.safetensors").exists():
        assert json.loads(ended.check().out)["label"]
    else:
        ended.check_error(2, str(run))


@tries(20)
def test_kill_rank(space, draw, number):
    """Any process of two to four is killed at any moment; as by torchrun, all are restarted."""
    variant, run = space.sharded(variant_of(number)), space.new_path("rank-killed")
    ranks = started(space, variant, run, draw.randint(2, SHARDS))
    victim = draw.randrange(len(ranks))
    ranks[victim].kill(after=draw.uniform(0, 2.5))
    killed = time.monotonic()
    ended = [rank.end() for rank in ranks]
    waited = time.monotonic() - killed
    if ended[victim].code == -signal.SIGKILL:
        assert waited < LONGEST_UNTIL_ALL_END, f"ended {waited:.1f} s after one was killed"
        assert not any("Traceback" in it.err for it in ended), [it.err for it in ended]
        assert victim == 0 or not any(it.err for it in ended[1:]), [it.err for it in ended]
    for rank in started(space, variant, run, len(ranks), attempt=1):
        rank.end().check()
    assert_same_run(run, undisturbed(space, variant, len(ranks)))


@cache
def undisturbed(space, variant, size):
    """A run of so many processes: the gradients of another number are the same but for rounding."""
    run = space.folder / f"reference-{variant}-{size}"
    for rank in started(space, variant, run, size):
        rank.end().check()
    return run


def started(space, variant, run, size, *, attempt=0):
    """The processes of one training, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
    }
    shared |= {"TORCHELASTIC_RESTART_COUNT": attempt}

    def be_rank(rank):
        os.environ.update(
            {
                name: str(value)
                for name, value in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()
            }
        )

    return [
        space.fork(space.train(variant, run), prepare=partial(be_rank, rank))
        for rank in range(size)
    ]


@tries(20)
def test_kill_tune(space, draw, number):
    """Two processes share a search, one is killed at any moment, another goes on: no trial is lost, or made twice.

    In half of the tries a power cut tears the last line of the journal before that.
    """
    folder = space.new_path("search")

    def tune(budget, *more):
        config = ["--config", space.config(variant_of(number)), "--run-dir", folder]
        return space.fork(["tune", *config, "--budget", budget, "--device", "cpu", *more])

    first, second = tune(BUDGET), tune(BUDGET)
    first.kill(after=draw.uniform(0, 5))
    if number % 2:
        second.end()
        journal = folder / "study.journal"
        os.truncate(journal, journal.stat().st_size - draw.randrange(1, 30))
    third = tune(BUDGET)
    second.end().check()
    third.end().check()
    found = json.loads(tune(LEAST_BUDGET, "--json").end().check().out)
    numbers = [it["number"] for it in found["trials"]]
    folders = sorted(int(path.name) for path in (folder / "trials").iterdir())
    waiting = {*folders} - {*numbers}  # for time: the one of the killed process
    assert folders == list(range(len(folders))), folders
    assert len(numbers) + len(waiting) == len(folders), (numbers, folders)
    assert len(waiting) <= 1, waiting
    for trial in {0, found["best"]["number"]}:
        run, undisturbed = folder / "trials" / f"{trial:03}", space.new_path("undisturbed")
        again = [
            "train",
            "--config",
            run / "config.yaml",
            "--run-dir",
            undisturbed,
            "--device",
            "cpu",
        ]
        space.fork(again).end().check()
        one, other = (
            [row for row in metric_rows(it) if row["split"] == "validation"]
            for it in (run, undisturbed)
        )
        assert one == other, f"trial {trial} went another way"


@tries(40)
def test_kill_cache(space, draw, number):
    """Two trainings share an empty cache and one is killed: both end as without a cache, and no half entry stays."""
    variant, cache = space.cached(variant_of(number))
    killed, beside = space.new_path("killed"), space.new_path("beside")
    kill = partial(kill_at_file_event, draw.randint(1, FILE_EVENTS_OF_A_CACHE), cache)
    first, second = (
        space.fork(space.train(variant, killed), prepare=kill),
        space.fork(space.train(variant, beside)),
    )
    assert first.end().code in {0, -signal.SIGKILL}
    second.end().check()
    assert_same_run(beside, space.reference(variant))
    space.finish(variant, killed)
    plain = space.reference(variant_of(number))
    assert last_weights(killed) == last_weights(plain), "the cache has changed the weights"
    check_whole(cache)


@tries(30)
def test_damage_cache(space, draw, number):
    """A bit, or the end, of a file of a cache is lost, in half of the tries of its record: it is made again."""
    variant, cache = space.cached(variant_of(number))
    space.fork([*space.train(variant, space.new_path("first")), "--dry-run"]).end().check()
    files = sorted(path for path in cache.rglob("*/*") if path.stat().st_size)
    file = draw.choice(draw.choice([files, [path for path in files if path.name == "record.json"]]))
    damage(file, draw, cut=0.5)
    damaged = file.read_bytes()
    space.finish(variant, space.new_path("second"))
    assert file.read_bytes() != damaged
    check_whole(cache)


def check_whole(cache):
    """Fail unless the cache has an entry of rows, one of tokens, and nothing else."""
    found = sorted(path.name.partition("-")[0] for path in cache.iterdir() if path.name != ".lock")
    assert found == ["rows", "tokens"], found
