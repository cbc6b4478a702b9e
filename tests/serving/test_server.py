"""The server over loopback: the contract of docs/serving.md, bad clients, reloads, the end."""

from __future__ import annotations

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Event

import pytest
from support.programs import TIME_LIMIT

from encoder_cls.classifier.classifier import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.serving.app import PAGE
from encoder_cls.serving.limits import KEEP_ALIVE_SECONDS, MOST_BODY_BYTES
from encoder_cls.serving.server import listening

TEXTS = ["rain and snow", "ball goal team", "soup bread", "", "rain " * 200, "\ud800 <b>zebra</b>"]
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET_PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

# Lines of Python that change a server before it starts.
IMPATIENT = """
from encoder_cls.serving import limits
limits.BODY_SECONDS = 1
"""
FEW_CONNECTIONS = """
from encoder_cls.serving import limits
limits.MOST_CONNECTIONS = 4
"""
FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
"""
SLOW = """
import time
from encoder_cls.classifier.classifier import Classifier

real = Classifier.tokenize

def tokenize(self, texts):
    texts = list(texts)
    if len(texts) > 1:
        time.sleep(60)
    return real(self, texts)

Classifier.tokenize = tokenize
"""


_opened: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _closed_connections():
    """Connections of a test end with it."""
    yield
    while _opened:
        _opened.pop().close()


def raw(server, content: bytes) -> socket.socket:
    """A connection on which these bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT)
    _opened.append(connection)
    connection.sendall(content)
    return connection


