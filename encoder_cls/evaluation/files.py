"""Evaluation: metrics, a linear baseline, reports.

Here are the names of scores and of the files of a report.
"""

REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
PREDICTIONS = "predictions.jsonl"
CONFUSION_MATRIX = "confusion_matrix.png"
MISTAKES = "mistakes.csv"
DOUBTFUL_LABELS = "doubtful_labels.csv"
CHANGED_PREDICTIONS = "changed_predictions.csv"
REPORT_FILES = (
    REPORT_HTML,
    REPORT_JSON,
    PREDICTIONS,
    CONFUSION_MATRIX,
    MISTAKES,
    DOUBTFUL_LABELS,
    CHANGED_PREDICTIONS,
)

SCORE_NAMES = {
    "loss": "loss",
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "mean_average_precision": "mean average precision",
}
