"""Explain errors of data by what `init` finds in it; `encoder-cls train` asks for it."""

from __future__ import annotations

from shlex import quote

from encoder_cls.errors import DataError, EncoderClsError


def explained(error: DataError, source: str) -> DataError:
    """Add to an error all that is found in its source, and how to go on, if there is more."""
    from encoder_cls.extras.init.findings import finding_lines
    from encoder_cls.extras.init.inspect_data import inspect_data

    try:
        inspection = inspect_data(source, {})
        lines = [str(error), *finding_lines(inspection)]
    except EncoderClsError:
        return error
    if inspection.problem:
        lines.append(inspection.problem)
    lines.append(f"to write a config for this data: encoder-cls init {quote(source)}")
    return DataError("\n".join(lines))
