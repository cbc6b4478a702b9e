"""A finished run in, the rest of its TensorBoard out: what one looks at once, when training is over."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.calibration import Logits, softmax
from encoder_cls.classifier import Classifier, in_batches
from encoder_cls.config import Config
from encoder_cls.dashboard import Dashboard
from encoder_cls.data import Split
from encoder_cls.explain import attention_maps
from encoder_cls.pages import attention_figure, to_png
from encoder_cls.report import Report, confusion_picture, reliability_picture
from encoder_cls.tokenizer import TokenizedTexts

MOST_CURVES = 12  # classes with a curve of their own
MOST_POINTS = 2000  # texts in the projector
MOST_ATTENTION_TEXTS = 2


def show(
    dashboard: Dashboard,
    classifier: Classifier,
    config: Config,
    report: Report,
    split: Split,
    logits: Logits,
    *,
    step: int,
) -> None:
    """Show a report, and the classifier behind it, in TensorBoard.

    Args:
        dashboard: where to.
        classifier: the best one of the run.
        config: of the run.
        report: on a split.
        split: the examples of the report.
        logits: the classifier's, (texts, classes).
        step: at which the classifier was the best.
    """
    name, names = report.split, classifier.label_names
    probabilities = softmax(logits)
    dashboard.hparams(_hparams(config), {f"best/{key}": value for key, value in report.metrics.scalars().items()})
    dashboard.picture(f"{name}/confusion_matrix", confusion_picture(report.metrics.confusion_matrix, names), step)
    dashboard.picture(f"{name}/reliability", reliability_picture(logits, split.labels), step)
    for number in np.argsort(-np.bincount(split.labels, minlength=len(names)), kind="stable")[:MOST_CURVES].tolist():
        dashboard.pr_curve(f"{name}/{names[number]}", split.labels == number, probabilities[:, number], step)
    dashboard.histogram(f"{name}/probability of the answer", probabilities.max(axis=1), step)
    matrices = {key: tensor for key, tensor in classifier.model.named_parameters() if tensor.ndim > 1}
    for key, tensor in matrices.items():
        dashboard.histogram(f"weights/{key}", tensor.detach().float().cpu().numpy(), step)
    dashboard.text(f"{name}/most confident mistakes", _mistakes(report), step)
    chosen = np.random.default_rng(0).permutation(len(split))[:MOST_POINTS]
    texts = [split.texts[i] for i in chosen]
    vectors = pooled_vectors(classifier, classifier.tokenize(texts), batch_tokens=config.train.batch_tokens)
    dashboard.projector(vectors, [(names[split.labels[i]], split.texts[i]) for i in chosen])
    for number, text in enumerate(texts[:MOST_ATTENTION_TEXTS], start=1):
        dashboard.picture(f"attention/text {number}", to_png(attention_figure(attention_maps(classifier, text))), step)
    if config.model.positions != "none":
        dashboard.picture("model/positions", _positions_picture(classifier), step)


def pooled_vectors(classifier: Classifier, texts: TokenizedTexts, *, batch_tokens: int) -> NDArray[np.float32]:
    """The vectors that the head sees of texts, (texts, d_model)."""
    model = classifier.model
    return in_batches(
        model,
        texts,
        lambda batch: model.head.pool(model.encoder(*batch), batch.attention_mask),
        width=classifier.config.d_model,
        batch_tokens=batch_tokens,
    )


def _hparams(config: Config) -> dict[str, bool | float | str]:
    """What was chosen, without the data: numbers and words by dotted name."""
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for section in ("tokenizer", "model", "distillation", "train"):
        for key, value in getattr(config, section).model_dump().items():
            chosen[f"{section}.{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return chosen


def _mistakes(report: Report) -> str:
    """A Markdown table; what could be Markdown in a text is not."""
    rows = ["| answer | probability | label | text |", "| --- | ---: | --- | --- |"]
    for error in report.worst_errors:
        cells = (error.prediction, f"{error.probability:.3f}", error.label, error.text)
        rows.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    return "\n".join(rows)


def _plain(text: str) -> str:
    return "".join(f"&#{ord(c)};" if c in "<>&|*_`[]()#\\!~" else c if c.isprintable() else " " for c in text)


def _positions_picture(classifier: Classifier) -> bytes:
    """What is added to the tokens' vectors for their places, as a picture."""
    from matplotlib.figure import Figure

    config, positions = classifier.config, classifier.model.encoder.embedding.positions
    places = min(config.max_seq_len, 128)
    with torch.inference_mode():
        device = next(classifier.model.parameters()).device
        added = positions(torch.zeros(1, places, config.d_model, device=device))[0].cpu().numpy()
    figure = Figure(figsize=(6, 3), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.imshow(added, aspect="auto", cmap="RdBu")
    axes.set(xlabel="feature", ylabel="place")
    return to_png(figure)
