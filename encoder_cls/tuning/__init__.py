"""Hyperparameter search: its space, its trials, and what they report."""
