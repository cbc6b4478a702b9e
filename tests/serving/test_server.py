"""The server over loopback: the contract of docs/serving.md, bad clients, reloads, the end."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import socket
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Barrier, Event

import pytest
from support.local_servers import wait_until
from support.programs import TIME, TIME_LIMIT

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.serving.app import PAGE
from encoder_cls.serving.metrics import Metrics
from encoder_cls.serving.request_queue import TextResult
from encoder_cls.system.web.server import listening
from encoder_cls.system.web.server_limits import KEEP_ALIVE_SECONDS, MAX_BODY_BYTES

TEXTS = ["rain and snow", "ball goal team", "soup bread", "", "rain " * 200]
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET_PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


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
        for content in iter(lambda: connection.recv(1 << 16), b""):
            received += content
    return received


# The contract


def test_it_responds_with_what_predict_prints(server, cli, trained_run):
    options = ["--format", "jsonl", "--top-k", 2, "--explain"]
    printed = cli("predict", "--model", trained_run.path, *options, *TEXTS)

    status, found = server.predict(*TEXTS, top_k=2, explain=True)

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
        ("POST", "/predict", b" " * (MAX_BODY_BYTES + 1), 413, "1,048,576 bytes"),
        ("GET", "/predict", None, 405, "GET"),
        ("GET", "/elsewhere", None, 404, "POST /predict"),
        ("GET", "/predict/", None, 404, "POST /predict"),
    ],
)
def test_refusals_are_json(server, method, path, body, status, message):
    found, refusal = server.ask(method, path, body)

    assert found == status
    assert refusal.keys() == {"error"}
    assert message in refusal["error"]


def test_a_response_comes_without_delay():
    """It does not wait for the acknowledgement of its head, 40 ms, as the socket names TCP."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_health_names_the_model(server, classifier):
    status, health = server.ask("GET", "/health")

    assert status == 200
    labels = list(classifier.label_names)
    assert health == {"status": "ok", "model": classifier.sha256, "labels": labels}


def read_metrics(server) -> dict[tuple[str, ...], float]:
    """The value of each metric, by its name and the values of its labels."""
    from prometheus_client.parser import text_string_to_metric_families

    values = {}
    for family in text_string_to_metric_families(server.metrics()):
        for sample in family.samples:
            values[sample.name, *sample.labels.values()] = sample.value
    return values


def test_metrics_count_requests_and_texts(start, trained_run, classifier):
    """They count requests, labels and unknown words, and have rates of the last texts."""
    server = start(trained_run.path)
    server.predict("rain snow", "ball zebra")
    server.predict("the zebra", threshold=1)
    server.ask("POST", "/predict", b"{")

    values = read_metrics(server)

    assert values["encoder_cls_requests_total", "/predict", "200"] == 2
    assert values["encoder_cls_requests_total", "/predict", "400"] == 1
    assert values["encoder_cls_texts_total",] == 3
    assert values["encoder_cls_words_total",] == 6
    assert values["encoder_cls_unknown_words_total",] == 2
    assert values["encoder_cls_unknown_word_rate",] == pytest.approx(1 / 3)
    assert values["encoder_cls_model_info", classifier.sha256] == 1
    assert values["encoder_cls_waiting_requests",] == 0

    predictions = classifier.predict(["rain snow", "ball zebra", "the zebra"])
    confidence = sum(prediction.probability for prediction in predictions)
    assert values["encoder_cls_confidence_sum",] == pytest.approx(confidence, abs=1e-4)
    labels = [prediction.label for prediction in predictions]
    for label in set(labels):
        number = labels.count(label)
        assert values["encoder_cls_labels_total", label] == number
        assert values["encoder_cls_label_rate", label] == pytest.approx(number / 3)