def post(body: bytes) -> bytes:
    """A request to predict."""
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def begin_request(server) -> socket.socket:
    """A connection whose request the server has begun to read, and that has not sent its body."""
    connection = raw(server, HEAD + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What a connection receives to its end."""
    received = b""
    with connection:
        while content := connection.recv(1 << 16):
            received += content
    return received


def test_it_responds_with_what_predict_prints(server, cli, trained_run):
    arguments = [text for text in TEXTS if text.isascii()]
    options = ["--model", trained_run.path, "--format", "jsonl", "--top-k", 2, "--explain"]
    printed = cli("predict", *options, *arguments)

    status, found = server.predict(*arguments, top_k=2, explain=True)

    assert status == 200
    assert found["model"] == load_classifier(trained_run.path).sha256
    assert len(found["model"]) == 64
    for line, prediction in zip(printed.out.splitlines(), found["predictions"], strict=True):
        expected = json.loads(line)
        assert prediction.keys() == expected.keys()
        assert prediction["probability"] == pytest.approx(expected["probability"], abs=1e-5)
        words = [word["word"] for word in prediction["explanation"]]
        assert words == [word["word"] for word in expected["explanation"]]
        labels = [label["label"] for label in prediction["top"]]
        assert labels == [label["label"] for label in expected["top"]]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/predict", b"{", 400, "not JSON"),
        ("POST", "/predict", {"texts": [], "label": 1}, 422, "'label'"),
        ("POST", "/predict", b'{"texts": ["a"], "texts": ["b"]}', 422, "'texts': given twice"),
        ("POST", "/predict", b" " * (MOST_BODY_BYTES + 1), 413, "1,048,576 bytes"),
        ("GET", "/predict", None, 405, "GET"),
        ("GET", "/elsewhere", None, 404, "POST /predict"),
        ("GET", "/predict/", None, 404, "POST /predict"),
    ],
)
def test_refusals_are_json(server, method, path, body, status, message):
    found, reply = server.ask(method, path, body)

    assert found == status
    assert reply.keys() == {"error"}
    assert message in reply["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1", "Content_Type": "Application/JSON; charset=utf-8"}, 200),
        ({"Host": "[::1]", "Origin": "http://[::1]"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "[localhost"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ],
)
def test_pages_of_other_sites_get_no_response(server, headers, status):
    """Their browsers send their own origin or name, or a type that needs no leave."""
    assert server.ask("POST", "/predict", {"texts": ["rain"]}, **headers)[0] == status
    assert server.ask("GET", "/health", **headers)[0] == (403 if status == 403 else 200)


def test_hosts_are_checked_where_they_are_named(start, trained_run):
    """A proxy's name and pages are allowed; at an open address without any names, all names are."""
    named = start(trained_run.path, "", "--allowed-host", "example.org", host="0.0.0.0")
    proxied = {"Host": "localhost", "Origin": "https://example.org"}
    assert named.ask("GET", "/health", Host="example.org")[0] == 200
    assert named.ask("GET", "/health", **proxied)[0] == 200
    assert named.ask("GET", "/health", Host="other.org")[0] == 403

    anywhere = start(trained_run.path, host="0.0.0.0")
    assert anywhere.ask("GET", "/health", Host="other.org")[0] == 200
    assert anywhere.ask("GET", "/health", Host="other.org", Origin="http://evil.example")[0] == 403


def test_hostile_bytes_are_refused(server):
    found = read_all(raw(server, b"hello\r\n\r\n"))
    assert found.startswith(b"HTTP/1.1 400 ")
    assert b'{"error": ' in found

    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
    with raw(server, head + chunk * 17) as connection:
        assert b" 413 " in connection.recv(1 << 16)


def test_a_response_comes_without_delay():
    """It does not wait for the acknowledgement of its head, 40 ms, as the socket names TCP."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_health_and_metrics(start, trained_run, classifier):
    """In Prometheus' text: requests, labels, unknown words, and rates of the last texts."""
    from prometheus_client.parser import text_string_to_metric_families

    server = start(trained_run.path)
    server.predict("rain snow", "ball zebra")
    server.predict("the zebra", threshold=1)
    server.ask("POST", "/predict", b"{")

    status, health = server.ask("GET", "/health")
    assert status == 200
    names = list(classifier.label_names)
    assert health == {"status": "ok", "model": classifier.sha256, "labels": names}

    status, text = server.ask("GET", "/metrics")
    assert status == 200
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    assert found["encoder_cls_requests_total", "/predict", "200"] == 2
    assert found["encoder_cls_requests_total", "/predict", "400"] == 1
    assert found["encoder_cls_texts_total",] == 3
    assert found["encoder_cls_words_total",] == 6
    assert found["encoder_cls_unknown_words_total",] == 2
    assert found["encoder_cls_unknown_word_rate",] == pytest.approx(1 / 3)
    predictions = classifier.predict(["rain snow", "ball zebra", "the zebra"])
    labels = [prediction.label for prediction in predictions]
    for label in set(labels):
        assert found["encoder_cls_labels_total", label] == labels.count(label)
        assert found["encoder_cls_label_rate", label] == pytest.approx(labels.count(label) / 3)
    assert found["encoder_cls_model_info", classifier.sha256] == 1
    assert found["encoder_cls_waiting_requests",] == 0


def test_a_slow_body_has_an_end(start, trained_run):
    server = start(trained_run.path, IMPATIENT)
    half_body = raw(server, HEAD + b'Content-Length: 100\r\n\r\n{"te')

    assert server.predict("rain")[0] == 200

    found = read_all(half_body)
    assert found.startswith(b"HTTP/1.1 408 ")
    assert found.endswith(b' seconds"}')


def test_idle_connections_lock_nobody_out(start, trained_run):
    """Of too many connections, the one that has waited longest for its client is closed."""
    server = start(trained_run.path, FEW_CONNECTIONS)
    silent = raw(server, b"")
    half_head = raw(server, HEAD)
    idle = raw(server, GET_PAGE)
    received = b""
    while not received.endswith(PAGE):
        received += idle.recv(1 << 16)

    crowd = [raw(server, b"") for _ in range(8)]

    assert server.predict("rain")[0] == 200
    for connection in (silent, half_head, idle, *crowd[:4]):
        with suppress(ConnectionResetError):
            assert read_all(connection) == b""


def test_unread_responses_lock_nobody_out(start, trained_run):
    server = start(trained_run.path, FEW_CONNECTIONS)
    pages = 4000  # together some 20 MB, more than the system keeps for who does not read
    for _ in range(4):
        raw(server, GET_PAGE * pages)
    time.sleep(2)  # until the server can send no more

    deadline = time.monotonic() + TIME_LIMIT
    status = 0
    while status != 200:
        with suppress(ConnectionError, HTTPException):
            status, _ = server.predict("rain")
        assert time.monotonic() < deadline


def test_a_connection_with_a_request_stays(start, trained_run):
    """Where all have one, a new connection is refused."""
    server = start(trained_run.path, FEW_CONNECTIONS)
    begun = [begin_request(server) for _ in range(4)]

    refused = read_all(raw(server, b""))

    assert refused.startswith(b"HTTP/1.1 429 ")
    assert refused.endswith(b'{"error": "4 connections have requests already"}')
    body = json.dumps({"texts": ["rain"]}).encode().ljust(100)
    for connection in begun:
        connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_connections_follow_the_files_that_may_be_open(start, trained_run):
    """With fewer files than clients, no client makes the server complain."""
    server = start(trained_run.path, FEW_FILES)
    [warning] = server.warnings
    assert "at most 32 connections" in warning

    for _ in range(150):
        raw(server, b"")
    time.sleep(1.5)  # after a failed `accept`, asyncio tries again after a second
    assert server.predict("rain")[0] == 200

    server.process.send_signal(signal.SIGTERM)
    lines = server.process.stderr.read().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "stopping",
        "stopped; all accepted requests got their responses",
    ]


def test_an_idle_connection_ends_after_a_time_that_can_be_set(start, trained_run):
    server = start(trained_run.path, "", "--keep-alive", "1")
    connection = raw(server, GET_PAGE)
    connection.settimeout(KEEP_ALIVE_SECONDS / 2)

    assert b"200 OK" in read_all(connection)


