"""Who trains: encoder-cls, a loop as in tutorials, and Hugging Face's Trainer, on the same tokens and of one size.

Each system is called again and again; a call trains on, and tells how long its steps took and how many real
tokens, never padding, they learned from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from peers import TutorialConfig, TutorialEncoder
from torch.nn import functional

from encoder_cls.config import load_config
from encoder_cls.text.char_ngrams import flat_indices
from encoder_cls.text.token_arrays import PAD_ID
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.events import Stepped
from encoder_cls.training.prepare import prepare
from encoder_cls.training.setup import TrainingSetup
from encoder_cls.training.stage import Stage
from encoder_cls.training.trainer import train
from speed_benchmark.hugging_face import HuggingFace
from speed_benchmark.sizes import PLAIN, Size
from speed_benchmark.texts import Corpus, write_csv
from speed_benchmark.timing import Measured, repetitions

NEVER = 2**31 - 1
# Each text is read once, as all others do.
LABELS_ALONE = ("pretrain.epochs=0", "model.linear=false", "train.rdrop_weight=0")


System = Callable[[], Measured]


# encoder-cls


# A training that nobody ends, and that does nothing but steps.
ENDLESS = ("train.epochs=1000000", "train.patience=null", f"train.validate_every={NEVER}")


def prepared(corpus: Corpus, overrides: Sequence[str], folder: Path) -> TrainingSetup:
    """What encoder-cls itself prepares from files of a corpus, but with the corpus's own tokenizer."""
    files = {"train": corpus.dataset.train, "validation": corpus.dataset.validation}
    for name, split in files.items():
        write_csv(folder / f"{name}.csv", split, corpus.dataset.label_names)
    data = [f"data.{name}={json.dumps(str(folder / f'{name}.csv'))}" for name in files]
    tokens = f"train.batch_tokens={corpus.kind.batch_tokens}"
    made = prepare(load_config(None, [*ENDLESS, *data, "data.test=null", tokens, *overrides]))
    texts, validation_texts = (
        tokenize(corpus.tokenizer, split.texts, max_seq_len=corpus.kind.max_seq_len) for split in files.values()
    )
    return replace(made, tokenizer=corpus.tokenizer, texts=texts, validation_texts=validation_texts)


class Ours:
    """`encoder_cls.training.trainer.train` itself, with its logging: from one step to the next.

    Args:
        setup: without pretraining; a call trains on each of its texts once.
        folder: an empty one.
    """

    def __init__(self, setup: TrainingSetup, folder: Path) -> None:
        self.setup = setup
        self._events = train(setup, RunDir(folder / "run"), device=torch.device("cpu"))
        self._step = 0

    @property
    def stage(self) -> Stage:
        """The only one: of the model itself."""
        (stage,) = self.setup.stages
        return stage

    def step(self) -> Measured:
        """One optimizer step, all that belongs to it included."""
        indices = np.concatenate(self.stage.sampler.batches_of_step(self._step))
        self._step += 1
        began = time.perf_counter()
        for event in self._events:
            if isinstance(event, Stepped):
                break
        return Measured(time.perf_counter() - began, float(self.stage.texts.lengths[indices].sum()))

    def __call__(self) -> Measured:
        """All steps of an epoch."""
        return total(self.step() for _ in range(self.stage.steps_per_epoch))

    def close(self) -> None:
        """End the training where it is."""
        self._events.close()  # type: ignore[attr-defined]


def total(steps: Iterator[Measured]) -> Measured:
    """All steps together."""
    seconds, tokens = zip(*steps, strict=True)
    return Measured(sum(seconds), sum(tokens))


# As in tutorials