def test_metrics_count_unfamiliar_texts_and_confidence():
    """A blank text has no confidence, and some models do not measure what is unfamiliar."""
    record = {"unknown_words": 0, "truncated": False}
    metrics = Metrics()
    metrics.count(
        [
            TextResult(record | {"unfamiliar": True}, ("rain",), 1, 0.3),
            TextResult(record | {"unfamiliar": False}, ("rain",), 1, 0.97),
            TextResult(record, (), 0, None),
        ]
    )

    lines = metrics.text(num_waiting=0, model_sha256="hash").decode().splitlines()
    assert "encoder_cls_unfamiliar_texts_total 1.0" in lines
    assert 'encoder_cls_confidence_bucket{le="0.4"} 1.0' in lines
    assert 'encoder_cls_confidence_bucket{le="0.95"} 1.0' in lines
    assert "encoder_cls_confidence_count 2.0" in lines


# Pages of other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:1", "Content_Type": "Application/JSON; charset=utf-8"},
        {"Host": "[::1]", "Origin": "http://[::1]"},
    ],
)
def test_pages_of_this_machine_get_responses(server, headers):
    assert server.ask("POST", "/predict", {"texts": ["rain"]}, **headers)[0] == 200
    assert server.ask("GET", "/health", **headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "[localhost"},
        {"Host": "127.0.0.1%evil.example"},
        {"Host": "[::1%evil.example]"},
        {"Host": "localhost", "Origin": "http://localhost:3000"},
        {"Origin": "null"},
    ],
)
def test_pages_of_other_sites_get_none(server, headers):
    """Their browsers send their own origin or name."""
    assert server.ask("POST", "/predict", {"texts": ["rain"]}, **headers)[0] == 403
    assert server.ask("GET", "/health", **headers)[0] == 403


def test_a_type_that_pages_of_other_sites_may_send_is_refused(server):
    assert server.ask("POST", "/predict", {"texts": ["rain"]}, Content_Type="text/plain")[0] == 415
    assert server.ask("GET", "/health", Content_Type="text/plain")[0] == 200


def test_a_name_that_is_allowed_is_that_of_the_server_and_of_pages(start, trained_run):
    """They are those of a proxy."""
    server = start(trained_run.path, "--allowed-host", "example.org", host="0.0.0.0")

    assert server.ask("GET", "/health", Host="example.org")[0] == 200
    assert server.ask("GET", "/health", Host="localhost", Origin="https://example.org")[0] == 200
    assert server.ask("GET", "/health", Host="other.org")[0] == 403
    # Probes ask by address.
    assert server.ask("GET", "/health", Host=f"10.0.0.7:{server.port}")[0] == 200

    # A browser asks first, and lets the page read the answer if this header names its site.
    preflight = (
        b"OPTIONS /predict HTTP/1.1\r\nHost: localhost\r\nOrigin: https://example.org\r\n"
        b"Access-Control-Request-Method: POST\r\n"
        b"Access-Control-Request-Headers: content-type\r\nConnection: close\r\n\r\n"
    )
    answer = sent(server.port, preflight)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"access-control-allow-origin: https://example.org\r\n" in answer


