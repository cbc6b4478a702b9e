"""The command `encoder-cls audit`: what of the training texts can be read in a model."""

from __future__ import annotations

from collections.abc import Callable

from encoder_cls.errors import ReadableError
from encoder_cls.system.command_options import AsJson, TrainedModel, print_json
from encoder_cls.system.terminal import print_out


def audit_command(run: TrainedModel, as_json: AsJson = False) -> None:
    """Show what of the training texts can be read in the files of a model and of its run.

    Words in few texts, numbers, addresses and handles. Ends with exit code 8 if the model folder,
    which is what is shared, has any of them.
    """
    from encoder_cls.extras.audit.audit import audit
    from encoder_cls.extras.audit.sentences import terminal_text, to_dict

    found = audit(run)
    if as_json:
        print_json(to_dict(found))
    else:
        print_out(terminal_text(found))
    if found.is_readable:
        raise ReadableError(f"{found.model}: parts of the training texts can be read in it")


COMMANDS: dict[str, Callable[..., None]] = {"audit": audit_command}
