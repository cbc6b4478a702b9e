"""The server of the page: it listens on this machine alone, and stops at a signal."""

from __future__ import annotations

import os
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Thread

import uvicorn

from encoder_cls.extras.label.app import labelling_app, new_token
from encoder_cls.extras.label.session import Session
from encoder_cls.system.web.server import Server, listening, uvicorn_config

HOST = "127.0.0.1"
# The seconds that an open page has to read its last response.
CLOSING_SECONDS = 2


def serve_session(
    session: Session, *, port: int, opens_browser: bool, log: Callable[[str], None]
) -> None:
    """Serve the page of a session until a signal stops the server, and log the address.

    Raises:
        EncoderClsError: the port cannot be used.
    """
    with listening(HOST, port) as listener:
        token = new_token()
        address = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        config = uvicorn_config(labelling_app(session, token), closing_seconds=CLOSING_SECONDS)

        def on_start() -> None:
            log(f"label on {address} ; press Ctrl-C to stop")
            if page:
                # Starting a browser may take seconds.
                Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()

        folder = session.labels.path.absolute().parent
        with leading_to(address, folder) if opens_browser else nullcontext() as page:
            _Server(config, on_start).run(sockets=[listener])


@contextmanager
def leading_to(address: str, folder: Path) -> Iterator[Path]:
    """Write a file that leads a browser to an address, while the block runs.

    Everybody on this machine can list the arguments of a browser, but only the owner reads the
    file. Some browsers may read neither the folder of temporary files nor hidden ones.
    """
    # This makes a file that its owner alone may read.
    handle, name = tempfile.mkstemp(prefix="label-", suffix=".html", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        path.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', "utf-8")
        yield path
    finally:
        path.unlink(missing_ok=True)


class _Server(Server):
    """A server that calls a function once it listens."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()