class Tutorial:
    """A plain loop over `nn.TransformerEncoder`: Adam, float32, all texts padded to the same length.

    Args:
        corpus: the texts; a call trains on as many random ones as there is time for.
        size: of the model.
        budget: seconds of a call, about.
    """

    def __init__(self, corpus: Corpus, size: Size, budget: float) -> None:
        kind, texts = corpus.kind, corpus.texts
        torch.manual_seed(0)
        config = TutorialConfig(
            d_model=size.d_model, num_layers=size.num_layers, num_heads=size.num_heads, d_ff=size.d_ff
        )
        self._model = TutorialEncoder(
            config,
            vocab_size=corpus.tokenizer.get_vocab_size(),
            length=kind.max_seq_len,
            num_classes=len(corpus.dataset.label_names),
        )
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=config.learning_rate)
        self._ids = torch.full((len(texts), kind.max_seq_len), PAD_ID)
        self._ids[torch.arange(kind.max_seq_len) < torch.from_numpy(texts.lengths)[:, None]] = torch.from_numpy(
            texts.input_ids(flat_indices(texts.offsets[:-1], texts.lengths))
        ).long()
        self._labels = torch.from_numpy(corpus.dataset.train.labels)
        self._batch_size = corpus.fixed_batch_size
        self._budget = budget
        self._steps = 0  # of a call; known after the first, which warms up

    def __call__(self) -> Measured:
        """So many steps."""
        measured = total(self._step() for _ in range(self._steps or 1))
        if not self._steps:
            again = self._step()
            self._steps = repetitions(again.seconds, most=len(self._ids) // self._batch_size, budget=self._budget)
        return measured

    def _step(self) -> Measured:
        began = time.perf_counter()
        batch = torch.randperm(len(self._ids))[: self._batch_size]
        ids = self._ids[batch]
        self._optimizer.zero_grad()
        loss = functional.cross_entropy(self._model(ids), self._labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return Measured(time.perf_counter() - began, float((ids != PAD_ID).sum()))


# All of them


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A system: its name, its precision and how to make it of (corpus, size, seconds of a call, folder)."""

    name: str
    precision: str
    make: Callable[[Corpus, Size, float, Path], System]
    needs_transformers: bool = False


def _ours(precision: str, *, tables: bool) -> Callable[[Corpus, Size, float, Path], System]:
    more = [*LABELS_ALONE, *(() if tables else PLAIN), f"train.precision={precision}"]
    return lambda corpus, size, _budget, folder: Ours(
        prepared(corpus, [*size.overrides(corpus.kind.max_seq_len), *more], folder), folder
    )


def _hugging_face(precision: str, *, at_best: bool) -> Callable[[Corpus, Size, float, Path], System]:
    return lambda corpus, size, budget, folder: HuggingFace(
        corpus, size, precision=precision, at_best=at_best, budget=budget, folder=folder
    )


OURS, OURS_TABLES = "encoder-cls, plain encoder", "encoder-cls, default tables"
OURS_WHOLE = "encoder-cls, default, with linear model"  # in prediction: a training fits it once, before any step
TUTORIAL, HF_DEFAULT, HF_BEST = "nn.TransformerEncoder loop", "HF Trainer, default", "HF Trainer, best effort"


def entries(precisions: tuple[str, ...]) -> list[Entry]:
    """The systems; those that are float32 by default take part whatever the precisions."""
    found = []
    for precision in precisions:
        found += [
            Entry(name=OURS, precision=precision, make=_ours(precision, tables=False)),
            Entry(name=OURS_TABLES, precision=precision, make=_ours(precision, tables=True)),
            Entry(
                name=HF_BEST,
                precision=precision,
                make=_hugging_face(precision, at_best=True),
                needs_transformers=True,
            ),
        ]
    return [
        *found,
        Entry(name=TUTORIAL, precision="float32", make=lambda corpus, size, budget, _: Tutorial(corpus, size, budget)),
        Entry(
            name=HF_DEFAULT,
            precision="float32",
            make=_hugging_face("float32", at_best=False),
            needs_transformers=True,
        ),
    ]


@contextmanager
def running(entry: Entry, corpus: Corpus, size: Size, budget: float) -> Iterator[System]:
    """A system, ready to be called; its files exist inside the block only."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        system = entry.make(corpus, size, budget, folder)
        if isinstance(system, Ours):
            stack.callback(system.close)
        yield system
