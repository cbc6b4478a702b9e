"""The command `encoder-cls predict`: classify texts with a trained model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from encoder_cls.system.command_options import RUNS, Device, TextColumns, data_overrides


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
            help="A file, a folder or a pattern of files. For standard input: - if each line is a "
            "text, or -.csv, -.jsonl and so on if it has this format.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="Write to this file, or one file per input file to FOLDER/.", metavar="FILE"
        ),
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How to read --input: data.delimiter=..., data.encoding=... or data.sheet=... "
            "Default: separator and encoding as in training.",
        ),
    ] = None,
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do with rows that cannot be read.")
    ] = "error",
    output_format: Annotated[
        Literal["text", "jsonl", "tsv", "csv", "xlsx", "html", "parquet"] | None,
        typer.Option(
            "--format",
            help="Format of the predictions. Default: by the ending of --output, or text.",
        ),
    ] = None,
    keep_columns: Annotated[
        bool | None,
        typer.Option(
            "--keep-columns/--no-keep-columns",
            help="Keep all columns of the input beside the predictions. Default: only if the "
            "output is Excel, or CSV from CSV or Excel.",
        ),
    ] = None,
    fill: Annotated[
        str | None,
        typer.Option(
            help="Write the labels into the empty cells of this column of the input, for example "
            "that of the labels in training. Keeps all columns.",
            metavar="COLUMN",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="The number of classes to show.")] = 1,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold labels that are less probable. For a multi-label model, this replaces "
            "the thresholds of all labels.",
        ),
    ] = None,
    min_precision: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold uncertain labels so that at least this share of the other labels is "
            "correct. Held-out texts guarantee it. Multi-label, it holds for each label.",
        ),
    ] = None,
    whole_texts: Annotated[
        bool,
        typer.Option(
            "--whole-texts",
            help="Multi-label: apply --min-precision to texts with all of their labels, of which "
            "none is wrong or missing.",
        ),
    ] = False,
    coverage: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Predict a set of classes for each text so that at least this share of the sets "
            "has the correct class. Held-out texts guarantee it.",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The maximum number of tokens in a batch. Default: by the device."
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show which words count for or against the label.")
    ] = False,
    sort: Annotated[
        Literal["probability"] | None,
        typer.Option(help="Sort the predictions, the least probable one first."),
    ] = None,
    decimal: Annotated[
        Literal["point", "comma"],
        typer.Option(
            help="The decimal mark in CSV and TSV. With comma, semicolons separate the fields of "
            "CSV, as spreadsheets expect it then."
        ),
    ] = "point",
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Write the attention maps of the first texts to this HTML file; .svg, .png or "
            ".pdf draws those of the first text."
        ),
    ] = None,
    device: Device = "auto",
    engine: Annotated[
        Literal["auto", "numpy", "torch"],
        typer.Option(help="The library that computes the encoder."),
    ] = "auto",
    runner: Annotated[
        str,
        typer.Option(
            metavar="local|ray",
            help="local, or ray: workers of Ray classify Parquet files at a path or URI.",
        ),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="The number of workers of --runner ray.")] = 2,
) -> None:
    """Classify texts in the command, in files or on standard input.

    Files with one text per line: .txt and .ft.
    Files with a column of texts: .csv, .tsv, .xlsx, .json, .jsonl and .parquet.

    If --output is a folder, it gets one file per input file, by default of JSON lines.
    To continue a stopped command, run it again.
    """
    # Let NumPy use one thread. It would create a pool of threads on import, which wait in busy
    # loops: on a busy machine, a file took twenty times as long. Large files are shared among
    # processes instead.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.bulk.predict import predict
    from encoder_cls.bulk.request import Request

    reading = data_overrides(overrides, "delimiter", "encoding", "sheet")
    request = Request(
        texts=tuple(texts or ()),
        model=model,
        source=source,
        output=output,
        text_columns=tuple(text_columns or ()),
        bad_rows=bad_rows,
        output_format=output_format,
        keep_columns=keep_columns,
        fill=fill,
        top_k=top_k,
        threshold=threshold,
        min_precision=min_precision,
        whole_texts=whole_texts,
        coverage=coverage,
        batch_tokens=batch_tokens,
        explained=explained,
        sort=sort,
        decimal=decimal,
        attention=attention,
        device=device,
        engine=engine,
        runner=runner,
        workers=workers,
        **reading,
    )
    predict(request, runs=RUNS)
