"""The classifier, which predicts calibrated probabilities of classes for texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.familiarity import Familiarity, measure_familiarity
from encoder_cls.classifier.given_rows import rows_given
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.codes import Codes
from encoder_cls.data.reading.columns import Columns
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.encoder.predicting_encoder import PredictingEncoder
from encoder_cls.errors import ConfigError
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.top_features import NgramWeight, top_features
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task
from encoder_cls.system.display import counted, listed, shown
from encoder_cls.system.log import log
from encoder_cls.system.row_text import readable
from encoder_cls.system.settings import own_settings
from encoder_cls.text.row_tokens import row_form
from encoder_cls.text.tokenizer import parse_tokenizer, token_spans, tokenize, unknown_words
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.encoder.transformer import EncoderClassifier

PARTS = ("encoder", "linear")
"""The parts that a classifier may have, in the order in which their logits are added."""

Texts = Sequence[str] | Sequence[Mapping[str, Any]] | Any
"""Texts, rows as mappings of columns, or a `DataFrame` with these columns."""

FamiliarityFeatures = NDArray[np.float64]
"""What the linear model measures of each text to tell how familiar it is, (texts, features)."""


@dataclass(kw_only=True)
class TextFormat:
    """How the training files store texts and labels, and so by default other files, too.

    Attributes:
        label_separator: None if a cell is one label, or the data has lists.
    """

    columns: tuple[str, ...] = ("text",)
    reading: ReadingOptions = field(default_factory=ReadingOptions().for_other_files)
    label_column: str = "label"
    label_separator: str | None = None


@dataclass(eq=False, repr=False)
class Classifier:
    """A trained encoder, or a linear model, or both, with their tokenizer and class names.

    If there are both parts, the logits are a weighted sum of the logits of the parts, as in wide
    and deep learning (Cheng et al., 2016, https://arxiv.org/abs/1606.07792). With a `gate`, the
    parts are a cascade (Viola and Jones, 2001, https://doi.org/10.1109/CVPR.2001.990517): the
    linear model alone predicts the texts that it is sure of.

    `batch_tokens` is the most tokens in a batch of the encoder, padding included; by default, a
    number that is fast on the device. Texts may be rows: mappings, a `DataFrame`, or each `Row` of
    `read_rows`, with the columns of text and `features`. A single text or row, or another type,
    raises a `TypeError`, a missing column a `DataError`.

    Attributes:
        encoder: None if there is only a linear model, or no trained encoder yet.
        max_seq_len: how many tokens of a text the encoder reads; the linear model may read more.
        gate: the confidence of the linear model from which a text skips the encoder, if there is
            one.
        thresholds: multi-label, from which probability a text has each label; empty in a
            single-label task.
        guarantees: None if they were not measured, as is `familiarity`.
        codes: the levels and names of the classes, if they have any.
        none_label: the class that stands for none of the others, and is no answer, if there is one.
        encoder_architecture: also without a trained encoder.
        model_class: a user's own encoder; None for `EncoderClassifier`.
        folder: where it was loaded from, and `sha256` the hash of its weights file; else empty.
        dtypes: of each part in the weights file.
    """

    encoder: PredictingEncoder | None
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
    codes: Codes | None = None
    none_label: str | None = None
    encoder_architecture: EncoderArchitecture | None = None
    model_class: type[EncoderClassifier] | None = None
    folder: str = ""
    sha256: str = ""
    dtypes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dtypes = self.dtypes or dict.fromkeys(self.parts, "float32")
        if self.is_multi_label:
            self.thresholds = self.thresholds or (0.5,) * len(self.label_names)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that the classifier has, in the order of `PARTS`."""
        return tuple(name for name in PARTS if getattr(self, name) is not None)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns beside the text, by name."""
        form = row_form(self.tokenizer)
        return form.features if form else ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The text columns whose words are known as those of their column; none of a single one."""
        form = row_form(self.tokenizer)
        return form.fields if form else ()

    @property
    def columns(self) -> Columns:
        """The columns of text and of features."""
        return Columns(self.text_format.columns, features=self.features)

    def rows(self, texts: Iterable[object], function: str) -> Iterator[str]:
        """The strings to `tokenize`, of texts or rows; see `rows_given`."""
        return rows_given(texts, self.columns, function)

    @property
    def none_number(self) -> int | None:
        """The number of `none_label` among the classes."""
        return None if self.none_label is None else self.label_names.index(self.none_label)

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.task is MULTI_LABEL

    def __repr__(self) -> str:
        parts = " and ".join(self.parts)
        classes = counted(len(self.label_names), "class", "classes")
        names = listed(self.label_names, most=3, limit=20)
        hash_of_file = ""
        if self.sha256:
            hash_of_file = f", sha256 {self.sha256[:12]}"
        return f"<Classifier: {parts}, {classes} ({names}){hash_of_file}>"

    def __getstate__(self) -> dict[str, Any]:
        # The tokenizer is pickled as JSON and parsed again. Its own pickling would make it read
        # "[PAD]" in a text as the padding token.
        return self.__dict__ | {"tokenizer": self.tokenizer.to_str()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"tokenizer": parse_tokenizer(state["tokenizer"])})

    # --- Texts ------------------------------------------------------------------------------------

    @own_settings()
    def predict(self, texts: Texts, *, batch_tokens: int | None = None) -> list[Prediction]:
        """Classify texts of any length, or rows."""
        tokenized = self.tokenize(self.rows(texts, "predict"))
        return self.predict_tokenized(tokenized, batch_tokens=batch_tokens)

    @own_settings()
    def predict_proba(
        self, texts: Texts, *, batch_tokens: int | None = None
    ) -> NDArray[np.float64]:
        """The probabilities of all classes, (texts, classes), in order of `label_names`.

        Those of a text sum to 1 in a single-label task; else each label has one of its own.
        """
        tokenized = self.tokenize(self.rows(texts, "predict_proba"))
        return self.task.probabilities(self.logits(tokenized, batch_tokens=batch_tokens))

    @own_settings()
    def embed(self, texts: Texts, *, batch_tokens: int | None = None) -> NDArray[np.float32]:
        """Compute a vector for each text, (texts, d_model).

        It is the mean of the vectors of its tokens, unless the config chose another
        `model.pooling`.

        Raises:
            ConfigError: the classifier has no encoder.
        """
        if not self.encoder:
            raise ConfigError("the model has no encoder, so texts have no vectors")
        tokenized = self.tokenize(self.rows(texts, "embed"))
        return self.encoder.embed(tokenized, batch_tokens=batch_tokens)

    @own_settings()
    def explain(
        self,
        texts: Texts,
        *,
        labels: Sequence[str] | None = None,
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
    ) -> list[Explanation]:
        """Compute how much each word of a text speaks for a class, by default the most probable.

        The weight of a word is how much the log odds of the class fall when it is left out. If
        `max_tokens` are too few for that, the last words get no weights.

        Raises:
            ValueError: a label is unknown, or the number of labels is not that of the texts.
        """
        rows = list(self.rows(texts, "explain"))
        tokenized = self.tokenize(rows)

        explained_labels: Sequence[str | None]
        if labels is None:
            predictions = self.predict_tokenized(tokenized, batch_tokens=batch_tokens)
            explained_labels = [prediction.label for prediction in predictions]
        else:
            unknown = set(labels) - set(self.label_names)
            if unknown:
                raise ValueError(f"no label of the classifier: {shown(min(unknown))}")
            explained_labels = labels

        return self.explain_tokenized(
            rows,
            tokenized,
            explained_labels,
            batch_tokens=batch_tokens,
            max_tokens=max_tokens,
        )

    @own_settings()
    def top_features(self, label: str, *, texts: Texts = (), top_k: int = 20) -> list[NgramWeight]:
        """Find the words and pairs that speak most for a class, with their weights, largest first.

        Pairs are stored as hashes, so only those that occur in `texts`, such as the training texts,
        are found.

        Raises:
            ConfigError: the classifier has no linear model.
            ValueError: the label is unknown, or `top_k` is below 1.
        """
        if label not in self.label_names:
            raise ValueError(f"no label of the classifier: {shown(label)}")
        if top_k < 1:
            raise ValueError(f"top_k: {top_k} is below 1")
        if not self.linear:
            raise ConfigError("the model has no linear model, so words have no weights")

        tokenized = self.tokenize(self.rows(texts, "top_features"))
        return self.top_features_of_classes(tokenized, top_k=top_k)[label]

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that are not in the vocabulary, in order, as the tokenizer has them.

        There are none if the tokenizer splits words into sub-words.
        """
        return unknown_words(self.tokenizer, text, max_seq_len=self.max_seq_len)

    def top_features_of_classes(
        self, texts: TokenizedTexts, *, top_k: int
    ) -> dict[str, list[NgramWeight]]:
        """Find the `top_features` of each class; none without a linear model."""
        if not self.linear:
            return {}
        ngrams = top_features(
            self.linear,
            texts,
            num_classes=len(self.label_names),
            top_k=top_k,
            word_of=self._word,
        )
        return dict(zip(self.label_names, ngrams, strict=True))

    def _word(self, token_id: int) -> str:
        return self.tokenizer.id_to_token(token_id) or ""

    def tokenize(self, texts: Iterable[str]) -> TokenizedTexts:
        """Keep the first `KEPT_PER_TOKEN * max_seq_len` tokens of each text."""
        return tokenize(self.tokenizer, texts, max_seq_len=self.max_seq_len)

    # --- Tokenized texts --------------------------------------------------------------------------

    @own_settings()
    def predict_tokenized(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> list[Prediction]:
        """Like `predict`, of tokenized texts."""
        part_logits, linear_features = self._logits_and_familiarity(
            texts, batch_tokens=batch_tokens, with_familiarity=self.familiarity is not None
        )
        probabilities = self.task.probabilities(self.combined(part_logits))

        # The values of all texts, as lists with one item for each text.
        class_numbers = probabilities.argmax(axis=1).tolist()
        num_words = texts.num_words.tolist()
        truncated = self.truncated(texts).tolist()
        unknown_words = texts.unknown.tolist()
        answered_by = self._answered_by(part_logits)
        labels = self._labels(probabilities)
        unfamiliar: list[bool | None] = [None] * len(texts)
        if self.familiarity:
            familiarity_features = measure_familiarity(probabilities, texts, linear_features)
            unfamiliar = self.familiarity.are_unfamiliar(familiarity_features).tolist()

        prediction_probabilities = self.task.prediction_probabilities(
            probabilities, self.task.predictions(probabilities, self.thresholds)
        ).tolist()

        predictions = []
        for row, row_probabilities in enumerate(probabilities.tolist()):
            label = None
            probability = None
            reason = None
            row_labels = labels[row]
            if not num_words[row]:
                reason = "blank"
                # In a multi-label task, a blank text has no labels.
                if self.thresholds:
                    row_labels = ()
            elif self.label_names[class_numbers[row]] == self.none_label:
                reason = "none"
            else:
                class_number = class_numbers[row]
                label = self.label_names[class_number]
                probability = row_probabilities[class_number]

            prediction = Prediction(
                label=label,
                probability=probability,
                probabilities=dict(zip(self.label_names, row_probabilities, strict=True)),
                truncated=truncated[row],
                unknown_words=unknown_words[row],
                reason=reason,
                unfamiliar=unfamiliar[row],
                labels=row_labels,
                prediction_probability=prediction_probabilities[row],
                answered_by=answered_by[row],
                codes=self.codes,
                num_words=num_words[row],
                none_label=self.none_label,
            )
            predictions.append(prediction)
        return predictions

    def explain_tokenized(
        self,
        texts: Sequence[str],
        tokenized: TokenizedTexts,
        labels: Sequence[str | None],
        *,
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
    ) -> list[Explanation]:
        """Like `explain`, of tokenized texts; a label is None for a text without a class."""
        # Imported here, because most predictions are not explained.
        from encoder_cls.classifier.occlusion import explain

        explanations = []
        for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
            tokens = tokenized[row : row + 1]
            log_odds_of = partial(
                # Predict all variants of a text by the parts that predict the whole text. Otherwise
                # a weight could show the difference between two parts instead of that of a word.
                self.gated_like(tokens)._log_odds,
                class_number=self._number_of(label),
                batch_tokens=batch_tokens,
            )
            spans = token_spans(self.tokenizer, text, max_seq_len=self.max_seq_len)
            explanation = explain(readable(text), tokens, spans, log_odds_of, max_tokens=max_tokens)
            explanations.append(explanation)
        return explanations

    def _number_of(self, label: str | None) -> int:
        if label is None:
            return self.none_number or 0
        return self.label_names.index(label)

    def _log_odds(
        self, texts: TokenizedTexts, *, class_number: int, batch_tokens: int | None
    ) -> NDArray[np.float64]:
        logits = self.logits(texts, batch_tokens=batch_tokens)
        return self.task.log_odds(logits.astype(np.float64), class_number)

    def _labels(self, probabilities: NDArray[np.float64]) -> list[tuple[str, ...] | None]:
        if not self.thresholds:
            return [None] * len(probabilities)

        labels: list[tuple[str, ...] | None] = []
        orders = np.argsort(-probabilities, axis=1, kind="stable")
        have_labels = probabilities >= self.thresholds
        for order, has_label in zip(orders.tolist(), have_labels.tolist(), strict=True):
            labels.append(tuple(self.label_names[number] for number in order if has_label[number]))
        return labels

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
        """Whether texts are longer than the encoder, or without one the linear model, reads."""
        if self.encoder or not self.linear:
            return texts.truncated

        # Tokenization keeps the first `KEPT_PER_TOKEN * max_seq_len` tokens of a text. So a text
        # with exactly this number of tokens may have had more: it counts as too long, too.
        max_tokens = min(self.linear.max_tokens, KEPT_PER_TOKEN * self.max_seq_len - 1)
        are_longer: NDArray[np.bool_] = np.diff(texts.offsets) > max_tokens
        return are_longer

    # --- Logits -----------------------------------------------------------------------------------

    @own_settings()
    def logits(self, texts: TokenizedTexts, *, batch_tokens: int | None = None) -> Logits:
        """Compute calibrated logits, (texts, classes)."""
        part_logits, _ = self._logits_and_familiarity(texts, batch_tokens=batch_tokens)
        return self.combined(part_logits)

    def part_logits(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> dict[str, Logits]:
        """Compute the logits of each part, (texts, classes), as if there were no `gate`."""
        without_gate = replace(self, gate=None)
        part_logits, _ = without_gate._logits_and_familiarity(texts, batch_tokens=batch_tokens)
        return part_logits

    def part_logits_and_familiarity(
        self, texts: TokenizedTexts, *, batch_tokens: int | None = None
    ) -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
        """Compute `part_logits`, and the features of familiarity; None without a linear part."""
        without_gate = replace(self, gate=None)
        return without_gate._logits_and_familiarity(
            texts, batch_tokens=batch_tokens, with_familiarity=True
        )

    def combined(self, part_logits: Mapping[str, Logits]) -> Logits:
        """Combine logits, (texts, classes), in the order of `parts`, to calibrated ones."""
        logits = self.mixture.combined(part_logits)
        if self.gate is None:
            return logits
        linear = part_logits["linear"]
        return np.where(self.skip_encoder(linear)[:, None], linear, logits)

    def skip_encoder(self, linear: Logits) -> NDArray[np.bool_]:
        """Whether the linear part alone predicts each text, (texts,).

        Only its logits decide this: they are the same with every engine, whereas the encoder's
        differ in the last digits.
        """
        if self.gate is None:
            return np.zeros(len(linear), dtype=bool)
        confidence = self.task.confidence(self.task.probabilities(linear))
        is_sure: NDArray[np.bool_] = confidence >= self.gate
        return is_sure

    def gated_like(self, text: TokenizedTexts) -> Classifier:
        """A copy that predicts every text by the same parts as this single text."""
        if self.gate is None or self.linear is None:
            return self

        # Without a gate, no text skips the encoder; with a gate of 0, every text does.
        gate = None
        if self.skip_encoder(self.linear.logits(text))[0]:
            gate = 0.0
        return replace(self, gate=gate)

    def _logits_and_familiarity(
        self,
        texts: TokenizedTexts,
        *,
        batch_tokens: int | None = None,
        with_familiarity: bool = False,
    ) -> tuple[dict[str, Logits], FamiliarityFeatures | None]:
        """The encoder's logits of texts that skip it are 0."""
        part_logits: dict[str, Logits] = {}
        familiarity_features = None
        skips_encoder = np.zeros(len(texts), dtype=bool)

        # Compute the linear part first, because its logits decide which texts skip the encoder.
        if self.linear:
            linear, familiarity_features = self.linear.logits_and_familiarity(
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
