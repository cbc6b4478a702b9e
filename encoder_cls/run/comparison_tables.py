"""Tables of compared runs, for a terminal, Markdown, CSV and LaTeX.

A first table has a row for each run, or for each group of runs, with its scores. A second table has
a row for each setting that differs, with a column for each run. CSV has a single table, with the
settings as further columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from encoder_cls.metrics.scores import Place, Score, main_score, scores_shown_in
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task
from encoder_cls.run.compare import RunSummary
from encoder_cls.run.run_groups import RunGroup
from encoder_cls.system.csv_cells import cell, csv_row
from encoder_cls.system.display import aligned, duration, printable
from encoder_cls.system.json_values import json_text

Table = list[list[str]]
"""The rows of a table, the head first; each row has a cell for each column."""

# The content of a table cell without a value.
NONE = "-"


def text_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield the lines of both tables with aligned columns.

    Args:
        groups: a group for each row of the first table.
        differing: the dotted keys of the settings that differ.
        has_groups: whether the runs were grouped; otherwise each group is a single run.
    """
    yield from _both_tables(aligned, groups, differing, has_groups=has_groups)
    if not differing and len(groups) > 1:
        yield ""
        yield "no setting differs"


def markdown_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield the lines of both tables in Markdown. The arguments are those of `text_lines`."""
    yield from _both_tables(_markdown_table, groups, differing, has_groups=has_groups)


def _markdown_table(table: Table) -> Iterator[str]:
    head, *rows = table
    yield f"| {' | '.join(_markdown_cell(text) for text in head)} |"
    yield f"| --- |{' ---: |' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(_markdown_cell(text) for text in row)} |"


# The characters that Markdown could take for markup.
MARKDOWN_CHARACTERS = "\\|*_`<>[]"


def _markdown_cell(text: str) -> str:
    """Put a backslash before the characters of a cell that Markdown could take for markup."""
    characters = []
    for character in text:
        if character in MARKDOWN_CHARACTERS:
            characters.append("\\")
        characters.append(character)
    return "".join(characters)


def latex_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield the lines of both tables in LaTeX. The arguments are those of `text_lines`."""
    yield "% \\usepackage{booktabs}"
    yield from _both_tables(_latex_table, groups, differing, has_groups=has_groups)


def _latex_table(table: Table) -> Iterator[str]:
    head, *rows = table
    yield f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    yield "\\toprule"
    yield _latex_row(head)
    yield "\\midrule"
    for row in rows:
        yield _latex_row(row)
    yield "\\bottomrule"
    yield "\\end{tabular}"


# What LaTeX needs in place of characters that it would take for commands.
LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def _latex_row(row: Sequence[str]) -> str:
    cells = []
    for text in row:
        cells.append("".join(LATEX_CHARACTERS.get(character, character) for character in text))
    return f"{' & '.join(cells)} \\\\"


