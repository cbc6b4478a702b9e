"""`encoder-cls predict`."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import RUNS, Device, TextColumns, reading_settings


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # which is below no limit and above none
        raise typer.BadParameter("nan is not in the range 0<=x<=1.")
    return value


_probability = partial(typer.Option, min=0, max=1, callback=_number)


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
        _probability(help="Withhold the label where its probability is lower; multi-label: one for all labels."),
    ] = None,
    min_precision: Annotated[
        float | None,
        _probability(help="Withhold labels so that of the others so many are right, guaranteed by held-out texts."),
    ] = None,
    coverage: Annotated[
        float | None,
        _probability(help="Name a set of classes that so often has the right one, guaranteed by held-out texts."),
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
    reading = reading_settings(overrides or (), known=("delimiter", "encoding"))

    from encoder_cls.answers.predict import predict
    from encoder_cls.answers.request import Request

    request = Request(
        texts=tuple(texts or ()),
        source=source,
        output=output,
        model=model,
        output_format=output_format,
        text_columns=tuple(text_columns or ()),
        keep_columns=keep_columns,
        top_k=top_k,
        threshold=threshold,
        min_precision=min_precision,
        coverage=coverage,
        batch_tokens=batch_tokens,
        explained=explained,
        attention=attention,
        bad_rows=bad_rows,
        device=device,
        engine=engine,
        runner=runner,
        workers=workers,
        delimiter=reading.get("delimiter"),
        encoding=reading.get("encoding"),
    )
    predict(request, runs=RUNS)
