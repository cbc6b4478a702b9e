"""The Optuna study of a search, which several processes share through a journal file."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

STUDY_NAME = "tune"
JOURNAL_FILE = "study.journal"

# The number of complete trials before later trials may be pruned.
TRIALS_BEFORE_PRUNING = 4
# The number of the first report of a trial after which it may be pruned. A trial has 10 reports.
FIRST_REPORT_COMPARED = 3


def open_study(folder: Path, *, minimizes: bool) -> optuna.Study:
    """Open the study in a folder, or start a new one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    journal = folder / JOURNAL_FILE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = JournalFileBackend(str(journal), lock_obj=_JournalLock(journal))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=STUDY_NAME,
            direction="minimize" if minimizes else "maximize",
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=TRIALS_BEFORE_PRUNING, n_warmup_steps=FIRST_REPORT_COMPARED
            ),
            load_if_exists=True,
        )


class _JournalLock(JournalFileSymlinkLock):
    """A lock of the journal that first removes an incomplete last line.

    A power failure or a full disk may have left one, to which the next line would be appended.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal

    def acquire(self) -> bool:
        is_acquired = super().acquire()
        content = self._journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(self._journal, content.rfind(b"\n") + 1)
        return is_acquired
