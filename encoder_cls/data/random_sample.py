"""The random sample among the labels of `encoder-cls label`.

Most texts of a table of labels were chosen because a model was unsure of them, and are harder than
texts to come: only the random sample may be held out to measure a model.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Split
from encoder_cls.data.key_of_text import KEY, key_of_text
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import column_names, read_rows
from encoder_cls.system.added_columns import added_before

# How a text was chosen: the column `how` of a table of labels.
RANDOM = "random"
# What stands before the name of a column that a table of labels adds to those of the pool, if they
# have one of that name.
PREFIX = "label_"
# The last columns of a table of labels.
_LAST_COLUMNS = ("labelled_at", "how", "guess", KEY)
# The least number of texts of a sample that can be held out from.
MIN_SAMPLE = 20


def drawn_rank(key: str) -> int:
    """The rank of a text in the random order, from 0 to 2**64: a hash of its key.

    It depends on no other text, so the least ranks are a random sample.
    """
    digest = hashlib.sha256(f"label {key}".encode()).digest()
    return int.from_bytes(digest[:8])


def outside_of_sample(split: Split, config: DataConfig) -> NDArray[np.bool_] | None:
    """Whether each training text is outside the random sample of a table of labels.

    That is all texts up to the last one that was drawn: without those suggested first, it would
    have too many easy texts. None if there is no sample, or it is too small.
    """
    path = Path(config.train or "")
    if path.suffix != ".csv" or not path.is_file():
        return None
    reading = Reading(config.reading_options)
    names = column_names(path, config.text_column, reading)
    if not added_before(names, _LAST_COLUMNS, PREFIX):
        return None

    _, how, _, key = names[-len(_LAST_COLUMNS) :]
    columns = Columns(config.text_column, every=True, features=config.features)
    ranks: dict[str, int] = {}
    last_drawn = -1
    for row in read_rows(str(path), columns, reading):
        record = row.record or {}
        # The table may be of texts alone, so that its keys are not those of rows with features.
        ranks[row.text] = drawn_rank(record[key].strip() or key_of_text(row.text))
        if record[how] == RANDOM:
            last_drawn = max(last_drawn, ranks[row.text])

    is_outside = np.array([ranks[text] > last_drawn for text in split.texts])
    if (~is_outside).sum() < MIN_SAMPLE:
        return None
    return is_outside
