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
    from encoder_cls.encoder.distributed import ProcessGroup


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun has started, if any.

    Only the first process writes notes and reports errors.

    Yields:
        The group of processes, which consists of this process alone without torchrun.

    Raises:
        ConfigError: a library that training needs is not installed.
    """
    check_training_installed()

    from encoder_cls.encoder.distributed import LostProcessError, joined_process_group

    with joined_process_group() as group:
        if not group.is_first:
            be_quiet()
        try:
            yield group
        except LostProcessError:
            if group.is_first:
                raise
            # The first process reports the lost process. If the first process itself has ended,
            # torchrun reports that.
            raise typer.Exit(1) from None
        except EncoderClsError:
            if group.is_first:
                raise
            # The first process reports the same error, and ends with its exit code.
            raise typer.Exit(0) from None
