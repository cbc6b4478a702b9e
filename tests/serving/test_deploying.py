"""The image and the alerts of docs/deploy.md name what exists, and probes tell the truth."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import typer.main
import yaml
from support.programs import TIME_LIMIT

from encoder_cls.cli.app import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


def page_file(name: str) -> str:
    """The content of a file of the page, whose first line has its name."""
    (content,) = re.findall(
        rf"^```\w+\n(# {re.escape(name)}\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    return content


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
    program, name, *arguments = json.loads(instructions["CMD"])
    assert program.endswith("/encoder-cls")
    typer.main.get_command(app).commands[name].make_context(name, arguments)


def test_the_image_asks_its_own_server_for_its_health(server):
    """The check of the image, run with the port of a server, succeeds; without one it fails."""
    instructions = dict(instructions_of(page_file("Dockerfile")))
    _, _, check = instructions["HEALTHCHECK"].partition("CMD ")
    _python, option, code = json.loads(check)

    def exit_code(port: int) -> int:
        command = [sys.executable, option, code.replace(":8000", f":{port}")]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode

    assert exit_code(server.port) == 0
    with closing(socket.socket()) as listener:
        # The port is taken, but nobody listens there.
        listener.bind(("127.0.0.1", 0))
        assert exit_code(listener.getsockname()[1]) != 0


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
