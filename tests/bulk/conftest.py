"""Workers that note that they are used."""

from __future__ import annotations

import pytest

from encoder_cls.system.processes import Workers


@pytest.fixture
def used_workers(monkeypatch) -> list[Workers]:
    """The workers that commands use, two processes each."""
    used = []

    class NotedWorkers(Workers):
        def map(self, items):
            used.append(self)
            return super().map(items)

    monkeypatch.setattr("encoder_cls.bulk.chunk_classifier.Workers", NotedWorkers)
    monkeypatch.setattr("encoder_cls.bulk.input_size.usable_processes", lambda: 2)
    return used
