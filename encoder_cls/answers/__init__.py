"""Answers: classify rows of texts, write the answers as files."""
