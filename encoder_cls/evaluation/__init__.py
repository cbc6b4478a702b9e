"""Evaluation: reports, their pages and charts, a linear baseline."""
