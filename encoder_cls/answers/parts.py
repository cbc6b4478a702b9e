"""Answer a folder of files part by part, resumable.

out/part-03.jsonl         the answers to part-03.csv, written as a whole
    out/_parts/part-03.json   of what they are: hashes of the input, the model, the options and the answers
    out/_parts/part-03.lock   held by the process that is at this part

A file of answers and its record are each replaced in one step, the record last, and a part counts as done where its
record fits what is asked for and the answers fit the record. So nothing depends on the lock: it only keeps processes
from doing a part twice. The kernel lets go of it however a process ends. Where a folder of the network has no locks
that other machines see, work may be done twice, and the answers are whole nevertheless.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_cls.answers.outputs import check_output_folder
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import TEMPORARY_PREFIX, reporting_os_errors, sha256, to_json, write_file
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from encoder_cls.answers.progress import Progress
    from encoder_cls.answers.request import Request
    from encoder_cls.data.rows import SourceLocation
    from encoder_cls.inference.classifier import Classifier

OLD = 3600.0  # seconds after which what another machine has begun to write is nobody's any more
READ_BYTES = 1 << 20


class Hashed(Iterable[bytes]):
    """Parts of a content, whose hash is known when all have been passed on."""

    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for part in self._content:
            self._hash.update(part)
            yield part

    def sha256(self) -> str:
        """Of what has been passed on."""
        return self._hash.hexdigest()


@contextmanager
def held(path: Path) -> Iterator[bool | None]:
    """Hold a lock: True where this process has it, False where another one has, None where there are no locks here."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield None
        return
    while True:
        with reporting_os_errors(path):
            lock = path.open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                yield False
                return
            except OSError:  # no locks on this file system
                yield None
                return
            if not _is_at(path, lock.fileno()):
                continue  # its former holder removed it in between
            try:
                yield True
            finally:
                with suppress(OSError):
                    path.unlink()
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def remove_begun(folders: Iterable[Path], mark: str, of_machine: str, *, is_alone: bool) -> None:
    """Remove what killed processes had begun to write.

    Args:
        folders: where.
        mark: what the temporary names begin with, see `write_file`.
        of_machine: what comes next in those of this machine.
        is_alone: whether this process holds the lock; then nobody on this machine is still writing it.
    """
    with suppress(OSError):
        for path in [path for folder in folders for path in folder.glob(f"{TEMPORARY_PREFIX}{mark}*")]:
            is_own = path.name.startswith(f"{TEMPORARY_PREFIX}{mark}{of_machine}")
            if (is_own and is_alone) or time.time() - path.stat().st_mtime > OLD:
                path.unlink()


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal.

    Raises:
        EncoderClsError: it cannot be read.
    """
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        found = hashlib.sha256()
        while block := file.read(READ_BYTES):
            found.update(block)
        return found.hexdigest()


def state_of(path: Path) -> tuple[int, ...]:
    """What changes when a file does, as far as it can be told without reading it.

    Raises:
        DataError: there is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


RECORDS = "_parts"  # by this beginning other programs know that it holds no data
RECORD_VERSION = 1
SECONDS_BETWEEN_TRIES = 0.5  # of parts that another process is at


@dataclass(frozen=True)
class Part:
    """A file of the input, and the folder in which the answers to it are one file.

    Attributes:
        source: the file.
        folder: of the answers.
        ending: of the answers' name.
    """

    source: Path
    folder: Path
    ending: str

    @property
    def output(self) -> Path:
        """The file with the answers."""
        return self.folder / f"{self.source.stem}.{self.ending}"

    @property
    def record(self) -> Path:
        """What the answers are of."""
        return self.folder / RECORDS / f"{self.source.stem}.json"

    @property
    def lock(self) -> Path:
        """Held by the process that is at this part."""
        return self.folder / RECORDS / f"{self.source.stem}.lock"


