"""The names of the files of a report, in the folder `eval` of a run."""

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
