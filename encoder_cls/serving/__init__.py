"""Serving: a classifier over HTTP, concurrent requests in batches; docs/serving.md has the contract."""