def new_parts(source: str, folder: Path, output_format: str, *, attention: Path | None, model: Path) -> list[Part]:
    """The parts of an input, once it is sure that all of them can be written.

    Raises:
        ConfigError: two would be written into one file, or what is read would be written to.
        DataError: the source names no files of texts.
    """
    from encoder_cls.data.sources import class_folders, data_files

    if output_format == "html":
        raise ConfigError(f"--output {folder}/: a page holds the first texts only; --format jsonl, for one, holds all")
    if attention:
        raise ConfigError("--attention: is of a few texts; leave it out, or name a file with --output")
    if class_folders(Path(source), is_labelled=False):
        raise ConfigError(f"--output {folder}/: {source} has a file for each text; name one file for all the answers")
    parts = [Part(file, folder, output_format) for file in data_files(source, is_labelled=False)]
    strange = next((part.source for part in parts if not part.source.is_file()), None)
    if strange:
        raise DataError(f"{strange}: is no plain file, as --output {folder}/ needs; name one file for all answers")
    by_name: dict[str, Part] = {}
    for part in parts:
        other = by_name.setdefault(part.source.stem.casefold(), part)  # some file systems know no capital letters
        if other is not part:
            raise ConfigError(
                f"{other.source} and {part.source}: the answers to both would be written to {part.output}; "
                "rename one of them"
            )
    outputs = [path for part in parts for path in (part.output, part.record)]
    check_output_folder(folder, outputs, sources=[source], model=model)
    return parts


