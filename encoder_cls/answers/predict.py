"""Answer a request on standard output, in a file, or in a folder with a file for each file of the input, resumable.

    out/part-03.jsonl         the answers to part-03.csv, written as a whole
    out/_parts/part-03.json   their record: hashes of the input, the model, the options and the answers
    out/_parts/part-03.lock   held by the process that answers this part

Answers and their record are each replaced in one step, the record last, and a part is done where its record fits what
is asked for and the answers fit the record. The lock only keeps processes from doing a part twice.
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

from encoder_cls.answers.classify import Answerer, answering
from encoder_cls.answers.formats import written
from encoder_cls.answers.inputs import Progress, Source
from encoder_cls.answers.outputs import check_output_folder, check_outputs
from encoder_cls.answers.request import ANSWER_OPTIONS, TABLES, Request
from encoder_cls.data.sources import class_folders, data_files
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.inference.folder import load_classifier
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import LockedError, locked, reporting_os_errors, sha256, to_json, write_file, write_output
from encoder_cls.system.terminal import note, print_out

RECORDS = "_parts"  # other programs take no data from names that start so
RECORD_VERSION = 1
GOES_ON = "the same command goes on with the rest"
SECONDS_BETWEEN_TRIES = 0.5  # of parts that another process answers


def predict(request: Request, *, runs: Path) -> None:
    """Check a request, and answer it, by the newest of the runs where no model is named, or fail: `EncoderClsError`."""
    request = request.checked(runs)
    assert request.model
    if request.runner == "ray":
        from encoder_cls.answers.cluster import predict_by_ray

        predict_by_ray(request)
        return
    parts = _parts_of(request) if request.into_folder else []
    if not parts:
        outputs = [Path(path) for path in (request.output, request.attention) if path]
        sources = [request.source] if request.source else []
        check_outputs(outputs, sources=sources, model=request.model, is_printing=request.output is None)
    classifier = load_classifier(request.model, device=request.device, engine=request.engine)
    request = request.with_guarantees(classifier)
    source = Source() if parts else Source.asked_for(request, classifier)
    # Of all files, so that the engine does not depend on who does which.
    files = [part.source for part in parts] or source.files
    on_terminal = request.output is None and sys.stdout.isatty()
    with Progress(files, doing="looked through", bar=not on_terminal) as source.progress:
        source.look_ahead(request)

    last_line = ""
    with (
        Progress(files, doing="classified", bar=not on_terminal) as progress,
        answering(classifier, request, files, warn=progress.note) as answerer,
    ):
        source.progress = progress
        if parts:
            last_line = _answer_parts(parts, answerer, progress)
        elif request.output:
            write_output(Path(request.output), written(source, answerer))
        else:
            content = written(source, answerer, on_terminal=on_terminal)
            if not all(print_out(piece.decode()) for piece in content):  # its reader has seen enough
                return
    summary = answerer.summary() if len(request.texts) != 1 else ""  # the answer to a single text says it all
    for line in filter(None, (summary, last_line)):
        note(line)


class _Part(NamedTuple):
    """A file of the input, and the folder of its file of answers."""

    source: Path
    folder: Path
    ending: str

    @property
    def output(self) -> Path:
        return self.folder / f"{self.source.stem}.{self.ending}"

    @property
    def record(self) -> Path:
        return self.folder / RECORDS / f"{self.source.stem}.json"

    @property
    def lock(self) -> Path:
        return self.record.with_suffix(".lock")


def _parts_of(request: Request) -> list[_Part]:
    """The parts of an input, once it is sure that all of them can be written."""
    source, folder = str(request.source), Path(str(request.output))
    if class_folders(Path(source), is_labelled=False):
        raise ConfigError(
            f"--output {folder}/: {source} has a file for each text; name one file for all, such as answers.csv"
        )
    parts = [_Part(file, folder, str(request.output_format)) for file in data_files(source, is_labelled=False)]
    by_name: dict[str, _Part] = {}
    for part in parts:
        if not part.source.is_file():
            raise DataError(
                f"{part.source}: is no plain file, as --output {folder}/ needs; name one file for all answers"
            )
        other = by_name.setdefault(part.source.stem.casefold(), part)  # some file systems know no capital letters
        if other is not part:
            raise ConfigError(
                f"{other.source} and {part.source}: the answers to both would be written to {part.output}; "
                "rename one of them"
            )
    outputs = [path for part in parts for path in (part.output, part.record)]
    check_output_folder(folder, outputs, sources=[source], model=request.model)
    return parts


def _answer_parts(parts: Sequence[_Part], answerer: Answerer, progress: Progress) -> str:
    """Answer all parts that are not done, beside other processes that do the same; a line on what this one has done."""
    folder = parts[0].folder
    with reporting_os_errors(folder):
        (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    # Each machine starts with another part, so that they share the work even without locks of each other.
    first = int(sha256(platform.node().encode())[:8], 16) % len(parts)
    work = _Work(answerer, progress)
    try:
        work.do_all([*parts[first:], *parts[:first]])
    except KeyboardInterrupt:
        progress.note(f"stopped; {folder}: {work.num_done:,} of {counted(len(parts), 'file')} done; {GOES_ON}")
        raise
    if other := next((part for part in parts if not work.is_asked_for(_read_record(part.record))), None):
        raise EncoderClsError(
            f"{other.output}: another process has written it with another model or other options; "
            "let one end before the other begins, or give each a folder"
        )
    known = {part.record.name for part in parts}
    others = sorted(path.name for path in (folder / RECORDS).glob("*.json") if path.name not in known)
    if others:
        first_name = shown(others[0].removesuffix(".json"), limit=40)
        progress.note(
            f"warning: {folder}: has answers to {counted(len(others), 'file')} not in the input, such as {first_name}; "
            f"remove what is not wanted, with its record in {RECORDS}/"
        )
    written_here = f"{work.num_written:,} of {counted(len(parts), 'file')} written by this process"
    num_texts, num_others = counted(answerer.num_texts, "text"), len(parts) - work.num_written
    return f"{folder}: {written_here} ({num_texts}), {num_others:,} already there"


class _Work:
    """Answers parts, each as a whole, and knows which are done as it is asked for."""

    def __init__(self, answerer: Answerer, progress: Progress) -> None:
        self._answerer, self._progress = answerer, progress
        self._classifier, self._request = classifier, request = answerer.classifier, answerer.request
        text_columns = request.text_columns or classifier.text_columns
        self._options = {name: getattr(request, name) for name in ANSWER_OPTIONS}
        self._options |= {"text_columns": text_columns, "engine": request.engine}
        if request.output_format in TABLES and classifier.gate is not None:
            self._options["answered_by"] = True  # tables of earlier versions lack the column: they are answered again
        self._asked_for = {
            "version": RECORD_VERSION,
            "model_sha256": classifier.sha256,
            "options_sha256": sha256(to_json(self._options)),
        }
        self.num_written = self.num_done = 0

    def do_all(self, parts: Sequence[_Part]) -> None:
        """Answer all parts that are not done, and wait for those that other processes answer."""
        done = [part for part in parts if self._is_done(part)]
        for part in done:
            self._progress.pass_over(part.source)
        self.num_done = len(done)
        if 0 < len(done) < len(parts):
            self._progress.note(f"{done[0].folder}: {len(done):,} of {counted(len(parts), 'file')} done before")
        # The lock of a part that is done was left by a process that was killed.
        parts = [part for part in parts if part not in done or part.lock.exists()]
        is_waiting = False
        while parts:
            held = [part for part in parts if not self._do(part)]
            if held and len(held) == len(parts):
                if not is_waiting:
                    self._progress.note(f"waiting for {counted(len(held), 'file')} that other processes are writing")
                is_waiting = True
                time.sleep(SECONDS_BETWEEN_TRIES)
            parts = held

    def is_asked_for(self, record: dict[str, Any]) -> bool:
        """Whether a record is of this model and these options."""
        return all(record.get(name) == value for name, value in self._asked_for.items())

    def _do(self, part: _Part) -> bool:
        """Answer a part if it is not done; False where another process is doing it."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(part.lock, wait=False))
                held.callback(part.lock.unlink, missing_ok=True)
            except LockedError:
                return False
            except EncoderClsError:  # no locks on this file system
                pass
            if not self._is_done(part):  # by whoever had the lock until now
                self._write(part)
        return True

    def _is_done(self, part: _Part) -> bool:
        record = _read_record(part.record)
        return (
            (record.get("input"), record.get("output")) == (part.source.name, part.output.name)
            and self.is_asked_for(record)
            and part.output.is_file()
            and record.get("input_sha256") == _hash_of(part.source)
            and record.get("output_sha256") == _hash_of(part.output)
        )

    def _write(self, part: _Part) -> None:
        old_record, texts_before = _read_record(part.record), self._answerer.num_texts
        state, input_sha256 = _state_of(part.source), _hash_of(part.source)
        source = Source.asked_for(self._request._replace(source=str(part.source)), self._classifier)
        source.look_ahead(self._request)
        source.progress = self._progress
        output_hash = hashlib.sha256()

        def content() -> Iterator[bytes]:
            for piece in written(source, self._answerer):
                output_hash.update(piece)
                yield piece
            if _state_of(part.source) != state:  # then nothing is written
                raise DataError(f"{part.source}: has changed while it was read; run the same command again")

        write_file(part.output, content())
        _remove_old_format(part, old_record)
        record = {
            "input": part.source.name,
            "input_sha256": input_sha256,
            **self._asked_for,
            "options": self._options,
            "engine": self._classifier.encoder.engine if self._classifier.encoder else "numpy",
            "rows": self._answerer.num_texts - texts_before,
            "output": part.output.name,
            "output_sha256": output_hash.hexdigest(),
        }
        write_file(part.record, to_json(record))
        self.num_written += 1
        self.num_done += 1


def _remove_old_format(part: _Part, old_record: dict[str, Any]) -> None:
    """Remove unchanged answers to the same part in another format, so that each row has one answer."""
    path = part.folder / Path(str(old_record.get("output"))).name
    if path.name == part.output.name or path.stem != part.source.stem:  # else of another part, in this one's place
        return
    with suppress(OSError):
        if path.is_file() and not path.is_symlink() and _hash_of(path) == old_record.get("output_sha256"):
            path.unlink()


def _read_record(path: Path) -> dict[str, Any]:
    """The content of a record; nothing where there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_bytes())
        return record if isinstance(record, dict) else {}
    return {}


def _hash_of(path: Path) -> str:
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_of(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file does, without reading it."""
    with reporting_os_errors(path, "read"):
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
