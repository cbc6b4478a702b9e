"""`predict` where a GPU computes the encoder. PyTorch on the CPU takes its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from encoder_cls.bulk import input_size, input_texts
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.encoder import engine_choice
from encoder_cls.encoder.torch_encoder import TorchEncoder

# More texts than one chunk has, of which some are easy for the linear model.
TEXTS = ["rain and snow today", "soup with zzz", "the team", "zzz qqq", "ball and rain"] * 6
CHUNK = 8
NUM_CHUNKS = 4


class Card:
    """What the GPU of a test has computed.

    Attributes:
        num_texts: the number of texts of each batch of work.
        devices: the devices for which encoders were asked.
    """

    def __init__(self) -> None:
        self.num_texts: list[int] = []
        self.devices: list[str] = []


@pytest.fixture
def card(monkeypatch) -> Card:
    """A GPU, which is worth its start for any work, on a machine with two processors."""
    card = Card()
    make = TorchEncoder.from_weights.__func__
    compute = TorchEncoder.logits

    def make_on_cpu(cls, architecture, weights, *, device):
        card.devices.append(device)
        return make(cls, architecture, weights, device="cpu")

    def recorded_logits(self, texts, **options):
        card.num_texts.append(len(texts))
        return compute(self, texts, **options)

    monkeypatch.setattr(TorchEncoder, "from_weights", classmethod(make_on_cpu))
    monkeypatch.setattr(TorchEncoder, "logits", recorded_logits)
    monkeypatch.setattr(engine_choice, "has_gpu", lambda: True)
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", 0)
    monkeypatch.setattr(engine_choice, "GPU_BREAK_EVEN", 0)
    monkeypatch.setattr(input_size, "usable_processes", lambda: 2)
    monkeypatch.setattr(input_size, "SHARED_BYTES", 1)
    monkeypatch.setattr(input_texts, "CHUNK", CHUNK)
    return card


@pytest.fixture
def gated(trained_run, tmp_path) -> Path:
    """A model whose linear model alone predicts some of the texts."""
    classifier = load_classifier(trained_run.path, engine="numpy")
    confidence = [prediction.probability for prediction in classifier.predict(TEXTS[:5])]
    classifier.gate = sum(confidence) / len(confidence)
    save_classifier(classifier, tmp_path / "gated")
    return tmp_path / "gated"


@pytest.fixture
def texts(tmp_path) -> Path:
    """A file of all texts."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def rows_of(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


def test_processes_prepare_texts_and_the_gpu_gets_those_that_the_gate_leaves(
    cli, card, gated, texts, monkeypatch
):
    command = ["predict", "--model", gated, "--input", texts, "--format", "jsonl"]
    outcome = cli(*command)
    assert outcome.code == 0
    rows = rows_of(outcome.out)
    on_card = list(card.num_texts)

    assert card.devices == ["cuda"]
    assert len(on_card) == NUM_CHUNKS
    answered_by = [row["answered_by"] for row in rows]
    assert sum(on_card) == answered_by.count("both")
    assert 0 < answered_by.count("both") < len(TEXTS)

    # NumPy predicts the same without a GPU.
    monkeypatch.setattr(engine_choice, "BREAK_EVEN", 1e18)
    without = rows_of(cli(*command).out)
    assert card.num_texts == on_card
    for row, expected in zip(rows, without, strict=True):
        assert row["label"] == expected["label"]
        assert row["answered_by"] == expected["answered_by"]
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-5)


@pytest.mark.slow
def test_a_named_gpu_shares_the_work_as_well(cli, card, gated, texts, used_workers, monkeypatch):
    """Explanations ask the GPU, too, for texts from which words are left out."""
    monkeypatch.setattr(TorchEncoder, "uses_gpu", True)
    command = ["predict", "--model", gated, "--input", texts, "--format", "jsonl", "--explain"]

    rows = rows_of(cli(*command, "--device", "cuda").out)

    assert used_workers
    assert card.devices == ["cuda"]
    assert sum(card.num_texts) > len(TEXTS)
    assert all(row["explanation"] for row in rows)


@pytest.mark.usefixtures("card")
def test_an_error_of_the_gpu_ends_the_command(cli, gated, texts, monkeypatch):
    def fail(self, texts, **options):
        raise MemoryError

    monkeypatch.setattr(TorchEncoder, "logits", fail)

    outcome = cli("predict", "--model", gated, "--input", texts, "--output", "out.jsonl")

    assert outcome.code == 1
    assert "memory" in outcome.err
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("gate", "fraction"),
    [(None, 1.0), (0.0, 0.0), (1.1, 1.0)],
)
def test_the_first_texts_show_how_many_skip_the_encoder(classifier, monkeypatch, gate, fraction):
    """The choice of the device takes it into account."""
    chosen: list[float] = []
    gated = replace(classifier, gate=gate)

    def choose(_self, _num_tokens, *, fraction_computed, num_processes):
        chosen.append(fraction_computed())

    monkeypatch.setattr(engine_choice.AutomaticEncoder, "choose_engine", choose)
    input_size.choose_engine(gated, 10**9, first_texts=lambda limit: TEXTS[:limit])

    assert chosen == [fraction]


def test_a_file_shows_its_first_texts(classifier: Classifier, texts):
    options = Request(source=str(texts))
    source = input_texts.InputTexts(options, classifier)

    assert source.first_texts(3) == TEXTS[:3]


def test_an_input_that_cannot_be_read_shows_no_first_texts(classifier: Classifier, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("other\nrain\n")
    given = input_texts.InputTexts(Request(texts=["rain"]), classifier)
    malformed = input_texts.InputTexts(Request(source=str(path)), classifier)

    assert given.first_texts(3) == []
    assert malformed.first_texts(3) == []
