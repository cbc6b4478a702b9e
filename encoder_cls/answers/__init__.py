"""Answers: rows of texts in, files of answers out."""
