"""Continue from a base run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from encoder_cls.config import Config
from encoder_cls.data.base_run import config_of_base
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.folder import load_classifier, weights_of_part
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.tracking.validation_logits import read_validation_logits
from encoder_cls.training.encoder.checkpoint import newest_fingerprint
from encoder_cls.transformer import EncoderClassifier

WORDS, HEAD = "encoder.embedding.tokens.weight", "head.linear."


def base_classifier(config: Config) -> Classifier | None:
    """Load the classifier of the base run, if the config names one.

    Raises:
        ConfigError: that run is not finished, or its encoder or its tokenizer is of another kind.
        DataError: it is gone.
    """
    if config.from_run is None:
        return None
    run, base_config = RunDir(Path(config.from_run)), config_of_base(config.from_run)
    if not run.is_finished():
        raise ConfigError(f"{run.path}: is no finished run to go on from; let its training end (train --resume)")
    classifier = load_classifier(run.model, device="cpu", engine="numpy")
    if base_config.tokenizer != config.tokenizer:
        raise ConfigError(f"tokenizer: {run.path} has another, whose words are to keep their numbers; leave it out")
    base_encoder = classifier.encoder if config.model.encoder else None  # without one a new one is trained
    if base_encoder and base_encoder.architecture != EncoderArchitecture.of(config.model):
        raise ConfigError(f"model: the encoder of {run.path} has another shape; leave the section out to keep it")
    return classifier


def check_base_data(config: Config, dataset: Dataset) -> None:
    """Check the data of the base run, which may have changed (`DataError`), and its logits, which the report needs."""
    if config.from_run is None or dataset.base is None:
        return
    run, its_data = RunDir(Path(config.from_run)), dataset.base
    if run.validation_logits.exists():
        read_validation_logits(run.validation_logits)
    known = newest_fingerprint(run.checkpoints)
    for kind, split in (("training", its_data.train), ("validation", its_data.selection)):
        if known.get(f"{kind}_data", split.fingerprint) != split.fingerprint:
            source = run.load_config().data.train
            raise DataError(f"{run.path}: its {kind} data ({source}) has changed since it was trained")


def start_from(base: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Give a new model the weights of a base run's encoder of the same shape.

    New words and classes keep their random weights. Words of the base run come first; classes are matched by name.
    """
    numbers = [base.label_names.index(name) for name in label_names if name in base.label_names]
    is_known = torch.tensor([name in base.label_names for name in label_names])
    state = model.state_dict()
    for name, weight in weights_of_part(base, "encoder").items():
        values = torch.from_numpy(np.asarray(weight, dtype=np.float32))
        if name == WORDS:
            state[name][: len(values)] = values
        elif name.startswith(HEAD):
            state[name][is_known] = values[numbers].to(state[name].device)
        else:
            state[name].copy_(values)
