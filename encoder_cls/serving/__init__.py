"""Predictions over HTTP, with metrics and a page to try texts."""
