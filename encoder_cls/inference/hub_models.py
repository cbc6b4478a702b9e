"""Download the files of a model from the Hugging Face Hub."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.system.display import shown
from encoder_cls.system.installed import is_installed, log

SCHEME = "hub:"
HUB_TIMEOUT = 10.0  # seconds


def download(source: str, files: Sequence[str], *, mark: str) -> Path:
    """Download the files of a model, or take what was downloaded before if the Hub cannot be reached.

    Without the `mark`, in quotes, in the first file no other is downloaded. Returns the folder in the Hub's cache,
    where files are links.

    Raises:
        ConfigError: there is no such model, or it is of another program; or `huggingface_hub` is missing.
        EncoderClsError: the Hub cannot be reached.
    """
    name, question, query = source.removeprefix(SCHEME).partition("?")
    key, _, escaped = query.partition("=")
    if not name or (question and (key != "revision" or not escaped)):
        raise ConfigError(f"{source}: write it as hub:owner/name[?revision=...]")
    if not is_installed("huggingface_hub"):
        raise ConfigError(f"{source}: needs huggingface_hub: pip install huggingface_hub")
    from urllib.parse import unquote

    from huggingface_hub import errors

    revision = unquote(escaped) or None
    try:
        folder = _snapshot(name, revision, files, mark=mark)
    except errors.HFValidationError:
        raise ConfigError(f"{source}: write it as hub:owner/name[?revision=...]") from None
    except errors.RevisionNotFoundError:
        raise ConfigError(f"{source}: this model has no revision {shown(revision or '')}") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(f"{source}: the Hub has no such model, or does not show it to you") from None
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise EncoderClsError(
            f"{source}: cannot be downloaded: {reason} (check the network, or download the folder and name it instead)"
        ) from None
    if folder is None:
        raise ConfigError(f"{source}: not a model of {mark}")
    for file in files:
        if not (folder / file).exists():
            raise ConfigError(f"{source}: not a model of {mark}: it has no {file}")
    return folder


def _snapshot(name: str, revision: str | None, files: Sequence[str], *, mark: str) -> Path | None:
    """The folder with some files of a repository; none if the first of them lacks the mark."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    failed: Exception | None = None
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        try:
            # With a time limit: `snapshot_download` itself waits for ever where a firewall swallows its requests.
            huggingface_hub.HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
        except (HfHubHTTPError, ValueError):
            raise
        except Exception as error:
            failed = error
    is_local = failed is not None
    if is_local:
        log("warning", f"{name}: the Hub cannot be reached; what was downloaded before is used ({failed})")
    try:
        first = huggingface_hub.hf_hub_download(name, files[0], revision=revision, local_files_only=is_local)
        if f'"{mark}"'.encode() not in Path(first).read_bytes():
            return None
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(files), local_files_only=is_local
            )
        )
    except LocalEntryNotFoundError:
        raise failed or ConnectionError("HF_HUB_OFFLINE is set, and it was not downloaded before") from None
    except EntryNotFoundError:
        return None
