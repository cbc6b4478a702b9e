"""The texts of a run that have labels."""

from __future__ import annotations

from pathlib import Path

from encoder_cls.config.loading import load_config
from encoder_cls.data.load_dataset import load_data
from encoder_cls.run.run_folder import run_of


def labelled_texts(path: str | Path) -> list[str]:
    """List the texts of all splits of a run; none for a model folder without its run.

    Raises:
        DataError: the data is missing or malformed.
    """
    run = run_of(Path(path))
    if run is None:
        return []
    dataset = load_data(load_config(run.config_file))
    return [text for split in dataset.splits.values() for text in split.texts]
