"""The fields of the requests of the page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, InstanceOf

from encoder_cls.extras.label.session import NO_CLASS, SKIPPED
from encoder_cls.system.web.bodies import Form

_Text = Annotated[InstanceOf[str], Field(description="a string")]
_Texts = Annotated[list[InstanceOf[str]], Field(description="a list of strings")]


class LabelRequest(Form):
    """A label, or several; those of an earlier text are changed."""

    key: _Text
    labels: _Texts
    shown_guess: _Texts
    is_change: Annotated[bool, Field(description="true or false")]


class SkipRequest(Form):
    """A text that gets no label."""

    key: _Text
    why: Annotated[
        Literal["skipped", "no class fits"], Field(description=f"{SKIPPED!r} or {NO_CLASS!r}")
    ]


class UndoRequest(Form):
    """The last action is taken back, if so many texts had been asked."""

    num_asked: Annotated[int, Field(description="a whole number")]


class ClassRequest(Form):
    """A new class."""

    name: _Text


class RenamingRequest(Form):
    """A new name of a class."""

    name: _Text
    new_name: _Text
