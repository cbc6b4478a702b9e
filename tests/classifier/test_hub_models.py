"""Models of the Hugging Face Hub, loaded from a stand-in on this machine: no test here needs a network.

The library beneath reads the environment when it is imported, so everything runs in processes of its own.
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

from encoder_cls.classifier.classifier import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.errors import ConfigError
from encoder_cls.system import libraries

FILES = ["config.json", "tokenizer.json", "model.safetensors"]
LOAD = """
import json, sys
from encoder_cls import load_classifier
from encoder_cls.errors import EncoderClsError
for name in json.loads(sys.argv[1]):
    try:
        classifier = load_classifier(name, engine="numpy")
        answer = [type(classifier.encoder).__name__, classifier.predict_proba(["rain and snow"]).tolist()]
    except EncoderClsError as error:
        answer = [error.exit_code, str(error)]
    print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def hub(trained_run, tmp_path_factory) -> Iterator[HubStandIn]:
    """With the trained model, of which there was a less sure one, and with some that are none."""
    model = {name: (trained_run.model / name).read_bytes() for name in FILES}
    former, folder = (
        load_classifier(trained_run.path, engine="numpy"),
        tmp_path_factory.mktemp("v1"),
    )
    former.mixture = Mixture(weights={"encoder": 0.01, "linear": 0.01})
    save_classifier(former, folder)
    v1 = {name: (folder / name).read_bytes() for name in FILES}
    weights = model["model.safetensors"]
    flipped = weights[:-1] + bytes([weights[-1] ^ 1])
    with HubStandIn(
        {
            "owner/model": {
                "main": {"README.md": b"# Mine\n", "code.py": b"1 / 0\n", **model},
                "v1": v1,
            },
            "owner/damaged": {"main": model | {"model.safetensors": flipped}},
            "owner/partial": {"main": {name: model[name] for name in FILES[:2]}},
            "owner/other": {
                "main": {"config.json": b'{"model_type": "bert"}', "model.safetensors": weights}
            },
            "owner/empty": {"main": {"README.md": b"# Nothing\n"}},
        }
    ) as stand_in:
        yield stand_in


def load(*names: str, folder: Path, **environment: str) -> list[list[object]]:
    """What comes of loading each of these: an engine and probabilities, or an exit code and a message."""
    ended = run_beside_hub(LOAD, json.dumps(names), cache=folder, **environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def cache(hub, tmp_path_factory) -> Path:
    """A cache into which the model has been downloaded, beside what loading it gave."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "found").write_text(
        json.dumps(load("hub:owner/model", folder=folder, HF_ENDPOINT=hub.url))
    )
    return folder


def test_a_model_of_the_hub_is_the_model(hub, cache, classifier):
    """It answers as the folder does, and of the repository nothing but the three files was downloaded."""
    [[engine, probabilities]] = json.loads((cache / "found").read_text())
    assert engine == "NumpyEncoder"
    np.testing.assert_allclose(
        probabilities, classifier.predict_proba(["rain and snow"]), atol=1e-5
    )
    assert set(hub.downloaded) <= set(FILES)
    assert hub.unknown == []


def test_a_model_is_loaded_again_where_the_hub_is_out_of_reach(cache):
    """Of the revision that was downloaded; offline by setting, or since nobody answers."""
    expected = json.loads((cache / "found").read_text())
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # taken, but nobody listens there: connections are refused
        nowhere = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        found = load(
            "hub:owner/model", "hub:owner/model?revision=v1", folder=cache, HF_ENDPOINT=nowhere
        )
    offline = load(
        "hub:owner/model", "hub:owner/model?revision=v1", folder=cache, HF_HUB_OFFLINE="1"
    )
    for first, (code, message) in (found, offline):
        assert [first] == expected
        assert code == 1
        assert re.fullmatch(
            r"hub:owner/model\?revision=v1: cannot be downloaded: .* \(check the network, .*\)",
            message,
        )


def test_what_cannot_be_loaded_is_reported_on_a_line(hub, tmp_path):
    """With the name that was given, whatever of it is wrong; weights of another program are not downloaded."""
    expected = {
        "hub:owner/model?revision=v1": ("NumpyEncoder", None),
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
            "damaged, or not a model folder of encoder-cls: model.safetensors has changed since it was written",
        ),
        **dict.fromkeys(
            ("hub:", "hub:a/b/c", "hub:owner/model?split=train"),
            (2, "write it as hub:owner/name[?revision=...]"),
        ),
    }
    before = len(hub.downloaded)
    found = dict(zip(expected, load(*expected, folder=tmp_path, HF_ENDPOINT=hub.url), strict=True))
    for name, (first, message) in expected.items():
        assert found[name][0] == first
        assert message is None or found[name][1] == f"{name}: {message}"
    assert max(found["hub:owner/model?revision=v1"][1][0]) < 0.4
    # Of v1 and of the damaged one, each looked at and fetched.
    assert hub.downloaded[before:].count("model.safetensors") <= 2 * 2


def test_the_library_of_the_hub_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(libraries, "is_installed", lambda _: False)
    with pytest.raises(
        ConfigError, match=r"^hub:owner/name: needs huggingface_hub: pip install huggingface_hub$"
    ):
        load_classifier("hub:owner/name")
