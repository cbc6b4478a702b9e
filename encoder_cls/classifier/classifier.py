"""The classifier: texts to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.classifier.guarantees import Familiarity, Guarantees, text_numbers
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.engines import Encoder
from encoder_cls.errors import ConfigError
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, Task, combine_logits
from encoder_cls.system.display import counted, kind, listed, shown
from encoder_cls.system.encodings import UTF8, delimiter_named, encoding_named
from encoder_cls.system.machine import log
from encoder_cls.system.settings import own_settings
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.classifier.explain import Explanation

PARTS = ("encoder", "linear")
Numbers = NDArray[np.float64]
SHOWN_NAMES = 3  # of classes, in the `repr` of a classifier


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The answer for one text.

    Attributes:
        label: the most probable class; None for a text without words. Multi-label, it need not be among `labels`.
        probability: of the label.
        probabilities: of all classes, by name; also for a text without words.
        truncated: whether the text is longer than the encoder reads, or the linear classifier if that is alone.
        unknown_words: the number of tokens that are not in the vocabulary.
        reason: `blank` if the text has no words and so no label.
        unfamiliar: whether the text is out of distribution; None if the model does not measure it.
        labels: multi-label, the labels that reach their thresholds, most probable first; single-label None.
        answered_by: the parts of the answer, `linear`, `encoder` or `both`; None if both answer every text.
    """

    label: str | None
    probability: float | None
    probabilities: dict[str, float]
    truncated: bool
    unknown_words: int
    reason: str | None = None
    unfamiliar: bool | None = None
    labels: tuple[str, ...] | None = None
    answered_by: str | None = None

    def labels_from(self, threshold: float | None) -> tuple[str, ...]:
        """Multi-label, the labels of at least this probability; None: `labels`, by their own thresholds."""
        if self.reason or threshold is None:
            return self.labels or ()
        return tuple(name for name, probability in self.top() if probability >= threshold)

    def label_from(self, threshold: float | None) -> str | None:
        """The label, unless its probability is lower."""
        if self.probability is None:
            return None
        return self.label if self.probability >= (threshold or 0) else None

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The `k` most probable classes, by default all, with their probabilities, best first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])[:k]

    def label_set(self, threshold: float) -> list[str]:
        """The best class and all others of at least this probability, best first; empty for a blank text."""
        if self.label is None:
            return []
        return [name for rank, (name, it) in enumerate(self.top()) if rank == 0 or it >= threshold]

    def to_json(
        self,
        *,
        top_k: int,
        threshold: float | None,
        set_threshold: float | None = None,
        words: Explanation | None = None,
    ) -> dict[str, Any]:
        """The object that `predict --format jsonl` prints and the server answers with; arguments as in `Request`.

        Multi-label, `top` has at least as many classes as the text has labels.
        """
        labels = self.labels_from(threshold)
        named = [] if self.reason else self.top(max(top_k, len(labels)))
        record: dict[str, Any] = {"labels": list(labels)}
        if self.labels is None:
            record = {"label": self.label_from(threshold), "probability": self.probability}
        record["top"] = [{"label": name, "probability": probability} for name, probability in named]
        if set_threshold is not None:
            record["set"] = self.label_set(set_threshold)
        record |= {"truncated": self.truncated, "unknown_words": self.unknown_words}
        known = {
            "answered_by": self.answered_by,
            "unfamiliar": self.unfamiliar,
            "reason": self.reason,
        }
        record |= {name: value for name, value in known.items() if value is not None}
        if words is not None:
            record["explanation"] = [asdict(word) for word in words]
            if words.left_out:
                record["explanation_left_out"] = words.left_out
        return record


