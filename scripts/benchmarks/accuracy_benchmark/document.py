"""Results in, the Markdown page out: all of its text that is not a number is here."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from reporting import NOT_MEASURED, table

from accuracy_benchmark.methods import ABLATIONS, DEFAULT, OURS, PLAIN_ENCODER
from accuracy_benchmark.plan import Plan
from accuracy_benchmark.results import Result, Results
from accuracy_benchmark.spread import NOT_YET, binomial_error, difference, found, mean_and_spread
from encoder_cls.evaluation.metrics import CALIBRATION_BINS

WIDTH = 120  # of lines of text

# What the column of a method is called, and what the page says of the method.
TITLES = {
    DEFAULT: "encoder-cls",
    PLAIN_ENCODER: "plain encoder",
    "fasttext": "fastText",
    "fasttext-chars": "fastText, characters too",
    "tfidf-words": "TF-IDF, words",
    "tfidf-chars": "TF-IDF, characters too",
    "torch-tutorial": "PyTorch tutorial",
}
DESCRIPTIONS = {
    DEFAULT: """\
encoder-cls: the default config, nothing set but the data, that is an encoder with masked-LM pretraining and a linear
classifier, combined by a weighted sum of their logits.""",
    PLAIN_ENCODER: """\
Plain encoder: encoder-cls without pretraining, linear classifier, R-Drop, character n-grams and word bigrams, so a
Transformer encoder that learns from the labels.""",
    "fasttext": """\
fastText: words and word bigrams, the best of 16 settings.""",
    "fasttext-chars": """\
fastText, characters too: the same with character 2- to 5-grams.""",
    "tfidf-words": """\
TF-IDF, words: TF-IDF of words and word bigrams with logistic regression or a linear SVM, the best of 10 settings.""",
    "tfidf-chars": """\
TF-IDF, characters too: the same with character 2- to 5-grams inside words.""",
    "torch-tutorial": """\
PyTorch tutorial: `nn.TransformerEncoder` of the size of encoder-cls's, with learned positions and Adam, the best of 10
epochs.""",
}

PAGE = """\
# Accuracy

{origin} Made by

```sh
{command}
```

{headline}

Accuracy on the test split in percent, mean ± standard deviation over so many seeds, the best mean in bold. All methods
see the same splits: validation is the official split or, resampled with each seed, a tenth of train. Settings and
epochs are chosen on validation; test labels choose nothing.
{chance}

{descriptions}
"""
CHANCE = (
    "The number of test texts alone makes two standard errors of a difference between two methods so large: {errors}."
)
CALIBRATION = """
## Calibration and time

{table}

The expected calibration error ({bins} bins of equal width) is the mean over seeds, of the methods that give
probabilities. Seconds are the median over seeds: of encoder-cls from starting the command to the end of the final
report, of the others the training with the chosen setting and, in brackets, with all settings that were tried.
"""
CURVES = """
## Learning curves

{picture}

Accuracy on the test split by the number of labelled texts, drawn from train by seed, stratified, each set holding the
smaller ones; a tenth of them is the validation split. encoder-cls gets the other texts of train, too, without their
labels; the other methods have no use for them. The last point of a curve is all of train, where an official validation
split comes on top. Bars are standard deviations over {seeds} seeds.
"""
ABLATION = """
## Ablation

{table}

