"""The files of a report: page, JSON, predictions, picture and tables; and the model card."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls.classifier.explain import marked
from encoder_cls.classifier.html_pages import (
    LEGEND,
    escaped,
    html_page,
    isolated,
    shade,
    strongest_words,
    words_html,
)
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation import charts, report_text
from encoder_cls.evaluation import files as evaluation
from encoder_cls.evaluation.mistakes import Answered, csv_table, file_and_line, label_tables
from encoder_cls.evaluation.report import Report
from encoder_cls.metrics.classification import LARGEST_MATRIX
from encoder_cls.system.display import json_text, markdown_code, replace_unprintable, shortened
from encoder_cls.system.files import reporting_os_errors, to_json, write_file

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_COUNTED = 1_000_000  # characters of a text whose words are counted
FULL_DATE = "{0.day} {0:%B %Y}"
CHANGED_COLUMNS = ("file", "line", "text", "label", "before", "now")


def write_report(
    folder: Path, report: Report, *, data: DataConfig, run_name: str, config_yaml: str = ""
) -> list[str]:
    """Write the files of a report, and remove those of an earlier one that it does not have; return their names.

    `data` is the config by which its texts were read. Raises an `EncoderClsError` if the disk refuses.
    """
    answered = report.answered
    title = f"{run_name}: report on {report.split}"  # not its folder: equal runs have equal reports
    page = render_report(title, report, config_yaml=config_yaml, written=date.today())
    matrix, base = getattr(report.metrics, "confusion_matrix", None), report.base_answers
    doubtful, mistakes = label_tables(
        *(
            answered.label_rows(rows, data.label_separator)
            for rows in (report.doubtful_labels, answered.mistakes)
        ),
        data=data,
    )
    png = charts.to_png(charts.confusion_figure(matrix, report.label_names)) if matrix else None
    changed = (
        csv_table(CHANGED_COLUMNS, ((*file_and_line(it.where), *it[1:]) for it in base.changed))
        if base
        else None
    )
    contents: dict[str, bytes | Iterable[bytes] | None] = {
        evaluation.PREDICTIONS: (
            f"{json_text(record)}\n".encode() for record in answered.records()
        ),
        evaluation.CONFUSION_MATRIX: png,
        evaluation.DOUBTFUL_LABELS: doubtful,
        evaluation.CHANGED_ANSWERS: changed,
        evaluation.MISTAKES: mistakes,
        evaluation.REPORT_HTML: page.encode(),
        evaluation.REPORT_JSON: to_json(report.to_dict()),
    }
    for name, content in contents.items():
        if content is not None:
            write_file(folder / name, content)
        else:
            with reporting_os_errors(folder / name, "remove"):
                (folder / name).unlink(missing_ok=True)
    return [name for name in evaluation.REPORT_FILES if contents[name] is not None]


def render_report(
    title: str, report: Report, *, config_yaml: str = "", written: date | None = None
) -> str:
    """Render a report with charts."""
    rows = report_text.part_rows(report)
    head, *cards = report_text.summary_sections(report).items()
    name = report_text.capitalized(
        f"{evaluation.SCORE_NAMES[report.metrics.score_name]} of the parts"
    )
    template = _templates().get_template("report.html")
    body = template.render(
        title=title,
        report=report,
        head=head,
        cards=cards,
        parts=charts.parts_with_intervals(rows, name) if rows else "",
        classes=sorted(
            report.metrics.per_class.items(), key=lambda it: (it[1].support == 0, it[1].f1 or 0)
        ),
        matrix=None if report.is_multi_label else _matrix(report.answered),
        largest_matrix=LARGEST_MATRIX,
        charts=_charts(report),
        errors=[
            (
                it,
                Path(it.where).name,
                words_html(marked(it.text, it.words)),
                strongest_words(it.words),
            )
            for it in report.worst_errors
        ],
        legend=LEGEND,
        config_yaml=config_yaml,
        written=FULL_DATE.format(written) if written else "",
    )
    return html_page(title, body)


@cache
def _templates() -> Environment:
    """Jinja for the templates of this package: an undefined name is an error, and HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    def without_control_characters(value: Any) -> Any:
        is_plain = isinstance(value, str) and not isinstance(value, Markup)
        return replace_unprintable(value, keep="\n\t") if is_plain else value

    environment = Environment(
        loader=PackageLoader("encoder_cls.evaluation"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        finalize=without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"report_text": report_text, "score_names": evaluation.SCORE_NAMES}
    environment.filters |= {
        "percent": "{:.1%}".format,
        "thousands": "{:,}".format,
        "digits": "{:.4f}".format,
        "shortened": shortened,
        "score": report_text.score_text,
        "sentence": lambda words: Markup(isolated(f"{report_text.capitalized(words)}.")),
        "isolated": lambda words: Markup(isolated(words, in_attribute=True)),
        "shade": shade,
        "interval": lambda interval: "{:.4f} to {:.4f}".format(*interval),
        "breakable": lambda name: Markup(f"<bdi>{escaped(name).replace('_', '_<wbr>')}</bdi>"),
        "code": markdown_code,
    }
    return environment


def _charts(report: Report) -> dict[str, Any]:
    """The charts on how far to trust answers, by name, each None where it is not drawn, and what their notes need."""
    answered, is_multi_label = report.answered, report.is_multi_label
    confidence, correct = answered.probabilities.max(axis=1), answered.answers == answered.labels
    words = np.array(
        [] if is_multi_label else [len(it[:LONGEST_COUNTED].split()) for it in answered.split.texts]
    )
    num_classes, per_class = answered.logits.shape[1], report.metrics.per_class
    chosen, note = charts.notable_classes(per_class, charts.MOST_CURVES, num_classes=num_classes)
    names, labels = report.label_names, answered.split.labels
    return {
        "reliability": charts.reliability(
            report.metrics.calibration, of="label" if is_multi_label else "answer"
        ),
        "thresholds": None
        if is_multi_label
        else charts.thresholds(confidence, correct, report.suggested_threshold),
        "curves": charts.precision_recall(answered.probabilities, labels, chosen, names)
        if chosen
        else None,
        "curves_note": note,
        "lengths": None if is_multi_label else charts.accuracy_by_length(words, correct),
        "words": sorted({words.min(), words.max()}) if len(words) else [],
    }


def _matrix(answered: Answered) -> dict[str, Any] | None:
    """The confusion matrix of the classes that occur as label or answer; None if it is too large to read.

    It has the `names` of columns, those `absent`, and `rows`: a name, then the count of each cell and its share of the
    row.
    """
    names, occurring = (
        np.array(answered.label_names, dtype=object),
        np.union1d(answered.labels, answered.answers),
    )
    if len(occurring) > LARGEST_MATRIX:
        return None
    counts = np.zeros((len(occurring), len(occurring)), dtype=np.int64)
    np.add.at(
        counts,
        tuple(np.searchsorted(occurring, it) for it in (answered.labels, answered.answers)),
        1,
    )
    shares, columns = (
        counts / np.maximum(1, counts.sum(axis=1, keepdims=True)),
        names[occurring].tolist(),
    )
    cells = [
        list(zip(*row, strict=True)) for row in zip(counts.tolist(), shares.tolist(), strict=True)
    ]
    absent = np.delete(names, occurring).tolist()
    return {"names": columns, "rows": list(zip(columns, cells, strict=True)), "absent": absent}


def model_card(config: Config, dataset: Dataset, report: Report | None, **facts: int | None) -> str:
    """Describe the model of a run as Markdown: data, scores, usage.

    `report` is None where no text has a label. The further facts are `best_step`, `vocab_size`, `has_encoder`, and
    `linear_max_tokens`, None without a linear classifier.
    """
    template = _templates().get_template("model_card.md")
    return template.render(config=config, dataset=dataset, report=report, **facts) + "\n"