def csv_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield a head and a row for each group as CSV, with unrounded numbers.

    The arguments are those of `text_lines`.
    """
    scores = [main_score(_task_of_column(groups)), *_further_scores(groups)]

    head = ["run", "runs", "split", "num_examples"]
    for score in scores:
        head.append(score.key)
        if has_groups:
            head.append(f"{score.key}_deviation")
    if not has_groups:
        head += ["interval_low", "interval_high"]
    yield csv_row([*head, "model_bytes", "seconds", "parameters", *differing])

    for group in groups:
        values: list[Any] = [group.first["run"], len(group.runs)]
        values += [group.first["split"], group.first["num_examples"]]
        for score in scores:
            values.append(group.mean(score.key))
            if has_groups:
                values.append(group.deviation(score.key))
        if not has_groups:
            interval = group.first[_main_score(group.first).interval_key] or (None, None)
            values += [*interval]
        values += [group.mean("model_bytes"), group.mean("seconds"), group.mean("parameters")]

        settings = group.first["settings"] or {}
        values += [settings.get(key) for key in differing]
        yield csv_row([cell(value) for value in values])


# --- The two tables -------------------------------------------------------------------------------


def _both_tables(
    lines_of: Callable[[Table], Iterator[str]],
    groups: Sequence[RunGroup],
    differing: Sequence[str],
    *,
    has_groups: bool,
) -> Iterator[str]:
    """Yield the lines of the table of scores, then those of the settings if any differ.

    Args:
        lines_of: makes the lines of a table.
        groups: as for `text_lines`.
        differing: as for `text_lines`.
        has_groups: as for `text_lines`.
    """
    yield from lines_of(score_table(groups, has_groups=has_groups))
    if differing:
        yield ""
        yield from lines_of(settings_table(groups, differing))


def score_table(groups: Sequence[RunGroup], *, has_groups: bool) -> Table:
    """Make the table of scores, with a row for each group."""
    main = main_score(_task_of_column(groups))
    further_scores = _further_scores(groups)

    second_column = "runs" if has_groups else "95% interval"
    head = ["run", main.name, second_column]
    head += [score.name for score in further_scores]
    head += ["model", "training", "parameters"]
    rows = [_cells(group, further_scores, has_groups=has_groups) for group in groups]
    return [head, *rows]


def settings_table(groups: Sequence[RunGroup], differing: Sequence[str]) -> Table:
    """Make the table of the settings that differ, with a column for each group."""
    names = [printable(group.first["run"]) for group in groups]
    table = [["settings that differ", *names]]
    for key in differing:
        values = [_setting(group.first["settings"] or {}, key) for group in groups]
        table.append([key, *values])
    return table


def _task_of(run: RunSummary) -> Task:
    """Return the task of a run: only reports of a multi-label task have a micro-F1."""
    if run["micro_f1"] is not None:
        return MULTI_LABEL
    return SINGLE_LABEL


def _task_of_column(groups: Sequence[RunGroup]) -> Task:
    """Return the task for which the column of main scores is named: multi-label if any run is."""
    if any(_task_of(group.first) is MULTI_LABEL for group in groups):
        return MULTI_LABEL
    return SINGLE_LABEL


def _main_score(run: RunSummary) -> Score:
    return main_score(_task_of(run))


def _further_scores(groups: Sequence[RunGroup]) -> list[Score]:
    """List the scores that the table shows for the tasks of these runs, without the main score."""
    tasks = {_task_of(group.first) for group in groups}

    scores = []
    for score in scores_shown_in(Place.COMPARE):
        if not score.is_main and not tasks.isdisjoint(score.tasks):
            scores.append(score)
    return scores


def _cells(group: RunGroup, further_scores: Sequence[Score], *, has_groups: bool) -> list[str]:
    """Return the cells of a group's row."""
    main = _main_score(group.first)
    if has_groups:
        second_cell = str(len(group.runs))
    else:
        second_cell = NONE
        if group.first[main.interval_key]:
            low, high = group.first[main.interval_key]
            second_cell = f"{low:.4f} to {high:.4f}"

    model_size = NONE
    num_bytes = group.mean("model_bytes")
    if num_bytes:
        model_size = f"{num_bytes / 1e6:.1f} MB"

    training_time = NONE
    seconds = group.mean("seconds")
    if seconds is not None:
        training_time = duration(seconds)

    parameters = NONE
    num_parameters = group.mean("parameters")
    if num_parameters:
        parameters = f"{num_parameters:,.0f}"

    cells = [printable(group.first["run"]), _score(group, main.key), second_cell]
    cells += [_score(group, score.key) for score in further_scores]
    cells += [model_size, training_time, parameters]
    return cells


def _score(group: RunGroup, key: str) -> str:
    """The mean of a score with its standard deviation, if more than one run has the score."""
    mean = group.mean(key)
    if mean is None:
        return NONE
    deviation = group.deviation(key)
    if deviation is None:
        return f"{mean:.4f}"
    return f"{mean:.4f} ± {deviation:.4f}"


def _setting(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, NONE)
    return printable(value) if isinstance(value, str) else json_text(value)
