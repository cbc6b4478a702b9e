"""The file of `predict --attention`: a page of several texts, or a picture of one for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from encoder_cls.classifier.attention_maps import attention_maps
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.system.libraries import PLOTS, check_installed
from encoder_cls.system.row_text import readable

# The endings of the names of pictures, as in `evaluation.matplotlib_figures.FILE_FORMATS`. Any
# other file is an HTML page.
PICTURES = (".svg", ".png", ".pdf")


def check_attention_file(path: Path) -> None:
    """Raise a `ConfigError` if a picture needs a library that is not installed."""
    if path.suffix.lower() in PICTURES:
        check_installed("matplotlib", needed_by=f"--attention {path}", install=PLOTS)


def attention_file(path: Path, classifier: Classifier, texts: Sequence[str]) -> bytes:
    """Show the attention maps of texts in the form that the ending of `path` names.

    A picture has those of the first text, or of an empty one. There must be an encoder.
    """
    ending = path.suffix.lower()
    if ending not in PICTURES:
        return _page(classifier, texts)

    from encoder_cls.evaluation.matplotlib_figures import attention_figure, to_file

    maps = attention_maps(classifier, texts[0] if texts else "")
    return to_file(attention_figure(maps.tokens, maps.weights), ending)


def _page(classifier: Classifier, texts: Sequence[str]) -> bytes:
    from encoder_cls.classifier.attention_page import render_attention

    headings = []
    predictions = classifier.predict_tokenized(classifier.tokenize(texts))
    for text, prediction in zip(texts, predictions, strict=True):
        # A text without a prediction has the reason in place of the label.
        label = prediction.reason
        if prediction.label:
            label = f"{prediction.label} {prediction.probability:.3f}"
        headings.append(f"{label}: {readable(text)}")

    # A generator, so that only the maps of one text are in memory at a time.
    maps = (attention_maps(classifier, text) for text in texts)
    page = render_attention("Attention", zip(headings, maps, strict=True))
    return page.encode("utf-8", "replace")
