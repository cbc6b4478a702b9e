"""What predictions contain, with the thresholds that guarantee a precision or a coverage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from encoder_cls.bulk.request import CheckedRequest
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.files import read_json


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """What the predictions of a classifier contain, and in which format.

    Attributes:
        top_k: the number of classes to show.
        threshold: the least probability of a label; multi-label None: the model's own thresholds.
        min_precision: the precision that the threshold guarantees; None: it guarantees none.
        set_threshold: the least probability in a text's set of classes; None: without sets.
        explained: whether predictions have the weights of words; a page always has them.
        batch_tokens: the most tokens in a batch; None: what the device is fast with.
    """

    output_format: str = "text"
    top_k: int = 1
    threshold: float | None = None
    min_precision: float | None = None
    set_threshold: float | None = None
    explained: bool = False
    batch_tokens: int | None = None

    @property
    def needs_explanations(self) -> bool:
        """Whether texts have to be explained."""
        return self.explained or self.output_format == "html"


def prediction_options(request: CheckedRequest, classifier: Classifier) -> PredictionOptions:
    """Find the thresholds of a request.

    Raises:
        ConfigError: more is asked for than can be guaranteed.
    """
    threshold = request.threshold
    if request.min_precision is not None:
        threshold = _threshold_of_precision(classifier, request.min_precision)

    set_threshold = None
    if request.coverage is not None:
        set_threshold = _threshold_of_coverage(classifier, request.coverage)

    return PredictionOptions(
        output_format=request.output_format,
        top_k=request.top_k,
        threshold=threshold,
        min_precision=request.min_precision,
        set_threshold=set_threshold,
        explained=request.explained,
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
    if classifier.task is MULTI_LABEL:
        raise ConfigError(f"{option}: is for models with one label a text; {model} is multi-label")
    if classifier.guarantees is None:
        raise ConfigError(
            f"{option}: {model} has no results on held-out texts, which guarantees rest on; train "
            "it again"
        )
    return classifier.guarantees


def _highest(share: float) -> str:
    if share:
        return f"the highest that can be is {share:g}"
    return "nor can any lower share; label more texts"


def _not_guaranteed(option: str, share: float, guarantees: Guarantees, remedy: str) -> ConfigError:
    held_out = f"its {guarantees.num_texts:,} held-out texts"
    return ConfigError(f"{option} {share:g}: cannot be guaranteed by {held_out}; {remedy}")


def _suggestion_of_report(classifier: Classifier) -> str:
    """The end of a message with the threshold that the report of the run suggests, if it does."""
    if not classifier.folder:
        return ""
    run = run_of(Path(classifier.folder))
    if run is None:
        return ""

    try:
        threshold = read_json(run.eval / "report.json")["suggested_threshold"]
    except (EncoderClsError, ValueError, KeyError, TypeError):  # no report of this version
        return ""
    if not threshold:
        return ""
    return f"; its report suggests --threshold {threshold:.3f} for 95%, without a guarantee"