def sent(port: int, content: bytes) -> bytes:
    """All that a server responds to some bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIME_LIMIT) as connection:
        connection.sendall(content)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_line_end_after_a_body_is_ignored(server):
    """Some clients send one that `Content-Length` does not count."""
    body = b'{"texts": ["rain"]}'
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n".encode()
    first = head + b"\r\n" + body + b"\r\n"
    last = head + b"Connection: close\r\n\r\n" + body

    assert sent(server.port, first + last).count(b"HTTP/1.1 200 ") == 2


def test_a_whole_url_in_the_request_line_is_understood(server):
    """Proxies send it. Its host counts, not that of the header."""
    own = b"GET http://localhost/health HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n"
    assert sent(server.port, own).startswith(b"HTTP/1.1 200 ")
    other = own.replace(b"localhost", b"evil.example").replace(b"any", b"localhost")
    assert sent(server.port, other).startswith(b"HTTP/1.1 403 ")


def test_requests_that_are_no_http_are_counted(server):
    sent(server.port, b"nonsense\r\n\r\n")
    assert 'encoder_cls_requests_total{path="other",status="400"}' in server.metrics()


def test_at_an_open_address_all_names_are_allowed_unless_there_are_some(open_server):
    assert open_server.ask("GET", "/health", Host="other.org")[0] == 200

    refused = open_server.ask("GET", "/health", Host="other.org", Origin="http://evil.example")
    assert refused[0] == 403


def test_a_server_that_other_machines_can_reach_warns(open_server):
    expected = "warning: listening on 0.0.0.0 without authentication or TLS"
    [warning] = open_server.warnings
    assert warning.endswith(f"  {expected}")


# Bad clients


def test_bytes_that_are_not_http_are_refused(server):
    found = read_all(raw(server, b"hello\r\n\r\n"))

    assert found.startswith(b"HTTP/1.1 400 ")
    assert b'{"error": ' in found


def test_a_large_body_without_a_length_is_refused(server):
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))

    connection = raw(server, head + chunk * 17)

    assert b" 413 " in connection.recv(1 << 16)


def test_a_slow_body_has_an_end(start, trained_run):
    impatient = "from encoder_cls.serving import limits; limits.BODY_SECONDS = 0.5"
    server = start(trained_run.path, before=impatient)
    half_body = raw(server, HEAD + b'Content-Length: 100\r\n\r\n{"te')

    assert server.predict("rain")[0] == 200

    found = read_all(half_body)
    assert found.startswith(b"HTTP/1.1 408 ")
    assert found.endswith(b' seconds"}')


# The lines of Python that let a server keep four connections.
FEW_CONNECTIONS = (
    "from encoder_cls.system.web import server_limits; server_limits.MAX_CONNECTIONS = 4"
)


def test_idle_connections_lock_nobody_out(start, trained_run):
    """Of too many connections, the one that has waited longest for its client is closed."""
    server = start(trained_run.path, before=FEW_CONNECTIONS)
    silent = raw(server, b"")
    half_head = raw(server, HEAD)
    idle = raw(server, GET_PAGE)
    received = b""
    while not received.endswith(PAGE):
        part = idle.recv(1 << 16)
        assert part, "the connection was closed"
        received += part

    crowd = [raw(server, b"") for _ in range(8)]

    assert server.predict("rain")[0] == 200
    for connection in (silent, half_head, idle, *crowd[:4]):
        with suppress(ConnectionResetError):
            assert read_all(connection) == b""


def num_unread_bytes(connections: list[socket.socket]) -> list[int]:
    """The bytes that the system keeps for each connection, which has not read them."""
    numbers = []
    for connection in connections:
        content = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
        numbers.append(int.from_bytes(content, sys.byteorder))
    return numbers


def wait_until_full(connections: list[socket.socket]) -> None:
    """Wait until the server can send no more to connections that read nothing."""
    unread = [0]
    while min(unread) == 0 or num_unread_bytes(connections) != unread:
        unread = num_unread_bytes(connections)
        time.sleep(0.4)


def test_unread_responses_lock_nobody_out(start, trained_run):
    server = start(trained_run.path, before=FEW_CONNECTIONS)
    # Together some 20 MB for each, more than the system keeps for a client that does not read.
    num_pages = 4000
    wait_until_full([raw(server, GET_PAGE * num_pages) for _ in range(4)])

    def has_response() -> bool:
        with suppress(ConnectionError, HTTPException):
            return server.predict("rain")[0] == 200
        return False

    wait_until(has_response)


def test_a_connection_with_a_request_stays(start, trained_run):
    """Where all connections have a request, a new one is refused."""
    server = start(trained_run.path, before=FEW_CONNECTIONS)
    begun = [begin_request(server) for _ in range(4)]

    refused = read_all(raw(server, b""))

    assert refused.startswith(b"HTTP/1.1 429 ")
    assert refused.endswith(
        b'{"error": "4 connections have requests already; try again in a second"}'
    )
    body = json.dumps({"texts": ["rain"]}).encode().ljust(100)
    for connection in begun:
        connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


FEW_FILES = """
import asyncio.constants
import resource
from encoder_cls.serving import limits

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
asyncio.constants.ACCEPT_RETRY_DELAY = 0.1
limits.STOPPING_SECONDS = 0.1
"""


def test_connections_follow_the_files_that_may_be_open(start, trained_run):
    """With fewer files than clients, no client makes the server complain."""
    server = start(trained_run.path, before=FEW_FILES)
    [warning] = server.warnings
    assert "at most 32 connections" in warning

    for _ in range(150):
        raw(server, b"")
    time.sleep(0.3)  # asyncio tries a failed `accept` again, by then
    assert server.predict("rain")[0] == 200

    server.process.send_signal(signal.SIGTERM)
    stopping, stopped = server.process.stderr.read().splitlines()
    assert re.match(f"{TIME}  stopping: ", stopping)
    assert re.fullmatch(f"{TIME}  stopped; all accepted requests got their responses", stopped)


def test_an_idle_connection_ends_after_a_time_that_can_be_set(start, trained_run):
    server = start(trained_run.path, "--keep-alive", "1")
    connection = raw(server, GET_PAGE)
    connection.settimeout(KEEP_ALIVE_SECONDS / 2)

    assert b"200 OK" in read_all(connection)


def test_connections_are_kept_longer_than_load_balancers_keep_theirs():
    """Nginx and the load balancers of clouds keep theirs for 60 seconds."""
    assert KEEP_ALIVE_SECONDS > 60


@pytest.fixture(scope="module")
def small_server(start, trained_run):
    """A server with memory for the bodies of few requests."""
    few_bytes = "from encoder_cls.serving import limits; limits.MAX_HELD_BYTES = 40_000"
    return start(trained_run.path, before=few_bytes)


def test_clients_that_hang_up_are_forgotten(small_server):
    """A request leaves no trace in the queue, and its room is free for others."""
    body = json.dumps({"texts": ["rain snow " * 2000]}).encode()
    for _ in range(5):
        raw(small_server, post(body)).close()

    wait_until(lambda: small_server.ask("POST", "/predict", body)[0] == 200)
    wait_until(lambda: "waiting_requests 0" in small_server.metrics())


def test_bodies_that_take_too_much_memory_are_refused(small_server):
    body = json.dumps({"texts": ["rain snow " * 4001]}).encode()

    refused = raw(small_server, post(body)).recv(1 << 16).lower()

    assert refused.startswith(b"http/1.1 429 ")
    assert b"\r\nretry-after: 1\r\n" in refused


def test_bodies_that_take_too_much_memory_together_are_refused(small_server):
    """The room of a body that is still coming is free once its client hangs up."""
    body = json.dumps({"texts": ["rain snow " * 2500]}).encode()
    unfinished = raw(small_server, post(body)[:-1])

    wait_until(lambda: small_server.ask("POST", "/predict", body)[0] == 429)
    unfinished.close()
    wait_until(lambda: small_server.ask("POST", "/predict", body)[0] == 200)


# Reloads


def test_a_damaged_model_does_not_replace_the_first(start, run_copy, classifier):
    server = start(run_copy.path)
    weights = run_copy.model / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    server.process.send_signal(signal.SIGHUP)

    line = server.wait_for_line("warning: not reloaded, model ")
    assert "has changed since it was written" in line
    assert server.predict("rain")[1]["model"] == classifier.sha256
    assert 'encoder_cls_reloads_total{outcome="failed"} 1.0' in server.metrics()


def test_another_model_takes_the_place_of_the_first(start, run_copy, classifier):
    server = start(run_copy.path)
    other = load_classifier(run_copy.path)
    other.mixture = Mixture(weights={"encoder": 0.5, "linear": 0.5})
    save_classifier(other, run_copy.model)

    server.process.send_signal(signal.SIGHUP)

    server.wait_for_line("reloaded: model ")
    status, found = server.predict("rain")
    assert status == 200
    assert found["model"] == load_classifier(run_copy.path).sha256
    assert found["model"] != classifier.sha256
    expected = other.predict(["rain"])[0].probability
    assert found["predictions"][0]["probability"] == pytest.approx(expected, abs=1e-5)


def rename_class(run) -> str:
    """Rename the first class of the model of a run; returns its old name."""
    other = load_classifier(run.path)
    old_name, *names = other.label_names
    other.label_names = ("renamed", *names)
    save_classifier(other, run.model)
    return old_name


def test_a_model_with_other_classes_is_reloaded_with_a_warning(start, run_copy):
    server = start(run_copy.path)
    old_name = rename_class(run_copy)

    server.process.send_signal(signal.SIGHUP)

    line = server.wait_for_line("warning: the reloaded model has other classes: ")
    assert line.endswith(f"added: 'renamed'; gone: '{old_name}'\n")
    assert "renamed" in server.ask("GET", "/health")[1]["labels"]


def test_a_model_with_other_classes_is_refused_where_labels_must_stay(start, run_copy, classifier):
    server = start(run_copy.path, "--same-labels")
    old_name = rename_class(run_copy)

    server.process.send_signal(signal.SIGHUP)

    line = server.wait_for_line("warning: not reloaded, model ")
    assert line.endswith(f"other classes: added: 'renamed'; gone: '{old_name}'\n")
    assert server.predict("rain")[1]["model"] == classifier.sha256
    assert 'encoder_cls_reloads_total{outcome="failed"} 1.0' in server.metrics()


# The end


def test_a_stop_loses_nothing_that_was_accepted(start, trained_run):
    """Under load each request gets its predictions, is refused with 503, or cannot connect."""
    num_clients = 4
    server = start(trained_run.path)
    have_responses = Barrier(num_clients + 1)
    is_stopping = Event()
    not_connected = 0

    def ask_until_the_end() -> list[int]:
        statuses = []
        while True:
            try:
                status, content = server.predict("rain snow", "the ball", explain=True)
            except ConnectionError:
                assert is_stopping.is_set()
                return [*statuses, not_connected]

            assert status in {200, 503}
            if status == 200:
                assert len(content["predictions"]) == 2
            if not statuses:
                have_responses.wait(TIME_LIMIT)
            statuses.append(status)

    with ThreadPoolExecutor(num_clients) as pool:
        clients = [pool.submit(ask_until_the_end) for _ in range(num_clients)]
        have_responses.wait(TIME_LIMIT)
        is_stopping.set()
        assert server.stop() == 0

        statuses = set()
        for client in clients:
            statuses.update(client.result(30))
    assert statuses == {200, 503, not_connected}


SLOW_WITH_TWO_TEXTS = """
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


