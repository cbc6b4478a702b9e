"""The run folder, and the logits from before a linear classifier was refitted with the validation texts.

config.yaml     the resolved config, with absolute paths of the data
model/          the portable classifier with the best validation score
checkpoints/    training state to resume from
validation_logits.safetensors   see `ValidationLogits`
metrics.jsonl   every logged number
eval/           report, predictions, mistakes, plot of the confusion matrix
sources.json    the paths of the data and of the base run, for programs without a YAML parser
events.out.tfevents.*, projector_config.pbtxt, tensorboard/   files of TensorBoard
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, Numbers
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder.numpy_encoder import NumpyEncoder
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.linear.linear_model import EVIDENCE_NUMBERS
from encoder_cls.metrics.logits import Logits
from encoder_cls.system.files import (
    TEMPORARY_PREFIX,
    locked,
    remove_leftovers,
    reporting_os_errors,
    to_json,
    write_file,
)
from encoder_cls.text.tokens import UNK_ID, TokenizedTexts

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config

LOCK_FILE = ".lock"
SOURCES_FILE = "sources.json"
DATA_KEYS = ("data.train", "data.validation", "data.test", "data.unlabelled")
CACHE_KEY = "data.cache"  # its place changes nothing
PROJECTOR_FOLDER = "tensorboard"
LOGITS, EVIDENCE, TEXTS = (
    "linear",
    "evidence",
    "texts",
)  # the tensors of validation logits in their file


class RunDir:
    """A run folder, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"  # a folder with it is a run
        self.sources_file = path / SOURCES_FILE
        self.model = path / "model"
        self.weights = self.model / "model.safetensors"  # written last of the classifier
        self.model_card = self.model / "README.md"  # written last of all: the run is complete
        self.stages = (
            path / "stages"
        )  # the best classifier of each stage but the last, until the run ends
        self.checkpoints = path / "checkpoints"
        self.validation_logits = path / "validation_logits.safetensors"
        self.metrics_file = path / "metrics.jsonl"
        self.eval = path / "eval"
        self.tensorboard = path / PROJECTOR_FOLDER
        self._is_held = False

    @property
    def event_files(self) -> list[Path]:
        """The files that TensorBoard reads; it names the run after their folder."""
        return sorted(self.path.glob("events.out.tfevents.*"))

    def is_run(self) -> bool:
        """Whether a run was started here."""
        return self.config_file.is_file()

    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return self.model_card.is_file()

    def load_config(self) -> Config:
        """Load the config that the run was started with; `ConfigError` if it cannot be read."""
        from encoder_cls.config.loading import load_config

        return load_config(self.config_file)

    def check_trainable(self, config: Config, *, resume: bool) -> None:
        """Raise a `ConfigError` if training in this folder would overwrite something."""
        if self.is_run():
            if not resume:
                raise ConfigError(
                    f"{self.path}: already holds a run; add --resume to go on with it, or choose another --run-dir"
                )
            if changed := self._changed(config):
                again = f"train --run-dir {quote(str(self.path))} --resume"
                raise ConfigError(
                    f"{self.config_file}: the run was started with another {', '.join(changed)}; without --config and "
                    f"--set it goes on as it was ({again}), or choose another --run-dir"
                )
        elif self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file; choose another --run-dir")
        elif self.path.is_dir():
            names = {path.name for path in self.path.iterdir()} - {LOCK_FILE, SOURCES_FILE}
            if not all(
                name.startswith(TEMPORARY_PREFIX) for name in names
            ):  # left by a killed process
                raise ConfigError(f"{self.path}: holds other files; choose another --run-dir")

    def _changed(self, config: Config) -> list[str]:
        """The keys whose values differ from those of the run; data that is gone may have another path now."""
        from encoder_cls.config.loading import absolute_sources, source_exists

        started = absolute_sources(self.load_config())
        values, others = dotted_values(started), dotted_values(absolute_sources(config))
        changed = sorted(
            name for name in values.keys() | others.keys() if values.get(name) != others.get(name)
        )
        moved = {
            f"data.{key}"
            for key, source in started.data
            if isinstance(source, str) and not source_exists(source)
        }
        return [
            name
            for name in changed
            if name != CACHE_KEY and not (name in DATA_KEYS and name in moved)
        ]

    def record_sources(self, config: Config) -> None:
        """Write the config and the paths of the data, which the caller has compared with the data of the run."""
        from encoder_cls.config.loading import absolute_sources

        located = absolute_sources(config)
        if not (self.is_run() and self.sources_file.exists()) or located != self.load_config():
            sources = {"data": self._sources(located), "from_run": located.from_run}
            write_file(self.sources_file, to_json(sources))
            write_file(
                self.config_file, located.to_yaml().encode()
            )  # the last: a folder with it is a run

    def data_sources(self) -> list[str]:
        """The paths of the run's data; none if they cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self.is_run() and not self.sources_file.exists():  # a run of an earlier version
                with suppress(ConfigError, ImportError):
                    return self._sources(self.load_config())
            return [str(source) for source in json.loads(self.sources_file.read_bytes())["data"]]
        return []

    @staticmethod
    def _sources(config: Config) -> list[str]:
        from encoder_cls.config.loading import SOURCES

        data = config.data.model_dump()
        return [data[key] for key in SOURCES if data[key]]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process; the system releases the lock however the process ends.

        May be nested. Folders made for the lock are removed if nothing else was written into them.

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
        with locked(self.path / LOCK_FILE, wait=False, doing="training"):
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
        """Lock the folder, write the config into it, and remove files that a killed process left unfinished.

        Raises the errors of `check_trainable` and `lock`.
        """
        self.check_trainable(config, resume=resume)
        with self.lock():
            self.check_trainable(
                config, resume=resume
            )  # another process may have trained here meanwhile
            for folder in (
                self.path,
                self.model,
                self.checkpoints,
                self.eval,
                *self.stages.glob("*"),
            ):
                remove_leftovers(folder)
            if not self.is_run():
                self.record_sources(config)
            yield


def run_of(path: Path) -> RunDir | None:
    """The run of a run folder or of its model folder; None for other model folders.

    A run has metrics, too: other programs may have a config.yaml beside a model.
    """
    run, parent = RunDir(path), RunDir(path.resolve().parent)
    if run.is_run() and run.metrics_file.is_file():
        return run
    is_model = parent.model.resolve() == path.resolve()
    return parent if is_model and parent.is_run() and parent.metrics_file.is_file() else None


def newest_with_model(runs: Path) -> RunDir:
    """The run with the newest model in a folder of runs, finished or not; `ConfigError` if none has a model."""
    with_model = [run for path in runs.glob("*") if (run := RunDir(path)).weights.is_file()]
    if not with_model:
        raise ConfigError(
            f"no run with a model in {runs.resolve()}; train one, or name a model with --model"
        )
    return max(with_model, key=lambda run: run.weights.stat().st_mtime_ns)


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """Read the rows of `metrics.jsonl`, except lines that are not rows, such as a last one cut by a crash."""
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_text(encoding="utf-8") if metrics_file.exists() else ""
    rows = []
    for line in content.split(
        "\n"
    ):  # `splitlines` would cut at characters that a class name may hold, too
        with suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def dotted_values(config: Config) -> dict[str, Any]:
    """All values of a config by dotted key."""

    def dotted(values: dict[str, Any], prefix: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in values.items():
            flat |= (
                dotted(value, f"{prefix}{key}.")
                if isinstance(value, dict)
                else {prefix + key: value}
            )
        return flat

    return dotted(config.model_dump(mode="json"), "")


class ValidationLogits(NamedTuple):
    """The linear classifier's logits of validation texts, from before it was refitted with these texts.

    Afterwards its answers to them say nothing about new texts. A text is identified by the hash of what the classifier
    reads of it.
    """

    logits: Logits  # (texts, classes)
    hashes: NDArray[np.uint64]  # (texts,)
    evidence: Numbers  # (texts, `EVIDENCE_NUMBERS`)

    @classmethod
    def of(cls, texts: TokenizedTexts, logits: Logits, numbers: Numbers | None) -> ValidationLogits:
        """Keep the logits of texts, and the evidence among their numbers; zeros, which do not count, if None."""
        evidence = (
            np.zeros((len(texts), EVIDENCE_NUMBERS))
            if numbers is None
            else numbers[:, :EVIDENCE_NUMBERS]
        )
        return cls(logits, _hashes(texts), evidence)

    @classmethod
    def read(cls, path: Path) -> ValidationLogits:
        """Read a file; `EncoderClsError` if it cannot be read."""
        try:
            tensors = safetensors.numpy.load_file(path)
            without = np.zeros(
                (len(tensors[LOGITS]), EVIDENCE_NUMBERS)
            )  # an older file has no evidence
            return cls(tensors[LOGITS], tensors[TEXTS], tensors.get(EVIDENCE, without))
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise EncoderClsError(f"{path}: cannot be read ({error}); train again") from None

    def write(self, path: Path) -> None:
        """Write a file durably and atomically."""
        write_file(
            path,
            safetensors.numpy.save(
                {LOGITS: self.logits, TEXTS: self.hashes, EVIDENCE: self.evidence}
            ),
        )

    def in_place_of(
        self, logits: Logits, numbers: Numbers | None, texts: TokenizedTexts
    ) -> tuple[Logits, Numbers | None]:
        """Replace the logits and the evidence of those texts that the linear classifier was refitted with."""
        known = {number: row for row, number in enumerate(self.hashes.tolist())}
        rows = np.array(
            [known.get(number, -1) for number in _hashes(texts).tolist()], dtype=np.int64
        )
        is_kept = (rows >= 0)[:, None]
        if numbers is not None:
            evidence = np.where(is_kept, self.evidence[rows], numbers[:, :EVIDENCE_NUMBERS])
            numbers = np.hstack([evidence, numbers[:, EVIDENCE_NUMBERS:]])
        return np.where(is_kept, self.logits[rows], logits), numbers


def classifier_to_score(path: Path, *, device: str = "auto") -> Classifier:
    """Load the classifier of a run or model folder for scoring, with the engine that is fast for many texts.

    Its `part_logits` of validation texts are from before it was refitted with them.

    Raises:
        ConfigError: the folder has no classifier.
        EncoderClsError: the folder is damaged, or its validation logits are of other classes.
    """
    classifier, run = load_classifier(path, device=device), run_of(path)
    if isinstance(classifier.encoder, NumpyEncoder):
        classifier.encoder = classifier.encoder.torch()
    if classifier.linear and run and run.validation_logits.exists():
        kept = ValidationLogits.read(run.validation_logits)
        if kept.logits.shape[1:] != (len(classifier.label_names),):
            raise EncoderClsError(
                f"{run.validation_logits}: is of other classes than the model; train again"
            )
        classifier.before_refit = kept.in_place_of
    return classifier


def _hashes(texts: TokenizedTexts) -> NDArray[np.uint64]:
    """Hash each text as the classifier reads it: the ids of known tokens, the character n-grams of unknown ones."""
    numbers, ngrams = texts.word_ids.astype(np.int64), texts.char_ngrams
    for word in np.flatnonzero(texts.word_ids == UNK_ID):
        of_word = ngrams.ngrams[ngrams.offsets[word] : ngrams.offsets[word + 1]]
        numbers[word] = -1 - int.from_bytes(
            blake2b(of_word.tobytes(), digest_size=7).digest(), "little"
        )
    pieces = (
        numbers[texts.words[a:b]]
        for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)
    )
    digests = b"".join(blake2b(piece.tobytes(), digest_size=8).digest() for piece in pieces)
    return np.frombuffer(digests, dtype="<u8")
