"""The command `encoder-cls prune`: free the disk of what finished runs do not need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.system.display import aligned, printable
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import print_out

if TYPE_CHECKING:
    from encoder_cls.run.prune import UnneededFiles


def prune_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed.")
    ] = False,
) -> None:
    """Remove from finished runs what only a resumed training would need.

    These are the checkpoints and the pretrained encoder. The model, the config, the metrics, the
    report and all files of unfinished runs stay.
    """
    check_training_installed()

    from encoder_cls.run.prune import find_runs, remove_files, unneeded_files

    # Find all runs first, so that nothing is removed if a path is wrong.
    found = {}
    for path in runs:
        for run in find_runs(path):
            found[run.path.resolve()] = run

    all_unneeded = [unneeded_files(run) for run in found.values()]
    paths_and_sizes = []
    for unneeded in all_unneeded:
        name = printable(str(unneeded.run.path))
        paths_and_sizes.append([name, _megabytes(unneeded.num_bytes)])
    num_bytes = sum(unneeded.num_bytes for unneeded in all_unneeded)

    for unneeded, line in zip(all_unneeded, aligned(paths_and_sizes), strict=True):
        if not dry_run:
            remove_files(unneeded)
        print_out(f"{line}  {_what(unneeded)}\n")

    verb = "would remove" if dry_run else "removed"
    print_out(f"{verb} {_megabytes(num_bytes)}\n")


def _what(unneeded: UnneededFiles) -> str:
    if unneeded.files:
        return ", ".join(unneeded.folders)
    if unneeded.run.is_finished():
        return "nothing to remove"
    return "not finished, so nothing is removed"


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
