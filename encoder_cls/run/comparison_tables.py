"""Tables of compared runs, for a terminal, Markdown, CSV and LaTeX.

The first has a row of scores for each run or group, the second a row for each setting that differs;
CSV has both in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from encoder_cls.metrics.scores import Place, Score, main_score, scores_shown_in
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task
from encoder_cls.run.compare import RunSummary
from encoder_cls.run.run_groups import RunGroup, best_of
from encoder_cls.system.csv_cells import cell, csv_row, guarded
from encoder_cls.system.display import aligned, duration, printable
from encoder_cls.system.json_values import json_text


class Cell(NamedTuple):
    """A cell of a table, printed in bold if it has the best score of several groups."""

    text: str
    is_best: bool = False


Table = list[list[Cell]]
"""The rows of a table, the head first; each row has a cell for each column."""

# The content of a table cell without a value.
NONE = "-"


def text_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield the lines of both tables with aligned columns.

    `differing` are keys of settings. If runs were not grouped, each group is a single run.
    """
    yield from _both_tables(_text_table, groups, differing, has_groups=has_groups)
    if not differing and len(groups) > 1:
        yield ""
        yield "no setting differs"


def _text_table(table: Table) -> Iterator[str]:
    yield from aligned([[cell.text for cell in row] for row in table])


def markdown_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield both tables in Markdown; see `text_lines`."""
    yield from _both_tables(_markdown_table, groups, differing, has_groups=has_groups)


def _markdown_table(table: Table) -> Iterator[str]:
    head, *rows = table
    yield f"| {' | '.join(_markdown_cell(cell) for cell in head)} |"
    yield f"| --- |{' ---: |' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(_markdown_cell(cell) for cell in row)} |"


MARKDOWN_CHARACTERS = "\\|*_`<>[]"


def _markdown_cell(cell: Cell) -> str:
    characters = []
    for character in cell.text:
        if character in MARKDOWN_CHARACTERS:
            characters.append("\\")
        characters.append(character)

    text = "".join(characters)
    return f"**{text}**" if cell.is_best else text


def latex_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield both tables in LaTeX; see `text_lines`."""
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


def _latex_row(row: Sequence[Cell]) -> str:
    return f"{' & '.join(_latex_cell(cell) for cell in row)} \\\\"


def _latex_cell(cell: Cell) -> str:
    text = "".join(LATEX_CHARACTERS.get(character, character) for character in cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text


def csv_lines(
    groups: Sequence[RunGroup], differing: Sequence[str], *, has_groups: bool
) -> Iterator[str]:
    """Yield a single table in CSV, with unrounded numbers; see `text_lines`."""
    scores = [main_score(_task_of_column(groups)), *_further_scores(groups)]

    head = ["run", "runs", "split", "num_examples"]
    for score in scores:
        head.append(score.key)
        if has_groups:
            head.append(f"{score.key}_deviation")
    if has_groups:
        head.append("p_value")
    else:
        head += ["interval_low", "interval_high"]
    yield csv_row(map(guarded, [*head, "model_bytes", "seconds", "parameters", *differing]))

    for group in groups:
        values: list[Any] = [group.name, len(group.runs)]
        values += [group.first["split"], group.first["num_examples"]]
        for score in scores:
            values.append(group.mean(score.key))
            if has_groups:
                values.append(group.deviation(score.key))
        if has_groups:
            values.append(_p_value(group, groups))
        else:
            interval = group.first[_main_score(group.first).interval_key] or (None, None)
            values += [*interval]
        values += [group.mean("model_bytes"), group.mean("seconds"), group.mean("parameters")]

        settings = group.first["settings"] or {}
        values += [settings.get(key) for key in differing]
        yield csv_row([guarded(cell(value)) for value in values])


# --- The two tables -------------------------------------------------------------------------------


def _both_tables(
    lines_of: Callable[[Table], Iterator[str]],
    groups: Sequence[RunGroup],
    differing: Sequence[str],
    *,
    has_groups: bool,
) -> Iterator[str]:
    yield from lines_of(score_table(groups, has_groups=has_groups))
    if differing:
        yield ""
        yield from lines_of(settings_table(groups, differing))


def score_table(groups: Sequence[RunGroup], *, has_groups: bool) -> Table:
    """Make the table of scores.

    Of groups, the best mean of each score is marked, and a column has p-values of the differences
    from the group with the best main score.
    """
    main = main_score(_task_of_column(groups))
    further_scores = _further_scores(groups)

    head = ["run", main.name]
    if has_groups:
        head += ["runs", "p"]
    else:
        head.append("95% interval")
    head += [score.name for score in further_scores]
    head += ["model", "training", "parameters"]

    rows = [[Cell(name) for name in head]]
    for group in groups:
        compared = groups if has_groups else [group]
        row = [Cell(printable(group.name)), _score(group, _main_score(group.first), compared)]
        if has_groups:
            row += [Cell(str(len(group.runs))), Cell(_shown_p_value(group, groups))]
        else:
            row.append(Cell(_interval(group)))
        row += [_score(group, score, compared) for score in further_scores]
        row += [Cell(text) for text in _sizes(group)]
        rows.append(row)
    return rows


def settings_table(groups: Sequence[RunGroup], differing: Sequence[str]) -> Table:
    """Make the table of settings that differ."""
    names = [printable(group.name) for group in groups]
    rows = [["settings that differ", *names]]
    for key in differing:
        values = [_setting(group.first["settings"] or {}, key) for group in groups]
        rows.append([key, *values])
    return [[Cell(text) for text in row] for row in rows]


def _task_of(run: RunSummary) -> Task:
    """The task of a run: only reports of a multi-label task have a micro-F1."""
    if run["micro_f1"] is not None:
        return MULTI_LABEL
    return SINGLE_LABEL


def _task_of_column(groups: Sequence[RunGroup]) -> Task:
    if any(_task_of(group.first) is MULTI_LABEL for group in groups):
        return MULTI_LABEL
    return SINGLE_LABEL


def _main_score(run: RunSummary) -> Score:
    return main_score(_task_of(run))


def _further_scores(groups: Sequence[RunGroup]) -> list[Score]:
    tasks = {_task_of(group.first) for group in groups}

    scores = []
    for score in scores_shown_in(Place.COMPARE):
        if not score.is_main and not tasks.isdisjoint(score.tasks):
            scores.append(score)
    return scores


def _interval(group: RunGroup) -> str:
    interval = group.first[_main_score(group.first).interval_key]
    if not interval:
        return NONE
    low, high = interval
    return f"{low:.4f} to {high:.4f}"


def _sizes(group: RunGroup) -> list[str]:
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

    return [model_size, training_time, parameters]


def _score(group: RunGroup, score: Score, compared: Sequence[RunGroup]) -> Cell:
    mean = group.mean(score.key)
    if mean is None:
        return Cell(NONE)

    text = f"{mean:.4f}"
    deviation = group.deviation(score.key)
    if deviation is not None:
        text += f" ± {deviation:.4f}"
    return Cell(text, is_best=len(compared) > 1 and group is best_of(compared, score))


def _p_value(group: RunGroup, groups: Sequence[RunGroup]) -> float | None:
    main = main_score(_task_of_column(groups))
    best = best_of(groups, main)
    if best is None or group is best:
        return None
    return group.p_value(best, main.key)


def _shown_p_value(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    p_value = _p_value(group, groups)
    if p_value is None:
        return NONE
    return "<0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _setting(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key, NONE)
    return printable(value) if isinstance(value, str) else json_text(value)
