"""A folder with a file of predictions for each file of the input; a stopped command resumes it.

    out/part-03.jsonl         the predictions for part-03.csv, written as a whole
    out/_parts/part-03.json   their record: hashes of input, model, options and predictions
    out/_parts/part-03.lock   held by the process that classifies this part

Predictions and their record are each replaced in one step, the record last. A part is done if its
record matches the request and its predictions match the record; the lock only keeps two processes
from doing the same work.
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
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import CheckedRequest
from encoder_cls.classifier.classifier import Classifier
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

# The folder of records and locks. Other programs take no data from names that start so.
RECORDS = "_parts"
RECORD_VERSION = 1
# Between two tries of parts that another process classifies.
SECONDS_BETWEEN_TRIES = 0.5


class Part(NamedTuple):
    """A file of the input, with the file of its predictions."""

    source: Path
    output: Path

    @property
    def record(self) -> Path:
        """The file of the record."""
        return self.output.parent / RECORDS / f"{self.source.stem}.json"

    @property
    def lock(self) -> Path:
        """The file that a process locks while it classifies the part."""
        return self.record.with_suffix(".lock")


def parts_of(source: str, folder: Path, output_format: str) -> list[Part]:
    """The parts of an input, each a file with a file of predictions in the folder.

    Raises:
        ConfigError: a part would be a text alone, or two parts would have one file of predictions.
        DataError: there are no files, or one can be read only once.
    """
    if class_folders(Path(source), is_labelled=False):
        raise ConfigError(
            f"--output {folder}/: {source} has a file for each text; name one file for all, such "
            "as predictions.csv"
        )

    # Some file systems ignore case.
    parts: dict[str, Part] = {}
    for file in data_files(source, is_labelled=False):
        if not file.is_file():
            raise DataError(
                f"{file}: is not a plain file, as --output {folder}/ needs; name one file for all "
                "predictions"
            )

        name = file.stem.casefold()
        part = Part(file, folder / f"{file.stem}.{output_format}")
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
        request: CheckedRequest,
        parts: Sequence[Part],
        classifier: ChunkClassifier,
        progress: Progress,
    ) -> None:
        self._request = request
        self._folder = Path(str(request.output))
        self._parts = parts
        self._classifier = classifier
        self._progress = progress

        self._options = _options_of_predictions(request, classifier.options, classifier.classifier)
        # What the record of a part says if it is done with this model and these options.
        self._expected = {
            "version": RECORD_VERSION,
            "model_sha256": classifier.classifier.sha256,
            "options_sha256": sha256(to_json(self._options)),
        }
        self._num_written = 0
        self._num_done = 0

    def fill(self) -> str:
        """Classify all parts that are not done; returns a line about the work of this process."""
        with reporting_os_errors(self._folder):
            (self._folder / RECORDS).mkdir(parents=True, exist_ok=True)

        try:
            self._predict_all(self._in_order_of_machine())
        except KeyboardInterrupt:
            done = f"{self._num_done:,} of {counted(len(self._parts), 'file')} done"
            self._progress.note(
                f"stopped; {self._folder}: {done}; the same command goes on with the rest"
            )
            raise

        self._check_records()
        self._warn_of_other_parts()
        written = f"{self._num_written:,} of {counted(len(self._parts), 'file')}"
        num_texts = counted(self._classifier.num_texts, "text")
        num_others = len(self._parts) - self._num_written
        return (
            f"{self._folder}: {written} written by this process ({num_texts}), {num_others:,} "
            "already there"
        )

    def _in_order_of_machine(self) -> list[Part]:
        """The parts, beginning with another one on each machine.

        So machines share the work even if they do not see each other's locks.
        """
        number = int(sha256(platform.node().encode())[:8], 16)
        first = number % len(self._parts)
        return [*self._parts[first:], *self._parts[:first]]

    def _predict_all(self, parts: Sequence[Part]) -> None:
        """Classify the parts that are not done, and wait for those of other processes."""
        done = [part for part in parts if self._is_done(part)]
        self._num_done = len(done)
        self._progress.passed_over = {str(part.source) for part in done}
        if 0 < len(done) < len(parts):
            self._progress.note(
                f"{self._folder}: {len(done):,} of {counted(len(parts), 'file')} done before"
            )

        # The lock of a part that is done may be left from a killed process.
        left = [part for part in parts if part not in done or part.lock.exists()]
        is_waiting = False
        while left:
            still_locked = []
            for part in left:
                if not self._try(part):
                    still_locked.append(part)

            # Where nothing has moved, other processes have all that is left.
            if still_locked == left:
                if not is_waiting:
                    self._progress.note(
                        f"waiting for {counted(len(left), 'file')} that other processes are writing"
                    )
                is_waiting = True
                time.sleep(SECONDS_BETWEEN_TRIES)
            left = still_locked

    def _try(self, part: Part) -> bool:
        """Classify a part if it is not done; False if another process is doing it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(part.lock, wait=False))
                # The file goes before the lock is released.
                stack.callback(part.lock.unlink, missing_ok=True)
            except LockedError:
                return False
            except EncoderClsError:  # this file system has no locks
                pass

            # The process that held the lock may have done it.
            if not self._is_done(part):
                self._predict(part)
        return True

    def _is_done(self, part: Part) -> bool:
        record = _read_record(part.record)
        names = {"input": part.source.name, "output": part.output.name}
        if not record.items() >= names.items() or not self._is_expected(record):
            return False
        if not part.output.is_file():
            return False

        # The files are read last, since that takes time.
        if record.get("input_sha256") != _hash_of(part.source):
            return False
        return bool(record.get("output_sha256") == _hash_of(part.output))

    def _is_expected(self, record: dict[str, Any]) -> bool:
        """Whether a record has this model and these options."""
        return record.items() >= self._expected.items()

    def _predict(self, part: Part) -> None:
        """Write the predictions for a part, and then its record."""
        old_record = _read_record(part.record)
        num_texts_before = self._classifier.num_texts
        state = _state_of(part.source)
        input_sha256 = _hash_of(part.source)

        texts = InputTexts(
            replace(self._request.input, source=str(part.source)),
            self._classifier.classifier,
            output_format=self._request.output_format,
        )
        texts.look_ahead()
        with replacing_file(part.output) as file:
            output = _HashedOutput(file)
            predict_texts(texts, output, self._classifier, self._progress)
            if _state_of(part.source) != state:  # then nothing is written
                raise DataError(
                    f"{part.source}: has changed while it was read; run the same command again"
                )
        _remove_old_format(part, old_record)

        encoder = self._classifier.classifier.encoder
        record = {
            "input": part.source.name,
            "input_sha256": input_sha256,
            **self._expected,
            "options": self._options,
            "engine": encoder.engine if encoder else "numpy",
            "rows": self._classifier.num_texts - num_texts_before,
            "output": part.output.name,
            "output_sha256": output.digest.hexdigest(),
        }
        write_file(part.record, to_json(record))
        self._num_written += 1
        self._num_done += 1

    def _check_records(self) -> None:
        """Raise an error if another process has written a part with another model or options."""
        for part in self._parts:
            if not self._is_expected(_read_record(part.record)):
                raise EncoderClsError(
                    f"{part.output}: another process has written it with another model or other "
                    "options; let one end before the other, or give each a folder"
                )

    def _warn_of_other_parts(self) -> None:
        """Warn if there are predictions for files that are not in the input."""
        names = {path.name for path in (self._folder / RECORDS).glob("*.json")}
        others = sorted(names - {part.record.name for part in self._parts})
        if not others:
            return
        example = shown(others[0].removesuffix(".json"), limit=40)
        self._progress.note(
            f"warning: {self._folder}: has predictions for {counted(len(others), 'file')} not in "
            f"the input, such as {example}; remove what is not wanted, with its record in "
            f"{RECORDS}/"
        )


