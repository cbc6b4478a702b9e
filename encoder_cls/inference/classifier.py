"""The classifier: texts to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.errors import ConfigError
from encoder_cls.inference.encoder.architecture import EncoderArchitecture
from encoder_cls.inference.guarantees import Familiarity, Guarantees, text_numbers
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Logits, Task, combine_logits
from encoder_cls.system.display import counted, kind, shown
from encoder_cls.system.encodings import UTF8
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the classifier says of one text.

    Attributes:
        label: the most probable class; none where there is nothing to be classified, see `reason`. Multi-label, the
            most probable label, whether or not it is one of the `labels`.
        probability: its probability; none where there is no label.
        probabilities: of all classes, by name, as `predict_proba` has them; of a blank text, what is likely anyway.
        truncated: the text was longer than the encoder reads, or the linear classifier where it is alone.
        unknown_words: how many of its tokens the classifier has never seen.
        reason: why there is no label: `blank`, the text has no words.
        labels: multi-label, the labels that are as probable as their thresholds, the most probable first; none where
            there is one label a text.
        unfamiliar: whether the text is unlike those of training; none where the model cannot tell.
    """

    label: str | None
    probability: float | None
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int
    reason: str | None = None
    unfamiliar: bool | None = None
    labels: tuple[str, ...] | None = None

    @property
    def is_multi_label(self) -> bool:
        """Whether `labels` is the answer, not `label`."""
        return self.labels is not None

    def labels_from(self, threshold: float) -> tuple[str, ...]:
        """Multi-label, the labels that have this probability or more; 0: the `labels`."""
        if self.reason or not threshold:
            return self.labels or ()
        return tuple(name for name, probability in self.top(len(self.probabilities)) if probability >= threshold)

    def label_from(self, threshold: float) -> str | None:
        """The label, unless its probability is lower."""
        return self.label if self.probability is not None and self.probability >= threshold else None

    def top(self, k: int) -> list[tuple[str, float]]:
        """The `k` most probable classes with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def label_set(self, threshold: float) -> list[str]:
        """The classes from a probability up, best first, the best one in any case; none of a text without a label."""
        if self.label is None:
            return []
        named = self.top(len(self.probabilities))
        return [name for rank, (name, probability) in enumerate(named) if rank == 0 or probability >= threshold]


SHOWN_NAMES = 3  # of classes, in the line that stands for a classifier


class Encoder(Protocol):
    """An encoder with its head, whatever library computes it."""

    architecture: EncoderArchitecture

    @property
    def engine(self) -> str:
        """What computes it: `numpy` or `torch`."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Its weights by name."""

    def logits(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
    ) -> Logits:
        """Logits of all texts, (texts, classes).

        Args:
            texts: the token ids.
            batch_tokens: the most tokens in a batch; none: what the device is fast with.
        """

    def embed(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """The vectors of texts that the head sees, (texts, d_model), in float32; arguments as in `logits`."""

    def attention_maps(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """The attention weights in one text, (layers, heads, T, T): [layer, head, looking, looked at]."""


class Classifier:
    """A trained encoder, or a linear classifier, or both, with their tokenizer and class names.

    Wide and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792): what a few words say by themselves is
    learned best from their counts, what they say together by an encoder; a weighted sum of both logits is the answer.

    Attributes:
        encoder: the encoder with its head, if there is one.
        linear: the linear classifier, if there is one.
        mixture_weights: by which the logits of the parts are multiplied before they are summed, the encoder's first;
            so probabilities are as often right as they say.
        mixture_shares: by part, how much of the answer is its: its mixture weight in units of the one that it would
            have alone; they sum to 1. None where nobody has told.
        tokenizer: of both.
        label_names: the classes, in the order of the logits.
        encoder_architecture: the shape of an encoder that is described, though it is not there, or not yet.
        max_seq_len: tokens of a text that the encoder reads; the linear classifier may read more.
        text_columns: the columns in which the texts of training were.
        dtypes: of the weights of each part, in the folder that it was read from.
        folder: from which it was read; empty where it was read from none.
        sha256: of all that is in that folder; empty where it was read from none.
        task: what it says of a text.
        thresholds: multi-label, the probability from which a text is said to have a label, in the order of
            `label_names`; single-label there are none.
        promises: what its held-out texts let it promise; none where nobody has measured that.
        familiarity: what is usual in held-out texts; none where nobody has measured that.
        delimiter: what separated the fields of the files of training, if that was named (`data.delimiter`).
        encoding: of the files of training.
        before_refit: replaces the linear part's logits of texts by those from before it learned their labels; set where
            texts are scored.
    """

    sha256 = ""
    folder = ""
    delimiter: str | None = None
    encoding = UTF8
    mixture_shares: Mapping[str, float] | None = None
    thresholds: tuple[float, ...]
    encoder_architecture: EncoderArchitecture | None = None
    guarantees: Guarantees | None = None
    familiarity: Familiarity | None = None
    before_refit: Callable[[Logits, TokenizedTexts], Logits] | None = None

    def __init__(  # noqa: PLR0913 - what a folder holds
        self,
        encoder: Encoder | None,
        tokenizer: Tokenizer,
        label_names: Sequence[str],
        *,
        max_seq_len: int,
        linear: LinearClassifier | None = None,
        mixture_weights: Sequence[float] | None = None,
        text_columns: Sequence[str] = ("text",),
        dtypes: Mapping[str, str] | None = None,
        task: Task = SINGLE_LABEL,
    ) -> None:
        self.task = task
        self.thresholds = () if task is SINGLE_LABEL else (0.5,) * len(label_names)
        self.encoder = encoder
        self.linear = linear
        self.mixture_weights = tuple(mixture_weights or (1.0,) * len(self.parts))
        self.tokenizer = tokenizer
        self.label_names = tuple(label_names)
        self.max_seq_len = max_seq_len
        self.text_columns = tuple(text_columns)
        self.dtypes = dict(dtypes or dict.fromkeys(self.parts, "float32"))

    @property
    def parts(self) -> tuple[str, ...]:
        """Those that there are of `encoder` and `linear`."""
        return tuple(name for name in ("encoder", "linear") if getattr(self, name) is not None)

    def __repr__(self) -> str:
        """What there is of it, in a line."""
        names = ", ".join(shown(name, limit=20) for name in self.label_names[:SHOWN_NAMES])
        more = ", …" if len(self.label_names) > SHOWN_NAMES else ""
        of = f", sha256 {self.sha256[:12]}" if self.sha256 else ""
        classes = counted(len(self.label_names), "class", "classes")
        return f"<Classifier: {' and '.join(self.parts)}, {classes} ({names}{more}){of}>"

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of, also one for another process."""
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A tokenizer that copied itself would take "[PAD]" in a text for the padding.
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    def predict(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts, any number and any length of them; the order is kept.

        Args:
            texts: the texts.
            batch_tokens: the most tokens in a batch, padding counted; none: what the device is fast with.

        Raises:
            TypeError: a single text, which would be taken for many of one character each; or what is no text.
        """
        return self.predict_tokenized(self.tokenize(_checked(texts, "predict")), batch_tokens=batch_tokens)

    def predict_proba(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> NDArray[np.float64]:
        """The probabilities of all classes for each text, (texts, classes), in the order of `label_names`.

        Multi-label, each is that of a label by itself. Arguments and errors as in `predict`.
        """
        return self.task.probabilities(
            self.logits(self.tokenize(_checked(texts, "predict_proba")), batch_tokens=batch_tokens)
        )

    def embed(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """A vector for each text, (texts, d_model): the mean of those of its tokens, from which the head reads.

        In float32 by whatever engine; the linear classifier has no part in it. Arguments and errors as in `predict`.

        Raises:
            ConfigError: the classifier has no encoder.
        """
        if not self.encoder:
            raise ConfigError("the model has no encoder, so texts have no vectors")
        return self.encoder.embed(self.tokenize(_checked(texts, "embed")), batch_tokens=batch_tokens)

    def predict_tokenized(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts that `tokenize` has read; arguments as in `predict`."""
        of_parts, rarity = self._read(texts, batch_tokens=batch_tokens, with_rarity=self.familiarity is not None)
        probabilities = self.task.probabilities(self.combined(of_parts))
        unfamiliar: list[bool | None] = [None] * len(texts)
        if self.familiarity:
            numbers = text_numbers(probabilities, texts.unknown_share, rarity)
            unfamiliar = self.familiarity.are_unfamiliar(numbers).tolist()
        of_texts = zip(probabilities, self.truncated(texts), texts.unknown, unfamiliar, strict=True)
        predictions = [
            replace(_prediction(self.label_names, *values), labels=self._labels(values[0])) for values in of_texts
        ]
        for blank in np.flatnonzero(texts.lengths < 2):  # nothing but [CLS]
            none = () if self.thresholds else None
            predictions[blank] = replace(predictions[blank], label=None, probability=None, reason="blank", labels=none)
        return predictions

    def _labels(self, probabilities: NDArray[np.float64]) -> tuple[str, ...] | None:
        """Multi-label, the labels of a text with these probabilities, (classes,), the most probable first."""
        if not self.thresholds:
            return None
        order = np.argsort(-probabilities, kind="stable")
        return tuple(self.label_names[it] for it in order if probabilities[it] >= self.thresholds[it])

    def tokenize(self, texts: Iterable[str]) -> TokenizedTexts:
        """Token ids of texts, cut where the classifier reads no further."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.max_seq_len)

    def truncated(self, texts: TokenizedTexts) -> NDArray[np.bool_]:
        """Which texts are longer than the encoder reads, or the linear classifier where it is alone, (texts,)."""
        if self.encoder or not self.linear:
            return texts.truncated
        # Of what is kept of a text nobody knows whether there was more.
        most_tokens = min(self.linear.max_tokens, KEPT_PER_TOKEN * self.max_seq_len - 1)
        are_longer: NDArray[np.bool_] = np.diff(texts.offsets) > most_tokens
        return are_longer

    def logits(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
    ) -> Logits:
        """Calibrated logits of all texts, (texts, classes); arguments as in `Encoder.logits`."""
        return self.combined(self._read(texts, batch_tokens=batch_tokens)[0])

    def part_logits(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
    ) -> dict[str, Logits]:
        """The logits by which each of the `parts` is scored, (texts, classes); arguments as in `Encoder.logits`.

        Those of the linear part are of `before_refit`.
        """
        return self._read(texts, batch_tokens=batch_tokens, to_score=True)[0]

    def familiarity_numbers(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
    ) -> tuple[Logits, NDArray[np.float64]]:
        """The calibrated logits of held-out texts, and the numbers that tell how usual they are, (texts, numbers).

        As if they had not been learned from, by `before_refit`.
        """
        of_parts, rarity = self._read(texts, batch_tokens=batch_tokens, with_rarity=True, to_score=True)
        logits = self.combined(of_parts)
        return logits, text_numbers(self.task.probabilities(logits), texts.unknown_share, rarity)

    def _read(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        with_rarity: bool = False,
        to_score: bool = False,
    ) -> tuple[dict[str, Logits], NDArray[np.float64] | None]:
        """The logits of the parts, and how rare the features of each text are, which the linear part tells."""
        logits, rarity = {}, None
        if self.encoder:
            logits["encoder"] = self.encoder.logits(texts, batch_tokens=batch_tokens)
        if self.linear:
            before_refit = self.before_refit if to_score else None
            reading = self.linear.read(texts, with_rarity=with_rarity, leave_out=before_refit is not None)
            logits["linear"] = before_refit(reading.logits, texts) if before_refit else reading.logits
            rarity = reading.rarity if with_rarity else None
        return logits, rarity

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """The calibrated logits that are the sum of what `part_logits` has found."""
        return combine_logits(list(part_logits.values()), self.mixture_weights).astype(np.float32)


def _prediction(
    names: Sequence[str], probabilities: NDArray[np.float64], truncated: bool, unknown: int, unfamiliar: bool | None
) -> Prediction:
    """What is said of a text that has words."""
    return Prediction(
        label=names[int(probabilities.argmax())],
        probability=float(probabilities.max()),
        probabilities=dict(zip(names, probabilities.tolist(), strict=True)),
        truncated=bool(truncated),
        unknown_words=int(unknown),
        unfamiliar=unfamiliar,
    )


def _checked(texts: Iterable[str], method: str) -> Iterator[str]:
    """Texts as they are asked for, once each has proved to be one.

    Raises:
        TypeError: one is not; or all are a single one.
    """
    if isinstance(texts, str):
        raise TypeError(f"{method} takes several texts; put a single one in a list: {method}([text])[0]")
    return (_text(number, text) for number, text in enumerate(texts))


def _text(number: int, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"texts[{number}] is {kind(text)}, not a text")
    return text
