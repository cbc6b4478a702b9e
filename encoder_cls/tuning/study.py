"""Optuna's study of a search: a journal in a folder that several processes write to."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

STUDY = "tune"
JOURNAL = "study.journal"

# Trials that are complete before others are compared with them and pruned.
TRIALS_BEFORE_PRUNING = 4
# The first report of a trial, of `REPORTS`, that pruning compares.
FIRST_REPORT_COMPARED = 3


def open_study(folder: Path, *, minimizes: bool) -> optuna.Study:
    """Open the study in a folder, or begin one, which minimizes or maximizes a score."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    journal = folder / JOURNAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = JournalFileBackend(str(journal), lock_obj=_JournalLock(journal))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=STUDY,
            direction="minimize" if minimizes else "maximize",
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=TRIALS_BEFORE_PRUNING, n_warmup_steps=FIRST_REPORT_COMPARED
            ),
            load_if_exists=True,
        )


class _JournalLock(JournalFileSymlinkLock):
    """The lock of the journal.

    With it comes a whole last line: one that a power cut or a full disk has torn is cut off before
    another is appended.
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
