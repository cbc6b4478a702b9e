"""The run folder.

Training writes each value of the section `data` on a line of its own, in PyYAML's block style; a long one goes on in
lines that are indented further. What a person has written in another style is not found.

What it answers to them now says nothing of new texts, so these logits are kept in the run's folder. Whatever scores,
compares or judges labels loads the classifier by `classifier_to_score`, which goes by them.

config.yaml     the resolved config, with absolute paths of the data
model/          the portable classifier with the best validation score
checkpoints/    training state to resume from
validation_logits.safetensors   the linear classifier's from before it has learned from these texts
metrics.jsonl   every logged number
eval/           report, predictions, mistakes, plot of the confusion matrix
events.out.tfevents.*, projector_config.pbtxt, tensorboard/   what TensorBoard shows
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import torch_encoder
from encoder_cls.inference.folder import load_classifier
from encoder_cls.inference.task import Logits
from encoder_cls.system.files import TEMPORARY_PREFIX, remove_leftovers, reporting_os_errors, write_file
from encoder_cls.text.tokens import UNK_ID, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.config import Config

SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
SECTION = re.compile(r"^data:\n((?: .*\n|\n)+)", re.MULTILINE)
VALUE = re.compile(r"^  (\w+): +(.+(?:\n(?:   .*)?)*)$", re.MULTILINE)
ESCAPES = re.compile(r"\\(x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8}|.)")
NAMED: Mapping[str, str] = {
    **{"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"},
    **{"N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"},
}


def written_sources(config_file: Path) -> list[str]:
    """The data that a run was started with, as far as it can be found."""
    try:
        text = config_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    section = SECTION.search(text)
    values = VALUE.findall(section[1]) if section else []
    return [_text(value) for name, value in values if name in SOURCES and value.strip() != "null"]


def _text(scalar: str) -> str:
    """The text of a scalar in any of YAML's three styles."""
    if scalar[0] == '"':
        return ESCAPES.sub(_character, re.sub(r"\\\n +(?:\\(?= ))?", "", scalar.strip()[1:-1]))
    lines = re.sub(r"\n +", "\n", scalar.strip())
    # A line break inside a scalar is a space, and an empty line a line break.
    folded = re.sub(r"\n+", lambda found: "\n" * (len(found[0]) - 1) or " ", lines)
    return folded[1:-1].replace("''", "'") if folded[0] == "'" else folded


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else NAMED.get(code, code)


LOGITS, TEXTS = "linear", "texts"  # the tensors: (texts, classes), and the hash of each text


class ValidationLogits:
    """The kept logits, found by what the classifier reads of a text.

    Args:
        logits: (texts, classes).
        hashes: of the texts, (texts,).
    """

    def __init__(self, logits: Logits, hashes: NDArray[np.uint64]) -> None:
        self.logits = logits
        self._rows = {number: row for row, number in enumerate(hashes.tolist())}

    def in_place_of(self, logits: Logits, texts: TokenizedTexts) -> Logits:
        """Replace the logits of those texts that the linear classifier has learned from."""
        rows = np.array([self._rows.get(number, -1) for number in _hashes(texts).tolist()], dtype=np.int64)
        return np.where((rows >= 0)[:, None], self.logits[rows], logits)


def classifier_to_score(path: Path, *, device: str = "auto") -> Classifier:
    """Load a run's (or model folder's) classifier to score it, with the engine for many texts.

    Its `part_logits` of validation texts are from before it learned their labels.

    Raises:
        ConfigError: there is no classifier.
        EncoderClsError: the folder is damaged, or has no such logits of these classes.
    """
    classifier, run = load_classifier(path, device=device), run_of(path)
    if classifier.encoder:
        classifier.encoder = torch_encoder(classifier)
    if classifier.linear and run and run.validation_logits.exists():
        kept = read_validation_logits(run.validation_logits)
        if kept.logits.shape[1:] != (len(classifier.label_names),):
            raise EncoderClsError(f"{run.validation_logits}: is of other classes than the model; train again")
        classifier.before_refit = kept.in_place_of
    return classifier


