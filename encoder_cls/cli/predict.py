"""`encoder-cls predict` and `serve`: a model answers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import RUNS, Device, TextColumns, TrainedModel, reading_settings
from encoder_cls.errors import ConfigError
from encoder_cls.system.machine import WHOLE, installed_version, is_installed
from encoder_cls.system.terminal import note

_share = partial(typer.Option, min=0, max=1)


def predict_command(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to classify.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A run or model folder, or hub:owner/name. Default: the newest run with a model."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Texts: a file (.txt, .ft one a line; .csv, .tsv, .xlsx, .json, .jsonl, .parquet: by column), - for "
            "standard input.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="Write to this file, or into a FOLDER/ one file for each file of --input (several: also without /); "
            "run again, it goes on.",
            metavar="FILE",
        ),
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="data.delimiter=... or data.encoding=... of --input. Repeatable. Default: as in training."
        ),
    ] = None,
    bad_rows: Annotated[
        str, typer.Option(help="error or skip: what is done with rows that cannot be read.", metavar="WHAT")
    ] = "error",
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, jsonl, tsv, csv, html, parquet. Default: by the ending of --output, else text; FOLDER/: jsonl.",
            metavar="FORMAT",
        ),
    ] = None,
    keep_columns: Annotated[
        bool | None,
        typer.Option(
            "--keep-columns/--no-keep-columns",
            help="Put the answer beside the columns of the input. Default: in CSV of CSV files.",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    threshold: Annotated[
        float | None,
        _share(help="Withhold the label where its probability is lower; multi-label: one for all labels."),
    ] = None,
    min_precision: Annotated[
        float | None,
        _share(help="Withhold labels so that of the others so many are right, guaranteed by held-out texts."),
    ] = None,
    coverage: Annotated[
        float | None,
        _share(help="Name a set of classes that so often has the right one, guaranteed by held-out texts."),
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most tokens in a batch. Default: what the device is fast with.")
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show which words spoke for the class, and which against it.")
    ] = False,
    attention: Annotated[
        Path | None, typer.Option(help="Write a page of the first texts' attention maps to this file.")
    ] = None,
    device: Device = "auto",
    engine: Annotated[
        str, typer.Option(help="auto, numpy or torch: by what the encoder is computed.", metavar="ENGINE")
    ] = "auto",
    runner: Annotated[
        str,
        typer.Option(
            help="local, or ray: the workers of a Ray answer the Parquet files of --input, a path or URI.",
            metavar="RUNNER",
        ),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="How many workers --runner ray has.")] = 2,
) -> None:
    """Classify texts: given here, in a file, or on standard input; one result a line."""
    options = locals()  # by the names that a request has for them
    reading = reading_settings(options.pop("overrides"), "delimiter", "encoding")
    options |= {"texts": tuple(texts or ()), "text_columns": tuple(text_columns or ())}
    if texts:  # a few need no pool of threads, which NumPy would make as it is imported
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.answers.predict import predict
    from encoder_cls.answers.request import Request

    predict(Request(**options, **reading), runs=RUNS)


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
