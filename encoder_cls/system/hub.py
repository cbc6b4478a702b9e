"""The addresses of data sets and models on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

HUB = "hub:"
# The number of seconds in which the Hub must respond. Without a limit, a request behind some
# firewalls would be repeated or wait forever.
HUB_TIMEOUT = 10.0


def parsed_address(source: str, *, options: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Parse `hub:NAME?OPTION=VALUE&...`.

    Raises:
        ValueError: it has no name, an unknown option, or an option without a value.
    """
    name, _, query = source.removeprefix(HUB).partition("?")

    # Do not use `parse_qs`: it would change a plus sign (split=train+test) and drop an option
    # without a value (split=).
    values: dict[str, str] = {}
    for option in query.split("&"):
        if option:
            key, _, value = option.partition("=")
            values[key] = unquote(value)

    is_known = all(key in options for key in values)
    if not name or not is_known or not all(values.values()):
        raise ValueError(source)
    return name, values
