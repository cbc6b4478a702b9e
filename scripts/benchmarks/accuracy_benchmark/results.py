"""The file of results: one JSON line for each training, with all that it depends on."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from reporting import cpu_name, note, source_hash

import encoder_cls
from accuracy_benchmark.measure import Scores
from accuracy_benchmark.plan import Training

LIBRARIES = ("torch", "tokenizers", "scikit-learn", "scipy", "numpy", "fasttext-numpy2-wheel")
LAST_COMMIT, CHANGES = ("log", "-1", "--format=%H"), ("status", "--porcelain")  # of git
# All that scores depend on. What only orders the work or writes the page is not among it, so that it can be mended
# without measuring again.
PACKAGE, BENCHMARK = Path(encoder_cls.__file__ or "").parent, Path(__file__).parent
MEASURED_CODE = (
    PACKAGE,
    BENCHMARK.parent / "peers.py",
    *(BENCHMARK / f"{n}.py" for n in ("measure", "methods", "splits")),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one training reached, and where.

    Attributes:
        training: which it was.
        scores: what it reached.
        commit: of the code.
        data_hash: of the data files.
        cpu: the processor.
        threads: of the training.
        versions: of Python and the libraries.
        finished: when, in UTC.
    """

    training: Training
    scores: Scores
    commit: str
    data_hash: str
    cpu: str
    threads: int
    versions: Mapping[str, str]
    finished: str

    def to_line(self) -> str:
        """The result as a line of JSON without nesting, but for the versions."""
        own = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        return json.dumps({**asdict(self.training), **asdict(self.scores), **own}, ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The result of a line.

        Raises:
            ValueError: it is not one.
        """
        try:
            values: dict[str, Any] = json.loads(line)
            training = Training(**{field.name: values.pop(field.name) for field in fields(Training)})
            scores = Scores(**{field.name: values.pop(field.name) for field in fields(Scores)})
            return cls(training=training, scores=scores, **values)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no result: {error}") from error


Results = dict[Training, Result]


class ResultFile:
    """Results that are appended one at a time, by one process or by several at once.

    Args:
        path: of the file; it need not exist.
        commit: whose results are taken.
        any_commit: take those of any commit; of one training those of `commit` first, then the latest.
        data_hashes: of each data set; results of other files are left out.
    """

    def __init__(self, path: Path, *, commit: str, any_commit: bool, data_hashes: Mapping[str, str]) -> None:
        self._path, self._commit, self._any_commit = path, commit, any_commit
        self._data_hashes = data_hashes

    def read(self, *, quietly: bool = False) -> Results:
        """The results that can be used; on request without a word of those that cannot.

        Raises:
            SystemExit: a line is no result; one that was cut off at the end is passed over.
        """
        found: Results = {}
        left_out: Counter[str] = Counter()
        for result in self._lines(quietly=quietly):
            if result.data_hash != self._data_hashes.get(result.training.data, result.data_hash):
                left_out[f"of other files of {result.training.data}"] += 1
            elif result.commit != self._commit and not self._any_commit:
                left_out[f"of commit {result.commit}, not {self._commit} (--any-commit takes them)"] += 1
            elif result.commit == self._commit or getattr(found.get(result.training), "commit", "") != self._commit:
                found[result.training] = result
        for reason, number in () if quietly else left_out.items():
            note(f"{self._path}: left out {number} result(s) {reason}")
        return found

    def append(self, result: Result) -> None:
        """Add a line, durably."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            is_cut_off = end and os.pread(file.fileno(), 1, end - 1) != b"\n"
            file.write((("\n" if is_cut_off else "") + result.to_line() + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def claim(self, training: Training) -> Iterator[bool]:
        """Whether this process may make a training: no other one is at it, or has made it meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f"{self._path.name}.lock").open("wb") as locks:
            try:  # a byte of the lock file, which is empty, stands for each training
                fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(str(training).encode()))
            except OSError:
                yield False
            else:
                yield training not in self.read(quietly=True)

    def _lines(self, *, quietly: bool) -> Sequence[Result]:
        lines = self._path.read_text(encoding="utf-8").split("\n") if self._path.exists() else []
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                found += [Result.from_line(line)] if line else []
            except ValueError as error:
                if not line.startswith("{") or line.endswith("}"):
                    raise SystemExit(f"{self._path}:{number}: {error}") from error
                if not quietly:
                    note(f"{self._path}:{number}: passed over, cut off")
        return found


def finished(
    training: Training, scores: Scores, *, commit: str, data_hashes: Mapping[str, str], threads: int
) -> Result:
    """A result of this machine and this moment."""
    return Result(
        training=training,
        scores=scores,
        commit=commit,
        data_hash=data_hashes[training.data],
        cpu=cpu_name(),
        threads=threads,
        versions=versions(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@cache
def versions() -> Mapping[str, str]:
    """Of Python and of the libraries that are installed."""
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code_version(paths: Sequence[Path] = MEASURED_CODE) -> str:
    """The last commit that changed any of these files or folders, or a hash of the sources where that is not all."""
    sources = sorted(source for path in paths for source in (path.rglob("*.py") if path.is_dir() else [path]))
    names = [str(path) for path in paths]
    commit, changes = (_git(paths[0].parent, *command, "--", *names) for command in (LAST_COMMIT, CHANGES))
    if commit and not changes:
        return commit[:10]
    return f"{commit[:10]} with changes {source_hash(sources)[:8]}" if commit else f"source {source_hash(sources)[:10]}"


def _git(folder: Path, *arguments: str) -> str:
    """What git says; nothing where there is no git, or no checkout."""
    try:
        ended = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
