"""`encoder-cls serve`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from encoder_cls.cli.options import TrainedModel
from encoder_cls.errors import ConfigError
from encoder_cls.system.installed import WHOLE, installed_version, is_installed
from encoder_cls.system.terminal import note


def serve_command(
    run: TrainedModel,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is each of this machine's.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="A name by which clients know the server, such as that of a proxy. Repeatable. Default: localhost "
            "and loopback addresses where it listens to one; elsewhere any.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Answer over HTTP: POST /predict, GET /health and /metrics, and a page to try texts."""
    missing = [name for name in ("starlette", "uvicorn", "prometheus_client") if not is_installed(name)]
    if missing:
        distribution, _ = installed_version() or (WHOLE, "")
        raise ConfigError(f"serve needs {' and '.join(missing)}: pip install '{distribution}[serve]'")
    # One thread computes, one reads and writes. A pool of NumPy's, whose threads wait in a busy loop, would take the
    # other's time: on 2 busy cores requests take eight times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.serving.server import serve

    serve(run, host=host, port=port, allowed_hosts=allowed_hosts or (), log=note)