Points of accuracy against the default, each technique off alone, over the seeds that both have ({seeds} at most); ± is
the standard error of the difference of means over seeds. Character n-grams and word bigrams are those of the encoder's
tables; the linear classifier keeps its own. float32: in place of bfloat16, where that is fast.
"""


def document(plan: Plan, results: Results, *, command: str, picture: str | None) -> str:
    """The page; `picture` is the name of that of the learning curves, if there is one."""
    trainings = plan.trainings()
    used = [results[training] for training in trainings if training in results]
    descriptions = "\n".join("- " + DESCRIPTIONS[method].replace("\n", "\n  ") for method in plan.methods)
    text = PAGE.format(
        origin=origin(used),
        command=command,
        headline="\n".join(headline_table(plan, results)),
        descriptions=descriptions,
        chance=chance(plan, results),
    )
    if "main" in plan.parts:
        text += CALIBRATION.format(table="\n".join(calibration_table(plan, results)), bins=CALIBRATION_BINS)
    if "curves" in plan.parts and plan.data_of("curves"):
        shown = f"![Accuracy by the number of labelled texts]({picture})" if picture else f"({NOT_YET})"
        text += CURVES.format(picture=shown, seeds=_seeds(plan, "curves"))
    if "ablation" in plan.parts and plan.data_of("ablation") and plan.methods_of("ablation"):
        text += ABLATION.format(table="\n".join(ablation_table(plan, results)), seeds=_seeds(plan, "ablation"))
    return text


def origin(used: Sequence[Result]) -> str:
    """Commits, processors and versions; where there are several of them, with the number of trainings of each."""
    if not used:
        return f"Nothing is measured ({NOT_YET}) yet."
    parts = {
        "Commit": Counter(result.commit for result in used),
        "on": Counter(f"{result.cpu}, {result.threads} thread(s) a training" for result in used),
        "with": Counter(", ".join(f"{name} {v}" for name, v in result.versions.items()) for result in used),
    }
    told = []
    for word, counts in parts.items():
        several = [f"{value} ({number} trainings)" for value, number in counts.most_common()]
        told.append(f"{word} {next(iter(counts)) if len(counts) == 1 else '; '.join(several)}")
    return fill(f"{', '.join(told)}.", WIDTH, break_on_hyphens=False)


def headline_table(plan: Plan, results: Results) -> list[str]:
    """Data sets by methods."""
    rows = []
    for data in plan.data:
        cells = {method: found(results, plan.over_seeds("main", data, method)) for method in plan.methods}
        best = max((round(statistics.mean(values), 1) for values in cells.values() if values), default=None)
        planned = plan.num_seeds("main", data)
        row = [data, _num_test(plan, results, data), str(planned)]
        for values in cells.values():
            cell = mean_and_spread(values)
            if values and round(statistics.mean(values), 1) == best:
                cell = f"**{cell}**"
            row.append(f"{cell} ({len(values)} of {planned} seeds)" if 0 < len(values) < planned else cell)
        rows.append(row)
    return table(["data set", "test texts", "seeds", *(TITLES[method] for method in plan.methods)], rows)


def chance(plan: Plan, results: Results) -> str:
    """How far apart two methods have to be, by the size of each test split."""
    errors = []
    for data in plan.data:
        accuracies = [a for method in plan.methods for a in found(results, plan.over_seeds("main", data, method))]
        if accuracies:
            error = 2 * binomial_error(statistics.median(accuracies), int(_num_test(plan, results, data)))
            errors.append(f"{data} {error:.1f}")
    return fill(CHANCE.format(errors=", ".join(errors)), WIDTH) if errors else ""


def calibration_table(plan: Plan, results: Results) -> list[str]:
    """Data sets by calibration errors, then by seconds."""
    calibrated = [method for method in plan.methods if method in OURS]
    rows = []
    for data in plan.data:
        row = [data]
        for method in calibrated:
            errors = [result.scores.ece for result in _results(plan, results, data, method)]
            known = [error for error in errors if error is not None]
            row.append(f"{statistics.mean(known):.3f}" if known else NOT_MEASURED)
        rows.append([*row, *(_seconds(_results(plan, results, data, method)) for method in plan.methods)])
    columns = [f"calibration error, {TITLES[method]}" for method in calibrated]
    return table(["data set", *columns, *(f"{TITLES[method]}, s" for method in plan.methods)], rows)


def ablation_table(plan: Plan, results: Results) -> list[str]:
    """The default, and how far from it each technique's absence is."""
    names = plan.data_of("ablation")
    cells = [mean_and_spread(found(results, plan.over_seeds("ablation", data, DEFAULT))) for data in names]
    rows = [[DEFAULT, *cells]]
    for variant in ABLATIONS:
        rows.append([variant, *(_ablation_cell(plan, results, data, variant) for data in names)])
    return table(["", *names], rows)


def _ablation_cell(plan: Plan, results: Results, data: str, variant: str) -> str:
    pairs = zip(plan.over_seeds("ablation", data, variant), plan.over_seeds("ablation", data, DEFAULT), strict=True)
    both = [(one, other) for one, other in pairs if one in results and other in results]
    if not both:
        return NOT_MEASURED
    ours, theirs = (found(results, trainings) for trainings in zip(*both, strict=True))
    return difference(ours, theirs)


def _results(plan: Plan, results: Results, data: str, method: str) -> list[Result]:
    return [results[training] for training in plan.over_seeds("main", data, method) if training in results]


def _num_test(plan: Plan, results: Results, data: str) -> str:
    for method in plan.methods:
        for result in _results(plan, results, data, method):
            return str(result.scores.num_test)
    return NOT_MEASURED


def _seconds(measured: Sequence[Result]) -> str:
    if not measured:
        return NOT_MEASURED
    searches = [result.scores.search_seconds for result in measured if result.scores.search_seconds is not None]
    search = f" ({statistics.median(searches):,.0f})" if searches else ""
    return f"{statistics.median(result.scores.seconds for result in measured):,.1f}{search}"


def _seeds(plan: Plan, part: str) -> int:
    return max(plan.num_seeds(part, data) for data in plan.data_of(part))