def predict_parts(
    classifier: Classifier, parts: Sequence[Part], folder: Path, request: Request, *, engine: str
) -> None:
    """Answer all parts that are not done yet, also beside other processes that do the same; returns when all are done.

    Raises:
        DataError: a part is malformed; what is done stays.
        EncoderClsError: the disk refuses.
    """
    from encoder_cls.answers.files import expect_files
    from encoder_cls.answers.progress import Progress

    with reporting_os_errors(folder):
        (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    expect_files(classifier, [part.source for part in parts])  # of all, so that it does not depend on who does which
    with Progress([part.source for part in parts], doing="classified") as progress:
        work = _Work(classifier, request, engine, progress)
        _do_all(work, _in_own_order(parts))
    strange = next((part for part in parts if not work.is_asked_for(_read_record(part.record))), None)
    if strange:
        raise EncoderClsError(
            f"{strange.output}: another process has written it with another model or other options; "
            "let one end before the other begins, or give each a folder"
        )
    _warn_of_others(parts, folder)
    line = work.tally.line()
    if line:
        note(line)
    note(
        f"{folder}: {work.num_written:,} of {counted(len(parts), 'file')} written by this process "
        f"({counted(work.num_texts, 'text')}), {len(parts) - work.num_written:,} already there"
    )


def _do_all(work: _Work, parts: Sequence[Part]) -> None:
    has_told = False
    waiting = list(parts)
    while waiting:
        held = [part for part in waiting if not work.do(part)]
        if held and len(held) == len(waiting):
            if not has_told:
                work.progress.tell(f"waiting for {counted(len(held), 'file')} that other processes are writing")
                has_told = True
            time.sleep(SECONDS_BETWEEN_TRIES)
        waiting = held


def _in_own_order(parts: Sequence[Part]) -> list[Part]:
    """All parts, from another one on for each machine: so they share the work where they see no locks of each other."""
    first = int(sha256(platform.node().encode())[:8], 16) % len(parts)
    return [*parts[first:], *parts[:first]]


class _Work:
    """What is to be done to each part, and what has been done so far."""

    def __init__(self, classifier: Classifier, request: Request, engine: str, progress: Progress) -> None:
        # How fast it is done, and where, is no part of what is asked for.
        from encoder_cls.answers.files import new_tally

        options = {name: value for name, value in request._asdict().items() if name != "batch_tokens"}
        options |= {"text_columns": request.text_columns or classifier.text_columns, "engine": engine}
        self._classifier = classifier
        self._request = request
        self.tally = new_tally(classifier, request)
        self._asked_for = {
            "version": RECORD_VERSION,
            "model_sha256": classifier.sha256,
            "options_sha256": sha256(to_json(options)),
        }
        self._options = options
        self._hashes: dict[Path, tuple[tuple[int, ...], str]] = {}  # of inputs, as they were found
        self._rows = 0
        self.progress = progress
        self.num_written = 0
        self.num_texts = 0

    def do(self, part: Part) -> bool:
        """Answer a part if it is not done; whether it is done now, or else another process is at it."""
        if self._is_done(part):
            self.progress.pass_over(part.source)
            if part.lock.exists():
                with held(part.lock):  # whose holder was killed with its work done; what is let go of is removed
                    pass
            return True
        with held(part.lock) as is_ours:
            if is_ours is False:
                return False
            if not self._is_done(part):  # nor by whoever had it until now
                self._write(part, is_ours is True)
        return True

    def is_asked_for(self, record: dict[str, Any]) -> bool:
        """Whether a record is of this model and these options."""
        return all(record.get(name) == value for name, value in self._asked_for.items())

    def _is_done(self, part: Part) -> bool:
        record = _read_record(part.record)
        if not self.is_asked_for(record) or record.get("output") != part.output.name:
            return False
        if record.get("input") != part.source.name or record.get("input_sha256") != self._hash_of_input(part.source):
            return False
        return part.output.is_file() and record.get("output_sha256") == hash_of(part.output)

    def _hash_of_input(self, path: Path) -> str:
        state = state_of(path)
        known = self._hashes.get(path)
        if known is None or known[0] != state:
            known = self._hashes[path] = (state, hash_of(path))
        return known[1]

    def _write(self, part: Part, is_alone: bool) -> None:
        from encoder_cls.answers.files import AnsweredSource

        former = _read_record(part.record)
        input_sha256, state = self._hash_of_input(part.source), state_of(part.source)
        mark, of_machine = f"{sha256(part.source.stem.encode())[:12]}-", f"{sha256(platform.node().encode())[:12]}-"
        remove_begun([part.folder, part.record.parent], mark, of_machine, is_alone=is_alone)
        mark += of_machine
        answered = AnsweredSource(self._classifier, str(part.source), self._request, tally=self.tally)
        answered.tell = self.progress.tell
        answered.check(lambda _, __: None)
        self._rows = 0
        content = Hashed(answered.content(answered.read(self._count), warn=self.progress.tell))
        write_file(part.output, self._if_unchanged(content, part.source, state), mark=mark)
        _remove_former(part, former)
        record = {
            "input": part.source.name,
            "input_sha256": input_sha256,
            **self._asked_for,
            "options": self._options,
            "engine": self._classifier.encoder.engine if self._classifier.encoder else "numpy",
            "rows": self._rows,
            "output": part.output.name,
            "output_sha256": content.sha256(),
        }
        write_file(part.record, to_json(record), mark=mark)
        self.num_written += 1
        self.num_texts += self._rows

    def _count(self, where: SourceLocation, texts: int) -> None:
        self._rows += texts
        self.progress.done(where, texts)

    def _if_unchanged(self, content: Iterable[bytes], path: Path, state: tuple[int, ...]) -> Iterator[bytes]:
        """The content; an error at its end, so that it is not written, if the input is no longer what was hashed."""
        yield from content
        if state_of(path) != state:
            raise DataError(f"{path}: has changed while it was read; run the same command again")


def _remove_former(part: Part, former: dict[str, Any]) -> None:
    """Remove the answers to the same part in another format, unless somebody has changed them: a row is there once."""
    name = former.get("output")
    if not isinstance(name, str) or Path(name).name != name or name == part.output.name:
        return
    if Path(name).stem != part.source.stem:  # the record of another part, put in the place of this one's
        return
    path = part.folder / name
    with suppress(OSError):
        if path.is_file() and not path.is_symlink() and hash_of(path) == former.get("output_sha256"):
            path.unlink()


def _warn_of_others(parts: Sequence[Part], folder: Path) -> None:
    """Tell of answers to what is no longer there."""
    known = {part.record.name for part in parts}
    others = sorted(path.name for path in (folder / RECORDS).glob("*.json") if path.name not in known)
    if others:
        first = shown(others[0].removesuffix(".json"), limit=40)
        note(
            f"warning: {folder}: has answers to {counted(len(others), 'file')} not in the input, such as {first}; "
            f"remove what is not wanted, with its record in {RECORDS}/"
        )


def _read_record(path: Path) -> dict[str, Any]:
    """What a record says; nothing where there is none that can be read."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
