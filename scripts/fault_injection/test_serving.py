"""The server: stopped, killed and given other models under load; and clients that mean it harm."""

import json
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import NamedTuple
from unittest import mock

import pytest
from samples import damage, hashes_of, tries, variant_of
from servers import MAX_SECONDS, Load, Predictions, serve, wait_until

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.serving import limits

# Seconds that count as at once on a busy machine.
AT_ONCE = 5.0
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
LAST_LINE = "stopped; all accepted requests got their responses"
# Bytes of a server's own memory beyond that of the warm server.
MAX_GROWTH = 24 << 20
# Models that a try loads, and crowds of clients that it sends.
RELOADS = 6
WAVES = 4
# How long a server waits for a body, where slow clients are tried.
SHORT_SECONDS = 0.4
# More connections than a server keeps.
CROWD = 600
# In place of a status.
STILL_WAITS = -1
MEGABYTE = 1 << 20


@pytest.mark.parametrize("when", ["while it starts", "once", "twice"])
@tries(20)
def test_serve_stop(space, draw, when, number):
    """A signal under load: accepted requests get their responses; a second signal ends at once."""
    run = space.reference(variant_of(number // 7))
    predictions = Predictions(draw)
    kind = draw.choice([*CODES])
    if when == "while it starts":
        stop_before_it_listens(space, draw, run, kind)
        return

    predictions.learn(run)
    served = serve(space, run)
    with Load(served, predictions, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_outcomes(1)
        time.sleep(draw.uniform(0, 0.3))
        asked = time.monotonic()
        served.process.signal(kind)
        if when == "twice":
            signal_while_stopping(served.process, draw, kind)
        ended = served.process.end()
        waited = time.monotonic() - asked

    assert "Traceback" not in ended.err, ended.err
    assert waited < limits.STOPPING_SECONDS + AT_ONCE, f"ended {waited:.1f} s after the signal"
    if when == "twice":
        assert ended.code == CODES[kind], f"exit {ended.code}: {ended.err}"
        return

    assert ended.code == 0, f"exit {ended.code}: {ended.err}"
    assert LAST_LINE in ended.err, ended.err
    # Each request got its predictions, or was refused after the stop, or came too late.
    for outcome in load.outcomes:
        if outcome.status == 200:
            assert not outcome.what, outcome
        elif outcome.status == 503:
            assert outcome.ended > asked, f"503 before the stop: {outcome}"
        else:
            assert not outcome.status, outcome
            late = outcome.began - asked
            is_late = late > limits.STOPPING_SECONDS / 2
            assert is_late, f"sent {late:+.2f} s after the stop, and no response: {outcome}"


def signal_while_stopping(process, draw, kind):
    """Send a second signal while new requests still get 503."""
    wait_until(lambda: "stopping:" in process.said(), "it stops", process=process)
    time.sleep(draw.uniform(0, limits.STOPPING_SECONDS / 2))
    process.signal(kind)


def stop_before_it_listens(space, draw, run, kind):
    """Send a signal while a server starts: it ends at once, without a traceback."""
    begun = space.new_path("begun")
    process = space.fork(["serve", run, "--port", "0"], prepare=begun.touch)
    # Before that, it is this program that would be stopped.
    wait_until(begun.exists, "it begins")
    time.sleep(draw.uniform(0.01, 0.3))
    process.signal(kind)
    ended = process.end()
    assert ended.seconds < AT_ONCE, f"{ended.seconds:.1f} s"
    assert ended.code in {0, -kind, CODES[kind]}, f"exit {ended.code}: {ended.err}"
    assert "Traceback" not in ended.err, ended.err


@tries(20)
def test_serve_kill(space, draw, number):
    """SIGKILL under load: clients that wait notice at once; the next server gets the same port."""
    run = space.reference(variant_of(number // 7))
    predictions = Predictions(draw)
    predictions.learn(run)
    before = hashes_of(run / "model")
    served = serve(space, run)
    with Load(served, predictions, draw, clients=draw.choice([1, 4, 16])) as load:
        load.await_outcomes(1)
        time.sleep(draw.uniform(0, 0.3))
        killed = time.monotonic()
        assert served.process.kill().code == -signal.SIGKILL
        time.sleep(0.05)

    for outcome in load.outcomes:
        is_noticed = outcome.ended < killed + AT_ONCE
        assert is_noticed, f"a client waits for a server that is dead: {outcome}"
        if outcome.status:
            assert outcome.status == 200, outcome
            assert not outcome.what, outcome
        else:
            assert outcome.ended > killed, f"without a response before the kill: {outcome}"
    assert hashes_of(run / "model") == before, "the model has changed"

    again = serve(space, run, port=served.port)
    with Load(again, predictions, draw, clients=2) as load:
        load.await_outcomes(4)
    load.check_all_requests_ended()
    again.stop()


@tries(24)
def test_serve_reload(space, draw, number):
    """Other models, damaged ones and none, loaded under load: each response is of a whole model."""
    run = space.copy(variant_of(number // 7))
    predictions = Predictions(draw)
    predictions.learn(run)
    sizes = []
    served = serve(space, run)
    with Load(served, predictions, draw, clients=draw.choice([2, 6, 12])) as load:
        load.await_outcomes(4)
        for turn in range(RELOADS):
            change = ["another", "damaged", "gone"][(number + turn) % 3]
            change_model(run, served, predictions, draw, change)
            load.await_outcomes(3)
            sizes.append(served.own_bytes())

        # While it is replaced again and again: several signals at once, and the last model wins.
        for _ in range(4):
            last = save_another(run, predictions, draw)
            served.process.signal(signal.SIGHUP)
            time.sleep(draw.uniform(0, 0.05))

        def has_last():
            _, body = served.get("/health")
            return json.loads(body)["model"] == last

        wait_until(has_last, "last model", process=served.process)
        sizes.append(served.own_bytes())

    load.check_all_requests_ended()
    check_flat(sizes)
    served.stop()


def change_model(run, served, predictions, draw, change):
    """Put another model, a damaged one or none into the folder, and await the reload."""
    weights = run / "model" / "model.safetensors"
    content = weights.read_bytes()
    aside = run.with_name(f"{run.name}-aside")
    line = "reloaded: model" if change == "another" else "warning: not reloaded"
    count = served.process.said().count(line)

    if change == "another":
        save_another(run, predictions, draw)
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


def save_another(run, predictions, draw):
    """Replace the model as a training does, by one with other predictions; returns its SHA-256."""
    other = load_classifier(run, engine="numpy")
    other.mixture = Mixture(weights={part: draw.uniform(0.1, 2) for part in other.parts})

    # Its predictions must be known before any client can get them.
    folder = run.with_name(f"{run.name}-next")
    shutil.copytree(run / "model", folder)
    save_classifier(other, folder)
    sha256 = predictions.learn(folder)
    shutil.rmtree(folder)

    save_classifier(other, run / "model")
    return sha256


def check_flat(sizes):
    """Fail if memory went on to grow when all had been done twice."""
    mebibytes = [size >> 20 for size in sizes]
    is_flat = sizes[-1] < max(sizes[:2]) + MAX_GROWTH
    assert is_flat, f"its memory has grown: {mebibytes} MiB"


# Bad clients: each returns its connection, or closes it


def send(served, content):
    """Open a connection, and send something."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=MAX_SECONDS)
    with suppress(ConnectionError):  # it may refuse before it has read all
        connection.sendall(content)
    return connection


def post(body, length=None):
    """A request with a body, which may declare another length."""
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (length or len(body), body)


def slow_writer(served, draw):
    """Send a byte of a body now and then, longer than the server waits."""
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
    """Send some bytes of a head, and then nothing for longer than the server waits for a body."""
    connection = send(served, draw.choice([HALF, HALF[:1], b"", b"\r\n"]))
    time.sleep(SHORT_SECONDS / 4)
    connection.close()


def idle_crowd(served, draw):
    """Open more connections than the server keeps; returns the first, which makes room."""
    crowd = []
    for _ in range(CROWD):
        crowd.append(send(served, draw.choice([HALF, b""])))

    first, *others = crowd
    first.settimeout(AT_ONCE)
    with suppress(OSError):
        first.recv(1)  # waits until the server has accepted them all
    for connection in others:
        connection.close()
    return first


def hangs_up(served, draw):
    """Ask for much, wholly or but for the last byte, and do not wait."""
    text = "rain snow " * draw.randint(1, 40)
    texts = [text] * draw.choice([1, 100])
    request = post(json.dumps({"texts": texts, "top_k": 9}).encode())
    connection = send(served, request[: draw.choice([None, -1])])
    if draw.random() < 0.5:  # by a reset, not by an end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def any_bytes(served, draw):
    """Send any bytes, or a request with some of them changed."""
    content = bytearray(post(b'{"texts": ["rain"]}'))
    for _ in range(draw.randint(1, 9)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    if draw.random() < 0.3:
        content = draw.randbytes(draw.randint(1, 4000)) + b"\r\n\r\n"
    connection = send(served, content)
    connection.settimeout(4 * SHORT_SECONDS)  # the end of a head may be missing
    return connection


def status_of(connection):
    """The status of the first response; 0 if the connection ends without one, or `STILL_WAITS`."""
    with closing(connection):
        try:
            found = re.match(rb"HTTP/1\.1 (\d+) ", connection.recv(1 << 16))
        except ConnectionError:
            return 0
        except TimeoutError:
            return STILL_WAITS
    return int(found[1]) if found else 0


HOST = b"Host: localhost\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
HEAD = b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
HALF = HEAD + b"Content-Le"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# A chunk of a body.
LARGE = b"%x\r\n%b\r\n" % (MEGABYTE, b" " * MEGABYTE)
ASKED = post(b'{"texts": ["a"]}')
MANY_TEXTS = json.dumps({"texts": [""] * 1001}).encode()


class Attack(NamedTuple):
    """What bad clients of a kind do, and the statuses that they may get."""

    statuses: set
    contents: Sequence = ()  # one of these is sent
    client: Callable | None = None  # or this is called

    def begin(self, served, draw):
        """Be such a client; returns its connection, or none if it is closed."""
        if self.client:
            return self.client(served, draw)
        return send(served, draw.choice(self.contents))


ATTACKS = {
    "broken-JSON": Attack(
        {400}, [post(b'{"texts":'), post(b"\xff\xfe"), post(b"[" * 100_000), post(b"")]
    ),
    "values-of-other-kinds": Attack(
        {400, 422},
        [
            post(b"[]"),
            post(b"3"),
            post(b"{}"),
            post(b'{"texts": 3}'),
            post(b'{"texts": [{}]}'),
            post(b'{"text": []}'),
            post(b'{"texts": ["a"], "top_k": -1}'),
            post(b'{"texts": ["a"], "top_k": true}'),
            post(b'{"texts": ["a"], "top_k": 1e999}'),
            post(b'{"texts": ["a"], "top_k": %b}' % (b"9" * 5000)),
        ],
    ),
    "no-number-of-JSON": Attack({422}, [post(b'{"texts": ["a"], "threshold": NaN}')]),
    "large-declared-body": Attack(
        {413}, [post(b"", 50 << 20), post(b"", 10**18), post(b" " * (2 * MEGABYTE))]
    ),
    "large-chunked-body": Attack({413, 0}, [CHUNKED + 3 * LARGE]),
    "too-many-texts": Attack(
        {413}, [post(MANY_TEXTS), post(b'{"texts": [%b"a"]}' % (b'"",' * 340_000))]
    ),
    "half-head": Attack(set(), client=half_head),
    "idle-crowd": Attack({0}, client=idle_crowd),
    "half-body": Attack({408}, [post(b'{"te', 100), CHUNKED + b"5\r\nab"]),
    "no-HTTP": Attack(
        {400, 408},
        [
            b"hello\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01" * 9 + b"\r\n\r\n",
            b"GET / HTTP/9\r\n\r\n",
        ],
    ),
    "two-lengths": Attack(
        {400},
        [
            post(b"{}").replace(HOST, HOST + b"Content-Length: 7\r\n"),
            post(b"{}").replace(b"Length: ", b"Length: -"),
        ],
    ),
    "endless-head": Attack({400, 0}, [GET + b"X: " + b"x" * (4 << 20)]),
    "slow-writer": Attack({408, 0}, client=slow_writer),
    "hangs-up": Attack(set(), client=hangs_up),
    # Much later, it gets the first response.
    "never-reads": Attack({200, 0}, [(GET + b"\r\n") * 2000]),
    "pages-of-other-sites": Attack(
        {403, 415},
        [
            ASKED.replace(HOST, b"Host: evil.example\r\n"),
            ASKED.replace(HOST, HOST + b"Origin: http://evil.example\r\n"),
            ASKED.replace(b"application/json", b"text/plain"),
        ],
    ),
    "any-bytes": Attack(
        {STILL_WAITS, 0, 200, 400, 403, 404, 405, 408, 413, 415, 422, 501}, client=any_bytes
    ),
    "other-paths": Attack(
        {404, 405},
        [
            GET.replace(b"/ ", b"/../../etc/passwd ") + b"\r\n",
            b"PUT /predict" + GET.removeprefix(b"GET /") + b"\r\n",
        ],
    ),
}


def be_impatient():
    """Make this process let go of slow clients soon."""
    mock.patch.object(limits, "BODY_SECONDS", SHORT_SECONDS).start()


@pytest.mark.parametrize("name", ATTACKS)
@tries(4)
def test_serve_hostile(space, draw, name, number):
    """Many bad clients at once: each is refused, others get predictions, memory is flat."""
    attack = ATTACKS[name]
    run = space.reference(variant_of(number))
    predictions = Predictions(draw)
    predictions.learn(run)
    sizes = []
    served = serve(space, run, prepare=be_impatient)
    with Load(served, predictions, draw, clients=2) as load:
        load.await_outcomes(4)
        for _ in range(WAVES):
            num_clients = draw.randint(4, 16)
            connections = [attack.begin(served, draw) for _ in range(num_clients)]
            found = {status_of(connection) for connection in connections if connection}
            # On a busy machine anything may come too slowly for a server that is so impatient.
            expected = attack.statuses | {408}
            assert found <= expected, f"statuses {found}, expected {expected}"
            sizes.append(served.own_bytes())
        load.await_outcomes(4)

    load.check_all_requests_ended()
    check_flat(sizes)
    assert served.get("/health")[0] == 200
    slowest = max(outcome.ended - outcome.began for outcome in load.outcomes)
    assert slowest < 2 * AT_ONCE, f"an honest client waited {slowest:.1f} s"
    served.stop()
