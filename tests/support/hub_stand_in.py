"""A stand-in for the Hugging Face Hub on this machine.

It knows the few paths that `datasets.load_dataset` and downloads ask for, which were found by
logging the requests of datasets 5.2, and of `snapshot_download`, with huggingface_hub 2.4. A path
that a later version adds gets status 404, and is kept in `HubStandIn.unknown`.
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

# The content of each file, by its path in the repository.
Files = Mapping[str, bytes]

# Data sets and models have paths of their own; here a name is either a data set or a model.
ROUTE = re.compile(
    r"(?:/api)?(?:/datasets|/models)?/([^/]+/[^/]+)(?:/(resolve|revision|tree)/([^/]+)/?(.*))?"
)


class HubStandIn:
    """Serves repositories from memory on a free port of 127.0.0.1 while in a `with` statement."""

    def __init__(self, repositories: Mapping[str, Mapping[str, Files]]) -> None:
        """Take the files of each revision of each repository owner/name; `main` is the default."""
        self.repositories = repositories
        self.unknown: list[str] = []
        self.downloaded: list[str] = []
        # The status of all responses, if the Hub is out of order.
        self.broken_status: int | None = None
        handler = type("_Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        """The address, for the environment variable HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubStandIn:
        # `shutdown` waits for one such interval at most.
        interval = {"poll_interval": 0.05}
        thread = Thread(target=self._server.serve_forever, kwargs=interval, daemon=True)
        thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def revision(self, name: str, wanted: str) -> tuple[str, Files] | None:
        """The commit and the files of a revision, which `wanted` names or whose commit it is."""
        for revision, files in self.repositories[name].items():
            commit = _sha1(f"{name}@{revision}".encode())
            if wanted in {revision, commit}:
                return commit, files
        return None


class _NotFoundError(Exception):
    """Something that does not exist, with the code by which the client knows what."""


class _Handler(BaseHTTPRequestHandler):
    """Responds to GET, and to HEAD with the headers alone; nothing needs a POST."""

    hub: HubStandIn

    def do_GET(self) -> None:
        status = 200
        try:
            body, headers = self._response()
        except _NotFoundError as error:
            status = 404
            body = b""
            headers = {"X-Error-Code": str(error)}
        if self.hub.broken_status:
            status = self.hub.broken_status
            body = b""
            headers = {}

        self.send_response(status)
        headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # Names of the library.
    do_HEAD = do_GET  # noqa: N815
    do_POST = do_GET  # noqa: N815

    def _response(self) -> tuple[bytes, dict[str, str]]:
        """A body with its headers; raises `_NotFoundError`."""
        url = urlsplit(self.path)
        route = ROUTE.fullmatch(url.path)
        if route is None or self.command == "POST":
            self.hub.unknown.append(f"{self.command} {self.path}")
            raise _NotFoundError("EntryNotFound")

        name, kind, revision, path = (unquote(part or "") for part in route.groups())
        if name not in self.hub.repositories:
            raise _NotFoundError("RepoNotFound")
        found = self.hub.revision(name, revision or "main")
        if found is None:
            raise _NotFoundError("RevisionNotFound")
        commit, files = found

        if kind == "resolve":
            return self._file(files, path, commit)
        siblings = [{"rfilename": path} for path in files]
        value: Any = {"id": name, "sha": commit, "siblings": siblings}
        if kind == "tree":
            value = _listing(files, path, is_recursive="recursive=true" in url.query.lower())
        return json.dumps(value).encode(), {"Content-Type": "application/json"}

    def _file(self, files: Files, path: str, commit: str) -> tuple[bytes, dict[str, str]]:
        """The content of a file with its headers."""
        if path not in files:
            raise _NotFoundError("EntryNotFound")
        self.hub.downloaded.append(path)
        content = files[path]
        return content, {"ETag": f'"{_sha1(content)}"', "X-Repo-Commit": commit}

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


def _listing(files: Files, folder: str, *, is_recursive: bool) -> list[dict[str, Any]]:
    """What is in a folder, for the globs of a repository's README."""
    prefix = f"{folder}/" if folder else ""
    paths = set()
    for path in files:
        if path.startswith(prefix):
            inside = path.removeprefix(prefix)
            if not is_recursive:
                inside = inside.split("/")[0]
            paths.add(prefix + inside)
    if not paths:
        raise _NotFoundError("EntryNotFound")
    return [_entry(files, path) for path in sorted(paths)]


def _entry(files: Files, path: str) -> dict[str, Any]:
    """The description of a file or folder in a listing."""
    if path in files:
        return {"type": "file", "path": path, "oid": _sha1(files[path]), "size": len(files[path])}
    return {"type": "directory", "path": path, "oid": _sha1(path.encode())}


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
