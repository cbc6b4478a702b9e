"""Join the processes that torchrun has started for a training on several devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import be_quiet

if TYPE_CHECKING:
    from encoder_cls.encoder_training.distributed import ProcessGroup


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun has started; else this process is the group.

    Only the first one writes notes and reports errors.

    Raises:
        ConfigError: a library that training needs is not installed.
    """
    check_training_installed()

    from encoder_cls.encoder_training.distributed import (
        LostProcessError,
        is_first_process,
        joined_process_group,
    )

    try:
        with joined_process_group() as group:
            if not group.is_first:
                be_quiet()
            with _reporting_once(group):
                yield group
    except LostProcessError:
        if is_first_process():
            raise
        # The first process reports the lost process. If the first process itself has ended,
        # torchrun reports that.
        raise typer.Exit(1) from None


@contextmanager
def _reporting_once(group: ProcessGroup) -> Iterator[None]:
    from encoder_cls.encoder_training.distributed import LostProcessError

    try:
        yield
    except LostProcessError:
        raise
    except EncoderClsError:
        if group.is_first:
            raise
        # The first process reports the same error, and ends with its exit code.
        raise typer.Exit(0) from None
