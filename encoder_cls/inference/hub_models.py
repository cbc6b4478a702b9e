"""Download the files of a model from the Hugging Face Hub."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.system.display import shown
from encoder_cls.system.machine import is_installed, log

SCHEME = "hub:"
HUB_TIMEOUT = 10.0  # seconds


def download(source: str, files: Sequence[str], *, mark: str) -> Path:
    """Download the files of a model into the Hub's cache, or take what was downloaded before if it cannot be reached.

    Without the `mark`, in quotes, in the first file no other is downloaded. A `ConfigError` where there is no such
    model, or `huggingface_hub` is missing; an `EncoderClsError` where the Hub cannot be reached.
    """
    name, question, query = source.removeprefix(SCHEME).partition("?")
    key, _, escaped = query.partition("=")
    badly_written = ConfigError(f"{source}: write it as hub:owner/name[?revision=...]")
    if not name or (question and (key != "revision" or not escaped)):
        raise badly_written
    if not is_installed("huggingface_hub"):
        raise ConfigError(f"{source}: needs huggingface_hub: pip install huggingface_hub")
    from urllib.parse import unquote

    from huggingface_hub import errors

    try:
        folder, missing = _downloaded(name, unquote(escaped) or None, files, mark)
    except errors.HFValidationError:
        raise badly_written from None
    except errors.RevisionNotFoundError:
        raise ConfigError(f"{source}: this model has no revision {shown(unquote(escaped))}") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(f"{source}: the Hub has no such model, or does not show it to you") from None
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise EncoderClsError(
            f"{source}: cannot be downloaded: {reason} (check the network, or download the folder and name it instead)"
        ) from None
    if missing:
        raise ConfigError(f"{source}: not a model of {mark}: it has no {missing}")
    return folder


def _downloaded(name: str, revision: str | None, files: Sequence[str], mark: str) -> tuple[Path, str]:
    """The folder of the files, and what is missing in it: one of them, or the mark."""
    from huggingface_hub import HfApi, errors, hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    unreachable: Exception | None = None
    try:  # with a time limit: downloads are retried, or wait for ever where a firewall swallows requests
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except (errors.HfHubHTTPError, ValueError):
        raise
    except Exception as error:
        unreachable = error
        log("warning", f"{name}: the Hub cannot be reached; what was downloaded before is used ({error})")
    folder, file = Path(), files[0]
    try:
        for file in files:
            path = Path(hf_hub_download(name, file, revision=revision, local_files_only=unreachable is not None))
            folder, revision = path.parent, path.parent.name  # of one commit, whatever is published meanwhile
            if file == files[0] and f'"{mark}"'.encode() not in path.read_bytes():
                return folder, f'"{mark}" in its {file}'
    except errors.LocalEntryNotFoundError as error:
        raise unreachable or error from None
    except errors.EntryNotFoundError:
        return folder, file
    return folder, ""
