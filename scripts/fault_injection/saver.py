"""One operation that writes to disk, as a process of its own, so that strace can disturb each of its system calls.

    python scripts/fault_injection/saver.py OPERATION FOLDER begin    # what is there before
    python scripts/fault_injection/saver.py OPERATION FOLDER change   # the operation

An error for users is printed and ends with its exit code; anything else is a traceback.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from encoder_cls.config import ModelConfig, TokenizerConfig, TrainConfig, load_config
from encoder_cls.errors import EncoderClsError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import TorchEncoder, torch_encoder
from encoder_cls.inference.folder import load_classifier, save_classifier
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.weights import compress
from encoder_cls.model import EncoderClassifier
from encoder_cls.text.tokenizer_trainer import train_tokenizer
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.rows import read_metrics
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.encoder.checkpoint import load_newest, save_checkpoint
from encoder_cls.training.encoder.optimizer import make_optimizers
from encoder_cls.training.encoder.stage import TrainingState

SHAPE = ModelConfig(d_model=8, num_layers=1, num_heads=1, d_ff=8, char_ngram_buckets=8, bigram_buckets=8)
OPERATIONS = ("checkpoint", "model", "metrics", "config")
VERSIONS = {"begin": 1, "change": 2}


def classifier(version: int) -> Classifier:
    """A classifier whose weights, those of the linear classifier and of the mixture are those of a version."""
    torch.manual_seed(version)
    tokenizer = train_tokenizer(["some words to know"], TokenizerConfig())
    model = EncoderClassifier(SHAPE, vocab_size=tokenizer.get_vocab_size(), num_classes=2)
    linear = LinearClassifier(
        max_tokens=8,  # stands in config.json, which is to stay as it is
        frequent_token_ids=np.array([4], dtype=np.int32),
        feature_ids=np.array([1, 2], dtype=np.int32),
        idf=np.full(2, version, dtype=np.float32),
        weights=compress(np.full((2, 1), version, dtype=np.float32), "float32"),
        biases=np.full(1, version, dtype=np.float32),
    )
    return Classifier(
        TorchEncoder(model, SHAPE),
        tokenizer,
        ("a", "b"),
        max_seq_len=SHAPE.max_seq_len,
        linear=linear,
        mixture_weights=(float(version), 0.5),
    )


def parts(whole: Classifier) -> dict[str, Any]:
    """All numbers of a classifier, so that they can be compared."""
    assert whole.encoder, "no encoder"
    assert whole.linear, "no linear classifier"
    encoder = {name: weight.tolist() for name, weight in whole.encoder.weights().items()}
    linear = vars(whole.linear) | {"weights": whole.linear.weights.dense()}
    return {
        "encoder": encoder,
        "linear": {name: np.array(it).tolist() for name, it in linear.items()},
        "mixture_weights": whole.mixture_weights,
    }


def write(operation: str, folder: Path, version: int) -> None:
    """Bring a folder to a version."""
    if operation == "checkpoint":
        model = torch_encoder(classifier(version)).model
        optimizers = make_optimizers(model, TrainConfig())
        save_checkpoint(folder, model, optimizers, TrainingState(step=version), fingerprint={}, keep=1)
    elif operation == "model":
        save_classifier(classifier(version), folder)
    elif operation == "metrics":
        metric_log = MetricLog(
            metrics_file=folder / "metrics.jsonl",
            tensorboard=folder / "tensorboard",
            resume_after={"train": 1} if version > 1 else None,
            config_text="",
            label_names=(),
            warn=lambda message: print(f"warning: {message}", file=sys.stderr),
        )
        with metric_log:
            for step in range(version, 4):
                metric_log.log(step, "train", {"version": version})
            metric_log.flush()
    else:
        config = load_config(None, [f"seed={version}"])
        if version == 1:
            with RunDir(folder).lock():  # the config of a run never changes: it is there or not
                (folder / "kept.txt").write_text("the folder stays")
        else:
            (folder / "kept.txt").unlink(missing_ok=True)
            with RunDir(folder).open_for_training(config, resume=True):
                pass


def read(operation: str, folder: Path) -> Any:
    """Which version a folder has, read as the next process would: 1, 2, or an error."""
    if operation == "checkpoint":
        found, _ = load_newest(folder)
        assert found, "no checkpoint can be loaded"
        weights = torch_encoder(classifier(found.state.step)).model.state_dict()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in found.model.items()), "mixed weights"
        return found.state.step
    if operation == "model":
        found_parts = parts(load_classifier(folder, device="cpu"))
        fitting = [version for version in (1, 2) if parts(classifier(version)) == found_parts]
        assert fitting, "weights of no version"
        return fitting[0]
    if operation == "metrics":
        rows = [(row["step"], row["version"]) for row in read_metrics(folder / "metrics.jsonl")]
        new = [(1, 1), (2, 2), (3, 2)]
        old = [(1, 1), (2, 1), (3, 1)]
        assert rows == old or rows == new[: len(rows)], f"rows {rows}"
        assert rows, "no rows"
        return 1 if rows == old else 2
    run = RunDir(folder)
    if not run.is_run():
        return 1
    assert run.load_config() == load_config(None, ["seed=2"]), "another config"
    return 2


if __name__ == "__main__":
    # Temporary names are the same in every process, so that strace can be told of them.
    numbers = itertools.count()
    secrets.token_hex = lambda nbytes=None: f"{next(numbers):016x}"  # noqa: ARG005
    try:
        write(sys.argv[1], Path(sys.argv[2]), VERSIONS[sys.argv[3]])
    except EncoderClsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
