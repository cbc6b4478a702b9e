"""Predictions in bulk: rows of texts to files of predictions."""
