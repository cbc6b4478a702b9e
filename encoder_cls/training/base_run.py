"""Continue from a base run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load import config_of_former
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.folder import load_classifier, weights_of_part
from encoder_cls.model import EncoderClassifier
from encoder_cls.tracking.run_dir import RunDir, read_validation_logits
from encoder_cls.training.encoder.checkpoint import newest_fingerprint

WORDS, HEAD = "encoder.embedding.tokens.weight", "head.linear."


def former_classifier(config: Config) -> Classifier | None:
    """The classifier of the run that a config goes on from, if there is one.

    Raises:
        ConfigError: that run is not finished, or its encoder or its tokenizer is of another kind.
        DataError: it is gone.
    """
    if config.from_run is None:
        return None
    run, former = RunDir(Path(config.from_run)), config_of_former(config.from_run)
    if not run.is_finished():
        raise ConfigError(f"{run.path}: is no finished run to go on from; let its training end (train --resume)")
    classifier = load_classifier(run.model, device="cpu", engine="numpy")
    if former.tokenizer != config.tokenizer:
        raise ConfigError(f"tokenizer: {run.path} has another, whose words are to keep their numbers; leave it out")
    if config.model.encoder:
        if classifier.encoder is None:
            raise ConfigError(
                f"model.encoder: {run.path} has none to go on from; set model.encoder=false, or begin anew"
            )
        if classifier.encoder.architecture != EncoderArchitecture.of(config.model):
            raise ConfigError(f"model: the encoder of {run.path} has another shape; leave the section out to keep it")
    return classifier


def check_former_data(config: Config, dataset: Dataset) -> None:
    """Make sure that the data of the run that a config goes on from is what it was.

    Raises:
        DataError: it is not.
        EncoderClsError: the logits of its validation texts cannot be read.
    """
    if config.from_run is None or dataset.former is None:
        return
    run, former = RunDir(Path(config.from_run)), dataset.former
    if run.validation_logits.exists():
        read_validation_logits(run.validation_logits)  # the final report needs them
    known = newest_fingerprint(run.checkpoints)
    found = {"training_data": former.train.fingerprint, "validation_data": former.selection.fingerprint}
    for name, fingerprint in found.items():
        if known.get(name, fingerprint) != fingerprint:
            what = name.replace("_data", " data")
            raise DataError(f"{run.path}: its {what} ({run.load_config().data.train}) has changed since it was trained")


def start_from(former: Classifier, model: EncoderClassifier, *, label_names: tuple[str, ...]) -> None:
    """Give a new model the weights of a former classifier's encoder.

    Words and classes that this one did not know keep their first weights. The former words are the first of the new
    ones; classes are found by their names.

    Args:
        former: has an encoder of the same shape.
        model: of the new words and classes; its weights are changed.
        label_names: its classes.
    """
    numbers = [former.label_names.index(name) for name in label_names if name in former.label_names]
    is_known = np.array([name in former.label_names for name in label_names])
    state = model.state_dict()
    for name, weight in weights_of_part(former, "encoder").items():
        values: NDArray[np.float32] = np.asarray(weight, dtype=np.float32)
        of_model = state[name]
        with torch.no_grad():
            if name == WORDS:
                of_model[: len(values)] = torch.from_numpy(values)
            elif name.startswith(HEAD):
                of_model[torch.from_numpy(is_known)] = torch.from_numpy(values[numbers])
            else:
                of_model.copy_(torch.from_numpy(values))
