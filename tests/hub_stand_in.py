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
ROUTE = re.compile(r"(?:/api)?(?:/datasets|/models)?/([^/]+/[^/]+)(?:/(resolve|revision|tree)/([^/]+)/?(.*))?")


class HubStandIn:
    """Serves repositories from memory on a free port of 127.0.0.1 while in a `with` statement."""

    def __init__(self, repositories: Mapping[str, Mapping[str, Files]]) -> None:
        """Take the repositories: owner/name -> revision (`main` is the default one) -> path -> content."""
        self.repositories = repositories
        self.unknown: list[str] = []
        self.downloaded: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Handler,), {"hub": self}))

    @property
    def url(self) -> str:
        """The address, for the environment variable HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubStandIn:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
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
    """The routes; `_send` alone knows HEAD from GET."""

    hub: HubStandIn

    def do_GET(self) -> None:
        """Find the repository and the revision that every path names, then take its route."""
        path = urlsplit(self.path).path
        route = ROUTE.fullmatch(path)
        if route is None:
            self.hub.unknown.append(f"{self.command} {self.path}")
            return self._refuse("EntryNotFound")
        name, kind, revision, rest = (unquote(part or "") for part in route.groups())
        if name not in self.hub.repositories:
            return self._refuse("RepoNotFound")
        found = self.hub.revision(name, revision or "main")
        if found is None:
            return self._refuse("RevisionNotFound")
        commit, files = found
        if kind == "resolve":
            return self._file(commit, files, rest)
        if kind == "tree":
            return self._tree(files, rest, is_recursive="recursive=true" in urlsplit(self.path).query.lower())
        return self._info(name, commit)

    def do_HEAD(self) -> None:
        """As GET; only the headers are sent."""
        self.do_GET()

    def do_POST(self) -> None:
        """Nothing that is needed is asked for by POST; keep what is."""
        self.hub.unknown.append(f"{self.command} {self.path}")
        self._refuse("EntryNotFound")

    def _file(self, commit: str, files: Files, path: str) -> None:
        """HEAD or GET /datasets/NAME/resolve/REVISION/PATH: a file, its version and its commit."""
        if path not in files:
            return self._refuse("EntryNotFound")
        self.hub.downloaded.append(path)
        self._send(200, files[path], {"ETag": f'"{_sha1(files[path])}"', "X-Repo-Commit": commit})

    def _tree(self, files: Files, folder: str, *, is_recursive: bool) -> None:
        """GET /api/datasets/NAME/tree/REVISION/FOLDER: what lies in a folder, for the globs of the README."""
        prefix = f"{folder}/" if folder else ""
        below = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
        if not below:
            return self._refuse("EntryNotFound")
        children = sorted({prefix + (path if is_recursive else path.split("/")[0]) for path in below})
        self._send_json([_entry(files, child) for child in children])

    def _info(self, name: str, commit: str) -> None:
        """GET /api/datasets/NAME[/revision/REVISION]: whether that is there, and its commit."""
        self._send_json({"id": name, "sha": commit})

    def _refuse(self, code: str) -> None:
        """Status 404 with the header by which the client tells what was not found."""
        self._send(404, b"", {"X-Error-Code": code})

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


def _entry(files: Files, path: str) -> dict[str, Any]:
    """A file or a folder as the tree route describes it."""
    if path in files:
        return {"type": "file", "path": path, "oid": _sha1(files[path]), "size": len(files[path])}
    return {"type": "directory", "path": path, "oid": _sha1(path.encode())}


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
