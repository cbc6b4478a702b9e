"""Training from Python: the examples of its page, and custom objectives."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from support.programs import assert_failed
from support.small_runs import CPU, WITH_LINEAR, make_config, weights_hash, write_data

import encoder_cls
from encoder_cls.errors import ConfigError
from encoder_cls.training import plan

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    """The examples run one after another, beside a file of labelled texts, and check themselves."""
    write_data(tmp_path, texts=60)
    page = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) > 5

    # Turn off the techniques for few labels, which take longest.
    monkeypatch.setattr(plan, "MAX_LABELLED", 0)
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    for example in examples:
        exec(example, namespace)

    assert capsys.readouterr().out == "red\nblue\n"
    assert (tmp_path / "runs" / "focal" / "eval" / "report.json").exists()
    assert "points of accuracy" in namespace["report"].summary()


def test_an_objective_is_what_the_encoder_learns(tmp_path):
    """The usual loss as an objective gives the usual weights; pretraining keeps its own loss."""
    config = make_config(tmp_path, epochs=1, pretrain={"epochs": 1})
    kinds_of_batches = set()

    def usual_objective(model, batch):
        kinds_of_batches.add(type(batch).__name__)
        return batch.loss(model)

    def half_objective(model, batch):
        return batch.loss(model) / 2

    def trained(name, objective=None) -> str:
        folder = tmp_path / name
        encoder_cls.train(config, run_dir=folder, objective=objective, device=str(CPU))
        return weights_hash(folder)

    expected = trained("plain")
    assert trained("usual", usual_objective) == expected
    assert trained("half", half_objective) != expected
    assert kinds_of_batches == {"SingleLabelBatch"}


def test_an_objective_that_nothing_asks_is_warned_of(tmp_path):
    config = make_config(tmp_path, model={"encoder": False}, **WITH_LINEAR)

    with pytest.warns(UserWarning, match="the objective is never called"):
        encoder_cls.train(config, run_dir=tmp_path / "run", objective=lambda model, batch: None)


class Rescaled(encoder_cls.EncoderClassifier):
    """An encoder classifier with a weight more than the usual one."""

    def __init__(self, config, *, vocab_size, num_classes):
        super().__init__(config, vocab_size=vocab_size, num_classes=num_classes)
        self.scale = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, *batch):
        return self.scale * super().forward(*batch)


def test_a_model_of_ones_own_is_trained_saved_and_compared(tmp_path, cli):
    """Its folder has no code: who loads it passes the class."""
    config = make_config(tmp_path, epochs=2, pretrain={"epochs": 1}, keep_checkpoints=1)
    run = tmp_path / "own"
    trained = encoder_cls.train(config, run_dir=run, model_class=Rescaled, device=str(CPU))

    loaded = encoder_cls.load_classifier(run, model_class=Rescaled)
    assert loaded.encoder.named_weights()["scale"] != 3
    assert loaded.predict_proba(["red end"]).tolist() == trained.predict_proba(["red end"]).tolist()

    with pytest.raises(ConfigError, match="class Rescaled, not of EncoderClassifier"):
        encoder_cls.load_classifier(run)
    assert_failed(cli("predict", "red end", "--model", run), 2, "of the class Rescaled")

    usual = tmp_path / "usual"
    encoder_cls.train(config, run_dir=usual, device=str(CPU))
    table = cli("compare", run, usual).out.splitlines()
    assert table[-1].split() == ["model.class", "Rescaled", "-"]
    with pytest.raises(ConfigError, match="class EncoderClassifier, not of Rescaled"):
        encoder_cls.load_classifier(usual, model_class=Rescaled)


def test_a_model_of_ones_own_is_a_subclass(tmp_path):
    with pytest.raises(TypeError, match="no subclass of EncoderClassifier"):
        encoder_cls.train(make_config(tmp_path), model_class=torch.nn.Linear)

    config = make_config(tmp_path, pretrain={"epochs": 1, "objective": "denoising"})
    with pytest.raises(ConfigError, match="denoising has a model of its own"):
        encoder_cls.train(config, run_dir=tmp_path / "run", model_class=Rescaled)


def test_trainings_in_threads_give_the_weights_of_one_after_the_other(tmp_path):
    """Torch has one random generator per process, whose state the caller gets back."""
    config = make_config(tmp_path, epochs=1)

    def trained(name: str) -> str:
        encoder_cls.train(config, run_dir=tmp_path / name, device=str(CPU))
        return weights_hash(tmp_path / name)

    state = torch.get_rng_state()
    expected = trained("alone")
    assert torch.equal(torch.get_rng_state(), state)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(trained, ["first", "second"])) == [expected] * 2


def test_a_config_may_be_a_file(tmp_path):
    """Training into an existing run is refused."""
    config_file = tmp_path / "config.yaml"
    config_file.write_text(make_config(tmp_path, epochs=1).to_yaml())

    classifier = encoder_cls.train(config_file, run_dir=tmp_path / "run")

    assert classifier.label_names == ("blue", "green", "red")
    with pytest.raises(ConfigError, match="already holds a run"):
        encoder_cls.train(config_file, run_dir=tmp_path / "run")


def test_an_unknown_key_among_the_values_of_a_config_is_named():
    with pytest.raises(ConfigError, match=r"train\.epoch"):
        encoder_cls.train({"data.train": "train.csv", "train.epoch": 1})
