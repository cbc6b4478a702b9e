"""Pass what is known of a run to `templates/model_card.md`."""

from __future__ import annotations

from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.findings import Kind, baseline_note, sentences
from encoder_cls.evaluation.report import Report
from encoder_cls.system.html_pages import render


def model_card(
    config: Config,
    dataset: Dataset,
    report: Report,
    *,
    best_step: int,
    vocab_size: int,
    has_encoder: bool,
    linear_max_tokens: int | None,
) -> str:
    """Describe a model in Markdown: its data, its scores, its use.

    `best_step` is that of the encoder's weights; `linear_max_tokens` is None without a linear part.
    """
    card = render(
        "evaluation/templates/model_card.md",
        config=config,
        dataset=dataset,
        report=report,
        baseline_note=baseline_note,
        notes=sentences(report.findings, Kind.LEARNED, Kind.TUNED, Kind.GROUPS, Kind.NONE),
        encoder_gain=sentences(report.findings, Kind.ENCODER_GAIN, Kind.CASCADE),
        levels=sentences(report.findings, Kind.LEVELS, Kind.LEVELS_TOGETHER),
        best_step=best_step,
        vocab_size=vocab_size,
        has_encoder=has_encoder,
        linear_max_tokens=linear_max_tokens,
    )
    return f"{card}\n"