def _options_of_predictions(
    request: CheckedRequest, options: PredictionOptions, classifier: Classifier
) -> dict[str, Any]:
    """The options that change predictions, for a record."""
    recorded: dict[str, Any] = {
        "output_format": options.output_format,
        "text_columns": request.input.text_columns or classifier.text_format.columns,
        "keep_columns": request.input.keep_columns,
        "top_k": options.top_k,
        "threshold": options.threshold,
        "explained": options.explained,
        "delimiter": request.input.delimiter,
        "encoding": request.input.encoding,
        "bad_rows": request.input.bad_rows,
        "min_precision": options.min_precision,
        "set_threshold": options.set_threshold,
        "engine": request.engine,
    }

    # A table has the column `answered_by` if the classifier is a cascade.
    if options.output_format in {"csv", "tsv", "parquet"} and classifier.gate is not None:
        recorded["answered_by"] = True
    return recorded


class _HashedOutput:
    """A file, and the hash of what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> None:
        self.digest.update(content)
        self._file.write(content)


def _remove_old_format(part: Part, old_record: dict[str, Any]) -> None:
    """Remove the unchanged predictions for a part in another format.

    So each row has one prediction in the folder.
    """
    path = part.output.parent / Path(str(old_record.get("output"))).name
    # A record may be of another part, in the place of this one's.
    if path.name == part.output.name or path.stem != part.source.stem:
        return

    with suppress(OSError):
        is_plain_file = path.is_file() and not path.is_symlink()
        if is_plain_file and _hash_of(path) == old_record.get("output_sha256"):
            path.unlink()


def _read_record(path: Path) -> dict[str, Any]:
    """The content of a record; empty if it is missing or damaged."""
    try:
        record = read_json(path)
    except (EncoderClsError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _hash_of(path: Path) -> str:
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_of(path: Path) -> tuple[int, ...]:
    """Device, inode, size and time of a file: numbers that change when it does."""
    with reporting_os_errors(path, "read"):
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