def write_validation_logits(path: Path, logits: Logits, texts: TokenizedTexts) -> None:
    """Write the logits of texts, durably and at once."""
    write_file(path, safetensors.numpy.save({LOGITS: logits, TEXTS: _hashes(texts)}))


def read_validation_logits(path: Path) -> ValidationLogits:
    """Read the logits.

    Raises:
        EncoderClsError: the file cannot be read.
    """
    try:
        tensors = safetensors.numpy.load_file(path)
        return ValidationLogits(tensors[LOGITS], tensors[TEXTS])
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None


def _hashes(texts: TokenizedTexts) -> NDArray[np.uint64]:
    """Hash of each text what is read of it: the ids of its tokens, and of unknown ones the character n-grams."""
    numbers, ngrams = texts.word_ids.astype(np.int64), texts.char_ngrams
    for word in np.flatnonzero(texts.word_ids == UNK_ID):
        of_word = ngrams.ngrams[ngrams.offsets[word] : ngrams.offsets[word + 1]]
        numbers[word] = -1 - int.from_bytes(blake2b(of_word.tobytes(), digest_size=7).digest(), "little")
    pieces = (numbers[texts.words[a:b]] for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True))
    digests = b"".join(blake2b(piece.tobytes(), digest_size=8).digest() for piece in pieces)
    return np.frombuffer(digests, dtype="<u8")


LOCK_FILE = ".lock"
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
CACHE_KEY = "data.cache"  # where it is changes nothing
EVENT_FILES = "events.out.tfevents.*"


class LockedError(EncoderClsError):
    """Another process trains in the folder of a run."""


