"""Models of the Hugging Face Hub, loaded from a stand-in on this machine: no test needs a network.

The library beneath reads the environment when it is imported, so everything runs in processes of
its own.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.hub_stand_in import HubStandIn
from support.programs import run_beside_hub

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier

FILES = ["config.json", "tokenizer.json", "model.safetensors"]
LOAD = """
import json, sys
from encoder_cls import load_classifier
from encoder_cls.errors import EncoderClsError

for name in json.loads(sys.argv[1]):
    try:
        classifier = load_classifier(name, engine="numpy")
        probabilities = classifier.predict_proba(["rain and snow"])
        result = [type(classifier.encoder).__name__, probabilities.tolist()]
    except EncoderClsError as error:
        result = [error.exit_code, str(error)]
    print(json.dumps(result))
"""


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a model folder."""
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def hub(trained_run, tmp_path_factory) -> Iterator[HubStandIn]:
    """A Hub with the trained model, an earlier and less sure one, and some that are none."""
    model = files_of(trained_run.model)
    weights = model["model.safetensors"]
    last_bit_flipped = weights[:-1] + bytes([weights[-1] ^ 1])

    less_sure = load_classifier(trained_run.path, engine="numpy")
    less_sure.mixture = Mixture(weights={"encoder": 0.01, "linear": 0.01})
    folder = tmp_path_factory.mktemp("v1")
    save_classifier(less_sure, folder)

    foreign = {"config.json": b'{"model_type": "bert"}', "model.safetensors": weights}
    repositories = {
        "owner/model": {
            "main": {"README.md": b"# Mine\n", "code.py": b"1 / 0\n", **model},
            "v1": files_of(folder),
        },
        "owner/damaged": {"main": model | {"model.safetensors": last_bit_flipped}},
        "owner/partial": {"main": {name: model[name] for name in FILES[:2]}},
        "owner/other": {"main": foreign},
        "owner/empty": {"main": {"README.md": b"# Nothing\n"}},
    }
    with HubStandIn(repositories) as stand_in:
        yield stand_in


def load(*names: str, folder: Path, **environment: str) -> list[list[object]]:
    """Load each of these in a process with a cache in this folder.

    The results are an engine and probabilities, or an exit code and a message.
    """
    ended = run_beside_hub(LOAD, json.dumps(names), cache=folder, **environment)
    assert ended.stderr == ""
    assert ended.returncode == 0
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def cache(hub, tmp_path_factory) -> Path:
    """A cache into which the model has been downloaded, beside what loading it gave."""
    folder = tmp_path_factory.mktemp("cache")
    found = load("hub:owner/model", folder=folder, HF_ENDPOINT=hub.url)
    (folder / "found").write_text(json.dumps(found))
    return folder


def test_a_model_of_the_hub_is_the_model(hub, cache, classifier):
    """It predicts as the folder does, and nothing but its three files was downloaded."""
    [[engine, probabilities]] = json.loads((cache / "found").read_text())

    expected = classifier.predict_proba(["rain and snow"])
    assert engine == "NumpyEncoder"
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert set(hub.downloaded) <= set(FILES)
    assert hub.unknown == []


def load_from_cache(cache: Path, **environment: str) -> None:
    """Load a revision that is in the cache, and one that is not, without a Hub."""
    downloaded, missing = load(
        "hub:owner/model", "hub:owner/model?revision=v1", folder=cache, **environment
    )

    assert [downloaded] == json.loads((cache / "found").read_text())
    code, message = missing
    assert code == 1
    refused = r"hub:owner/model\?revision=v1: cannot be downloaded: .* \(check the network, .*\)"
    assert re.fullmatch(refused, message)


@pytest.mark.slow
def test_a_downloaded_model_is_loaded_where_the_hub_does_not_respond(cache):
    with socket.socket() as deaf:
        # The port is taken, but nobody listens there: connections are refused.
        deaf.bind(("127.0.0.1", 0))
        _, port = deaf.getsockname()
        load_from_cache(cache, HF_ENDPOINT=f"http://127.0.0.1:{port}")


@pytest.mark.slow
def test_a_downloaded_model_is_loaded_where_the_hub_is_out_of_order(cache):
    with HubStandIn({}) as hub:
        hub.broken_status = 503
        load_from_cache(cache, HF_ENDPOINT=hub.url)


def test_a_downloaded_model_is_loaded_offline(cache):
    load_from_cache(cache, HF_HUB_OFFLINE="1")


@pytest.mark.slow
def test_a_model_of_the_hub_is_exported(cache, tmp_path):
    page = tmp_path / "model.html"
    command = "from encoder_cls.cli.app import main; main()"
    arguments = ["export", "hub:owner/model", "--output", str(page)]

    ended = run_beside_hub(command, *arguments, cache=cache, HF_HUB_OFFLINE="1")

    assert ended.returncode == 0, ended.stderr
    assert "<title>model</title>" in page.read_text()


BADLY_WRITTEN = (2, "write it as hub:owner/name[?revision=...]")
REFUSED = {
    "hub:owner/model?revision=v2": (2, "this model has no revision 'v2'"),
    "hub:owner/nobody": (2, "the Hub has no such model, or does not show it to you"),
    "hub:owner/empty": (2, "not a model of encoder-cls: it has no config.json"),
    "hub:owner/other": (
        2,
        'not a model of encoder-cls: it has no "encoder-cls" in its config.json',
    ),
    "hub:owner/partial": (2, "not a model of encoder-cls: it has no model.safetensors"),
    "hub:owner/damaged": (
        1,
        "damaged, or not a model folder of encoder-cls: "
        "model.safetensors has changed since it was written",
    ),
    "hub:": BADLY_WRITTEN,
    "hub:a/b/c": BADLY_WRITTEN,
    "hub:owner/model?split=train": BADLY_WRITTEN,
}


def test_what_cannot_be_loaded_is_reported_on_a_line(hub, tmp_path):
    """The line has the name as it was given; weights of another program are not downloaded."""
    downloaded_before = len(hub.downloaded)

    former, *refused = load(
        "hub:owner/model?revision=v1", *REFUSED, folder=tmp_path, HF_ENDPOINT=hub.url
    )

    for (name, (code, message)), found in zip(REFUSED.items(), refused, strict=True):
        assert found == [code, f"{name}: {message}"]

    # The earlier revision is the less sure model.
    engine, probabilities = former
    assert engine == "NumpyEncoder"
    assert max(probabilities[0]) < 0.4

    # The weights of v1 and of the damaged model are each looked at and fetched.
    assert hub.downloaded[downloaded_before:].count("model.safetensors") <= 2 * 2
