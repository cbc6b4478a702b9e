"""A folder with a file of predictions for each file of the input.

A stopped command can be run again to complete it, and several processes, also on several machines,
can fill it together.

    out/part-03.jsonl         the predictions for part-03.csv
    out/_parts/part-03.json   the record: hashes of the input, the model, the options and the
                              predictions
    out/_parts/part-03.lock   held by the process that classifies this part

The predictions and then the record are each replaced in one step. A part is done if its record
matches the request and its predictions match the record, so results are correct even without locks,
which only keep two processes from doing the same work.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from encoder_cls.bulk.chunk_classifier import ChunkClassifier
from encoder_cls.bulk.input_texts import InputTexts
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import Request
from encoder_cls.data.source_files import class_folders, data_files
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import (
    LockedError,
    locked,
    read_json,
    replacing_file,
    reporting_os_errors,
    sha256,
    to_json,
    write_file,
)

# The folder of records and locks. Programs such as Spark read no data from names that begin with
# an underscore.
RECORDS = "_parts"
RECORD_VERSION = 1
# The time between two tries of parts that other processes are classifying.
SECONDS_BETWEEN_TRIES = 0.5


class Part(NamedTuple):
    """A file of the input with the file of its predictions."""

    source: Path
    output: Path

    @property
    def record(self) -> Path:
        """The file with the record."""
        return self.output.parent / RECORDS / f"{self.source.stem}.json"

    @property
    def lock(self) -> Path:
        """The file that a process locks while it classifies this part."""
        return self.record.with_suffix(".lock")


def parts_of(request: Request) -> list[Part]:
    """List the files of the input, with their files of predictions, `NAME.FORMAT`.

    Raises:
        ConfigError: there is a file for each text, or two have one file of predictions.
        DataError: there are no files, or one can be read only once, such as a pipe.
    """
    source = str(request.source)
    folder = Path(str(request.output))
    if class_folders(Path(source), is_labelled=False):
        raise ConfigError(
            f"--output {folder}/: {source} has a file for each text; name one file for all "
            "predictions, such as predictions.csv"
        )

    # The keys ignore case, because some file systems do.
    parts: dict[str, Part] = {}
    for file in data_files(source, is_labelled=False):
        if not file.is_file():
            raise DataError(
                f"{file}: is not a plain file, but --output {folder}/ needs plain files; name one "
                "file for all predictions"
            )

        name = file.stem.casefold()
        part = Part(file, folder / f"{file.stem}.{request.output_format}")
        if name in parts:
            raise ConfigError(
                f"{parts[name].source} and {file}: the predictions for both would be written to "
                f"{part.output}; rename one of them"
            )
        parts[name] = part
    return list(parts.values())


class ResumableFolder:
    """A folder of predictions, which several processes may fill together."""

    def __init__(
        self,
        parts: Sequence[Part],
        chunk_classifier: ChunkClassifier,
        progress: Progress,
    ) -> None:
        self._folder = Path(str(chunk_classifier.options.output))
        self._parts = parts
        self._chunk_classifier = chunk_classifier
        self._progress = progress

        self._options = chunk_classifier.options.recorded()
        # The items that the record of each part has if the part was classified with this model and
        # these options.
        self._expected_items = {
            "version": RECORD_VERSION,
            "model_sha256": chunk_classifier.classifier.sha256,
            "options_sha256": sha256(to_json(self._options)),
        }
        # The number of parts that this process has classified.
        self._num_written = 0
        # The number of parts that were done at the start or have been classified by this process.
        self._num_done = 0

    def fill(self) -> str:
        """Classify all parts that are not done, and say how many this process has written.

        Raises:
            DataError: a file is malformed, or has changed while it was read.
            EncoderClsError: a file cannot be written, or a part has another model or other options.
        """
        with reporting_os_errors(self._folder):
            (self._folder / RECORDS).mkdir(parents=True, exist_ok=True)

        try:
            self._classify_parts(self._remaining_parts())
        except KeyboardInterrupt:
            done = f"{self._num_done:,} of {counted(len(self._parts), 'file')} done"
            self._progress.note(
                f"stopped; {self._folder}: {done}; run the same command again to continue"
            )
            raise

        self._check_records()
        self._warn_about_other_records()
        written = f"{self._num_written:,} of {counted(len(self._parts), 'file')}"
        num_texts = counted(self._chunk_classifier.num_texts, "text")
        num_others = len(self._parts) - self._num_written
        return (
            f"{self._folder}: {written} written by this process ({num_texts}), {num_others:,} "
            "already there"
        )

    def _parts_in_order_of_machine(self) -> list[Part]:
        """Rotate the parts, so that machines without locks rarely classify the same one."""
        number = int(sha256(platform.node().encode())[:8], 16)
        first = number % len(self._parts)
        return [*self._parts[first:], *self._parts[:first]]

    def _remaining_parts(self) -> list[Part]:
        """The parts that are not done; the others are counted.

        Done ones with a lock file remain as well: trying them removes that of a killed process.
        """
        remaining = []
        for part in self._parts_in_order_of_machine():
            is_done = self._is_done(part)
            if is_done:
                self._num_done += 1
                self._progress.passed_over.add(str(part.source))
            if not is_done or part.lock.exists():
                remaining.append(part)

        if 0 < self._num_done < len(self._parts):
            num_done = f"{self._num_done:,} of {counted(len(self._parts), 'file')}"
            self._progress.note(f"{self._folder}: {num_done} already done")
        return remaining

    def _classify_parts(self, remaining: Sequence[Part]) -> None:
        has_noted_waiting = False
        while remaining:
            locked_parts = []
            for part in remaining:
                if not self._classify_unless_locked(part):
                    locked_parts.append(part)

            # If no part could be tried, other processes are classifying all remaining parts.
            if locked_parts == remaining:
                if not has_noted_waiting:
                    num_files = counted(len(remaining), "file")
                    self._progress.note(f"waiting for {num_files} that other processes are writing")
                    has_noted_waiting = True
                time.sleep(SECONDS_BETWEEN_TRIES)
            remaining = locked_parts

    def _classify_unless_locked(self, part: Part) -> bool:
        """Return False if another process holds the lock of a part."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(part.lock, wait=False))
                # The stack runs this before it releases the lock.
                stack.callback(part.lock.unlink, missing_ok=True)
            except LockedError:
                return False
            # This file system has no locks, so classify the part without a lock.
            except EncoderClsError:
                pass

            # The process that held the lock until now may have classified the part.
            if not self._is_done(part):
                self._classify(part)
        return True

    def _is_done(self, part: Part) -> bool:
        record = _read_record(part.record)
        names = {"input": part.source.name, "output": part.output.name}
        if not record.items() >= names.items() or not self._matches_request(record):
            return False
        if not part.output.is_file():
            return False

        # Compare the contents of the files last, because reading them takes time.
        if record.get("input_sha256") != _hash_of(part.source):
            return False
        return bool(record.get("output_sha256") == _hash_of(part.output))

    def _matches_request(self, record: dict[str, Any]) -> bool:
        return record.items() >= self._expected_items.items()

    def _classify(self, part: Part) -> None:
        old_record = _read_record(part.record)
        num_texts_before = self._chunk_classifier.num_texts
        state_before = _state_of(part.source)
        input_sha256 = _hash_of(part.source)

        options = replace(self._chunk_classifier.options, source=str(part.source))
        texts = InputTexts(options, self._chunk_classifier.classifier)
        texts.look_ahead()
        with replacing_file(part.output) as file:
            output = _HashedOutput(file)
            # An error in this block leaves the old file of predictions in place.
            try:
                predict_texts(texts, output, self._chunk_classifier, self._progress)
            except DataError:
                # Rows may not fit the columns that were read ahead, because the file has changed.
                _check_unchanged(part.source, state_before)
                raise
            _check_unchanged(part.source, state_before)
        _remove_old_format(part, old_record)

        encoder = self._chunk_classifier.classifier.encoder
        record = {
            "input": part.source.name,
            "input_sha256": input_sha256,
            **self._expected_items,
            "options": self._options,
            "engine": encoder.engine if encoder else "numpy",
            "rows": self._chunk_classifier.num_texts - num_texts_before,
            "output": part.output.name,
            "output_sha256": output.digest.hexdigest(),
        }
        write_file(part.record, to_json(record))
        self._num_written += 1
        self._num_done += 1

    def _check_records(self) -> None:
        """Raise an `EncoderClsError` if a part has another model or other options."""
        for part in self._parts:
            if not self._matches_request(_read_record(part.record)):
                raise EncoderClsError(
                    f"{part.output}: another process has written it with another model or other "
                    "options; run one command after the other, or give each its own folder"
                )

    def _warn_about_other_records(self) -> None:
        names = {path.name for path in (self._folder / RECORDS).glob("*.json")}
        others = sorted(names - {part.record.name for part in self._parts})
        if not others:
            return
        example = shown(others[0].removesuffix(".json"), limit=40)
        self._progress.note(
            f"warning: {self._folder}: has predictions for {counted(len(others), 'file')} not in "
            f"the input, such as {example}; remove those that you do not want, with their records "
            f"in {RECORDS}/"
        )


class _HashedOutput:
    """A file with the SHA-256 of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> None:
        self.digest.update(content)
        self._file.write(content)


def _remove_old_format(part: Part, old_record: dict[str, Any]) -> None:
    """Remove predictions in another format, so that each row has one, unless they have changed."""
    path = part.output.parent / Path(str(old_record.get("output"))).name
    # Only trust a record that is of this part: a person may have moved or renamed records.
    if path.name == part.output.name or path.stem != part.source.stem:
        return

    with suppress(OSError):
        is_plain_file = path.is_file() and not path.is_symlink()
        if is_plain_file and _hash_of(path) == old_record.get("output_sha256"):
            path.unlink()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = read_json(path)
    except (EncoderClsError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _hash_of(path: Path) -> str:
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_of(path: Path) -> tuple[int, ...]:
    """What of a file differs once it has changed: device, inode, size and time."""
    with reporting_os_errors(path, "read"):
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_unchanged(path: Path, state_before: tuple[int, ...]) -> None:
    if _state_of(path) != state_before:
        raise DataError(f"{path}: has changed while it was read; run the same command again")
