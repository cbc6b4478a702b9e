"""What a prediction request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from encoder_cls.errors import ConfigError
from encoder_cls.inference.task import MULTI_LABEL

if TYPE_CHECKING:
    from encoder_cls.inference.classifier import Classifier
    from encoder_cls.inference.guarantees import Promises


from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_cls.answers.tables import Answer

Format = Literal["text", "jsonl", "tsv", "csv", "html", "parquet"]


class Request(NamedTuple):
    """What `predict` is asked for.

    Attributes:
        output_format: `text` or `html` for people, the others for programs; `html` is one page of the first texts.
        text_columns: the columns with the texts; none: those of the training.
        keep_columns: whether answers (jsonl, tsv, csv, parquet) come beside all columns of their rows; none: in CSV of
            CSV and Excel files.
        top_k: how many classes to name.
        threshold: a less probable best class is withheld: the label is null (jsonl, parquet), empty (tsv, csv) or "?"
            (text, html). Multi-label, the labels that are as probable are given; 0: by the thresholds of the model.
        min_precision: the precision that the threshold is to keep; none: it was named itself.
        set_threshold: the probability from which classes are in the set of a text; none: no sets.
        batch_tokens: the most tokens in a batch; none: what the device is fast with.
        explained: whether to say which words spoke for the best class, and which against it.
        delimiter: what separates the fields of the input; none: as in the training.
        encoding: of the input; none: as in the training.
        bad_rows: `error`, or `skip` for rows that cannot be read to be left out.
    """

    output_format: Format = "text"
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    top_k: int = 1
    threshold: float = 0.0
    batch_tokens: int | None = None
    explained: bool = False
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: str = "error"
    min_precision: float | None = None
    set_threshold: float | None = None


def with_promises(
    request: Request, classifier: Classifier, *, min_precision: float | None, coverage: float | None
) -> Request:
    """The request with the thresholds by which a classifier keeps what is to be promised.

    Args:
        request: without them.
        classifier: which answers.
        min_precision: how often answers are to be right; none: nothing is promised of that.
        coverage: how often the label of a text is to be in its set; none: no sets.

    Raises:
        ConfigError: it cannot promise that.
    """
    if min_precision is not None:
        promises = _promises(classifier, "--min-precision")
        threshold = promises.precision_threshold(min_precision)
        if threshold is None:
            raise _too_high(f"--min-precision {min_precision:g}", promises.highest_precision, promises)
        request = request._replace(threshold=threshold, min_precision=min_precision)
    if coverage is not None:
        promises = _promises(classifier, "--coverage")
        set_threshold = promises.coverage_threshold(coverage)
        if set_threshold is None:
            raise _too_high(f"--coverage {coverage:g}", promises.highest_coverage, promises)
        request = request._replace(set_threshold=set_threshold)
    return request


def _promises(classifier: Classifier, option: str) -> Promises:
    if classifier.task is MULTI_LABEL:
        raise ConfigError(
            f"{option}: is for models with one label a text; of {classifier.folder or 'this one'} a text may have "
            "several"
        )
    if classifier.promises is None:
        raise ConfigError(
            f"{option}: {classifier.folder or 'the model'} tells nothing of held-out texts, from which promises are "
            "made; train it again with this version, on texts with labels"
        )
    return classifier.promises


def _too_high(asked: str, highest: float, promises: Promises) -> ConfigError:
    held_out = f"its {promises.num_texts:,} held-out texts"
    if not highest:
        return ConfigError(
            f"{asked}: cannot be promised, nor can anything lower, by {held_out}; more labels are needed"
        )
    return ConfigError(f"{asked}: cannot be promised by {held_out}; the highest that can be is {highest:g}")


class Tally:
    """How many texts are answered, and how many of them otherwise than a person may expect.

    Args:
        max_seq_len: the tokens of a text that the encoder reads.
        threshold: below which labels are withheld.
        min_precision: the precision for which that is; none: it was named itself.
    """

    def __init__(self, *, max_seq_len: int, threshold: float, min_precision: float | None = None) -> None:
        self._max_seq_len = max_seq_len
        self._why_withheld = f"--threshold {threshold:g}"
        if min_precision is not None:
            self._why_withheld = f"--min-precision {min_precision:g}: probability below {threshold:.3f}"
        self.num_texts = 0
        self._truncated = self._withheld = self._blank = self._with_unknown = self._unfamiliar = 0
        self._without_label = 0

    def add(self, answers: Sequence[Answer]) -> None:
        """Count some answers."""
        self.num_texts += len(answers)
        for answer in answers:
            prediction = answer.prediction
            self._truncated += prediction.truncated
            self._with_unknown += prediction.unknown_words > 0
            self._blank += prediction.reason is not None
            self._unfamiliar += bool(prediction.unfamiliar)
            self._withheld += answer.label is None and answer.labels is None and prediction.reason is None
            self._without_label += answer.labels == () and prediction.reason is None

    def line(self) -> str | None:
        """The counts that are not zero; nothing where all are."""
        counts = {
            f"truncated (longer than {self._max_seq_len:,} tokens)": self._truncated,
            f"withheld ({self._why_withheld})": self._withheld,
            "without a label": self._without_label,
            "blank": self._blank,
            "unfamiliar (unlike the training texts)": self._unfamiliar,
            "with unknown words": self._with_unknown,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"of {self.num_texts:,} text{'s' * (self.num_texts != 1)}: {told}" if told else None
