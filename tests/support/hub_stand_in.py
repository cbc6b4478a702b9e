"""A loopback stand-in for the Hugging Face Hub: the few paths that `datasets.load_dataset` and downloads ask for.

The paths were found by logging the requests of datasets 5.2, and of `snapshot_download`, with huggingface_hub 2.4; one
that a later version adds is answered with status 404 and kept in `HubStandIn.unknown`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

Files = Mapping[str, bytes]  # a path in the repository -> the content of that file

# Data sets and models have paths of their own; here a name is either a data set or a model.
ROUTE = re.compile(
    r"(?:/api)?(?:/datasets|/models)?/([^/]+/[^/]+)(?:/(resolve|revision|tree)/([^/]+)/?(.*))?"
)


class HubStandIn:
    """Serves repositories from memory on a free port of 127.0.0.1 while in a `with` statement."""

    def __init__(self, repositories: Mapping[str, Mapping[str, Files]]) -> None:
        """Take the repositories: owner/name -> revision (`main` is the default one) -> path -> content."""
        self.repositories = repositories
        self.unknown: list[str] = []
        self.downloaded: list[str] = []
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("_Handler", (_Handler,), {"hub": self})
        )

    @property
    def url(self) -> str:
        """The address, for the environment variable HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubStandIn:
        Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def revision(self, name: str, wanted: str) -> tuple[str, Files] | None:
        """The commit and the files of a revision that is called by its name or by its commit."""
        for revision, files in self.repositories[name].items():
            commit = _sha1(f"{name}@{revision}".encode())
            if wanted in {revision, commit}:
                return commit, files
        return None


class _Handler(BaseHTTPRequestHandler):
    """Answers GET; HEAD gets the headers alone, and nothing that is needed is asked for by POST."""

    hub: HubStandIn

    def do_GET(self) -> None:
        answer = self._answer()
        status, body, headers = (
            (404, b"", {"X-Error-Code": answer}) if isinstance(answer, str) else (200, *answer)
        )
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_GET  # noqa: N815 - names of the library

    def _answer(self) -> str | tuple[bytes, dict[str, str]]:
        """A body with its headers; or the code by which the client knows what does not exist."""
        url = urlsplit(self.path)
        route = ROUTE.fullmatch(url.path)
        if route is None or self.command == "POST":
            self.hub.unknown.append(f"{self.command} {self.path}")
            return "EntryNotFound"
        name, kind, revision, rest = (unquote(part or "") for part in route.groups())
        if name not in self.hub.repositories:
            return "RepoNotFound"
        found = self.hub.revision(name, revision or "main")
        if found is None:
            return "RevisionNotFound"
        commit, files = found
        if kind == "resolve":  # a file
            if rest not in files:
                return "EntryNotFound"
            self.hub.downloaded.append(rest)
            return files[rest], {"ETag": f'"{_sha1(files[rest])}"', "X-Repo-Commit": commit}
        value: Any = {"id": name, "sha": commit}
        if kind == "tree":  # a folder, for the globs of the README
            prefix, is_recursive = f"{rest}/" if rest else "", "recursive=true" in url.query.lower()
            below = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
            if not below:
                return "EntryNotFound"
            value = [
                _entry(files, it)
                for it in sorted({prefix + (p if is_recursive else p.split("/")[0]) for p in below})
            ]
        return json.dumps(value).encode(), {"Content-Type": "application/json"}

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


def _entry(files: Files, path: str) -> dict[str, Any]:
    """A file or a folder as the tree route describes it."""
    if path in files:
        return {"type": "file", "path": path, "oid": _sha1(files[path]), "size": len(files[path])}
    return {"type": "directory", "path": path, "oid": _sha1(path.encode())}


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
