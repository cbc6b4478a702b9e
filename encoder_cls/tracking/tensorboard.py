"""A finished run in, what TensorBoard shows of its result out: what one looks at once, when training is over."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.config import Config
from encoder_cls.data.split import Split
from encoder_cls.evaluation import plots
from encoder_cls.evaluation.charts import notable_classes
from encoder_cls.evaluation.report import AnyReport, MultiLabelReport, WrongLabel, summary_text
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import torch_encoder
from encoder_cls.inference.explain import attention_maps
from encoder_cls.inference.task import Logits
from encoder_cls.system.display import markdown_text, shortened
from encoder_cls.tracking.metric_log import MetricLog

ALWAYS_COMPARED = {"model.d_model", "model.num_layers", "train.learning_rate"}
MOST_CURVES = 12  # classes with a curve of their own
MOST_POINTS = 2000  # texts in the projector
MOST_ATTENTION_TEXTS = 2
MOST_POSITIONS = 128
MOST_CHARACTERS = 70  # of a mistake; `report.html` has all


def log_final_report(
    metric_log: MetricLog,
    classifier: Classifier,
    config: Config,
    report: AnyReport,
    split: Split,
    logits: Logits,
    *,
    step: int,
) -> None:
    """Show a report, and the classifier behind it, in TensorBoard.

    Args:
        metric_log: where to.
        classifier: the best one of the run.
        config: of the run.
        report: on a split.
        split: the examples of the report.
        logits: the classifier's, (texts, classes).
        step: at which the classifier was the best.
    """
    metric_log.hparams({**_scores(report), **_hparams(config)})
    metric_log.text("result", _as_code(summary_text(report)), step)
    metric_log.text("most confident mistakes", _mistakes(report), step)
    _log_precision_recall(metric_log, report, split, classifier.task.probabilities(logits), step=step)
    if not classifier.encoder:  # what follows is its own
        return
    chosen = np.random.default_rng(0).permutation(len(split))[:MOST_POINTS]
    texts = [split.texts[i] for i in chosen]
    vectors = classifier.embed(texts, batch_tokens=config.train.batch_tokens)
    metric_log.embedding("texts", vectors, [split.label_text(it, report.label_names) for it in chosen.tolist()], texts)
    for number, text in enumerate(texts[:MOST_ATTENTION_TEXTS], start=1):
        maps = attention_maps(classifier, text)
        figure = plots.attention(maps.tokens, maps.weights)
        metric_log.image(f"texts/attention in text {number}", plots.to_pixels(figure), step)
    if config.model.positions == "learned":
        figure = plots.position_vectors(_position_vectors(classifier))
        metric_log.image("weights/positions", plots.to_pixels(figure), step)


def _log_precision_recall(
    metric_log: MetricLog, report: AnyReport, split: Split, probabilities: NDArray[np.float64], *, step: int
) -> None:
    """Precision against recall of the rarest and the worst classes."""
    num_classes = probabilities.shape[1]
    chosen = notable_classes(report.metrics.per_class, MOST_CURVES, num_classes=num_classes)
    for number in chosen:
        name = f"precision and recall/{report.label_names[number]}"
        is_class = split.labels[:, number] > 0 if split.is_multi_label else split.labels == number
        metric_log.pr_curve(name, is_class, probabilities[:, number], step)
    occurring = int(np.count_nonzero(split.class_counts(num_classes)))
    if len(chosen) < occurring:
        left_out = f"Curves of {len(chosen)} of {occurring} classes: the rarest and those with the lowest F1."
        metric_log.text("precision and recall", left_out, step)


def _scores(report: AnyReport) -> dict[str, float]:
    """The numbers of a report that runs are compared by, by names that come before those of settings."""
    if isinstance(report, MultiLabelReport):
        return {
            "calibration error": report.metrics.ece,
            "loss": report.metrics.loss,
            "macro F1": report.metrics.macro_f1,
            "mean average precision": report.metrics.mean_average_precision,
            "micro F1": report.metrics.micro_f1,
        }
    metrics = report.metrics
    return {
        "accuracy": metrics.accuracy,
        "calibration error": metrics.ece,
        "loss": metrics.loss,
        "macro F1": metrics.macro_f1,
    }


def _as_code(text: str) -> str:
    """Lines as they are, in Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _hparams(config: Config) -> dict[str, bool | float | str]:
    """What was chosen, without the data: by dotted name what is always compared, and what is not as by default."""
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for name in ("tokenizer", "model", "pretrain", "train"):
        section = getattr(config, name)
        defaults = type(section)().model_dump()
        for key, value in section.model_dump().items():
            if f"{name}.{key}" in ALWAYS_COMPARED or value != defaults[key]:
                chosen[f"{name}.{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return chosen


def _mistakes(report: AnyReport) -> str:
    """A Markdown table; what could be Markdown in a text is not."""
    rows = ["| answer | label | text |", "| --- | --- | --- |"]
    for error in report.worst_errors:
        # A longer text would squeeze the other columns until names are broken at any letter.
        text = shortened(error.text, limit=MOST_CHARACTERS)
        if isinstance(error, WrongLabel):
            answer = f"{'misses' if error.is_missed else 'gives'} {error.label} {error.probability:.2f}"
            cells = (answer, ", ".join(error.labels), text)
        else:
            cells = (f"{error.prediction} {error.probability:.2f}", error.label, text)
        rows.append("| " + " | ".join(markdown_text(cell) for cell in cells) + " |")
    return "\n".join(rows)


def _position_vectors(classifier: Classifier) -> NDArray[np.float32]:
    """What the encoder adds to the vectors of the tokens, (positions, d_model)."""
    encoder = torch_encoder(classifier)
    config, embedding = encoder.architecture, encoder.model.encoder.embedding
    length = min(config.max_seq_len, MOST_POSITIONS)
    device = next(encoder.model.parameters()).device
    with torch.inference_mode():
        added: torch.Tensor = embedding.positions(torch.zeros(1, length, config.d_model, device=device))[0]
    return added.float().cpu().numpy()
