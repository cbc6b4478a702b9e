"""Cases about the server: stopped, killed, given other models and lost disks, all under load; and hostile clients."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

from attacks import ATTACKS, MEGABYTE, be_impatient, status_of
from cases import Case
from processes import fork
from samples import VARIANTS, Workspace
from servers import MOST_SECONDS, Answers, Load, Served, serve

from encoder_cls.inference.folder import load_classifier, save_classifier
from encoder_cls.serving import limits

AT_ONCE = 5.0  # seconds that count as at once on a busy machine
STOPPING = (signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
MOST_GROWTH = 24 << 20  # bytes of a server's own memory, beside what it had when it was warm
RELOADS = 6  # in a try
WAVES = 4  # of attacks in a try


def stop(space: Workspace, draw: random.Random, number: int) -> None:
    """A signal at any moment under load: each accepted request has its answer, the exit code is as promised."""
    run, answers = _reference(space, number), Answers(draw)
    answers.learn(run)
    kind = STOPPING[number % 2]
    if number % 6 == 5:
        _stop_before_it_listens(space, draw, run, kind)
        return
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_answers(1)
        time.sleep(draw.uniform(0, 0.3))
        asked = time.monotonic()
        served.process.signal(kind)
        if number % 6 == 4:  # once more: at once
            time.sleep(draw.uniform(0, 0.5))
            served.process.signal(kind)
        ended = served.process.end()
        waited = time.monotonic() - asked
    assert "Traceback" not in ended.err, ended.err
    assert waited < limits.STOPPING_SECONDS + AT_ONCE, f"ended {waited:.1f} s after the signal"
    if number % 6 == 4:
        assert ended.code in {0, CODES[kind]}, f"exit {ended.code}: {ended.err}"
        assert ended.code or "stopped; all accepted requests are answered" in ended.err, ended.err
        return
    assert ended.code == 0, f"exit {ended.code}: {ended.err}"
    assert "stopped; all accepted requests are answered" in ended.err, ended.err
    _check_none_lost(load, asked)


def kill(space: Workspace, draw: random.Random, number: int) -> None:
    """SIGKILL under load: whoever waited is told at once by the connection's end; the next server has the same port."""
    run, answers = _reference(space, number), Answers(draw)
    answers.learn(run)
    before = {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_answers(1)
        time.sleep(draw.uniform(0, 0.3))
        killed = time.monotonic()
        served.process.signal(signal.SIGKILL)
        assert served.process.end().code == -signal.SIGKILL
        time.sleep(0.05)
    late = [it for it in load.outcomes if it.began + it.seconds > killed + AT_ONCE]
    assert not late, f"clients wait for a server that is dead: {late[:3]}"
    wrong = [it for it in load.outcomes if it.status not in {0, 200} or (it.status and it.what)]
    assert not wrong, wrong[:3]
    early = [it for it in load.outcomes if not it.status and it.began + it.seconds < killed]
    assert not early, f"without an answer before the kill: {early[:3]}"
    assert before == {path.name: path.read_bytes() for path in (run / "model").iterdir()}, "the model has changed"
    again = serve(space, run, port=served.port)
    with Load(again, answers, draw, clients=2) as load:
        load.await_answers(4)
    load.check_all_answered()
    _end(again)


def reload(space: Workspace, draw: random.Random, number: int) -> None:
    """Other models, damaged ones and none, SIGHUP after each, under load: each answer is of one whole model."""
    run, answers = space.copy(_reference(space, number)), Answers(draw)
    answers.learn(run)
    weights = run / "model" / "model.safetensors"
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([2, 6, 12])) as load:
        load.await_answers(4)
        sizes = []
        for turn in range(RELOADS):
            _change_model(run, weights, served, answers, draw, ["another", "damaged", "gone"][(number + turn) % 3])
            seen = len(load.outcomes)
            load.await_answers(seen + 3)
            sizes.append(served.own_bytes())
        # While it is replaced again and again: several signals at once, and the last model wins.
        for _ in range(4):
            _save_another(run, answers, draw)
            served.process.signal(signal.SIGHUP)
            time.sleep(draw.uniform(0, 0.05))
        last = load_classifier(run, engine="numpy").sha256
        deadline = time.monotonic() + MOST_SECONDS
        while json.loads(served.get("/health")[1])["model"] != last:
            assert time.monotonic() < deadline, f"the last model never answers: {served.process.said()}"
            time.sleep(0.02)
        sizes.append(served.own_bytes())
    load.check_all_answered()
    _check_flat(sizes)
    _end(served)


