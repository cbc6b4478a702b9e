"""Download models from the Hugging Face Hub."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.system.display import shown
from encoder_cls.system.hub import HUB_TIMEOUT, parsed_address
from encoder_cls.system.log import log
from encoder_cls.system.terminal import has_terminal

# The status of HTTP by which a server refuses further requests for a while.
TOO_MANY_REQUESTS = 429


def download_model(source: str, *, files: tuple[str, ...], marker: str) -> Path:
    """Download files of `hub:owner/name[?revision=...]`, and return their folder in the cache.

    If the Hub cannot be reached, the files of an earlier download are used. The first file must be
    small: unless it contains the string `marker`, the other files are not downloaded.

    Raises:
        ConfigError: the address is invalid, or there is no such model, revision or file with the
            marker.
        EncoderClsError: the files cannot be downloaded, and there is no earlier download.
    """
    from huggingface_hub import errors

    try:
        name, options = parsed_address(source, options=["revision"])
    except ValueError:
        raise _badly_written(source) from None
    revision = options.get("revision")

    try:
        folder, missing = _downloaded(name, revision, files, marker)
    except errors.HFValidationError:
        raise _badly_written(source) from None
    except errors.RevisionNotFoundError:
        raise ConfigError(f"{source}: this model has no revision {shown(revision or '')}") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"{source}: the Hub has no such model, or does not show it to you"
        ) from None
    except Exception as error:
        reason = type(error).__name__
        lines = [line for line in str(error).splitlines() if line.strip()]
        if lines:
            reason = lines[0]
        raise EncoderClsError(
            f"{source}: cannot be downloaded: {reason} (check the network, or download the folder "
            "and name it instead)"
        ) from None

    if missing:
        raise ConfigError(f"{source}: not a model of encoder-cls: it has no {missing}")
    return folder


def _badly_written(source: str) -> ConfigError:
    return ConfigError(f"{source}: write it as hub:owner/name[?revision=...]")


def _downloaded(
    name: str, revision: str | None, files: tuple[str, ...], marker: str
) -> tuple[Path, str]:
    """Download the files; the phrase says what the model lacks, if anything."""
    import logging

    from huggingface_hub import errors, snapshot_download
    from huggingface_hub.utils.logging import set_verbosity
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not has_terminal():
        disable_progress_bars()
    # Its warnings say what the messages here say, too.
    set_verbosity(logging.ERROR)

    unreachable = _reason_not_to_reach(name, revision)
    download = partial(snapshot_download, name, local_files_only=unreachable is not None)
    first = files[0]
    try:
        folder = Path(download(revision=revision, allow_patterns=first))
        if (folder / first).is_file() and marker.encode() not in (folder / first).read_bytes():
            return folder, f"{marker} in its {first}"
        # The folder is named after the commit. Download the other files from the same commit, so
        # that they fit together also if a new version is published meanwhile.
        download(revision=folder.name, allow_patterns=list(files))
    except errors.LocalEntryNotFoundError as error:
        raise unreachable or error from None

    missing = (file for file in files if not (folder / file).is_file())
    return folder, next(missing, "")


def _reason_not_to_reach(name: str, revision: str | None) -> Exception | None:
    """The error if the Hub cannot be reached; an error about the model is raised.

    Errors of the Hub itself, as of too many requests, say nothing about the model.
    """
    from huggingface_hub import HfApi, errors

    try:
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except ValueError:
        raise
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status < 500 and status != TOO_MANY_REQUESTS:
            raise
        reason: Exception = error
    except Exception as error:
        reason = error
    else:
        return None

    log(
        "warning",
        f"{name}: the Hub cannot be reached; what was downloaded before is used ({reason})",
    )
    return reason
