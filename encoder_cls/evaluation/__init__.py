"""Evaluation: metrics, a linear baseline, reports and their plots."""
