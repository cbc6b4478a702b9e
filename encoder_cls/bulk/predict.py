"""Answer a request on standard output, in a file, or in a resumable folder with a file for each file of the input.

    out/part-03.jsonl         the answers to part-03.csv, written as a whole
    out/_parts/part-03.json   their record: hashes of the input, the model, the options and the answers
    out/_parts/part-03.lock   held by the process that answers this part

Answers and their record are each replaced in one step, the record last. A part is done if its record matches the
request and its answers match the record; the lock only keeps two processes from doing the same work.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.bulk.classify_chunks import Answerer, answering
from encoder_cls.bulk.inputs import Progress, Source
from encoder_cls.bulk.output_checks import check_outputs
from encoder_cls.bulk.request import Request, reading_stream_as_file
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.data.source_files import class_folders, data_files
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import (
    LockedError,
    locked,
    reporting_os_errors,
    sha256,
    to_json,
    write_file,
    write_output,
)
from encoder_cls.system.terminal import note, print_out

RECORDS = "_parts"  # other programs take no data from names that start so
RECORD_VERSION = 1
# The options that change answers.
ANSWER_OPTIONS = (
    *(
        "output_format",
        "text_columns",
        "keep_columns",
        "top_k",
        "threshold",
        "explained",
        "delimiter",
        "encoding",
    ),
    *("bad_rows", "min_precision", "set_threshold", "engine"),
)
SECONDS_BETWEEN_TRIES = 0.5  # at parts that another process answers


def predict(request: Request, *, runs: Path) -> None:
    """Check a request and answer it, by default with the newest of the runs; failures are `EncoderClsError`s."""
    with reading_stream_as_file(request) as readable:
        _predict(readable.checked(runs))


def _predict(request: Request) -> None:
    assert request.model
    if request.runner == "ray":
        from encoder_cls.bulk.ray_spark import predict_by_ray

        predict_by_ray(request)
        return
    parts = _parts_of(request) if request.into_folder else []
    outputs = [Path(path) for path in (request.output, request.attention) if path and not parts]
    outputs += [path for part in parts for path in (part.output, part.record)]
    sources = [request.source] if request.source else []
    check_outputs(outputs, sources=sources, model=request.model, is_printing=request.output is None)
    classifier = load_classifier(request.model, device=request.device, engine=request.engine)
    request = request.with_guarantees(classifier)
    source = Source(request, classifier)
    # All, so that each process chooses the same engine.
    files = [part.source for part in parts] or source.files
    on_terminal = request.output is None and sys.stdout.isatty()
    if not parts:
        with Progress(files, doing="looked through", bar=not on_terminal) as source.progress:
            source.look_ahead()

    last_line = ""
    with (
        Progress(files, doing="classified", bar=not on_terminal) as progress,
        answering(classifier, request, files, warn=progress.note) as answerer,
    ):
        source.progress = progress
        if parts:
            last_line = _Folder(parts, answerer, progress).answer()
        elif request.output:
            write_output(Path(request.output), answerer.content(source))
        else:
            content = answerer.content(source, on_terminal=on_terminal)
            if not all(
                print_out(piece.decode()) for piece in content
            ):  # the reader has closed the pipe
                return
    # The answer to a single text shows what a summary would say.
    summary = answerer.summary() if len(request.texts) != 1 else ""
    for line in filter(None, (summary, last_line)):
        note(line)


class _Part(NamedTuple):
    """A file of the input, with the file of its answers."""

    source: Path
    output: Path

    @property
    def record(self) -> Path:
        return self.output.parent / RECORDS / f"{self.source.stem}.json"

    @property
    def lock(self) -> Path:
        return self.record.with_suffix(".lock")


def _parts_of(request: Request) -> list[_Part]:
    """The parts of an input, each a file with answers of its own."""
    source, folder = str(request.source), Path(str(request.output))
    if class_folders(Path(source), is_labelled=False):
        what = f"{source} has a file for each text; name one file for all, such as answers.csv"
        raise ConfigError(f"--output {folder}/: {what}")
    parts: dict[str, _Part] = {}
    for file in data_files(source, is_labelled=False):
        if not file.is_file():
            raise DataError(
                f"{file}: is not a plain file, as --output {folder}/ needs; name one file for all answers"
            )
        part = _Part(file, folder / f"{file.stem}.{request.output_format}")
        other = parts.setdefault(file.stem.casefold(), part)  # some file systems ignore case
        if other is not part:
            what = f"the answers to both would be written to {part.output}; rename one of them"
            raise ConfigError(f"{other.source} and {file}: {what}")
    return [*parts.values()]


class _Folder:
    """A folder of answers, one file for each part, that several processes may fill together."""

    def __init__(self, parts: Sequence[_Part], answerer: Answerer, progress: Progress) -> None:
        self._parts, self._answerer, self._progress = parts, answerer, progress
        self._classifier, self._request = classifier, request = (
            answerer.classifier,
            answerer.request,
        )
        self._folder = Path(str(request.output))
        self._options = {name: getattr(request, name) for name in ANSWER_OPTIONS}
        self._options["text_columns"] = request.text_columns or classifier.text_format.columns
        if request.output_format in {"csv", "tsv", "parquet"} and classifier.gate is not None:
            self._options["answered_by"] = True  # tables of earlier versions lack the column
        self._expected = {
            "version": RECORD_VERSION,
            "model_sha256": classifier.sha256,
            "options_sha256": sha256(to_json(self._options)),
        }
        self._num_written = self._num_done = 0

    def answer(self) -> str:
        """Answer all parts that are not done, and return a line about the work of this process."""
        parts, folder = self._parts, self._folder
        with reporting_os_errors(folder):
            (folder / RECORDS).mkdir(parents=True, exist_ok=True)
        # Machines start with different parts, so that they share the work even if they do not see each other's locks.
        first = int(sha256(platform.node().encode())[:8], 16) % len(parts)
        try:
            self._do_all([*parts[first:], *parts[:first]])
        except KeyboardInterrupt:
            done = f"{self._num_done:,} of {counted(len(parts), 'file')} done"
            self._progress.note(
                f"stopped; {folder}: {done}; the same command goes on with the rest"
            )
            raise
        if other := next(
            (part for part in parts if not self._is_expected(_read_record(part.record))), None
        ):
            by_whom = "another process has written it with another model or other options"
            raise EncoderClsError(
                f"{other.output}: {by_whom}; let one end before the other, or give each a folder"
            )
        others = sorted(
            {path.name for path in (folder / RECORDS).glob("*.json")}
            - {it.record.name for it in parts}
        )
        if others:
            such_as = shown(others[0].removesuffix(".json"), limit=40)
            what = (
                f"has answers to {counted(len(others), 'file')} not in the input, such as {such_as}"
            )
            remedy = f"remove what is not wanted, with its record in {RECORDS}/"
            self._progress.note(f"warning: {folder}: {what}; {remedy}")
        written_here = (
            f"{self._num_written:,} of {counted(len(parts), 'file')} written by this process"
        )
        num_texts, num_others = (
            counted(self._answerer.num_texts, "text"),
            len(parts) - self._num_written,
        )
        return f"{folder}: {written_here} ({num_texts}), {num_others:,} already there"

    def _do_all(self, parts: Sequence[_Part]) -> None:
        """Answer the parts that are not done, and wait for those that other processes answer."""
        done = [part for part in parts if self._is_done(part)]
        self._num_done = len(done)
        self._progress.passed_over = {str(part.source) for part in done}
        if 0 < len(done) < len(parts):
            self._progress.note(
                f"{self._folder}: {len(done):,} of {counted(len(parts), 'file')} done before"
            )
        # A part that is done and locked: its lock may be left from a killed process.
        left = [part for part in parts if part not in done or part.lock.exists()]
        is_waiting = False
        while held := [part for part in left if not self._do(part)]:
            if held == left:
                if not is_waiting:
                    self._progress.note(
                        f"waiting for {counted(len(held), 'file')} that other processes are writing"
                    )
                is_waiting = True
                time.sleep(SECONDS_BETWEEN_TRIES)
            left = held

    def _do(self, part: _Part) -> bool:
        """Answer a part if it is not done; False if another process is doing it."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(part.lock, wait=False))
                held.callback(part.lock.unlink, missing_ok=True)
            except LockedError:
                return False
            except EncoderClsError:  # no locks on this file system
                pass
            if not self._is_done(part):  # by the process that held the lock
                self._write(part)
        return True

    def _is_done(self, part: _Part) -> bool:
        record = _read_record(part.record)
        return (
            (record.get("input"), record.get("output")) == (part.source.name, part.output.name)
            and self._is_expected(record)
            and part.output.is_file()
            and record.get("input_sha256") == _hash_of(part.source)
            and record.get("output_sha256") == _hash_of(part.output)
        )

    def _is_expected(self, record: dict[str, Any]) -> bool:
        """Whether a record has this model and these options."""
        return record.items() >= self._expected.items()

    def _write(self, part: _Part) -> None:
        old_record, texts_before = _read_record(part.record), self._answerer.num_texts
        state, input_sha256 = _state_of(part.source), _hash_of(part.source)
        source = Source(self._request._replace(source=str(part.source)), self._classifier)
        source.look_ahead()
        source.progress = self._progress
        output_hash = hashlib.sha256()

        def content() -> Iterator[bytes]:
            for piece in self._answerer.content(source):
                output_hash.update(piece)
                yield piece
            if _state_of(part.source) != state:  # then nothing is written
                raise DataError(
                    f"{part.source}: has changed while it was read; run the same command again"
                )

        write_file(part.output, content())
        _remove_old_format(part, old_record)
        record = {
            "input": part.source.name,
            "input_sha256": input_sha256,
            **self._expected,
            "options": self._options,
            "engine": self._classifier.encoder.engine if self._classifier.encoder else "numpy",
            "rows": self._answerer.num_texts - texts_before,
            "output": part.output.name,
            "output_sha256": output_hash.hexdigest(),
        }
        write_file(part.record, to_json(record))
        self._num_written += 1
        self._num_done += 1


def _remove_old_format(part: _Part, old_record: dict[str, Any]) -> None:
    """Remove unchanged answers to the same part in another format, so that each row has one answer."""
    path = part.output.parent / Path(str(old_record.get("output"))).name
    if (
        path.name == part.output.name or path.stem != part.source.stem
    ):  # else of another part, in this one's place
        return
    with suppress(OSError):
        if (
            path.is_file()
            and not path.is_symlink()
            and _hash_of(path) == old_record.get("output_sha256")
        ):
            path.unlink()


def _read_record(path: Path) -> dict[str, Any]:
    """The content of a record; empty if it is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_bytes())
        return record if isinstance(record, dict) else {}
    return {}


def _hash_of(path: Path) -> str:
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_of(path: Path) -> tuple[int, ...]:
    """Device, inode, size and time of a file: numbers that change when it does."""
    with reporting_os_errors(path, "read"):
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
