"""The options of `predict` for a model, with the thresholds that guarantee what they ask for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from encoder_cls.bulk.request import NOT_RECORDED, Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.guarantees import Guarantees, PrecisionCounts
from encoder_cls.classifier.withholding import NOTHING, Withholding
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.display import counted, listed
from encoder_cls.system.files import read_json
from encoder_cls.system.terminal import note


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(Request):
    """The options of `predict` for a model, of which it is known what they withhold."""

    withholding: Withholding = NOTHING

    def recorded(self) -> dict[str, Any]:
        """The options on which predictions depend, as JSON values."""
        options = asdict(self)
        return {name: value for name, value in options.items() if name not in NOT_RECORDED}


def prediction_options(request: Request, classifier: Classifier) -> PredictionOptions:
    """Find the thresholds that a request asks for.

    Raises:
        ConfigError: the held-out texts of the model do not guarantee the precision or coverage.
    """
    if request.whole_texts and not classifier.is_multi_label:
        raise ConfigError(
            f"--whole-texts: is for models that predict several labels a text; "
            f"{classifier.folder or 'the model'} predicts one"
        )

    _check_levels(request, classifier)

    withholding = Withholding(threshold=request.threshold)
    if request.min_precision is not None:
        if not classifier.is_multi_label:
            threshold = _threshold_of_precision(
                classifier, request.min_precision, level=request.level, back_off=request.back_off
            )
            withholding = Withholding(threshold=threshold, back_off=request.back_off)
        elif request.whole_texts:
            threshold = _threshold_of_precision(classifier, request.min_precision)
            withholding = Withholding(text_threshold=threshold)
        else:
            thresholds = _thresholds_of_labels(classifier, request.min_precision)
            withholding = Withholding(label_thresholds=thresholds)
    if request.coverage is not None:
        set_threshold = _threshold_of_coverage(classifier, request.coverage, level=request.level)
        withholding = replace(withholding, set_threshold=set_threshold)
    withholding = replace(withholding, level=request.level)

    return PredictionOptions(**vars(request), withholding=withholding)


def _check_levels(request: Request, classifier: Classifier) -> None:
    option = "--back-off" if request.back_off else "--level"
    if request.level is None and not request.back_off:
        return
    model = classifier.folder or "the model"
    if classifier.codes is None or not classifier.codes.has_levels:
        raise ConfigError(f"{option}: {model} has no levels; train it with data.levels")
    num_levels = classifier.codes.num_levels
    if request.level is not None and request.level > num_levels:
        raise ConfigError(f"--level {request.level}: {model} has {num_levels} levels")


def _threshold_of_precision(
    classifier: Classifier, share: float, *, level: int | None = None, back_off: bool = False
) -> float:
    option = "--min-precision"
    guarantees = _guarantees_of(classifier, option).at_level(level)
    counts: PrecisionCounts = guarantees
    if back_off:
        assert guarantees.back_off
        counts = guarantees.back_off

    threshold = counts.precision_threshold(share)
    if threshold is None:
        remedy = f"{_highest(counts.highest_precision)}{_suggestion_of_report(classifier)}"
        raise _not_guaranteed(option, share, guarantees, remedy)
    return threshold


# The maximum number of labels that a message names.
MAX_LISTED = 5


def _thresholds_of_labels(classifier: Classifier, share: float) -> dict[str, float]:
    """For each label, the threshold from which at least this share of its predictions is correct.

    Labels without such a guarantee have none; a note names those with one.
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


def _threshold_of_coverage(classifier: Classifier, share: float, *, level: int | None) -> float:
    option = "--coverage"
    guarantees = _guarantees_of(classifier, option).at_level(level)
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
    """A remedy: the highest share that can be guaranteed; 0 if none."""
    if share:
        return f"the highest that can be is {share:g}"
    return "nor can any lower share; label more texts"


def _not_guaranteed(option: str, share: float, guarantees: Guarantees, remedy: str) -> ConfigError:
    held_out = f"its {guarantees.num_texts:,} independent held-out texts"
    return ConfigError(f"{option} {share:g}: cannot be guaranteed by {held_out}; {remedy}")


def _suggestion_of_report(classifier: Classifier) -> str:
    """The threshold that the run's report suggests, as the end of a message."""
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
