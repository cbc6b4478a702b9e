"""The server over loopback: the contract of docs/serving.md, hostile clients, another model, the end."""

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

from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.serving.app import PAGE
from encoder_cls.serving.limits import MOST_BODY_BYTES
from encoder_cls.serving.server import listening

TEXTS = ["rain and snow", "ball goal team", "soup bread", "", "rain " * 200, "\ud800 <b>zebra</b>"]
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
IMPATIENT = """
from encoder_cls.serving import limits
limits.HEADER_SECONDS = limits.BODY_SECONDS = limits.SEND_SECONDS = 1
limits.MOST_CONNECTIONS = 6
"""

SLOW = """
import time
from encoder_cls.classifier.classifier import Classifier
real = Classifier.tokenize
def tokenize(self, texts):
    texts = list(texts)
    time.sleep(60 * (len(texts) > 1))
    return real(self, texts)
Classifier.tokenize = tokenize
"""


def raw(server, content: bytes) -> socket.socket:
    """A connection on which these bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT)
    connection.sendall(content)
    return connection


def read_all(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_it_answers_what_predict_prints(server, cli, trained_run):
    arguments = [text for text in TEXTS if text.isascii()]
    printed = cli(
        "predict",
        "--model",
        trained_run.path,
        "--format",
        "jsonl",
        "--top-k",
        2,
        "--explain",
        *arguments,
    )
    status, found = server.predict(*arguments, top_k=2, explain=True)
    assert status == 200
    assert found["model"] == load_classifier(trained_run.path).sha256
    assert len(found["model"]) == 64
    for line, answer in zip(printed.out.splitlines(), found["predictions"], strict=True):
        expected = json.loads(line)
        assert answer.keys() == expected.keys()
        assert answer["probability"] == pytest.approx(expected["probability"], abs=1e-5)
        assert [word["word"] for word in answer["explanation"]] == [
            word["word"] for word in expected["explanation"]
        ]
        assert [item["label"] for item in answer["top"]] == [
            item["label"] for item in expected["top"]
        ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/predict", b"{", 400, "not JSON"),
        ("POST", "/predict", {"texts": [], "label": 1}, 422, "'label'"),
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
def test_pages_of_other_sites_get_no_answer(server, headers, status):
    """Their browsers send their own origin, the name that led here, or a type that needs no leave."""
    assert server.ask("POST", "/predict", {"texts": ["rain"]}, **headers)[0] == status
    assert server.ask("GET", "/health", **headers)[0] == (403 if status == 403 else 200)


def test_hosts_are_checked_where_they_are_named(start, trained_run):
    """A name that is allowed may be that of a proxy, whose pages ask; at an open address without any, all are."""
    named = start(trained_run.path, "", "--allowed-host", "example.org", host="0.0.0.0")
    for headers, status in (
        ({"Host": "example.org"}, 200),
        ({"Host": "localhost", "Origin": "https://example.org"}, 200),
        ({"Host": "other.org"}, 403),
    ):
        assert named.ask("GET", "/health", **headers)[0] == status
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


def test_an_answer_comes_without_delay():
    """It does not wait for the acknowledgement of its head, 40 ms: asyncio sees to that where a socket names TCP."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_health_and_metrics(start, trained_run, classifier):
    """In Prometheus' text: requests, labels, unknown words, and rates of the last two."""
    from prometheus_client.parser import text_string_to_metric_families

    server = start(trained_run.path)
    server.predict("rain snow", "ball zebra")
    server.predict("the zebra", threshold=1)
    server.ask("POST", "/predict", b"{")
    status, health = server.ask("GET", "/health")
    assert status == 200
    assert health == {
        "status": "ok",
        "model": classifier.sha256,
        "labels": list(classifier.label_names),
    }
    status, text = server.ask("GET", "/metrics")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    labels = [
        prediction.label
        for prediction in classifier.predict(["rain snow", "ball zebra", "the zebra"])
    ]
    assert status == 200
    assert found["encoder_cls_requests_total", "/predict", "200"] == 2
    assert found["encoder_cls_requests_total", "/predict", "400"] == 1
    assert found["encoder_cls_texts_total",] == 3
    assert (found["encoder_cls_words_total",], found["encoder_cls_unknown_words_total",]) == (6, 2)
    assert found["encoder_cls_unknown_word_rate",] == pytest.approx(1 / 3)
    for label in set(labels):
        assert found["encoder_cls_labels_total", label] == labels.count(label)
        assert found["encoder_cls_label_rate", label] == pytest.approx(labels.count(label) / 3)
    assert found["encoder_cls_model_info", classifier.sha256] == 1
    assert found["encoder_cls_waiting_requests",] == 0


