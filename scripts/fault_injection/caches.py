"""Cases about `data.cache`, which trainings share that are killed, and whose files are damaged."""

from __future__ import annotations

import random
import signal
from functools import partial
from pathlib import Path

from cases import Case
from processes import fork, kill_at_file_event
from samples import VARIANTS, Workspace, assert_same_run, last_weights

FILE_EVENTS_OF_A_CACHE = 60  # so often two entries are touched while they are made, and a few times more


def kill_cache(space: Workspace, draw: random.Random, number: int) -> None:
    """Two trainings share an empty cache and one is killed: both end as without a cache, and no half entry stays."""
    plain = list(VARIANTS)[number % len(VARIANTS)]
    variant, cache = space.cached(plain)
    killed, beside = space.new_path("killed"), space.new_path("beside")
    kill = partial(kill_at_file_event, draw.randint(1, FILE_EVENTS_OF_A_CACHE), cache)
    first = fork(space.train(variant, killed), cwd=space.folder, prepare=kill)
    second = fork(space.train(variant, beside), cwd=space.folder)
    assert first.end().code in {0, -signal.SIGKILL}
    ended = second.end()
    assert ended.code == 0, ended.err
    assert_same_run(beside, space.reference(variant))
    space.finish(variant, killed)
    assert last_weights(killed) == last_weights(space.reference(plain)), "the cache has changed the weights"
    _assert_whole(cache)


def damage_cache(space: Workspace, draw: random.Random, number: int) -> None:
    """A bit, or the end, of a file of a cache is lost, in half of the tries of its record: it is made again."""
    variant, cache = space.cached(list(VARIANTS)[number % len(VARIANTS)])
    ended = fork([*space.train(variant, space.new_path("first")), "--dry-run"], cwd=space.folder).end()
    assert ended.code == 0, ended.err
    is_any = draw.random() < 0.5
    files = sorted(path for path in cache.rglob("*/*") if path.stat().st_size)
    file = draw.choice([path for path in files if is_any or path.name == "record.json"])
    content = bytearray(file.read_bytes())
    if draw.random() < 0.5:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    else:
        del content[draw.randrange(len(content)) :]
    file.write_bytes(content)
    space.finish(variant, space.new_path("second"))
    assert file.read_bytes() != content
    _assert_whole(cache)


def _assert_whole(cache: Path) -> None:
    """An entry of rows and one of tokens, and nothing beside them."""
    found = sorted(path.name.partition("-")[0] for path in cache.iterdir() if path.name != ".lock")
    assert found == ["rows", "tokens"], found


CASES = {
    "kill-cache": Case("kill -9 of a training that fills a cache which another shares changes no run", 40, kill_cache),
    "damage-cache": Case("a changed bit or lost end in a cache is noticed, and made again", 30, damage_cache),
}