def test_a_second_signal_ends_at_once(start, trained_run):
    """It ends with the code of the signal, and tells how many requests have no response."""
    server = start(trained_run.path, before=SLOW_WITH_TWO_TEXTS)
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(server.predict, "rain", "snow")
        wait_until(lambda: "waiting_requests 1.0" in server.metrics())

        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line("stopping: 1 requests wait for their responses")
        server.process.send_signal(signal.SIGTERM)

        line = server.wait_for_line("stopped at once")
        assert "requests without a response: 1" in line
        assert server.process.wait(10) == 143
        with suppress(ConnectionError, HTTPException):
            assert client.result(30)[0] == 500


# The command


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "nowhere: no such folder"),
        (["{run}", "--port", "99999"], 2, "--port"),
        (["{run}", "--host", "no.such.host.invalid"], 2, "--host no.such.host.invalid"),
        (["{run}", "--port", "{taken}"], 1, "cannot listen: Address already in use"),
    ],
)
def test_a_server_that_cannot_start_says_why(cli, trained_run, arguments, code, message):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"run": trained_run.path, "taken": taken.getsockname()[1]}
        outcome = cli("serve", *(argument.format(**values) for argument in arguments))

    assert outcome.code == code
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_its_libraries_serve_says_what_to_install(cli, trained_run, monkeypatch):
    monkeypatch.setattr("encoder_cls.system.libraries.is_installed", lambda name: name != "uvicorn")

    outcome = cli("serve", trained_run.path)

    assert outcome.code == 2
    assert outcome.err == "error: serve: needs uvicorn: pip install 'encoder-cls[serve]'\n"