@dataclass
class RunDir:
    """A run folder, which need not exist yet."""

    path: Path
    _is_held: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def config_file(self) -> Path:
        """The resolved config; a folder with this file is a run."""
        return self.path / "config.yaml"

    @property
    def model(self) -> Path:
        """The portable classifier."""
        return self.path / "model"

    @property
    def weights(self) -> Path:
        """The last file of the classifier that is written, and the only one that changes as training finds better."""
        return self.model / "model.safetensors"

    @property
    def model_card(self) -> Path:
        """The last file that training writes, and so the sign that a run is complete."""
        return self.model / "README.md"

    @property
    def stages(self) -> Path:
        """A portable classifier for each stage before the last, while they are needed."""
        return self.path / "stages"

    def stage(self, name: str) -> Path:
        """That of one stage."""
        return self.stages / name

    @property
    def checkpoints(self) -> Path:
        """Training state."""
        return self.path / "checkpoints"

    @property
    def validation_logits(self) -> Path:
        """The linear classifier's logits of the validation texts, from before it has learned from them."""
        return self.path / "validation_logits.safetensors"

    @property
    def metrics_file(self) -> Path:
        """Every logged number, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def eval(self) -> Path:
        """Reports."""
        return self.path / "eval"

    @property
    def tensorboard(self) -> Path:
        """What TensorBoard's projector shows."""
        return self.path / "tensorboard"

    @property
    def event_files(self) -> list[Path]:
        """What TensorBoard reads: directly in the run's folder, since it calls a run as the folder is called."""
        return sorted(self.path.glob(EVENT_FILES))

    def is_run(self) -> bool:
        """Whether a run has begun here."""
        return self.config_file.is_file()

    def is_finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.model_card.is_file()

    def load_config(self) -> Config:
        """The config that the run was started with.

        Raises:
            ConfigError: it cannot be read.
        """
        from encoder_cls.config import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Make sure that training here would overwrite nothing.

        Raises:
            ConfigError: what is in the way, and what to do.
        """
        if self.is_run():
            if not resume:
                raise ConfigError(
                    f"{self.path}: already holds a run; add --resume to go on with it, or choose another --run-dir"
                )
            changed = self._changed(config)
            if changed:
                again = f"train --run-dir {quote(str(self.path))} --resume"
                raise ConfigError(
                    f"{self.config_file}: the run was started with another {', '.join(changed)}; without --config and "
                    f"--set it goes on as it was ({again}), or choose another --run-dir"
                )
        elif self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file; choose another --run-dir")
        elif self.path.is_dir() and any(not _is_ours(path) for path in self.path.iterdir()):
            raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def _changed(self, config: Config) -> list[str]:
        """The values in which a config differs from the run's; data that is no longer there may be elsewhere now."""
        from encoder_cls.config import is_there, with_absolute_sources

        begun = with_absolute_sources(self.load_config())
        changed = _differences(begun.model_dump(), with_absolute_sources(config).model_dump())
        moved = {f"data.{key}" for key, source in begun.data if isinstance(source, str) and not is_there(source)}
        return [name for name in changed if name != CACHE_KEY and not (name in DATA_KEYS and name in moved)]

    def record_sources(self, config: Config) -> None:
        """Write where the data is, once it has proved to be that of the run.

        Raises:
            EncoderClsError: the disk refuses.
        """
        from encoder_cls.config import with_absolute_sources

        located = with_absolute_sources(config)
        if located != self.load_config():
            write_file(self.config_file, located.to_yaml().encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the kernel lets go of it however the process ends.

        May be entered again within itself. A folder that was made for this and is still empty at the end is removed.

        Raises:
            LockedError: another process trains here.
            EncoderClsError: the disk refuses.
        """
        if self._is_held:
            yield
            return
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with reporting_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock()
        with lock:
            with reporting_os_errors(self.path / LOCK_FILE):
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), f"process {os.getpid()}".encode())
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                with suppress(OSError):
                    if [path.name for path in self.path.iterdir()] == [LOCK_FILE]:
                        (self.path / LOCK_FILE).unlink()
                    for folder in made:
                        folder.rmdir()

    def _lock(self) -> TextIO:
        import fcntl  # not on Windows, where one can still predict

        path = self.path / LOCK_FILE
        while True:
            lock = path.open("a+")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                    return lock
                lock.close()  # its former holder removed it in between
            except BlockingIOError:
                with lock:
                    lock.seek(0)
                    holder = lock.read().strip() or "another process"
                raise LockedError(f"{self.path}: {holder} is training here") from None

    @contextmanager
    def open_for_training(self, config: Config, *, resume: bool) -> Iterator[None]:
        """Hold the folder, write the config into it, and remove what killed processes left half written.

        Raises:
            ConfigError: as `check_trainable`.
            EncoderClsError: as `lock`.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            self.check_trainable(config, resume=resume)  # another process may have been here in between
            for folder in (self.path, self.model, self.checkpoints, self.eval, *self.stages.glob("*")):
                remove_leftovers(folder)
            if not self.is_run():
                from encoder_cls.config import with_absolute_sources

                write_file(self.config_file, with_absolute_sources(config).to_yaml().encode())
            yield


def _is_ours(path: Path) -> bool:
    """Whether a file may be in a run folder before its config, left there by a process that was killed."""
    return path.name == LOCK_FILE or path.name.startswith(TEMPORARY_PREFIX)


def run_of(path: Path) -> RunDir | None:
    """The run whose folder, or whose model folder, this is; none of a model folder that stands by itself."""
    run, parent = RunDir(path), RunDir(path.resolve().parent)
    if run.is_run() and run.metrics_file.is_file():
        return run
    if parent.model.resolve() != path.resolve() or not parent.is_run():
        return None
    try:
        parent.load_config()
    except ConfigError:  # any program may have a config.yaml beside the model
        return None
    except ImportError:  # what only predicts cannot read it
        return parent if parent.metrics_file.is_file() else None
    return parent


def newest_with_model(runs: Path) -> RunDir:
    """The run under a folder of runs whose model was written last, be the run finished or not.

    Raises:
        ConfigError: there is none.
    """
    with_model = [run for path in runs.glob("*") if (run := RunDir(path)).weights.is_file()]
    if not with_model:
        raise ConfigError(f"no run with a model in {runs.resolve()}; train one, or name a model with --model")
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def _differences(left: dict[str, Any], right: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted names of the values in which two dumped configs differ."""
    names = []
    for key in left.keys() | right.keys():
        one, other = left.get(key), right.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            names += _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            names.append(prefix + key)
    return sorted(names)
