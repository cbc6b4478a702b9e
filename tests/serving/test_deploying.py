"""The files of docs/deploy.md for production name what exists, and other programs accept them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest
import typer.main
import yaml
from support.local_servers import wait_until
from support.programs import TIME_LIMIT

from encoder_cls.classifier.classifier import TextFormat
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.cli.app import app
from encoder_cls.config.reading_options import ReadingOptions

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
# Programs that are not in the PATH can be named by environment variables.
NGINX = os.environ.get("NGINX") or shutil.which("nginx")
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")

# The clients that send requests during an update, and the time between two requests of a client.
NUM_CLIENTS = 8
SECONDS_BETWEEN_REQUESTS = 0.25


def page_file(name: str) -> str:
    """The content of a file of the page, whose first line has its name."""
    (content,) = re.findall(
        rf"^```\w+\n(# {re.escape(name)}\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    return content


def check_serve(words: list[str]) -> None:
    """Check the arguments of a command `encoder-cls serve`."""
    program, name, *arguments = words
    assert program.endswith("/encoder-cls")
    assert name == "serve"
    arguments = [argument.replace("%i", "8001") for argument in arguments]
    typer.main.get_command(app).commands[name].make_context(name, arguments)


def instructions_of(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its arguments."""
    lines = dockerfile.replace("\\\n", " ").splitlines()
    instructions = []
    for line in lines:
        if line and not line.startswith("#"):
            name, _, arguments = line.partition(" ")
            instructions.append((name, arguments.strip()))
    return instructions


def test_the_image_is_built_of_files_that_exist():
    """But for the model, which is a folder of the user."""
    for name, arguments in instructions_of(page_file("Dockerfile")):
        if name != "COPY" or "--from" in arguments:
            continue
        *sources, _target = arguments.split()
        for source in sources:
            assert source == "model" or (ROOT / source).exists(), source


def test_the_image_installs_an_extra_of_the_runtime_and_serves():
    instructions = dict(instructions_of(page_file("Dockerfile")))

    (extra,) = re.findall(r"/source/runtime\[(\w+)\]", instructions["RUN"])
    runtime = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text())
    assert extra in runtime["project"]["optional-dependencies"]
    check_serve(json.loads(instructions["CMD"]))


def test_the_image_asks_its_own_server_for_its_health(server):
    """The check of the image, run with the port of a server, succeeds; without one it fails."""
    instructions = dict(instructions_of(page_file("Dockerfile")))
    _, _, check = instructions["HEALTHCHECK"].partition("CMD ")
    _python, option, code = json.loads(check)

    def exit_code(port: int) -> int:
        command = [sys.executable, option, code.replace(":8000", f":{port}")]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode

    assert exit_code(server.port) == 0
    assert exit_code(free_port()) != 0


def test_containers_and_nginx_name_each_other():
    compose = yaml.safe_load(page_file("compose.yaml"))
    nginx = page_file("nginx.conf")

    servers = set(re.findall(r"server ([\w-]+):8000 ", nginx))
    assert servers == set(compose["services"]) - {"nginx"}
    assert set(compose["services"]["nginx"]["depends_on"]) == servers
    for name in servers:
        assert compose["services"][name]["build"] == "."


def test_probes_tell_a_server_that_stops_from_one_that_is_broken(server):
    """Life and readiness are asked at paths of the server."""
    deployment, service = yaml.safe_load_all(page_file("kubernetes.yaml"))
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]

    live_path = container["livenessProbe"]["httpGet"]["path"]
    ready_path = container["readinessProbe"]["httpGet"]["path"]
    assert live_path != ready_path
    assert container["startupProbe"]["httpGet"]["path"] == live_path
    for path in (live_path, ready_path):
        assert server.ask("GET", path)[0] == 200

    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert container["ports"][0]["containerPort"] == 8000
    # The pause before the stop, the second of 503, and the last responses take less than this.
    assert pod["spec"]["terminationGracePeriodSeconds"] > 10 + 1 + 30


def test_a_server_that_stops_is_alive_but_takes_no_requests(start, trained_run):
    server = start(trained_run.path)
    assert server.ask("GET", "/live") == (200, {"status": "ok"})

    server.process.terminate()
    server.wait_for_line("stopping")

    assert server.ask("GET", "/live")[0] == 200
    assert server.ask("GET", "/health")[0] == 503
    assert server.predict("rain")[0] == 503
    assert server.process.wait(TIME_LIMIT) == 0


def test_a_server_that_cannot_predict_any_more_is_not_alive(start, trained_run):
    """Its computing thread has ended without being asked to."""
    end_at_once = (
        "from encoder_cls.serving.request_queue import Batcher\nBatcher._work = lambda self: None"
    )
    server = start(trained_run.path, before=end_at_once)

    for path in ("/live", "/health"):
        status, content = server.ask("GET", path)
        assert status == 503
        assert content == {"error": "the computing thread has ended"}


def test_alerts_name_metrics_of_the_server(server):
    server.predict("rain")
    metrics = server.metrics()
    rules = yaml.safe_load(page_file("alerts.yaml"))["groups"][0]["rules"]

    assert len(rules) == 3
    for rule in rules:
        names = re.findall(r"encoder_cls_\w+", rule["expr"])
        assert names
        for name in names:
            assert f"\n{name}" in metrics, name
        for label in re.findall(r"[{,](\w+)[=~]", rule["expr"]):
            assert f'{label}="' in metrics, label


