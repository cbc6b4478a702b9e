"""docs/deploy.md: its programs around an exported model and in Python do what the page says."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.node import needs_node, run_node

from encoder_cls.export.javascript import javascript_module
from encoder_cls.export.model_file import exportable_model

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
TEXTS = ["rain and snow", "ball goal team"]


def program(name: str) -> str:
    """The program of the page whose first line is a comment with this name."""
    [found] = re.findall(rf"```\w+\n(?://|#) {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def programs(trained_run, tmp_path_factory) -> Path:
    """A folder with an exported model and the programs of the page that use it."""
    folder = tmp_path_factory.mktemp("programs")
    module = javascript_module(*exportable_model(trained_run.path))
    (folder / "spam.mjs").write_text(module, encoding="utf-8")
    for name in ("server.mjs", "edge.mjs"):
        (folder / name).write_text(program(name), encoding="utf-8")
    return folder


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def check_responses(responses: list, classifier) -> None:
    """Check the response to `TEXTS`, and that to a body that is not JSON."""
    (status, predicted), (status_of_error, error) = responses
    assert status == 200
    labels = [prediction["label"] for prediction in predicted["predictions"]]
    assert labels == [prediction.label for prediction in classifier.predict(TEXTS)]
    assert status_of_error == 400
    assert "JSON" in error["error"]


ASK_BOTH = """
const bodies = [JSON.stringify({ texts: TEXTS }), "no"];
const responses = [];
for (const body of bodies) {
  const response = await ask({ method: "POST", body });
  responses.push([response.status, await response.json()]);
}
process.stdout.write(JSON.stringify(responses), () => process.exit());
""".replace("TEXTS", json.dumps(TEXTS))


@needs_node
def test_the_server_in_node_responds(programs, classifier):
    port = free_port()
    code = f"""
    process.env.PORT = "{port}";
    await import("{(programs / "server.mjs").as_uri()}");
    const ask = (options) => fetch("http://127.0.0.1:{port}/", options);
    """
    check_responses(json.loads(run_node(code + ASK_BOTH)), classifier)


@needs_node
def test_the_edge_function_responds(programs, classifier):
    code = f"""
    const {{ default: edge }} = await import("{(programs / "edge.mjs").as_uri()}");
    const ask = (options) => edge.fetch(new Request("http://localhost/", options));
    """
    check_responses(json.loads(run_node(code + ASK_BOTH)), classifier)


def test_a_corpus_is_filtered(trained_run, tmp_path, monkeypatch):
    """Only the rows with the label are kept, with all their columns."""
    (tmp_path / "corpus").mkdir()
    table = pa.table({"id": [1, 2, 3], "text": [*TEXTS, "snow and frost"]})
    pyarrow.parquet.write_table(table, tmp_path / "corpus" / "a.parquet")

    monkeypatch.chdir(tmp_path)
    code = program("filter_corpus.py")
    exec(code.replace("runs/spam", str(trained_run.path)).replace("ham", "weather"), {})
    assert pyarrow.parquet.read_table("kept.parquet")["id"].to_pylist() == [1, 3]
