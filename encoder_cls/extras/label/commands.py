"""The commands of this annex."""

from __future__ import annotations

from collections.abc import Callable

from encoder_cls.extras.label.label_command import label_command
from encoder_cls.extras.label.review_command import review_command
from encoder_cls.extras.label.suggest_command import suggest_command

COMMANDS: dict[str, Callable[..., None]] = {
    "review": review_command,
    "suggest": suggest_command,
    "label": label_command,
}
