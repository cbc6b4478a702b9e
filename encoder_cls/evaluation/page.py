"""The report as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_cls.data.split import Split
from encoder_cls.evaluation import charts, verdict
from encoder_cls.evaluation.labels import mistakes
from encoder_cls.evaluation.metrics import LARGEST_MATRIX, ClassMetrics, answers
from encoder_cls.evaluation.report import WANTED_ACCURACY, Report
from encoder_cls.evaluation.scores import comparison_lines, promise_sentences
from encoder_cls.inference.explain import marked
from encoder_cls.inference.page import LEGEND, strongest_words, words_html
from encoder_cls.inference.task import Logits, softmax
from encoder_cls.system.display import markdown_code, replace_unprintable, shortened
from encoder_cls.system.html_page import escaped, html_page, shade

if TYPE_CHECKING:
    from jinja2 import Environment


from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.files import multi_label_mistakes
from encoder_cls.evaluation.report import AnyReport, MultiLabelReport
from encoder_cls.evaluation.verdict import comparison_sentence
from encoder_cls.inference.task import sigmoid

LONGEST_COUNTED = 1_000_000  # characters of a text whose words are counted
LONGEST_HEAD = 40  # characters of a class name at a cell of the matrix
FULL_DATE = "{0.day} {0:%B %Y}"


class Cell(NamedTuple):
    """A cell of the confusion matrix: its texts, its style, and what is told at the pointer."""

    texts: int
    style: str
    told: str


class Matrix(NamedTuple):
    """The confusion matrix of the classes that occur: rows are labels, columns answers; `absent` do not occur."""

    names: list[str]
    rows: list[tuple[str, list[Cell]]]
    absent: list[str]


def render_report(
    title: str,
    report: Report,
    split: Split,
    logits: Logits,
    *,
    config_yaml: str = "",
    written: date | None = None,
) -> str:
    """A report, with charts of what it counts.

    Args:
        title: of the HTML.
        report: the report.
        split: the examples that were scored.
        logits: what the classifier made of them, (texts, classes).
        config_yaml: of the run; empty where it is not known.
        written: the day of the report; none where it is not to be named.
    """
    wrong = mistakes(split, logits)
    body = (
        template_environment()
        .get_template("report.html")
        .render(
            title=title,
            report=report,
            metrics=report.metrics,
            verdict=verdict,
            calibration=verdict.calibration(report),
            parts=_parts_chart(report),
            against=comparison_lines(report.against, name=report.against.run) if report.against else (),
            former=list(report.former_answers.sentences()) if report.former_answers else (),
            wanted=WANTED_ACCURACY,
            promises=list(promise_sentences(report.kept_promises)),
            classes=worst_first(report.metrics.per_class),
            matrix=_matrix(report, split, logits),
            largest_matrix=LARGEST_MATRIX,
            charts=_charts(report, split, logits),
            num_wrong=len(wrong),
            errors=[
                (error, Path(error.where).name, marked(error.text, error.words), strongest_words(error.words))
                for error in report.worst_errors
            ],
            legend=LEGEND,
            config_yaml=config_yaml,
            written=FULL_DATE.format(written) if written else "",
        )
    )
    return html_page(title, body)


@cache
def template_environment() -> Environment:
    """Jinja as the templates of this package want it: what is not there is an error, and HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("encoder_cls.evaluation"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": "{:.1%}".format,
        "thousands": "{:,}".format,
        "digits": "{:.4f}".format,
        "sentence": lambda words: f"{words[:1].upper()}{words[1:]}.",
        "interval": lambda interval: "{:.4f} to {:.4f}".format(*interval),
        "words": lambda pieces: Markup(words_html(pieces)),
        "breakable": lambda name: Markup(escaped(name).replace("_", "_<wbr>")),
        "code": markdown_code,
    }
    return environment


