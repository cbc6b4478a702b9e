"""A loopback stand-in for the Hugging Face Hub: the few paths that `datasets.load_dataset` asks for.

The answers were found by logging what datasets 5.2 with huggingface_hub 2.4 requests; whatever is asked beyond
them gets status 404, and `HubStandIn.requests` shows it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = Mapping[str, bytes]  # a path in the repository -> what is in that file


class HubStandIn:
    """A server on 127.0.0.1 for data set repositories in memory; use it in a `with` statement."""

    def __init__(self, repositories: Mapping[str, Mapping[str, Files]]) -> None:
        """Take the repositories: owner/name -> revision (such as main) -> path -> content."""
        self.repositories = repositories
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The address for the environment variable HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubStandIn:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def files(self, name: str, revision: str) -> tuple[str, Files] | None:
        """The commit and the files of a revision, which may be named by its commit too."""
        for known, files in self.repositories[name].items():
            commit = hashlib.sha1(f"{name}@{known}".encode()).hexdigest()
            if revision in {known, commit}:
                return commit, files
        return None


def _handler(hub: HubStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            self._hub_path(unquote(url.path), parse_qs(url.query))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            is_json = body.startswith("{")
            self._hub_path(unquote(urlsplit(self.path).path), json.loads(body) if is_json else parse_qs(body))

        def _hub_path(self, path: str, query: dict[str, list[str]]) -> None:
            """Find the repository and the revision that every path names, then the route."""
            hub.requests.append(f"{self.command} {self.path} {self.headers.get('Range')} {query}")
            route = re.fullmatch(
                r"(?:/api)?/datasets/([^/]+/[^/]+)(?:/(resolve|revision|tree|paths-info)/([^/]+)/?(.*))?", path
            )
            if route is None or route[1] not in hub.repositories:
                return self._refuse("RepoNotFound")
            found = hub.files(route[1], route[3] or "main")
            if found is None:
                return self._refuse("RevisionNotFound")
            commit, files = found
            match route[2]:
                case "resolve":
                    self._file(commit, files, route[4])
                case "tree":
                    self._tree(files, route[4])
                case "paths-info":
                    self._send_json([_entry(files, path) for path in query["paths"] if _exists(files, path)])
                case _:
                    self._send_json({"id": route[1], "sha": commit, "siblings": [], "tags": [], "private": False})

        def _file(self, commit, files, path):
            content = files.get(path)
            if content is None:
                return self._refuse("EntryNotFound", commit)
            self._send(200, content, {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": commit})

        def _tree(self, files, folder):
            """List."""
            prefix = f"{folder}/" if folder else ""
            below = {prefix + name[len(prefix) :].split("/")[0] for name in files if name.startswith(prefix)}
            if not below:
                return self._refuse("EntryNotFound")
            self._send_json([_entry(files, path) for path in sorted(below)])

        def _send_json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _refuse(self, code, commit=None):
            self._send(404, b"", {"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {}))

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            hub.requests[-1] += f" -> {status}"
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    return Handler


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _exists(files: Files, path: str) -> bool:
    return any(name == path or name.startswith(f"{path}/") for name in files)


def _entry(files: Files, path: str) -> dict[str, Any]:
    content = files.get(path)
    if content is None:
        return {"type": "directory", "path": path, "oid": _digest(path.encode())}
    return {"type": "file", "path": path, "oid": _digest(content), "size": len(content)}
