"""Classify chunks of texts, and count the answers that a person may not expect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from encoder_cls.answers.inputs import Input
from encoder_cls.answers.request import Request
from encoder_cls.inference.classifier import Classifier, Prediction
from encoder_cls.inference.encoder.auto import AutoEncoder
from encoder_cls.system.display import counted
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from encoder_cls.inference.explain import Explanation
    from encoder_cls.text.tokens import TokenizedTexts

UNFAMILIAR, UNKNOWN = "unfamiliar (unlike the training texts)", "with unknown words"
BYTES_PER_TOKEN = 6  # of English text, about
LEFT_OUT = "warning: of very long texts only the first words are explained; each result says how many are left out"


class Answer(NamedTuple):
    """A text with its prediction, and what is withheld of that applied.

    Multi-label, the answer is `labels`, and `label` is none.
    """

    item: Input
    prediction: Prediction
    label: str | None
    words: Explanation | None = None
    labels: tuple[str, ...] | None = None


class Answerer:
    """Answers chunks of texts, and counts over all of them; `warn` is called with each warning, once."""

    def __init__(self, classifier: Classifier, request: Request, *, warn: Callable[[str], None] = note) -> None:
        self.classifier = classifier
        self.request = request
        self.warn = warn
        self.num_texts = 0
        self._threshold = request.threshold or 0.0
        why = f"--threshold {self._threshold:g}"
        if request.min_precision is not None:
            why = f"--min-precision {request.min_precision:g}: probability below {self._threshold:.3f}"
        self._truncated = f"truncated (longer than {classifier.max_seq_len:,} tokens)"
        self._withheld = f"withheld ({why})"
        counted_things = (self._truncated, self._withheld, "without a label", "blank", UNFAMILIAR, UNKNOWN)
        self._counts = dict.fromkeys(counted_things, 0)
        self._has_warned = False

    def __call__(self, chunk: Sequence[Input]) -> list[Answer]:
        """Answer some texts."""
        tokenized = self.classifier.tokenize([item.text for item in chunk])
        predictions = self.classifier.predict_tokenized(tokenized, batch_tokens=self.request.batch_tokens)
        explanations: Sequence[Explanation | None] = [None] * len(chunk)
        if self.request.explained or self.request.output_format == "html":
            explanations = self._explanations(chunk, tokenized, predictions)
        return [*map(self._answer, chunk, predictions, explanations)]

    def summary(self) -> str | None:
        """The counts that are not zero; none where all are."""
        counts = ", ".join(f"{count:,} {what}" for what, count in self._counts.items() if count)
        return f"of {counted(self.num_texts, 'text')}: {counts}" if counts else None

    def _answer(self, item: Input, prediction: Prediction, words: Explanation | None) -> Answer:
        """The answer to a text, which is counted."""
        label, labels = prediction.label_from(self._threshold), None
        if prediction.is_multi_label:
            label, labels = None, prediction.labels_from(self._threshold)
        self.num_texts += 1
        counts = self._counts
        counts[self._truncated] += prediction.truncated
        counts[UNKNOWN] += prediction.unknown_words > 0
        counts[UNFAMILIAR] += bool(prediction.unfamiliar)
        if prediction.reason is not None:
            counts["blank"] += 1
        elif labels is None:
            counts[self._withheld] += label is None
        else:
            counts["without a label"] += not labels
        return Answer(item, prediction, label, words, labels)

    def _explanations(
        self, chunk: Sequence[Input], tokenized: TokenizedTexts, predictions: Sequence[Prediction]
    ) -> list[Explanation]:
        """The effect of each word on the class that was predicted."""
        from encoder_cls.inference.explain import explain

        numbers = {name: number for number, name in enumerate(self.classifier.label_names)}
        best = [numbers[prediction.label] if prediction.label else 0 for prediction in predictions]
        texts = [item.text for item in chunk]
        explanations = explain(self.classifier, texts, tokenized, best, batch_tokens=self.request.batch_tokens)
        if not self._has_warned and any(words.left_out for words in explanations):
            self._has_warned = True
            self.warn(LEFT_OUT)
        return explanations


def expect_files(classifier: Classifier, files: Sequence[Path]) -> None:
    """Choose the engine by all the text that is to come, where files have a size."""
    if isinstance(classifier.encoder, AutoEncoder) and files and all(file.is_file() for file in files):
        with suppress(OSError):  # reading a file that is gone reports it
            classifier.encoder.expect(sum(file.stat().st_size for file in files) // BYTES_PER_TOKEN)