def _without_control_characters(value: Any) -> Any:
    """A value in which nothing can steer a terminal, and no surrogate stands alone."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return replace_unprintable(value, keep="\n\t")


def _parts_chart(report: Report) -> str:
    rows = verdict.part_rows(report)
    return charts.parts_with_intervals(rows) if rows else ""


def _charts(report: Report, split: Split, logits: Logits) -> list[tuple[str, str, str]]:
    """Of each chart its heading, what is to be known of it, and its SVG."""
    confidence, correct = answers(logits, split.labels)
    num_words = np.array([len(text[:LONGEST_COUNTED].split()) for text in split.texts])
    num_classes = logits.shape[1]
    chosen = charts.notable_classes(report.metrics.per_class, charts.MOST_CURVES, num_classes=num_classes)
    occurring = len(np.unique(split.labels[split.labels < num_classes]))
    some = f"Curves of {len(chosen)} of {occurring} classes: the rarest and those with the lowest F1."
    drawn = [
        (
            "Right as often as it says?",
            "On the dotted line it would be. The paler a dot, the fewer texts it stands for.",
            charts.reliability(report.metrics.calibration),
        ),
        (
            "What a threshold does",
            "The higher, the fewer answers, and the more of them right.",
            charts.thresholds(confidence, correct, report.suggested_threshold),
        ),
    ]
    if chosen:
        curves = charts.precision_recall(softmax(logits), split.labels, chosen, report.label_names)
        drawn.append(("Precision and recall", some if occurring > len(chosen) else "", curves))
    by_length = charts.accuracy_by_length(num_words, correct)
    spread = f"{num_words.min():,} to {num_words.max():,}" if len(set(num_words.tolist())) > 1 else f"{num_words[0]:,}"
    note = f"No chart: the texts have {spread} words, too much alike to be told apart."
    drawn.append(("Length of the text", "" if by_length else note, by_length or ""))
    return drawn


def worst_first(per_class: Mapping[str, ClassMetrics]) -> list[tuple[str, ClassMetrics]]:
    """Each class with its scores, the lowest F1 first; classes without a text, whose scores say nothing, come last."""
    return sorted(per_class.items(), key=lambda item: (item[1].support == 0, item[1].f1 or 0))


def _matrix(report: Report, split: Split, logits: Logits) -> Matrix | None:
    """The confusion matrix of the classes that occur as label or answer; none of more than anybody could read."""
    names, predictions = report.label_names, logits.argmax(axis=1)
    if report.metrics.confusion_matrix is not None:
        counts = np.array(report.metrics.confusion_matrix)
        occurring = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
        counts = counts[np.ix_(occurring, occurring)]
    else:
        occurring = np.union1d(split.labels, predictions)
        if len(occurring) > LARGEST_MATRIX:
            return None
        counts = np.zeros((len(occurring), len(occurring)), dtype=np.int64)
        np.add.at(counts, (np.searchsorted(occurring, split.labels), np.searchsorted(occurring, predictions)), 1)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    cell = _cells([shortened(names[number], limit=LONGEST_HEAD) for number in occurring])
    rows = [
        (
            names[number],
            [cell(row, column, int(count), shares[row, column]) for column, count in enumerate(counts[row])],
        )
        for row, number in enumerate(occurring)
    ]
    present = set(occurring.tolist())
    return Matrix(
        names=[names[number] for number in occurring],
        rows=rows,
        absent=[name for number, name in enumerate(names) if number not in present],
    )


def _cells(names: list[str]) -> Callable[[int, int, int, float], Cell]:
    """What a cell looks like: blue where label and answer are the same, else orange, never too pale to be seen."""

    def cell(row: int, column: int, count: int, share: float) -> Cell:
        if not count:
            return Cell(0, "", "")
        if row == column:
            return Cell(count, f"d {shade(share)}", f"{names[row]}, found: {count:,}")
        return Cell(count, f"o {shade(0.2 + 0.8 * share**0.5)}", f"{names[row]}, taken for {names[column]}: {count:,}")

    return cell


def render_multi_label_report(
    title: str,
    report: MultiLabelReport,
    split: Split,
    logits: Logits,
    *,
    config_yaml: str = "",
    written: date | None = None,
) -> str:
    """A report, with charts of what it counts; arguments as of `render_report`."""
    rows = verdict.part_rows(report)
    body = (
        template_environment()
        .get_template("multi_label_report.html")
        .render(
            title=title,
            report=report,
            metrics=report.metrics,
            verdict=verdict,
            calibration=verdict.calibration(report),
            parts=charts.parts_with_intervals(rows, "Micro-F1 of the parts") if rows else "",
            classes=worst_first(report.metrics.per_class),
            charts=_multi_label_charts(report, split, logits),
            num_wrong=len(multi_label_mistakes(report, split, logits)),
            errors=[
                (error, Path(error.where).name, marked(error.text, error.words), strongest_words(error.words))
                for error in report.worst_errors
            ],
            legend=LEGEND,
            config_yaml=config_yaml,
            written=FULL_DATE.format(written) if written else "",
        )
    )
    return html_page(title, body)


def _multi_label_charts(report: MultiLabelReport, split: Split, logits: Logits) -> list[tuple[str, str, str]]:
    """Of each chart its heading, what is to be known of it, and its SVG."""
    num_classes = logits.shape[1]
    chosen = charts.notable_classes(report.metrics.per_class, charts.MOST_CURVES, num_classes=num_classes)
    occurring = int(np.count_nonzero(split.class_counts(num_classes)))
    drawn = [
        (
            "Right as often as it says?",
            "Of labels that are at all likely. On the dotted line it would be. The paler a dot, the fewer labels it "
            "stands for.",
            charts.reliability(report.metrics.calibration, of="label"),
        )
    ]
    if chosen:
        some = f"Curves of {len(chosen)} of {occurring} labels: the rarest and those with the lowest F1."
        curves = charts.precision_recall(sigmoid(logits), split.labels, chosen, report.label_names)
        drawn.append(("Precision and recall", some if occurring > len(chosen) else "", curves))
    return drawn


def model_card(
    config: Config,
    dataset: Dataset,
    report: AnyReport | None,
    *,
    best_step: int,
    vocab_size: int,
    linear_max_tokens: int | None,
    refits_on_validation: bool = False,
) -> str:
    """What the model of a run is, was trained on and scores, and how to use it, as Markdown.

    Args:
        config: of the run.
        dataset: what it was trained on.
        report: on its best weights; none: no text has a label.
        best_step: the step at which validation was best.
        vocab_size: the number of tokens in the vocabulary.
        linear_max_tokens: of how many tokens its linear classifier reads; none where it has none.
        refits_on_validation: whether its linear classifier has also learned from the texts held out.
    """
    template = template_environment().get_template("model_card.md")
    card = template.render(
        config=config,
        label_names=dataset.label_names,
        has_encoder=config.model.encoder and not dataset.has_names_alone,
        has_names_alone=dataset.has_names_alone,
        num_texts=len(dataset.unlabelled.texts if dataset.has_names_alone else dataset.train),
        num_refitted=len(dataset.selection) if refits_on_validation else 0,
        report=report,
        score_name=report.score_name.replace("micro_f1", "micro-F1") if report else "",
        comparison=comparison_sentence(report) if report else None,
        best_step=best_step,
        vocab_size=vocab_size,
        linear_max_tokens=linear_max_tokens,
    )
    return f"{card}\n"
