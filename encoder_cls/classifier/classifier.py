"""The classifier: texts to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.familiarity import Familiarity, measure_familiarity
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.engines import Encoder
from encoder_cls.errors import ConfigError
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, Task, combine_logits
from encoder_cls.system.display import counted, kind, listed, shown
from encoder_cls.system.encodings import UTF8, delimiter_named, encoding_named
from encoder_cls.system.log import log
from encoder_cls.system.settings import own_settings
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts

PARTS = ("encoder", "linear")
"""The parts that a classifier may have, in the order in which their logits are added."""

FamiliarityFeatures = NDArray[np.float64]
"""What the linear model measures of each text, beside its logits, (texts, numbers)."""

# The names of classes in the `repr` of a classifier.
SHOWN_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The weighted sum of the logits of encoder and linear model.

    Attributes:
        weights: the factor of each part's logits; 1 for a part that is not named. They also
            calibrate the sum.
        shares: the share of each part in the sum: its weight divided by the one that it would
            have alone; shares sum to 1. None if they are unknown.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] | None = None

    def weights_of(self, parts: Iterable[str]) -> list[float]:
        """The weights of parts, in their order."""
        return [self.weights.get(part, 1.0) for part in parts]

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """The weighted sum of the logits of the parts, (texts, classes)."""
        weights = self.weights_of(part_logits)
        return combine_logits(list(part_logits.values()), weights).astype(np.float32)


@dataclass(kw_only=True)
class TextFormat:
    """How files hold their texts: those of training, and by default those to classify.

    Attributes:
        columns: the columns that are joined to a text.
        delimiter: of CSV and TSV files, by its name or itself; None: found in each file.
        encoding: of all text files.
    """

    columns: tuple[str, ...] = ("text",)
    delimiter: str | None = None
    encoding: str = UTF8

    def __post_init__(self) -> None:
        if self.delimiter:
            self.delimiter = delimiter_named(self.delimiter)
        self.encoding = encoding_named(self.encoding)


@dataclass(eq=False, repr=False)
class Classifier:
    """A trained encoder, or a linear model, or both, with their tokenizer and class names.

    Wide and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792): the logits are a
    weighted sum of those of both parts. With a `gate` (a cascade: Viola and Jones, 2001,
    https://doi.org/10.1109/CVPR.2001.990517), the linear model alone predicts where it is sure.
    `batch_tokens` of its methods is that of `engines.Encoder`.

    Attributes:
        label_names: the classes, in the order of the logits.
        max_seq_len: tokens of a text that the encoder reads; the linear model may read more.
        task: single-label or multi-label.
        mixture: of the logits of both parts.
        gate: the linear model's confidence from which the encoder is skipped; None: never, or
            with one part.
        thresholds: multi-label, the probability from which a text has each label; single-label
            empty.
        guarantees: measured on held-out texts.
        familiarity: the distribution of held-out texts.
        text_format: of the training files.
        encoder_architecture: the sizes of the encoder, even if it is not trained yet.
        folder: where the classifier was loaded from; else empty.
        sha256: of its weights file; else empty.
        dtypes: the data types of each part's weights in that file.
    """

    encoder: Encoder | None
    tokenizer: Tokenizer
    label_names: tuple[str, ...]
    _: KW_ONLY
    max_seq_len: int
    linear: LinearModel | None = None
    task: Task = SINGLE_LABEL
    mixture: Mixture = field(default_factory=Mixture)
    gate: float | None = None
    thresholds: tuple[float, ...] = ()
    guarantees: Guarantees | None = None
    familiarity: Familiarity | None = None
    text_format: TextFormat = field(default_factory=TextFormat)
    encoder_architecture: EncoderArchitecture | None = None
    folder: str = ""
    sha256: str = ""
    dtypes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dtypes = self.dtypes or dict.fromkeys(self.parts, "float32")
        if self.task is not SINGLE_LABEL:
            self.thresholds = self.thresholds or (0.5,) * len(self.label_names)

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of the `PARTS` it has."""
        return tuple(name for name in PARTS if getattr(self, name) is not None)

    def __repr__(self) -> str:
        """Parts, classes and hash in a line."""
        parts = " and ".join(self.parts)
        classes = counted(len(self.label_names), "class", "classes")
        names = listed(self.label_names, most=SHOWN_NAMES, limit=20)
        hash_of_file = ""
        if self.sha256:
            hash_of_file = f", sha256 {self.sha256[:12]}"
        return f"<Classifier: {parts}, {classes} ({names}){hash_of_file}>"

    def __getstate__(self) -> dict[str, Any]:
        # A tokenizer that copied itself would take "[PAD]" in a text for the padding.
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    # --- Texts ------------------------------------------------------------------------------------

    @own_settings()
    def predict(self, texts: Sequence[str], *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts of any length, in order.

        Raises:
            TypeError: the texts are a single string, or one of them is no string.
        """
        tokenized = self.tokenize(checked_texts(texts, "predict"))
        return self.predict_tokenized(tokenized, batch_tokens=batch_tokens)

    @own_settings()
    def predict_proba(
        self, texts: Sequence[str], *, batch_tokens: int | None = None
    ) -> NDArray[np.float64]:
        """Compute the probabilities of all classes, (texts, classes), as `label_names` are ordered.

        Multi-label, the probabilities are independent of each other. Errors are those of `predict`.
        """
        tokenized = self.tokenize(checked_texts(texts, "predict_proba"))
        return self.task.probabilities(self.logits(tokenized, batch_tokens=batch_tokens))

    @own_settings()
    def embed(
        self, texts: Sequence[str], *, batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """Compute a vector for each text, (texts, d_model).

        It is the encoder's mean over tokens, which its head reads.

        Raises:
            ConfigError: the classifier has no encoder.
            TypeError: as in `predict`.
        """
        if not self.encoder:
            raise ConfigError("the model has no encoder, so texts have no vectors")
        tokenized = self.tokenize(checked_texts(texts, "embed"))
        return self.encoder.embed(tokenized, batch_tokens=batch_tokens)

    @own_settings()
    def explain(
        self,
        texts: Sequence[str],
        *,
        labels: Sequence[str] | None = None,
        batch_tokens: int | None = None,
    ) -> list[Explanation]:
        """Compute the weight of each word of each text for a class, by occlusion.

        Args:
            texts: to explain.
            labels: a class for each text; by default, its most probable one.
            batch_tokens: the most tokens in a batch.

        Raises:
            ValueError: a label is unknown, or there is not one for each text.
            TypeError: as in `predict`.
        """
        # Imported here, since occlusion itself classifies texts.
        from encoder_cls.classifier.occlusion import explain

        texts = list(checked_texts(texts, "explain"))
        tokenized = self.tokenize(texts)

        explained_labels: Sequence[str | None]
        if labels is None:
            predictions = self.predict_tokenized(tokenized, batch_tokens=batch_tokens)
            explained_labels = [prediction.label for prediction in predictions]
        else:
            unknown = set(labels) - set(self.label_names)
            if unknown:
                raise ValueError(f"no label of the classifier: {shown(min(unknown))}")
            explained_labels = labels

        return explain(self, texts, tokenized, explained_labels, batch_tokens=batch_tokens)

    def tokenize(self, texts: Iterable[str]) -> TokenizedTexts:
        """Tokenize texts, as far as the classifier reads."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.max_seq_len)

    # --- Tokenized texts --------------------------------------------------------------------------

    @own_settings()
    def predict_tokenized(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """Classify tokenized texts, in order."""
        part_logits, linear_features = self._logits_and_familiarity(
            texts, batch_tokens=batch_tokens, with_familiarity=self.familiarity is not None
        )
        probabilities = self.task.probabilities(self.combined(part_logits))

        # What is known of each text.
        labels = probabilities.argmax(axis=1).tolist()
        are_blank = (texts.lengths < 2).tolist()  # nothing but [CLS]
        truncated = self.truncated(texts).tolist()
        unknown_words = texts.unknown.tolist()
        answered_by = self._answered_by(part_logits)
        unfamiliar: list[bool | None] = [None] * len(texts)
        if self.familiarity:
            familiarity_features = measure_familiarity(probabilities, texts, linear_features)
            unfamiliar = self.familiarity.are_unfamiliar(familiarity_features).tolist()

        predictions = []
        for row, row_probabilities in enumerate(probabilities):
            is_blank = are_blank[row]
            label = None
            probability = None
            reason = None
            if is_blank:
                reason = "blank"
            else:
                label = self.label_names[labels[row]]
                probability = float(row_probabilities[labels[row]])

            prediction = Prediction(
                label=label,
                probability=probability,
                probabilities=dict(zip(self.label_names, row_probabilities.tolist(), strict=True)),
                truncated=truncated[row],
                unknown_words=unknown_words[row],
                reason=reason,
                unfamiliar=unfamiliar[row],
                labels=self._labels(row_probabilities, is_blank=is_blank),
                answered_by=answered_by[row],
            )
            predictions.append(prediction)
        return predictions

    def _labels(
        self, probabilities: NDArray[np.float64], *, is_blank: bool
    ) -> tuple[str, ...] | None:
        """Multi-label, the labels of a text, most probable first; a blank text has none."""
        if not self.thresholds:
            return None
        if is_blank:
            return ()
        order = np.argsort(-probabilities, kind="stable")
        has_label = probabilities >= self.thresholds
        return tuple(self.label_names[number] for number in order if has_label[number])

    def _answered_by(self, part_logits: Mapping[str, Logits]) -> list[str | None]:
        """The parts that predict each text; None if both predict every text."""
        num_texts = len(part_logits[self.parts[0]])
        if len(self.parts) == 1:
            return [self.parts[0]] * num_texts
        if self.gate is None:
            return [None] * num_texts
        skips_encoder = self.skip_encoder(part_logits["linear"]).tolist()
        return ["linear" if skips else "both" for skips in skips_encoder]

    def truncated(self, texts: TokenizedTexts) -> NDArray[np.bool_]:
        """Whether each text is longer than the encoder reads, (texts,).

        Without an encoder, it is the linear model that reads the texts.
        """
        if self.encoder or not self.linear:
            return texts.truncated
        # A text of as many tokens as are kept may have had more.
        most_tokens = min(self.linear.max_tokens, KEPT_PER_TOKEN * self.max_seq_len - 1)
        are_longer: NDArray[np.bool_] = np.diff(texts.offsets) > most_tokens
        return are_longer

    # --- Logits -----------------------------------------------------------------------------------

    @own_settings()
    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Calibrated logits, (texts, classes)."""
        part_logits, _ = self._logits_and_familiarity(texts, batch_tokens=batch_tokens)
        return self.combined(part_logits)

    def part_logits(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> dict[str, Logits]:
        """The logits of each of the `parts`, (texts, classes).

        Those of the encoder are there also for texts that would skip it.
        """
        without_gate = replace(self, gate=None)
        part_logits, _ = without_gate._logits_and_familiarity(texts, batch_tokens=batch_tokens)
        return part_logits

    def part_logits_and_familiarity(
        self, texts: TokenizedTexts
    ) -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
        """`part_logits`, and the numbers of the linear part; None without a linear part."""
        return replace(self, gate=None)._logits_and_familiarity(texts, with_familiarity=True)

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """Calibrated logits from those of the `parts`, in their order, (texts, classes)."""
        logits = self.mixture.combined(part_logits)
        if self.gate is None:
            return logits
        linear = part_logits["linear"]
        return np.where(self.skip_encoder(linear)[:, None], linear, logits)

    def skip_encoder(self, linear: Logits) -> NDArray[np.bool_]:
        """Whether the linear part predicts each text alone, (texts,).

        Its logits, (texts, classes), decide, since no engine changes them.
        """
        if self.gate is None:
            return np.zeros(len(linear), dtype=bool)
        confidence = self.task.confidence(self.task.probabilities(linear))
        is_sure: NDArray[np.bool_] = confidence >= self.gate
        return is_sure

    def with_parts_of(self, text: TokenizedTexts) -> Classifier:
        """A copy that predicts every text by the parts that predict this one."""
        if self.gate is None or self.linear is None:
            return self

        gate = None
        if self.skip_encoder(self.linear.logits(text))[0]:
            # Every text skips the encoder.
            gate = 0.0
        return replace(self, gate=gate)

    def _logits_and_familiarity(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        with_familiarity: bool = False,
    ) -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
        """Compute the logits of the `parts`, and on request the linear part's numbers.

        The encoder's logits are 0 for texts that skip it.
        """
        part_logits: dict[str, Logits] = {}
        familiarity_features = None
        skips_encoder = np.zeros(len(texts), dtype=bool)

        # The linear part comes first: it decides which texts skip the encoder.
        if self.linear:
            linear, familiarity_features = self.linear.read(
                texts, with_familiarity=with_familiarity
            )
            skips_encoder = self.skip_encoder(linear)

        if self.encoder:
            remaining = texts
            if skips_encoder.any():
                num_skipped = f"{skips_encoder.sum():,} of {counted(len(texts), 'text')}"
                log("debug", f"the linear model alone classifies {num_skipped}")
                remaining = texts.take(np.flatnonzero(~skips_encoder))

            logits = np.zeros((len(texts), len(self.label_names)), dtype=np.float32)
            if len(remaining):
                logits[~skips_encoder] = self.encoder.logits(remaining, batch_tokens=batch_tokens)
            part_logits["encoder"] = logits

        if self.linear:
            part_logits["linear"] = linear
        return part_logits, familiarity_features


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
