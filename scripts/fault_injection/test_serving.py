"""The server: stopped, killed and given other models under load; and clients that mean it harm."""

import json
import re
import shutil
import signal
import socket
import time
from contextlib import closing, suppress
from unittest import mock

import pytest
from samples import damage, tries, variant_of
from servers import MOST_SECONDS, Answers, Load, serve, wait_until

from encoder_cls.classifier.classifier import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.serving import limits

AT_ONCE = 5.0  # seconds that count as at once on a busy machine
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
ALL_ANSWERED = "stopped; all accepted requests are answered"
MOST_GROWTH = 24 << 20  # bytes of a server's own memory beyond that of the warm server
RELOADS, WAVES = 6, 4  # in a try
SHORT_SECONDS = 0.4  # that a server waits for a body, where slow clients are tried
CROWD = 600  # connections: more than a server keeps
STILL_WAITS = -1  # in place of a status
MEGABYTE = 1 << 20


@pytest.mark.parametrize("when", ["while it starts", "once", "twice"])
@tries(20)
def test_serve_stop(space, draw, when, number):
    """A signal at any moment under load: each accepted request has its answer; a second one ends at once."""
    run, answers, kind = (
        space.reference(variant_of(number // 7)),
        Answers(draw),
        draw.choice([*CODES]),
    )
    if when == "while it starts":
        stop_before_it_listens(space, draw, run, kind)
        return
    answers.learn(run)
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_answers(1)
        time.sleep(draw.uniform(0, 0.3))
        asked = time.monotonic()
        served.process.signal(kind)
        if when == "twice":  # the second while new requests still get 503
            wait_until(
                lambda: "stopping:" in served.process.said(), "it stops", process=served.process
            )
            time.sleep(draw.uniform(0, limits.STOPPING_SECONDS / 2))
            served.process.signal(kind)
        ended = served.process.end()
        waited = time.monotonic() - asked
    assert "Traceback" not in ended.err, ended.err
    assert waited < limits.STOPPING_SECONDS + AT_ONCE, f"ended {waited:.1f} s after the signal"
    if when == "twice":
        assert ended.code == CODES[kind], f"exit {ended.code}: {ended.err}"
        return
    assert ended.code == 0, f"exit {ended.code}: {ended.err}"
    assert ALL_ANSWERED in ended.err, ended.err
    for it in load.outcomes:  # each was answered, or refused after the stop, or came too late
        if it.status == 200:
            assert not it.what, it
        elif it.status == 503:
            assert it.ended > asked, f"503 before the stop: {it}"
        else:
            assert not it.status, it
            is_late = it.began - asked > limits.STOPPING_SECONDS / 2
            assert is_late, f"sent {it.began - asked:+.2f} s after the stop, and no answer: {it}"


def stop_before_it_listens(space, draw, run, kind):
    """While it starts: it ends at once, without a word too many."""
    begun = space.new_path("begun")
    process = space.fork(["serve", run, "--port", "0"], prepare=begun.touch)
    wait_until(begun.exists, "it begins")  # before that it is this program that is stopped
    time.sleep(draw.uniform(0.01, 0.3))
    process.signal(kind)
    ended = process.end()
    assert ended.seconds < AT_ONCE, f"{ended.seconds:.1f} s"
    assert ended.code in {0, -kind, CODES[kind]}, f"exit {ended.code}: {ended.err}"
    assert "Traceback" not in ended.err, ended.err


@tries(20)
def test_serve_kill(space, draw, number):
    """SIGKILL under load: clients that wait notice at once; the next server gets the same port."""
    run, answers = space.reference(variant_of(number // 7)), Answers(draw)
    answers.learn(run)
    before = {path: path.read_bytes() for path in (run / "model").iterdir()}
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_answers(1)
        time.sleep(draw.uniform(0, 0.3))
        killed = time.monotonic()
        assert served.process.kill().code == -signal.SIGKILL
        time.sleep(0.05)
    for it in load.outcomes:
        assert it.ended < killed + AT_ONCE, f"a client waits for a server that is dead: {it}"
        assert it.status in {0, 200}, it
        assert not (it.status and it.what), it
        assert it.status or it.ended > killed, f"without an answer before the kill: {it}"
    assert before == {path: path.read_bytes() for path in (run / "model").iterdir()}, (
        "the model has changed"
    )
    again = serve(space, run, port=served.port)
    with Load(again, answers, draw, clients=2) as load:
        load.await_answers(4)
    load.check_all_answered()
    again.stop()


@tries(24)
def test_serve_reload(space, draw, number):
    """Other models, damaged ones and none, SIGHUP after each, under load: each answer is of one whole model."""
    run, answers, sizes = space.copy(variant_of(number // 7)), Answers(draw), []
    answers.learn(run)
    served = serve(space, run)
    with Load(served, answers, draw, clients=draw.choice([2, 6, 12])) as load:
        load.await_answers(4)
        for turn in range(RELOADS):
            change_model(
                run, served, answers, draw, ["another", "damaged", "gone"][(number + turn) % 3]
            )
            load.await_answers(3)
            sizes.append(served.own_bytes())
        # While it is replaced again and again: several signals at once, and the last model wins.
        for _ in range(4):
            last = save_another(run, answers, draw)
            served.process.signal(signal.SIGHUP)
            time.sleep(draw.uniform(0, 0.05))
        wait_until(
            lambda: json.loads(served.get("/health")[1])["model"] == last,
            "last model",
            process=served.process,
        )
        sizes.append(served.own_bytes())
    load.check_all_answered()
    check_flat(sizes)
    served.stop()


def change_model(run, served, answers, draw, change):
    """Put another model, a damaged one or none into the folder, ask for a reload, and await its result."""
    weights, aside = run / "model" / "model.safetensors", run.with_name(f"{run.name}-aside")
    line = "reloaded: model" if change == "another" else "warning: not reloaded"
    count, content = served.process.said().count(line), weights.read_bytes()
    if change == "another":
        save_another(run, answers, draw)
    elif change == "gone":
        run.rename(aside)  # as where a disk is taken away
    else:
        damage(weights, draw, cut=0.5)
    served.process.signal(signal.SIGHUP)
    wait_until(lambda: served.process.said().count(line) > count, line, process=served.process)
    if change == "gone":
        aside.rename(run)
    elif change == "damaged":
        weights.write_bytes(content)


def save_another(run, answers, draw):
    """Replace the model as a training does, by one with other answers; its SHA-256."""
    other, folder = load_classifier(run, engine="numpy"), run.with_name(f"{run.name}-next")
    other.mixture = Mixture(weights={part: draw.uniform(0.1, 2) for part in other.parts})
    shutil.copytree(run / "model", folder)
    save_classifier(other, folder)
    sha256 = answers.learn(folder)  # before anybody can ask it
    shutil.rmtree(folder)
    save_classifier(other, run / "model")
    return sha256


def check_flat(sizes):
    """Fail if memory went on to grow when all had been done twice."""
    assert sizes[-1] < max(sizes[:2]) + MOST_GROWTH, (
        f"its memory has grown: {[size >> 20 for size in sizes]} MiB"
    )


def send(served, content):
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=MOST_SECONDS)
    with suppress(ConnectionError):  # it may refuse before it has read all
        connection.sendall(content)
    return connection


def post(body, length=None):
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (length or len(body), body)


def slow_writer(served, draw):
    """A byte of a body now and then, longer than the server waits."""
    connection = send(served, post(b"", 200))
    deadline = time.monotonic() + 3 * SHORT_SECONDS
    with suppress(OSError):
        for byte in b'{"texts": ["rain"]}'[: draw.randint(1, 20)]:
            connection.sendall(bytes([byte]))
            time.sleep(SHORT_SECONDS / 10)
            if time.monotonic() > deadline:
                break
    return connection


def half_head(served, draw):
    """Some bytes of a head, and then nothing for longer than the server waits for a body."""
    connection = send(served, draw.choice([HALF, HALF[:1], b"", b"\r\n"]))
    time.sleep(SHORT_SECONDS / 4)
    connection.close()


def idle_crowd(served, draw):
    """More connections than the server keeps; the first one, which is closed for the others."""
    first, *others = [send(served, draw.choice([HALF, b""])) for _ in range(CROWD)]
    first.settimeout(AT_ONCE)
    with suppress(OSError):
        first.recv(1)  # waits until the server has accepted them all
    for connection in others:
        connection.close()
    return first


def hangs_up(served, draw):
    """Asks for much, and does not wait."""
    body = json.dumps(
        {"texts": ["rain snow " * draw.randint(1, 40)] * draw.choice([1, 100]), "top_k": 9}
    ).encode()
    connection = send(served, post(body)[: draw.choice([None, -1])])
    if draw.random() < 0.5:  # by a reset, not by an end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def any_bytes(served, draw):
    """Any bytes, or a request with some of them changed."""
    content = bytearray(post(b'{"texts": ["rain"]}'))
    for _ in range(draw.randint(1, 9)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    if draw.random() < 0.3:
        content = draw.randbytes(draw.randint(1, 4000)) + b"\r\n\r\n"
    connection = send(served, content)
    connection.settimeout(4 * SHORT_SECONDS)  # the end of a head may be missing
    return connection


def status_of(connection):
    """The status of the first answer; 0 where the connection ends without one, or `STILL_WAITS`."""
    with closing(connection):
        try:
            found = re.match(rb"HTTP/1\.1 (\d+) ", connection.recv(1 << 16))
        except ConnectionError:
            return 0
        except TimeoutError:
            return STILL_WAITS
    return int(found[1]) if found else 0


GET, HOST = b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"Host: localhost\r\n"
HEAD = b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED, HALF = HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD + b"Content-Le"
LARGE = b"%x\r\n%b\r\n" % (MEGABYTE, b" " * MEGABYTE)
ASKED = post(b'{"texts": ["a"]}')
KINDS = [*map(post, (b"[]", b"3", b"{}", b'{"texts": 3}', b'{"texts": [{}]}', b'{"text": []}'))]
KINDS += [
    post(b'{"texts": ["a"], "top_k": %b}' % it) for it in (b"-1", b"true", b"1e999", b"9" * 5000)
]
# fmt: off
ATTACKS = {  # what is sent, one of these, or a function that sends it; and which status may come
    "broken-JSON": ([post(b'{"texts":'), post(b"\xff\xfe"), post(b"[" * 100_000), post(b"")], {400}),
    "values-of-other-kinds": (KINDS, {400, 422}),
    "no-number-of-JSON": ([post(b'{"texts": ["a"], "threshold": NaN}')], {422}),
    "large-declared-body": ([post(b"", 50 << 20), post(b"", 10**18), post(b" " * (2 * MEGABYTE))], {413}),
    "large-chunked-body": ([CHUNKED + 3 * LARGE], {413, 0}),
    "too-many-texts": ([post(json.dumps({"texts": [""] * 1001}).encode()),
                        post(b'{"texts": [%b"a"]}' % (b'"",' * 340_000))], {413}),
    "half-head": (half_head, set()),
    "idle-crowd": (idle_crowd, {0}),
    "half-body": ([post(b'{"te', 100), CHUNKED + b"5\r\nab"], {408}),
    "no-HTTP": ([b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 9 + b"\r\n\r\n", b"GET / HTTP/9\r\n\r\n"], {400, 408}),
    "two-lengths": ([post(b"{}").replace(HOST, HOST + b"Content-Length: 7\r\n"),
                     post(b"{}").replace(b"Length: ", b"Length: -")], {400}),
    "endless-head": ([GET + b"X: " + b"x" * (4 << 20)], {400, 0}),
    "slow-writer": (slow_writer, {408, 0}),
    "hangs-up": (hangs_up, set()),
    "never-reads": ([(GET + b"\r\n") * 2000], {200, 0}),  # but, much later, the first answer
    "pages-of-other-sites": ([ASKED.replace(HOST, b"Host: evil.example\r\n"),
                              ASKED.replace(HOST, HOST + b"Origin: http://evil.example\r\n"),
                              ASKED.replace(b"application/json", b"text/plain")], {403, 415}),
    "any-bytes": (any_bytes, {STILL_WAITS, 0, 200, 400, 403, 404, 405, 408, 413, 415, 422, 501}),
    "other-paths": ([GET.replace(b"/ ", b"/../../etc/passwd ") + b"\r\n", b"PUT /predict" + GET[5:] + b"\r\n"],
                    {404, 405}),
}
# fmt: on


def be_impatient():
    """Make this process let go of slow clients soon."""
    mock.patch.object(limits, "BODY_SECONDS", SHORT_SECONDS).start()


@pytest.mark.parametrize("name", ATTACKS)
@tries(4)
def test_serve_hostile(space, draw, name, number):
    """Many bad clients of a kind at once: each is refused as it should be, honest ones are answered, memory is flat."""
    (attack, expected), run, sizes = ATTACKS[name], space.reference(variant_of(number)), []
    answers = Answers(draw)
    answers.learn(run)
    served = serve(space, run, prepare=be_impatient)
    with Load(served, answers, draw, clients=2) as load:
        load.await_answers(4)
        for _ in range(WAVES):
            count = range(draw.randint(4, 16))
            begun = [
                attack(served, draw) if callable(attack) else send(served, draw.choice(attack))
                for _ in count
            ]
            found = {status_of(connection) for connection in begun if connection}
            # On a busy machine anything may come too slowly for a server that is so impatient.
            assert found <= expected | {408}, f"answered with {found}, expected {expected}"
            sizes.append(served.own_bytes())
        load.await_answers(4)
    load.check_all_answered()
    check_flat(sizes)
    assert served.get("/health")[0] == 200
    slowest = max(it.ended - it.began for it in load.outcomes)
    assert slowest < 2 * AT_ONCE, f"an honest client waited {slowest:.1f} s"
    served.stop()
