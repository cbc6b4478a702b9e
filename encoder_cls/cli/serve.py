"""The command `encoder-cls serve`: predict over HTTP."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

import typer

from encoder_cls.system.command_options import TrainedModel
from encoder_cls.system.libraries import WHOLE, check_installed, installed_version
from encoder_cls.system.terminal import note
from encoder_cls.system.web.server_limits import KEEP_ALIVE_SECONDS


def serve_command(
    run: TrainedModel,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on; 0.0.0.0 means all addresses of this machine.",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any free port.")
    ] = 8000,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="A host name that requests may use, such as the name of a proxy. Repeatable. "
            "Default: only localhost and IP addresses if the server listens on a loopback address, "
            "otherwise any name.",
            metavar="NAME",
        ),
    ] = None,
    keep_alive: Annotated[
        int,
        typer.Option(
            min=1,
            help="The seconds for which a connection stays open without a request. Choose more "
            "than the timeout of a proxy or load balancer in front, which could otherwise send a "
            "request just when the connection is closed.",
            metavar="SECONDS",
        ),
    ] = KEEP_ALIVE_SECONDS,
    same_labels: Annotated[
        bool,
        typer.Option(
            "--same-labels",
            help="At SIGHUP, refuse a model that has other classes than the one in use, which "
            "stays. Without this option, a warning names the classes.",
        ),
    ] = False,
) -> None:
    """Predict over HTTP: POST /predict, GET /health, /live, /metrics, and a page to try texts."""
    distribution, _ = installed_version() or (WHOLE, "")
    for library in ("starlette", "uvicorn", "prometheus_client"):
        check_installed(library, needed_by="serve", install=f"'{distribution}[serve]'")

    # Let NumPy use one thread. The threads of its pool wait in busy loops, which would take time
    # from the thread that reads requests and writes responses: on 2 busy cores, requests would take
    # eight times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.serving.server import serve

    serve(
        run,
        host=host,
        port=port,
        allowed_hosts=allowed_hosts or (),
        keep_alive=keep_alive,
        same_labels=same_labels,
        log=partial(note, has_time=True),
    )
