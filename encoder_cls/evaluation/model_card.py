"""A finished training in, its model card out: Markdown for whoever finds the model folder."""

from __future__ import annotations

from encoder_cls.config import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.evaluation.html import template_environment
from encoder_cls.evaluation.report import AnyReport
from encoder_cls.evaluation.verdict import comparison_sentence


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
