"""`encoder-cls predict`: classify texts with a trained model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from encoder_cls.cli.options import RUNS, Device, TextColumns, data_overrides


def predict_command(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts to classify; write -- before one that starts with a dash."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A run or model folder, or hub:owner/name. Default: the newest run."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="A file, a folder or a pattern of files; - is standard input with a text per "
            "line, -.csv, -.jsonl and so on are its rows.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="Write to this file, or into FOLDER/ one file per input file.", metavar="FILE"
        ),
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter=... or data.encoding=... of --input. Default: as in training.",
        ),
    ] = None,
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do with unreadable rows.")
    ] = "error",
    output_format: Annotated[
        Literal["text", "jsonl", "tsv", "csv", "html", "parquet"] | None,
        typer.Option("--format", help="Format of the predictions. Default: by --output, or text."),
    ] = None,
    keep_columns: Annotated[
        bool | None,
        typer.Option(
            "--keep-columns/--no-keep-columns",
            help="Write predictions beside all columns of the input. Default: only in CSV of CSV "
            "or Excel files.",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="The number of classes to show.")] = 1,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold less probable labels; multi-label: replaces the thresholds of all "
            "labels.",
        ),
    ] = None,
    min_precision: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold labels so that this share of the rest is right, guaranteed by held-out "
            "texts.",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Give each text a set of classes; this share of sets has the right one, "
            "guaranteed.",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most tokens in a batch. Default: what the device is fast with."
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show words that speak for or against a class.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(help="Write the attention maps of the first texts to this HTML file."),
    ] = None,
    device: Device = "auto",
    engine: Annotated[
        Literal["auto", "numpy", "torch"], typer.Option(help="What computes the encoder.")
    ] = "auto",
    runner: Annotated[
        Literal["local", "ray"],
        typer.Option(help="ray: Ray's workers classify the Parquet files of a path or URI."),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="The number of workers of --runner ray.")] = 2,
) -> None:
    """Classify texts given here, in files, or on standard input, with one result per line.

    Files with one text per line: .txt and .ft.
    Files with a column of texts: .csv, .tsv, .xlsx, .json, .jsonl and .parquet.

    An --output folder gets one file per input file, JSON lines by default.
    Run again, the same command continues it.
    """
    # NumPy computes a few texts, or its part in each of several processes. A pool of threads, which
    # it creates on import, would wait in busy loops: on a busy machine a file took twenty times as
    # long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.bulk.predict import predict
    from encoder_cls.bulk.request import Request

    reading = data_overrides(overrides, "delimiter", "encoding")
    request = Request(
        texts=tuple(texts or ()),
        model=model,
        source=source,
        output=output,
        text_columns=tuple(text_columns or ()),
        bad_rows=bad_rows,
        output_format=output_format,
        keep_columns=keep_columns,
        top_k=top_k,
        threshold=threshold,
        min_precision=min_precision,
        coverage=coverage,
        batch_tokens=batch_tokens,
        explained=explained,
        attention=attention,
        device=device,
        engine=engine,
        runner=runner,
        workers=workers,
        **reading,
    )
    predict(request, runs=RUNS)