def test_slow_clients_are_let_go_and_hold_up_nobody(start, trained_run):
    """Half a head, half a body, an answer that nobody reads, too many connections: each has its end."""
    server = start(trained_run.path, IMPATIENT)
    head = HEAD + b"Content-Length: 100\r\n"
    half_head, half_body, silent = (
        raw(server, head),
        raw(server, head + b'\r\n{"te'),
        raw(server, b""),
    )
    unread = raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4000)  # answers of 20 MB
    assert server.predict("rain")[0] == 200
    # Twice as many as there may be: some are refused, however slowly a busy machine opens them.
    replies = [read_all(connection) for connection in [raw(server, b"") for _ in range(12)]]
    assert {reply.split()[1] for reply in replies} <= {b"429", b"408"}
    assert any(reply.startswith(b"HTTP/1.1 429 ") for reply in replies)
    for connection in (half_head, half_body, silent):
        found = read_all(connection)
        assert found.startswith(b"HTTP/1.1 408 ")
        assert found.endswith(b' seconds"}')
    time.sleep(2)  # in which the server, however busy the machine is, gives up what nobody takes
    received = 0
    with suppress(ConnectionResetError), unread:
        while content := unread.recv(1 << 20):
            received += len(content)
    assert received < 4000 * len(PAGE)  # what it never took is given up
    assert server.predict("rain")[0] == 200


def test_who_hangs_up_is_forgotten(start, trained_run):
    """The request leaves no trace in the queue, and its room is free for others."""
    server = start(
        trained_run.path, "from encoder_cls.serving import limits; limits.MOST_HELD_BYTES = 40_000"
    )
    body = json.dumps({"texts": ["rain snow " * 2000]}).encode()
    for _ in range(5):
        raw(server, HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)).close()
    deadline = time.monotonic() + TIME_LIMIT
    while (
        server.ask("POST", "/predict", body)[0] == 429
        or "waiting_requests 0" not in server.ask("GET", "/metrics")[1]
    ):
        assert time.monotonic() < deadline
    body = json.dumps({"texts": ["rain snow " * 4001]}).encode()
    with raw(server, HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)) as connection:
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
    other.mixture_weights = (0.5, 0.5)
    save_classifier(other, run_copy.model)
    server.process.send_signal(signal.SIGHUP)
    server.said("reloaded: model ")
    status, found = server.predict("rain")
    assert status == 200
    assert found["model"] == load_classifier(run_copy.path).sha256 != classifier.sha256
    assert found["predictions"][0]["probability"] == pytest.approx(
        other.predict(["rain"])[0].probability, abs=1e-5
    )
    assert 'encoder_cls_reloads_total{outcome="failed"} 1.0' in server.ask("GET", "/metrics")[1]


def test_a_stop_loses_nothing_that_was_accepted(start, trained_run):
    """Under load each request is answered, refused with 503, or cannot connect; and the exit code is 0."""
    server, stopping = start(trained_run.path), Event()

    def load(_: int) -> list[int]:
        found = []
        while True:
            try:
                status, reply = server.predict("rain snow", "the ball", explain=True)
            except ConnectionError:  # after the second in which 503 is said
                return [*found, 0] if stopping.is_set() else [-1]
            assert status in {200, 503}
            assert status == 503 or len(reply["predictions"]) == 2
            found.append(status)

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(load, number) for number in range(8)]
        time.sleep(0.3)
        stopping.set()
        assert server.stop() == 0
        found = [status for client in clients for status in client.result(30)]
    assert {200, 503, 0} == set(found)


def test_a_second_signal_ends_at_once(start, trained_run):
    """With the code of the signal, and the number of those who got no answer; and who listens to all is warned."""
    server = start(trained_run.path, SLOW, host="0.0.0.0")
    assert server.warnings == [
        "warning: whoever can connect to 0.0.0.0 can ask: there are no passwords and no encryption"
    ]
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(server.predict, "rain", "snow")
        while "waiting_requests 1.0" not in server.ask("GET", "/metrics")[1]:
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        server.said("stopping: 1 requests wait")
        server.process.send_signal(signal.SIGTERM)
        assert "requests without an answer: 1" in server.said("stopped at once")
        assert server.process.wait(10) == 143
        with suppress(ConnectionError, HTTPException):
            assert client.result(30)[0] == 500


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
    monkeypatch.setattr("encoder_cls.system.machine.is_installed", lambda name: name != "uvicorn")
    outcome = cli("serve", trained_run.path)
    assert outcome.code == 2
    assert outcome.err == "error: serve: needs uvicorn: pip install 'encoder-cls[serve]'\n"
