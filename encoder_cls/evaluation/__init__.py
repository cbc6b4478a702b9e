"""Evaluation: metrics, a linear baseline, reports and the files of a report, whose names are here."""

REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
PREDICTIONS = "predictions.jsonl"
CONFUSION_MATRIX = "confusion_matrix.png"
MISTAKES = "mistakes.csv"
DOUBTFUL_LABELS = "doubtful_labels.csv"
CHANGED_ANSWERS = "changed_answers.csv"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, PREDICTIONS, CONFUSION_MATRIX, MISTAKES, DOUBTFUL_LABELS, CHANGED_ANSWERS)