def test_the_service_serves():
    unit = page_file("/etc/systemd/system/encoder-cls@.service")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    check_serve(shlex.split(command))


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd is not installed")
def test_systemd_accepts_the_service(tmp_path):
    unit = page_file("/etc/systemd/system/encoder-cls@.service")
    path = tmp_path / "encoder-cls@8001.service"
    path.write_text(unit.replace("/opt/encoder-cls/bin/encoder-cls", sys.executable))

    command = [SYSTEMD_ANALYZE, "verify", "--man=no", str(path)]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


ALERT_TESTS = """
rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'encoder_cls_requests_total{path="/predict",status="200"}'
        values: '0+95x120'
      - series: 'encoder_cls_requests_total{path="/predict",status="429"}'
        values: '0+5x120'
      - series: 'encoder_cls_predict_seconds_bucket{le="0.5"}'
        values: '0+90x120'
      - series: 'encoder_cls_predict_seconds_bucket{le="1"}'
        values: '0+100x120'
      - series: 'encoder_cls_predict_seconds_bucket{le="+Inf"}'
        values: '0+100x120'
      - series: 'encoder_cls_unknown_word_rate'
        values: '0.01x600 0.05x120'
    alert_rule_test:
      - {eval_time: 3m, alertname: ClassifierRefuses, exp_alerts: []}
      - eval_time: 30m
        alertname: ClassifierRefuses
        exp_alerts:
          - exp_annotations:
              summary: "5% of requests are refused or fail: add a server"
      - eval_time: 30m
        alertname: ClassifierSlow
        exp_alerts:
          - exp_annotations: {summary: "5% of responses take more than 750ms"}
      - {eval_time: 590m, alertname: TextsUnlikeTraining, exp_alerts: []}
      - eval_time: 700m
        alertname: TextsUnlikeTraining
        exp_alerts:
          - exp_annotations:
              summary: "5% of words are unknown, twice as many as usual: label new texts"
"""


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed")
def test_prometheus_raises_the_alerts(tmp_path):
    """Refusals, slow responses and unknown words each raise one, and only after a while."""
    (tmp_path / "alerts.yaml").write_text(page_file("alerts.yaml"))
    (tmp_path / "tests.yaml").write_text(ALERT_TESTS)

    command = [PROMTOOL, "test", "rules", str(tmp_path / "tests.yaml")]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def free_port() -> int:
    """A port that no program uses at the moment."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def nginx_before(ports: list[int], folder: Path) -> Iterator[int]:
    """Run nginx with the configuration of the page before servers; yields its port."""
    port = free_port()
    conf = page_file("nginx.conf")
    for name, server_port in zip(("classifier-a", "classifier-b"), ports, strict=True):
        conf = conf.replace(f"{name}:8000", f"127.0.0.1:{server_port}")
    conf = conf.replace("listen 80;", f"listen 127.0.0.1:{port};")

    # A user who is not root has no other folders for the files of nginx.
    places = ["access_log off;"]
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        places.append(f"{kind}_temp_path {folder / kind};")
    conf = conf.replace("http {", "\n".join(["http {", *places]), 1)
    (folder / "nginx.conf").write_text(conf)

    directives = f"daemon off; pid {folder / 'nginx.pid'}; error_log {folder / 'error.log'};"
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", directives]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: status_of(port, "/health") == 200)
            yield port
        finally:
            process.terminate()


def status_of(port: int, path: str) -> int | None:
    """The status of the response at a path; None if there is no response."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIME_LIMIT)) as client:
            client.request("GET", path)
            return client.getresponse().status
    except OSError:
        return None


def predict_until(stopped: Event, port: int) -> Counter[tuple[int, str]]:
    """Send requests, and count the responses by their status and their model."""
    counts: Counter[tuple[int, str]] = Counter()
    while not stopped.is_set():
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=TIME_LIMIT)
        with closing(client):
            body = json.dumps({"texts": ["rain and snow"]})
            client.request("POST", "/predict", body, {"Content-Type": "application/json"})
            response = client.getresponse()
            content = response.read()
        model = json.loads(content)["model"] if response.status == 200 else ""
        counts[response.status, model] += 1
        stopped.wait(SECONDS_BETWEEN_REQUESTS)
    return counts


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_an_update_loses_no_request(start, trained_run, tmp_path):
    """Two servers behind nginx are replaced one after the other while clients send requests."""
    new_model = load_classifier(trained_run.path)
    new_model.text_format = TextFormat(reading=ReadingOptions(delimiter=";"))
    save_classifier(new_model, tmp_path / "model")
    ports = [free_port(), free_port()]
    servers = [start(trained_run.path, "--port", str(port), host="0.0.0.0") for port in ports]
    stopped = Event()

    with nginx_before(ports, tmp_path) as port, ThreadPoolExecutor(NUM_CLIENTS) as clients:
        try:
            results = [clients.submit(predict_until, stopped, port) for _ in range(NUM_CLIENTS)]
            for server in servers:
                time.sleep(1)
                assert server.stop() == 0
                start(tmp_path / "model", "--port", str(server.port), host="0.0.0.0")
            time.sleep(1)
        finally:
            stopped.set()

    counts: Counter[tuple[int, str]] = Counter()
    for result in results:
        counts += result.result()
    assert {status for status, _ in counts} == {200}
    assert len(counts) == 2
    assert min(counts.values()) > NUM_CLIENTS