def _change_model(run: Path, weights: Path, served: Served, answers: Answers, draw: random.Random, change: str) -> None:
    """Put another model, a damaged one or none into the folder, ask for a reload, and await what is said of it."""
    reloaded, failed = (served.process.said().count(it) for it in ("reloaded: model", "warning: not reloaded"))
    if change == "another":
        _save_another(run, answers, draw)
        served.process.signal(signal.SIGHUP)
        served.await_line("reloaded: model", count=reloaded + 1)
        return
    content, aside = weights.read_bytes(), run.with_name(f"{run.name}-aside")
    if change == "gone":
        run.rename(aside)  # as where a disk is taken away
    elif draw.random() < 0.5:
        with weights.open("r+b") as file:  # in place, as no one should
            file.truncate(draw.randrange(len(content)))
    else:
        place = draw.randrange(len(content))
        weights.write_bytes(content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :])
    served.process.signal(signal.SIGHUP)
    served.await_line("warning: not reloaded", count=failed + 1)
    if change == "gone":
        aside.rename(run)
    else:
        weights.write_bytes(content)


def _save_another(run: Path, answers: Answers, draw: random.Random) -> None:
    """Replace the model as a training does, by one with other answers."""
    other = load_classifier(run, engine="numpy")
    other.mixture_weights = tuple(draw.uniform(0.1, 2) for _ in other.mixture_weights)
    folder = run.with_name(f"{run.name}-next")
    shutil.copytree(run / "model", folder)
    save_classifier(other, folder)
    answers.learn(folder)  # before anybody can ask it
    shutil.rmtree(folder)
    save_classifier(other, run / "model")


def hostile(space: Workspace, draw: random.Random, number: int) -> None:
    """Many bad clients of a kind at once: each is refused as it should be, honest ones are answered, memory is flat."""
    name = list(ATTACKS)[number % len(ATTACKS)]
    attack, expected = ATTACKS[name]
    run, answers = _reference(space, number), Answers(draw)
    answers.learn(run)
    served = serve(space, run, prepare=be_impatient)
    with Load(served, answers, draw, clients=2) as load:
        load.await_answers(4)
        sizes = []
        for _ in range(WAVES):
            connections = [attack(served, draw) for _ in range(draw.randint(4, 16))]
            found = {status_of(connection) for connection in connections if connection}
            # On a busy machine anything may come too slowly for a server that is so impatient.
            assert found <= expected | {408}, f"{name}: answered with {found}, expected {expected}"
            sizes.append(served.own_bytes())
        load.await_answers(len(load.outcomes) + 4)
    load.check_all_answered()
    _check_flat(sizes)
    assert served.get("/health")[0] == 200
    slowest = max(it.seconds for it in load.outcomes)
    assert slowest < 2 * AT_ONCE, f"{name}: an honest client waited {slowest:.1f} s"
    _end(served)


def _stop_before_it_listens(space: Workspace, draw: random.Random, run: Path, kind: signal.Signals) -> None:
    """While it starts: it ends at once, without a word too many."""
    begun = space.new_path("begun")
    process = fork(["serve", run, "--port", "0"], cwd=space.folder, prepare=begun.touch)
    while not begun.exists():  # before that it is this program that is stopped
        time.sleep(0.001)
    time.sleep(draw.uniform(0.01, 0.3))
    process.signal(kind)
    ended = process.end()
    assert ended.seconds < AT_ONCE, f"{ended.seconds:.1f} s"
    assert ended.code in {0, -kind, CODES[kind]}, f"exit {ended.code}: {ended.err}"
    assert "Traceback" not in ended.err, ended.err


def _check_none_lost(load: Load, asked: float) -> None:
    """Fail unless each request was answered, or told 503 after the stop, or came when nobody promised to listen."""
    for it in load.outcomes:
        after = it.began + it.seconds - asked
        if it.status == 200:
            assert not it.what, it
        elif it.status == 503:
            assert after > 0, f"told 503 before the stop: {it}"
        else:
            # For a second everybody is told 503; half of it, since this machine is busy.
            is_late = it.began - asked > limits.STOPPING_SECONDS / 2
            assert not it.status, it
            assert is_late, f"sent {it.began - asked:+.2f} s after the stop, and no answer: {it}"


def _check_flat(sizes: list[int]) -> None:
    """Fail if memory went on to grow when all had been done twice."""
    mebibytes = [round(size / MEGABYTE) for size in sizes]
    assert sizes[-1] < max(sizes[:2]) + MOST_GROWTH, f"its memory has grown: {mebibytes} MiB"


def _end(served: Served) -> None:
    """Stop a server; it must have had nothing to complain of."""
    served.process.signal(signal.SIGTERM)
    ended = served.process.end()
    assert ended.code == 0, f"exit {ended.code}: {ended.err}"
    assert "Traceback" not in ended.err, ended.err
    assert "the prediction failed" not in ended.err, ended.err


def _reference(space: Workspace, number: int) -> Path:
    """A finished run, of each variant by turns."""
    return space.reference(list(VARIANTS)[number // 7 % len(VARIANTS)])


CASES = {
    "serve-stop": Case("a stop under load answers what was accepted, exit 0; a second signal ends at once", 60, stop),
    "serve-kill": Case("kill -9 under load: clients are told at once, the port and the model are free", 20, kill),
    "serve-reload": Case("models replaced, damaged and gone under load: answers are of one whole model", 24, reload),
    "serve-hostile": Case(
        "bad clients are refused, honest ones answered, memory stays flat", 4 * len(ATTACKS), hostile
    ),
}
