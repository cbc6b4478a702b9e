"""The command `encoder-cls drift`: what has changed since a model was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder_cls.errors import ConfigError, DriftedError
from encoder_cls.system.command_options import AsJson, TrainedModel, check_ending, print_json
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import note, print_out


def drift_command(
    run: TrainedModel,
    source: Annotated[
        str, typer.Option("--input", help="The texts: a file, a folder or a pattern of files.")
    ],
    date_column: Annotated[
        str | None,
        typer.Option("--by", help="A column of dates: also compare each week or month."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Another run or model folder: show where the two models differ on these texts."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the result as a page to this .html file.")
    ] = None,
    as_json: AsJson = False,
    fail_if_drifted: Annotated[
        bool, typer.Option("--fail-if-drifted", help="End with exit code 7 if there is an alarm.")
    ] = False,
) -> None:
    """Compare new texts with those that a model was measured on: no labels are needed.

    Classes, unfamiliar and unsure texts, words never seen, lengths, confidence; and the accuracy to
    expect. Labels are used where the texts have some.
    """
    check_training_installed()
    check_ending(output, ".html")
    if source == "-":
        raise ConfigError("--input: names no file; save the texts as a file")
    if against is not None and (date_column is not None or fail_if_drifted):
        raise ConfigError(
            "--against shows where two models differ, not what has changed: leave out --by and "
            "--fail-if-drifted"
        )

    from encoder_cls import check_outputs

    outputs = [output] if output else []
    check_outputs(outputs, sources=[source], model=run, is_printing=True)
    if against is not None:
        check_outputs(outputs, model=against)
        _show_agreement(run, against, source, output=output, as_json=as_json)
        return
    _show_drift(
        run,
        source,
        date_column,
        output=output,
        as_json=as_json,
        fail_if_drifted=fail_if_drifted,
    )


def _show_drift(
    run: Path,
    source: str,
    date_column: str | None,
    *,
    output: Path | None,
    as_json: bool,
    fail_if_drifted: bool,
) -> None:
    from encoder_cls.extras.drift.find_drift import find_drift
    from encoder_cls.extras.drift.page import drift_page
    from encoder_cls.extras.drift.sentences import terminal_text, to_dict

    drift = find_drift(run, source, date_column=date_column)
    _show(to_dict(drift), terminal_text(drift), as_json=as_json)
    if output:
        _write(output, drift_page(drift))
    if fail_if_drifted and drift.has_drifted:
        raise DriftedError(f"{source}: its texts differ from the held-out texts of {run}")


def _show_agreement(
    run: Path, against: Path, source: str, *, output: Path | None, as_json: bool
) -> None:
    from encoder_cls.extras.drift.agreement import find_agreement, terminal_text, to_dict
    from encoder_cls.extras.drift.page import agreement_page

    agreement = find_agreement(run, against, source)
    _show(to_dict(agreement), terminal_text(agreement), as_json=as_json)
    if output:
        _write(output, agreement_page(agreement))


def _show(values: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(values)
    else:
        print_out(text)


def _write(output: Path, page: str) -> None:
    from encoder_cls.system.files import write_output

    write_output(output, page.encode())
    note(f"wrote {output}")


COMMANDS: dict[str, Callable[..., None]] = {"drift": drift_command}
