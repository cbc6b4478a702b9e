"""docs/export.md and docs/deploy.md: their programs do what the pages say."""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.node import needs_node, run_node
from support.programs import TIME_LIMIT

from encoder_cls.extras.export.javascript import javascript_module
from encoder_cls.extras.export.model_file import exported_model

DOCS = Path(__file__).parents[3] / "docs"
PAGES = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("export.md", "deploy.md"))
TEXTS = ["rain and snow", "ball goal team"]


def program(name: str) -> str:
    """The program of the pages whose first line is a comment with this name."""
    [found] = re.findall(rf"```\w+\n(?://|#) {re.escape(name)}\n(.*?)```", PAGES, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def programs(trained_run, tmp_path_factory) -> Path:
    """A folder with an exported model and the programs of the pages that use it."""
    folder = tmp_path_factory.mktemp("programs")
    module = javascript_module(exported_model(trained_run.path))
    (folder / "spam.mjs").write_text(module, encoding="utf-8")
    for name in ("worker.mjs", "server.mjs", "edge.mjs"):
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
def test_the_worker_answers_messages(programs, classifier):
    code = f"""
    globalThis.onmessage = null;
    globalThis.postMessage = (predictions) => process.stdout.write(JSON.stringify(predictions));
    await import("{(programs / "worker.mjs").as_uri()}");
    await onmessage({{ data: {json.dumps(TEXTS)} }});
    """
    labels = [prediction["label"] for prediction in json.loads(run_node(code))]
    assert labels == [prediction.label for prediction in classifier.predict(TEXTS)]


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


def run_program(name: str, folder: Path, **replaced: str) -> str:
    """What a program in Python prints that runs in a folder, after some replacements in it."""
    code = program(name)
    for before, after in replaced.items():
        assert before in code
        code = code.replace(before, after)
    file = folder / name
    file.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(find_spec("duckdb") is None, reason="needs duckdb")
def test_texts_are_classified_in_sql(trained_run, classifier, tmp_path):
    """A text that is NULL or empty has no label."""
    (tmp_path / "corpus").mkdir()
    table = pa.table({"text": [*TEXTS, None, ""]})
    pyarrow.parquet.write_table(table, tmp_path / "corpus" / "a.parquet")

    printed = run_program("duckdb_function.py", tmp_path, **{"runs/spam": str(trained_run.path)})
    first, second = [prediction.label for prediction in classifier.predict(TEXTS)]
    assert sorted(map(str, ast.literal_eval(printed))) == sorted(
        map(str, [(None, 2), (first, 1), (second, 1)])
    )


@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow")
def test_a_model_of_mlflow_is_saved_loaded_and_asked(trained_run, classifier, tmp_path):
    replaced = {"runs/spam": str(trained_run.path), "first text": TEXTS[0], "second text": TEXTS[1]}
    printed = run_program("mlflow_model.py", tmp_path, **replaced)
    labels = [prediction.label for prediction in classifier.predict(TEXTS)]
    assert ast.literal_eval(printed) == labels
