"""What predictions contain, and the thresholds that guarantee a precision or a coverage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from encoder_cls.bulk.request import CheckedRequest
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.display import counted, listed
from encoder_cls.system.files import read_json
from encoder_cls.system.terminal import note


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """What the predictions of a classifier contain, and their format.

    Attributes:
        output_format: the name of the format, such as "jsonl".
        fill: the column of the input whose empty cells get the answers; None fills none.
        top_k: the number of classes to show for each text.
        threshold: the least probability of a label; None withholds no label, and leaves a
            multi-label model its own thresholds.
        min_precision: the precision that `threshold` guarantees; multi-label, `label_thresholds` or
            `text_threshold`; None if none is guaranteed.
        label_thresholds: multi-label, the least probability of each label with which it has the
            precision, by name, without labels that cannot have it; None withholds no label.
        text_threshold: multi-label, the least probability of the prediction for a whole text; None
            withholds no text.
        set_threshold: the least probability of a class in the set of a text; None makes no sets.
        is_sorted: whether the least probable prediction comes first; if not, the order is that of
            the input.
        decimal: the decimal mark of numbers in CSV and TSV, "point" or "comma".
        batch_tokens: the maximum number of tokens in a batch; None lets the device decide.
    """

    output_format: str = "text"
    fill: str | None = None
    top_k: int = 1
    threshold: float | None = None
    min_precision: float | None = None
    label_thresholds: Mapping[str, float] | None = None
    text_threshold: float | None = None
    set_threshold: float | None = None
    explained: bool = False
    is_sorted: bool = False
    decimal: str = "point"
    batch_tokens: int | None = None


def prediction_options(request: CheckedRequest, classifier: Classifier) -> PredictionOptions:
    """Find the thresholds that a request asks for.

    Raises:
        ConfigError: the held-out texts of the model do not guarantee the precision or coverage.
    """
    is_multi_label = classifier.task is MULTI_LABEL
    if request.whole_texts and not is_multi_label:
        raise ConfigError(
            f"--whole-texts: is for models that predict several labels a text; "
            f"{classifier.folder or 'the model'} predicts one"
        )

    threshold = request.threshold
    label_thresholds = None
    text_threshold = None
    if request.min_precision is not None:
        if not is_multi_label:
            threshold = _threshold_of_precision(classifier, request.min_precision)
        elif request.whole_texts:
            text_threshold = _threshold_of_precision(classifier, request.min_precision)
        else:
            label_thresholds = _thresholds_of_labels(classifier, request.min_precision)

    set_threshold = None
    if request.coverage is not None:
        set_threshold = _threshold_of_coverage(classifier, request.coverage)

    return PredictionOptions(
        output_format=request.output_format,
        fill=request.fill,
        top_k=request.top_k,
        threshold=threshold,
        min_precision=request.min_precision,
        label_thresholds=label_thresholds,
        text_threshold=text_threshold,
        set_threshold=set_threshold,
        explained=request.explained,
        is_sorted=request.sort is not None,
        decimal=request.decimal,
        batch_tokens=request.batch_tokens,
    )


def _threshold_of_precision(classifier: Classifier, share: float) -> float:
    option = "--min-precision"
    guarantees = _guarantees_of(classifier, option)
    threshold = guarantees.precision_threshold(share)
    if threshold is None:
        remedy = f"{_highest(guarantees.highest_precision)}{_suggestion_of_report(classifier)}"
        raise _not_guaranteed(option, share, guarantees, remedy)
    return threshold


# The maximum number of labels that a message names.
MAX_LISTED = 5


def _thresholds_of_labels(classifier: Classifier, share: float) -> dict[str, float]:
    """The threshold of each label from which at least this share of it is correct.

    Labels for which that cannot be guaranteed have no threshold, and a note names the others. It is
    a `ConfigError` if no label has a threshold.
    """
    option = "--min-precision"
    guarantees = _guarantees_of(classifier, option)
    thresholds = {}
    for name, counts in zip(classifier.label_names, guarantees.labels, strict=True):
        threshold = counts.precision_threshold(share)
        if threshold is not None:
            thresholds[name] = threshold

    if not thresholds:
        highest = max(counts.highest_precision for counts in guarantees.labels)
        remedy = f"{_highest(highest)}; the report lists that of each label"
        raise _not_guaranteed(option, share, guarantees, remedy)

    if len(thresholds) < len(classifier.label_names):
        names = listed(list(thresholds), most=MAX_LISTED)
        note(
            f"{option} {share:g}: guaranteed for {len(thresholds):,} of "
            f"{counted(len(classifier.label_names), 'label')} ({names}); other labels are withheld"
        )
    return thresholds


def _threshold_of_coverage(classifier: Classifier, share: float) -> float:
    option = "--coverage"
    guarantees = _guarantees_of(classifier, option)
    threshold = guarantees.coverage_threshold(share)
    if threshold is None:
        remedy = _highest(guarantees.highest_coverage)
        raise _not_guaranteed(option, share, guarantees, remedy)
    return threshold


def _guarantees_of(classifier: Classifier, option: str) -> Guarantees:
    model = classifier.folder or "the model"
    if classifier.guarantees is None:
        raise ConfigError(
            f"{option}: {model} has no results on held-out texts, which guarantees rest on; train "
            "it again"
        )
    return classifier.guarantees


def _highest(share: float) -> str:
    """A remedy: the highest share that can be guaranteed; 0 if none can be."""
    if share:
        return f"the highest that can be is {share:g}"
    return "nor can any lower share; label more texts"


def _not_guaranteed(option: str, share: float, guarantees: Guarantees, remedy: str) -> ConfigError:
    held_out = f"its {guarantees.num_texts:,} independent held-out texts"
    return ConfigError(f"{option} {share:g}: cannot be guaranteed by {held_out}; {remedy}")


def _suggestion_of_report(classifier: Classifier) -> str:
    """The end of a message with the threshold that the run's report suggests; empty without one."""
    if not classifier.folder:
        return ""
    run = run_of(Path(classifier.folder))
    if run is None:
        return ""

    try:
        threshold = read_json(run.eval / "report.json")["suggested_threshold"]
    # The run has no report, or a report without this key.
    except (EncoderClsError, ValueError, KeyError, TypeError):
        return ""
    if not threshold:
        return ""
    return f"; its report suggests --threshold {threshold:.3f} for 95%, without a guarantee"