@dataclass(eq=False, repr=False)
class Classifier:
    """A trained encoder, or a linear classifier, or both, with their tokenizer and class names.

    Wide and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792): the answer is a weighted sum of both
    logits. With a `gate` (a cascade: Viola and Jones, 2001, https://doi.org/10.1109/CVPR.2001.990517), where the linear
    classifier is sure, it answers alone. `batch_tokens` of its methods is that of `NumpyEncoder`.

    Attributes:
        label_names: the classes, in the order of the logits.
        max_seq_len: tokens of a text that the encoder reads; the linear classifier may read more.
        mixture_weights: factors of the logits of the parts, the encoder's first, which calibrate their sum.
        mixture_shares: the share of each part in the answer: its mixture weight divided by the one that it would have
            alone; they sum to 1. None if unknown.
        gate: the linear classifier's confidence from which the encoder is skipped; None: never, or with one part.
        text_columns: of the training files, which have this `encoding` and, if one was named, this `delimiter`.
        dtypes: data types of the weights of each part in the folder.
        thresholds: multi-label, the probability from which a text has each label; single-label empty.
        encoder_architecture: the shape of the encoder, even if it is not trained yet.
        folder: where the classifier was loaded from, with the `sha256` of its weights file; else empty.
    """

    encoder: Encoder | None
    tokenizer: Tokenizer
    label_names: tuple[str, ...]
    _: KW_ONLY
    max_seq_len: int
    linear: LinearClassifier | None = None
    mixture_weights: tuple[float, ...] = ()
    mixture_shares: Mapping[str, float] | None = None
    gate: float | None = None
    text_columns: tuple[str, ...] = ("text",)
    dtypes: dict[str, str] = field(default_factory=dict)
    task: Task = SINGLE_LABEL
    thresholds: tuple[float, ...] = ()
    encoder_architecture: EncoderArchitecture | None = None
    guarantees: Guarantees | None = None
    familiarity: Familiarity | None = None
    delimiter: str | None = None
    encoding: str = UTF8
    folder: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        self.delimiter = self.delimiter and delimiter_named(self.delimiter)
        self.encoding = encoding_named(self.encoding)
        self.mixture_weights = self.mixture_weights or (1.0,) * len(self.parts)
        self.dtypes = self.dtypes or dict.fromkeys(self.parts, "float32")
        if self.task is not SINGLE_LABEL:
            self.thresholds = self.thresholds or (0.5,) * len(self.label_names)

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of the `PARTS` it has."""
        return tuple(name for name in PARTS if getattr(self, name) is not None)

    def __repr__(self) -> str:
        """Parts, classes and hash in a line."""
        names = listed(self.label_names, most=SHOWN_NAMES, limit=20)
        of = f", sha256 {self.sha256[:12]}" if self.sha256 else ""
        classes = counted(len(self.label_names), "class", "classes")
        return f"<Classifier: {' and '.join(self.parts)}, {classes} ({names}){of}>"

    def __getstate__(self) -> dict[str, Any]:
        # A tokenizer that copied itself would take "[PAD]" in a text for the padding.
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    @own_settings()
    def predict(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts of any length, in order; a `TypeError` for a single string, or an item that is no string."""
        return self.predict_tokenized(
            self.tokenize(checked_texts(texts, "predict")), batch_tokens=batch_tokens
        )

    @own_settings()
    def predict_proba(
        self, texts: Sequence[str], *, batch_tokens: int | None = None
    ) -> NDArray[np.float64]:
        """Compute the probabilities of all classes, (texts, classes), in the order of `label_names`.

        Multi-label, the probabilities are independent of each other. Errors as in `predict`.
        """
        tokenized = self.tokenize(checked_texts(texts, "predict_proba"))
        return self.task.probabilities(self.logits(tokenized, batch_tokens=batch_tokens))

    @own_settings()
    def embed(
        self, texts: Sequence[str], *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """Compute a vector for each text, (texts, d_model): the encoder's mean over tokens, which its head reads.

        Errors as in `predict`, and a `ConfigError` if the classifier has no encoder.
        """
        if not self.encoder:
            raise ConfigError("the model has no encoder, so texts have no vectors")
        return self.encoder.embed(
            self.tokenize(checked_texts(texts, "embed")), batch_tokens=batch_tokens
        )

    @own_settings()
    def explain(
        self,
        texts: Sequence[str],
        *,
        labels: Sequence[str] | None = None,
        batch_tokens: int | None = None,
    ) -> list[Explanation]:
        """Compute the weight of each word of each text for a class, by default the most probable one, by occlusion.

        Errors as in `predict`, and a `ValueError` for an unknown label, or if there is not one for each text.
        """
        from encoder_cls.classifier.explain import explain

        texts = list(checked_texts(texts, "explain"))
        tokenized = self.tokenize(texts)
        if unknown := set(labels or ()) - set(self.label_names):
            raise ValueError(f"no label of the classifier: {shown(min(unknown))}")
        predictions = (
            self.predict_tokenized(tokenized, batch_tokens=batch_tokens) if labels is None else []
        )
        return explain(
            self,
            texts,
            tokenized,
            labels or [it.label for it in predictions],
            batch_tokens=batch_tokens,
        )

    @own_settings()
    def predict_tokenized(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """Classify tokenized texts."""
        of_parts, numbers = self._ask(
            texts, batch_tokens=batch_tokens, with_numbers=self.familiarity is not None
        )
        probabilities = self.task.probabilities(self.combined(of_parts))
        unfamiliar: list[bool | None] = [None] * len(texts)
        if self.familiarity:
            numbers = text_numbers(probabilities, texts, numbers)
            unfamiliar = self.familiarity.are_unfamiliar(numbers).tolist()
        are_blank = texts.lengths < 2  # nothing but [CLS]
        skip = self.skip_encoder(of_parts[self.parts[-1]])
        columns = (
            self.truncated(texts),
            texts.unknown,
            are_blank,
            skip,
            probabilities.argmax(axis=1),
        )
        of_texts = zip(probabilities, unfamiliar, *(it.tolist() for it in columns), strict=True)
        by_rest = self.parts[0] if len(self.parts) == 1 else None if self.gate is None else "both"
        return [
            Prediction(
                label=None if is_blank else self.label_names[label],
                probability=None if is_blank else float(of_classes[label]),
                probabilities=dict(zip(self.label_names, of_classes.tolist(), strict=True)),
                truncated=truncated,
                unknown_words=unknown,
                reason="blank" if is_blank else None,
                unfamiliar=is_unfamiliar,
                labels=self._labels(of_classes, is_blank=is_blank),
                answered_by="linear" if skips else by_rest,
            )
            for of_classes, is_unfamiliar, truncated, unknown, is_blank, skips, label in of_texts
        ]

    def _labels(
        self, probabilities: NDArray[np.float64], *, is_blank: bool
    ) -> tuple[str, ...] | None:
        """Multi-label, the labels that reach their thresholds, most probable first; none of a blank text."""
        if not self.thresholds:
            return None
        order = () if is_blank else np.argsort(-probabilities, kind="stable")
        return tuple(
            self.label_names[it] for it in order if probabilities[it] >= self.thresholds[it]
        )

    def tokenize(self, texts: Iterable[str]) -> TokenizedTexts:
        """Token ids of texts, as far as the classifier reads."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.max_seq_len)

    def truncated(self, texts: TokenizedTexts) -> NDArray[np.bool_]:
        """Whether each text is longer than the encoder reads, or the linear classifier if that is alone, (texts,)."""
        if self.encoder or not self.linear:
            return texts.truncated
        # A text of as many tokens as are kept may have had more.
        most_tokens = min(self.linear.max_tokens, KEPT_PER_TOKEN * self.max_seq_len - 1)
        are_longer: NDArray[np.bool_] = np.diff(texts.offsets) > most_tokens
        return are_longer

    @own_settings()
    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Calibrated logits, (texts, classes)."""
        return self.combined(self._ask(texts, batch_tokens=batch_tokens)[0])

    def part_logits(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> dict[str, Logits]:
        """The logits of each of the `parts`, also of the encoder for texts that would skip it, (texts, classes)."""
        return replace(self, gate=None)._ask(texts, batch_tokens=batch_tokens)[0]

    def part_logits_and_numbers(
        self, texts: TokenizedTexts
    ) -> tuple[dict[str, Logits], Numbers | None]:
        """`part_logits`, and the numbers that `LinearClassifier.read` measures; None without a linear part."""
        return replace(self, gate=None)._ask(texts, with_numbers=True)

    def skip_encoder(self, linear: Logits) -> NDArray[np.bool_]:
        """Whether the linear part answers each text alone, (texts,), by its logits, which no engine changes."""
        if self.gate is None:
            return np.zeros(len(linear), dtype=bool)
        is_sure: NDArray[np.bool_] = (
            self.task.confidence(self.task.probabilities(linear)) >= self.gate
        )
        return is_sure

    def with_parts_of(self, text: TokenizedTexts) -> Classifier:
        """A copy that answers every text by the parts that answer this one."""
        if self.gate is None:
            return self
        skips = self.linear and self.skip_encoder(self.linear.logits(text))[0]
        return replace(self, gate=0.0 if skips else None)

    def _ask(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        with_numbers: bool = False,
    ) -> tuple[dict[str, Logits], Numbers | None]:
        """The logits of the `parts`, the encoder's 0 for texts that skip it, and on request the linear part's numbers."""
        of_parts: dict[str, Logits] = {}
        skip, numbers = np.zeros(len(texts), dtype=bool), None
        if self.linear:
            linear, numbers = self.linear.read(texts, with_numbers=with_numbers)
            of_parts["linear"] = linear
            skip = self.skip_encoder(linear)
        if self.encoder:
            asked = texts
            if skip.any():
                log(
                    "debug",
                    f"the linear model answers {skip.sum():,} of {counted(len(texts), 'text')} alone",
                )
                asked = texts.take(np.flatnonzero(~skip))
            of_parts["encoder"] = np.zeros((len(texts), len(self.label_names)), dtype=np.float32)
            if not skip.all():
                of_parts["encoder"][~skip] = self.encoder.logits(asked, batch_tokens=batch_tokens)
        return {part: of_parts[part] for part in self.parts}, numbers

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """Calibrated logits from those of the `parts`, in their order."""
        *_, last = part_logits.values()  # of the linear part, if there are both
        logits = combine_logits([*part_logits.values()], self.mixture_weights).astype(np.float32)
        return np.where(self.skip_encoder(last)[:, None], last, logits)


def checked_texts(texts: Iterable[object], method: str) -> Iterator[str]:
    """Yield the texts, each checked as `predict` describes."""
    if isinstance(texts, str):
        raise TypeError(
            f"{method} takes several texts; put a single one in a list: {method}([text])"
        )
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}] is {kind(text)}, not a text")
        yield text
