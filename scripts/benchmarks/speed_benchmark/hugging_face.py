"""Hugging Face's side: its Trainer with a BERT of our size, and what it needs of models, tokenizers and rows."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from encoder_cls.text.token_arrays import PAD_ID, SPECIAL_TOKENS
from speed_benchmark.sizes import Size
from speed_benchmark.texts import BATCH_SIZE, Corpus
from speed_benchmark.timing import Measured, repetitions

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before the library is loaded: all models are made from a config here


class HuggingFace:
    """The Trainer's own `train` with `BertForSequenceClassification`.

    By default as its text-classification example has it: every text padded to the same length, float32, batches by
    chance. At its best it pads to the longest text of a batch, and texts of similar length come together; to have
    them grouped as well as in a large data set, they are grouped beforehand and taken in order.

    Args:
        corpus: the texts. At its best, a call trains on each of them once, otherwise on as many random ones as
            there is time for.
        size: of the model.
        precision: float32, or bfloat16 by the Trainer's own autocast.
        at_best: or by default.
        budget: seconds of a call by default, about.
        folder: that the Trainer may write to.
    """

    WARM_UP = 1  # steps of each call that do not count: the Trainer starts again

    def __init__(
        self, corpus: Corpus, size: Size, *, precision: str, at_best: bool, budget: float, folder: Path
    ) -> None:
        from transformers import DataCollatorWithPadding, default_data_collator

        quiet()
        torch.manual_seed(0)
        self._model = bert(corpus, size)
        self._model.register_forward_pre_hook(self._count, with_kwargs=True)
        self._at_best, self._precision, self._folder, self._budget = at_best, precision, folder, budget
        if at_best:
            self._batch_size = max(1, min(BATCH_SIZE, int(corpus.kind.batch_tokens / corpus.mean_length)))
            groups = self._groups(corpus.texts.lengths)
            self._steps = len(groups)
            self._data = rows(corpus, np.concatenate([groups[len(groups) // 2], *groups]), pad_to=None)
            self._collator = DataCollatorWithPadding(wrapped_tokenizer(corpus))
        else:
            self._batch_size = corpus.fixed_batch_size
            self._steps = 0  # known after the first call
            self._data = rows(corpus, np.arange(len(corpus.texts)), pad_to=corpus.kind.max_seq_len)
            self._collator = default_data_collator
        self._tokens: list[int] = []

    def __call__(self) -> Measured:
        """So many steps of a training."""
        if self._steps:
            return self._train(self._steps)
        measured = self._train(1)
        most = max(1, len(self._data) // self._batch_size)
        self._steps = repetitions(measured.seconds, most=most, budget=self._budget)
        return measured

    def _groups(self, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Texts of similar length, so many that every group but the one of the longest is a whole batch."""
        in_order = np.argsort(-lengths, kind="stable")
        groups = [in_order[start : start + self._batch_size] for start in range(0, len(in_order), self._batch_size)]
        rest = groups.pop() if len(groups[-1]) < self._batch_size and len(groups) > 1 else None
        order = np.random.default_rng(0).permutation(len(groups))
        return [groups[i] for i in order] + ([] if rest is None else [rest])

    def _train(self, steps: int) -> Measured:
        from transformers import PrinterCallback, Trainer, TrainingArguments

        self._tokens = []
        stamps, callback = stamping_callback()
        options: dict[str, Any] = {"train_sampling_strategy": "sequential"} if self._at_best else {}
        trainer = Trainer(
            model=self._model,
            args=TrainingArguments(
                output_dir=str(self._folder),
                max_steps=self.WARM_UP + steps,
                per_device_train_batch_size=self._batch_size,
                bf16=self._precision == "bfloat16",
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                **options,
            ),
            train_dataset=self._data,
            data_collator=self._collator,
            callbacks=[callback],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return Measured(stamps[-1] - stamps[self.WARM_UP - 1], float(sum(self._tokens[self.WARM_UP :])))

    def _count(self, _module: Any, _arguments: Any, inputs: dict[str, Any]) -> None:
        self._tokens.append(int(inputs["attention_mask"].sum()))


def quiet() -> None:
    """No advice and no progress bars of the library."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def bert(corpus: Corpus, size: Size) -> Any:
    """BERT with random weights, of the same size as the others; nothing is downloaded."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=corpus.tokenizer.get_vocab_size(),
        hidden_size=size.d_model,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        intermediate_size=size.d_ff,
        max_position_embeddings=corpus.kind.max_seq_len,
        num_labels=len(corpus.dataset.label_names),
        pad_token_id=PAD_ID,
    )
    return BertForSequenceClassification(config)


def wrapped_tokenizer(corpus: Corpus) -> Any:
    """The corpus's tokenizer as Hugging Face's models want it: the same ids."""
    from transformers import PreTrainedTokenizerFast

    names = ("pad_token", "unk_token", "cls_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=corpus.tokenizer,
        model_max_length=corpus.kind.max_seq_len,
        **dict(zip(names, SPECIAL_TOKENS, strict=True)),
    )


def rows(corpus: Corpus, indices: NDArray[np.int64], *, pad_to: int | None) -> Any:
    """Some texts as the `datasets.Dataset` that the example makes of them."""
    from datasets import Dataset

    texts = corpus.texts
    columns: dict[str, list[Any]] = {"input_ids": [], "attention_mask": [], "label": []}
    for index in indices:
        ids = texts.input_ids(texts.offsets[index] + np.arange(texts.lengths[index])).tolist()
        padding = 0 if pad_to is None else pad_to - len(ids)
        columns["input_ids"].append(ids + [PAD_ID] * padding)
        columns["attention_mask"].append([1] * len(ids) + [0] * padding)
        columns["label"].append(int(corpus.dataset.train.labels[index]))
    return Dataset.from_dict(columns)


def stamping_callback() -> tuple[list[float], Any]:
    """A callback of the Trainer, and the list of the times at which its steps ended."""
    from transformers import TrainerCallback

    stamps: list[float] = []

    class Stamp(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.perf_counter())

    return stamps, Stamp()
