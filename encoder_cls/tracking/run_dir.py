"""The run folder, and how a classifier is scored beside what its linear part answered before it learned the answers.

config.yaml     the resolved config, with absolute paths of the data
model/          the portable classifier with the best validation score
checkpoints/    training state to resume from
validation_logits.safetensors   the linear classifier's, from before it learned from these texts
metrics.jsonl   every logged number
eval/           report, predictions, mistakes, plot of the confusion matrix
sources.json    the places of its data and its base run, for programs without a reader of YAML
events.out.tfevents.*, projector_config.pbtxt, tensorboard/   what TensorBoard shows
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.inference.classifier import Classifier, Numbers
from encoder_cls.inference.encoder.numpy import NumpyEncoder
from encoder_cls.inference.folder import load_classifier
from encoder_cls.inference.linear import EVIDENCE_NUMBERS
from encoder_cls.inference.task import Logits
from encoder_cls.system.files import (
    TEMPORARY_PREFIX,
    LockedError,
    locked,
    remove_leftovers,
    reporting_os_errors,
    to_json,
    write_file,
)
from encoder_cls.text.token_arrays import UNK_ID, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.config import Config

SOURCES = ("train", "validation", "test", "unlabelled", "corrections")
LOCK_FILE = ".lock"
SOURCES_FILE = "sources.json"
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
CACHE_KEY = "data.cache"  # where it is changes nothing
EVENT_FILES = "events.out.tfevents.*"
PROJECTOR_FOLDER = "tensorboard"
# The tensors of validation logits: (texts, classes), (texts, `EVIDENCE_NUMBERS`), and the hash of each text.
LOGITS, EVIDENCE, TEXTS = "linear", "evidence", "texts"


class RunDir:
    """A run folder, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"  # a folder with it is a run
        self.sources_file = path / SOURCES_FILE
        self.model = path / "model"
        self.weights = self.model / "model.safetensors"  # the last file of the classifier that is written
        self.model_card = self.model / "README.md"  # the last file that training writes: the run is complete
        self.stages = path / "stages"  # a classifier for each stage before the last, while they are needed
        self.checkpoints = path / "checkpoints"
        self.validation_logits = path / "validation_logits.safetensors"
        self.metrics_file = path / "metrics.jsonl"
        self.eval = path / "eval"
        self.tensorboard = path / PROJECTOR_FOLDER
        self._is_held = False

    @property
    def event_files(self) -> list[Path]:
        """The files that TensorBoard reads: it calls a run as their folder is called."""
        return sorted(self.path.glob(EVENT_FILES))

    def is_run(self) -> bool:
        """Whether a run was started here."""
        return self.config_file.is_file()

    def is_finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.model_card.is_file()

    def load_config(self) -> Config:
        """The config that the run was started with; `ConfigError` if it cannot be read."""
        from encoder_cls.config import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` where training here would overwrite something."""
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
        elif self.path.is_dir():
            names = {path.name for path in self.path.iterdir()} - {LOCK_FILE, SOURCES_FILE}
            if not all(name.startswith(TEMPORARY_PREFIX) for name in names):  # which a killed process may have left
                raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def _changed(self, config: Config) -> list[str]:
        """The values in which a config differs from the run's; data that is no longer there may be elsewhere now."""
        from encoder_cls.config import absolute_sources, source_exists

        started = absolute_sources(self.load_config())
        values, others = dotted_values(started), dotted_values(absolute_sources(config))
        changed = sorted(name for name in values.keys() | others.keys() if values.get(name) != others.get(name))
        moved = {f"data.{key}" for key, source in started.data if isinstance(source, str) and not source_exists(source)}
        return [name for name in changed if name != CACHE_KEY and not (name in DATA_KEYS and name in moved)]

    def record_sources(self, config: Config) -> None:
        """Write the places of the data, once it has proved to be that of the run."""
        from encoder_cls.config import absolute_sources

        located = absolute_sources(config)
        if not (self.is_run() and self.sources_file.exists()) or located != self.load_config():
            data = located.data.model_dump()
            sources = [data[key] for key in SOURCES if data[key]]
            write_file(self.sources_file, to_json({"data": sources, "from_run": located.from_run}))
            write_file(self.config_file, located.to_yaml().encode())  # the last: a folder with it is a run

    def data_sources(self) -> list[str]:
        """The places of the run's data, as far as they can be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return [str(source) for source in json.loads(self.sources_file.read_bytes())["data"]]
        return []

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
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path / LOCK_FILE, wait=False))
            except LockedError as error:
                raise LockedError(f"{self.path}: {error} is training here") from None
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

    @contextmanager
    def open_for_training(self, config: Config, *, resume: bool) -> Iterator[None]:
        """Hold the folder, write the config into it, and remove what killed processes left half written.

        Errors are those of `check_trainable` and `lock`.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            self.check_trainable(config, resume=resume)  # another process may have been here in between
            for folder in (self.path, self.model, self.checkpoints, self.eval, *self.stages.glob("*")):
                remove_leftovers(folder)
            if not self.is_run():
                self.record_sources(config)
            yield


def run_of(path: Path) -> RunDir | None:
    """The run of a run or model folder; None of a model folder by itself.

    Any program may have a config.yaml beside a model: a run has metrics as well.
    """
    run, parent = RunDir(path), RunDir(path.resolve().parent)
    if run.is_run() and run.metrics_file.is_file():
        return run
    is_model = parent.model.resolve() == path.resolve()
    return parent if is_model and parent.is_run() and parent.metrics_file.is_file() else None


def newest_with_model(runs: Path) -> RunDir:
    """The run under a folder of runs whose model was written last, finished or not; `ConfigError` without one."""
    with_model = [run for path in runs.glob("*") if (run := RunDir(path)).weights.is_file()]
    if not with_model:
        raise ConfigError(f"no run with a model in {runs.resolve()}; train one, or name a model with --model")
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl`; anything else, such as a last line that a crash cut short, is left out."""
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_text(encoding="utf-8") if metrics_file.exists() else ""
    rows = []
    for line in content.split("\n"):  # `splitlines` would cut at characters that a class name may hold, too
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def dotted_values(config: Config) -> dict[str, Any]:
    """All values of a config by dotted key."""

    def of(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in values.items():
            if isinstance(value, dict):
                yield from of(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    return dict(of(config.model_dump(mode="json"), ""))


class ValidationLogits:
    """The logits of texts, (texts, classes), from before the linear classifier learned from them.

    Its answers to them are no measure of new texts any more, so these are kept in the run's folder, by the hashes of
    what the classifier reads of the texts, (texts,).
    """

    def __init__(self, logits: Logits, hashes: NDArray[np.uint64], evidence: Numbers | None) -> None:
        self.logits, self._hashes, self._evidence = logits, hashes, evidence
        self._rows = {number: row for row, number in enumerate(hashes.tolist())}

    @classmethod
    def of(cls, texts: TokenizedTexts, logits: Logits, numbers: Numbers | None) -> ValidationLogits:
        """Keep those of texts with the evidence among their numbers; without any it does not count."""
        evidence = np.zeros((len(texts), EVIDENCE_NUMBERS)) if numbers is None else numbers[:, :EVIDENCE_NUMBERS]
        return cls(logits, _hashes(texts), evidence)

    @classmethod
    def read(cls, path: Path) -> ValidationLogits:
        """Read them from a file; `EncoderClsError` if it cannot be read."""
        try:
            tensors = safetensors.numpy.load_file(path)
            return cls(tensors[LOGITS], tensors[TEXTS], tensors.get(EVIDENCE))
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None

    def write(self, path: Path) -> None:
        """Write them, durably and at once."""
        evidence = {} if self._evidence is None else {EVIDENCE: self._evidence}
        write_file(path, safetensors.numpy.save({LOGITS: self.logits, TEXTS: self._hashes, **evidence}))

    def in_place_of(
        self, logits: Logits, numbers: Numbers | None, texts: TokenizedTexts
    ) -> tuple[Logits, Numbers | None]:
        """Replace the logits and the evidence of those texts that the linear classifier has learned from."""
        rows = np.array([self._rows.get(number, -1) for number in _hashes(texts).tolist()], dtype=np.int64)
        is_kept = (rows >= 0)[:, None]
        if numbers is not None and self._evidence is not None:
            evidence = np.where(is_kept, self._evidence[rows], numbers[:, :EVIDENCE_NUMBERS])
            numbers = np.hstack([evidence, numbers[:, EVIDENCE_NUMBERS:]])
        return np.where(is_kept, self.logits[rows], logits), numbers


def classifier_to_score(path: Path, *, device: str = "auto") -> Classifier:
    """Load a run's (or model folder's) classifier to score, compare or judge labels, with the engine for many texts.

    Its `part_logits` of validation texts are from before it learned their labels.

    Raises:
        ConfigError: there is no classifier.
        EncoderClsError: the folder is damaged, or has no such logits of these classes.
    """
    classifier, run = load_classifier(path, device=device), run_of(path)
    if isinstance(classifier.encoder, NumpyEncoder):
        classifier.encoder = classifier.encoder.torch()
    if classifier.linear and run and run.validation_logits.exists():
        kept = ValidationLogits.read(run.validation_logits)
        if kept.logits.shape[1:] != (len(classifier.label_names),):
            raise EncoderClsError(f"{run.validation_logits}: is of other classes than the model; train again")
        classifier.before_refit = kept.in_place_of
    return classifier


def _hashes(texts: TokenizedTexts) -> NDArray[np.uint64]:
    """Hash what is read of each text: the ids of its tokens, and of unknown ones the character n-grams."""
    numbers, ngrams = texts.word_ids.astype(np.int64), texts.char_ngrams
    for word in np.flatnonzero(texts.word_ids == UNK_ID):
        of_word = ngrams.ngrams[ngrams.offsets[word] : ngrams.offsets[word + 1]]
        numbers[word] = -1 - int.from_bytes(blake2b(of_word.tobytes(), digest_size=7).digest(), "little")
    pieces = (numbers[texts.words[a:b]] for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True))
    digests = b"".join(blake2b(piece.tobytes(), digest_size=8).digest() for piece in pieces)
    return np.frombuffer(digests, dtype="<u8")
