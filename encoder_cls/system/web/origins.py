"""Refuse requests that a page of another site has sent."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope


def refusal_of_origin(request: Request, hosts: Sequence[str] | None) -> str | None:
    """Why to refuse a request that a page of another site has sent, if it has.

    The name of the server is checked as well: the owner of a site can let its name lead to a
    loopback address (DNS rebinding), and browsers then consider this server a part of that site.
    `hosts` are allowed names besides IP addresses; None allows all.
    """
    host = request.headers.get("host")
    if host and hosts is not None:
        name = host_name(host)
        # Only a name can be led to this server by its owner. Probes ask by address.
        if name not in hosts and name != "localhost" and not is_address(name):
            return f"not a name of this server: {name}; --allowed-host NAME allows a name"

    origin = request.headers.get("origin")
    if not origin:
        return None
    _, _, origin_host = origin.partition("://")
    if origin_host != host and host_name(origin) not in (hosts or ()):
        return f"sent by a page of another site, {origin}; --allowed-host NAME allows a site"
    return None


def in_origin_form(scope: Scope) -> Scope:
    """Replace a whole URL, as proxies send it, by its path and its host."""
    if not scope["path"].startswith(("http://", "https://")):
        return scope

    url = urlsplit(scope["path"])
    path = url.path or "/"
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers.append((b"host", url.netloc.encode()))
    return {**scope, "path": path, "raw_path": path.encode(), "headers": headers}


def host_name(address: str) -> str:
    """The host of `Origin` or `Host`, without scheme and port; empty if malformed."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return (parts.hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    return is_address(host) and ip_address(host).is_loopback


def is_address(host: str) -> bool:
    """Whether a host is an IP address; not with a zone (`%eth0`)."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host
