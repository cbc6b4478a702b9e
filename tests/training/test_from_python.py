"""The Transformer and the training as a library: the examples of its page, and an objective of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from support.small_runs import CPU, make_config, weights_hash, write_data

import encoder_cls
from encoder_cls.errors import ConfigError
from encoder_cls.training import plan

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    """One after the other, in a folder with labelled texts; they check themselves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "MOST_LABELLED", 0)  # techniques for few labels take longest
    write_data(tmp_path, texts=60)
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, namespace)
    assert capsys.readouterr().out == "red\n"
    assert (tmp_path / "runs" / "focal" / "eval" / "report.json").exists()


def test_an_objective_is_what_the_encoder_learns(tmp_path):
    """The usual one gives the weights of a run without; another one others; pretraining keeps its own."""
    config, seen = make_config(tmp_path, epochs=1, pretrain={"epochs": 1}), []

    def usual(model, batch):
        seen.append(batch)
        return batch.loss(model)

    def trained(name, objective=None):
        encoder_cls.train(config, run_dir=tmp_path / name, objective=objective, device=str(CPU))
        return weights_hash(tmp_path / name)

    plain = trained("plain")
    assert trained("usual", usual) == plain
    assert {type(batch).__name__ for batch in seen} == {"ClassificationBatch"}
    assert trained("half", lambda model, batch: batch.loss(model) / 2) != plain
    with pytest.raises(ConfigError, match="already holds a run"):
        encoder_cls.train(config, run_dir=tmp_path / "half", device="cpu")


def test_a_config_is_a_file_or_its_values(tmp_path):
    """As the command has it; an unknown key is refused by its name."""
    (tmp_path / "c.yaml").write_text(make_config(tmp_path, epochs=1).to_yaml())
    assert encoder_cls.train(tmp_path / "c.yaml", run_dir=tmp_path / "run").label_names == (
        "blue",
        "green",
        "red",
    )
    with pytest.raises(ConfigError, match=r"train\.epoch"):
        encoder_cls.train({"data.train": "train.csv", "train.epoch": 1})