def test_connections_are_kept_longer_than_load_balancers_keep_theirs():
    """Nginx and the load balancers of clouds: 60 seconds."""
    assert KEEP_ALIVE_SECONDS > 60


def test_who_hangs_up_is_forgotten(start, trained_run):
    """The request leaves no trace in the queue, and its room is free for others."""
    few_bytes = "from encoder_cls.serving import limits; limits.MOST_HELD_BYTES = 40_000"
    server = start(trained_run.path, few_bytes)
    body = json.dumps({"texts": ["rain snow " * 2000]}).encode()
    for _ in range(5):
        raw(server, post(body)).close()

    deadline = time.monotonic() + TIME_LIMIT
    status, metrics = 429, ""
    while status == 429 or "waiting_requests 0" not in metrics:
        assert time.monotonic() < deadline
        status, _ = server.ask("POST", "/predict", body)
        _, metrics = server.ask("GET", "/metrics")

    too_much = json.dumps({"texts": ["rain snow " * 4001]}).encode()
    with raw(server, post(too_much)) as connection:
        refused = connection.recv(1 << 16).lower()
    assert refused.startswith(b"http/1.1 429 ")
    assert b"\r\nretry-after: 1\r\n" in refused


def test_another_model_takes_the_place_of_the_first(start, run_copy, classifier):
    server = start(run_copy.path)
    weights = run_copy.model / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    server.process.send_signal(signal.SIGHUP)

    line = server.said("warning: not reloaded, model ")
    assert "has changed since it was written" in line
    assert server.predict("rain")[1]["model"] == classifier.sha256

    weights.write_bytes(content)
    other = load_classifier(run_copy.path)
    other.mixture = Mixture(weights={"encoder": 0.5, "linear": 0.5})
    save_classifier(other, run_copy.model)

    server.process.send_signal(signal.SIGHUP)

    server.said("reloaded: model ")
    status, found = server.predict("rain")
    assert status == 200
    assert found["model"] == load_classifier(run_copy.path).sha256 != classifier.sha256
    expected = other.predict(["rain"])[0].probability
    assert found["predictions"][0]["probability"] == pytest.approx(expected, abs=1e-5)
    assert 'encoder_cls_reloads_total{outcome="failed"} 1.0' in server.ask("GET", "/metrics")[1]


def test_a_stop_loses_nothing_that_was_accepted(start, trained_run):
    """Under load each request is answered, refused with 503, or cannot connect."""
    server = start(trained_run.path)
    stopping = Event()
    not_connected = 0

    def ask_until_the_end(_: int) -> list[int]:
        found = []
        while True:
            try:
                status, reply = server.predict("rain snow", "the ball", explain=True)
            except ConnectionError:
                assert stopping.is_set()
                return [*found, not_connected]
            assert status in {200, 503}
            if status == 200:
                assert len(reply["predictions"]) == 2
            found.append(status)

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(ask_until_the_end, number) for number in range(8)]
        time.sleep(0.3)
        stopping.set()
        assert server.stop() == 0
        found = [status for client in clients for status in client.result(30)]
    assert set(found) == {200, 503, not_connected}


def test_a_second_signal_ends_at_once(start, trained_run):
    """With the code of the signal, and the number of requests without an answer."""
    server = start(trained_run.path, SLOW)
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(server.predict, "rain", "snow")
        while "waiting_requests 1.0" not in server.ask("GET", "/metrics")[1]:
            time.sleep(0.05)

        server.process.send_signal(signal.SIGTERM)
        server.said("stopping: 1 requests wait")
        server.process.send_signal(signal.SIGTERM)

        assert "requests without a response: 1" in server.said("stopped at once")
        assert server.process.wait(10) == 143
        with suppress(ConnectionError, HTTPException):
            assert client.result(30)[0] == 500


def test_who_listens_to_other_machines_is_warned(start, trained_run):
    server = start(trained_run.path, host="0.0.0.0")

    assert server.warnings == ["warning: listening on 0.0.0.0 without authentication or TLS"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "nowhere: no such folder"),
        (["{run}", "--port", "99999"], 2, "--port"),
        (["{run}", "--host", "no.such.host.invalid"], 2, "--host no.such.host.invalid"),
        (["{run}", "--port", "{taken}"], 1, "cannot listen: Address already in use"),
    ],
)
def test_what_cannot_be_served_is_reported(cli, trained_run, arguments, code, message):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"run": trained_run.path, "taken": taken.getsockname()[1]}
        outcome = cli("serve", *(argument.format(**values) for argument in arguments))

    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(cli, trained_run, monkeypatch):
    monkeypatch.setattr("encoder_cls.system.libraries.is_installed", lambda name: name != "uvicorn")

    outcome = cli("serve", trained_run.path)

    assert outcome.code == 2
    assert outcome.err == "error: serve: needs uvicorn: pip install 'encoder-cls[serve]'\n"
