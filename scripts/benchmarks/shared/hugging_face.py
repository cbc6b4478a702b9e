"""Hugging Face's BERT from random weights, its Trainer and its pipeline; downloads nothing."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer

from shared.data import Texts

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "mask_token": "[MASK]"}


class Size(NamedTuple):
    """Width and number of layers of an encoder."""

    d_model: int = 128
    layers: int = 2

    def __str__(self) -> str:
        return f"{self.d_model}/{self.layers}"

    @property
    def overrides(self) -> list[str]:
        """The config values of encoder-cls."""
        return [
            f"model.d_model={self.d_model}",
            f"model.num_layers={self.layers}",
            f"model.num_heads={self.heads}",
            f"model.d_ff={4 * self.d_model}",
        ]

    @property
    def heads(self) -> int:
        """The number of heads, each of a width of 32."""
        return max(1, self.d_model // 32)


SMALL = Size()


class Bert:
    """`BertForSequenceClassification` of a size.

    The vocabulary of its tokenizer has the special tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, classes: Sequence[str], *, max_length: int, size: Size = SMALL
    ) -> None:
        from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()

        self.classes = list(classes)
        self.max_length = max_length
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=max_length, **SPECIAL
        )
        self.model = BertForSequenceClassification(
            BertConfig(
                vocab_size=tokenizer.get_vocab_size(),
                hidden_size=size.d_model,
                num_hidden_layers=size.layers,
                num_attention_heads=size.heads,
                intermediate_size=4 * size.d_model,
                max_position_embeddings=max_length,
                num_labels=len(self.classes),
                pad_token_id=self.tokenizer.pad_token_id,
            )
        )

    def rows(self, texts: Texts, *, padding: bool = False) -> list[dict[str, Any]]:
        """Texts as tokens with labels, on request all padded to the same length."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        found = self.tokenizer(
            texts.texts,
            truncation=True,
            max_length=self.max_length,
            padding="max_length" if padding else False,
        )
        columns = zip(found["input_ids"], found["attention_mask"], texts.labels, strict=True)
        return [
            {"input_ids": ids, "attention_mask": mask, "labels": numbers[label]}
            for ids, mask, label in columns
        ]

    def predict(self, texts: Sequence[str]) -> Sequence[str]:
        """The labels of texts, by Hugging Face's pipeline in batches."""
        from transformers import pipeline

        prediction = pipeline(
            "text-classification", model=self.model.eval(), tokenizer=self.tokenizer, device="cpu"
        )
        predictions = prediction(list(texts), truncation=True, batch_size=64)
        numbers = [int(found["label"].removeprefix("LABEL_")) for found in predictions]
        return [self.classes[number] for number in numbers]


def fit(
    bert: Bert,
    texts: Texts,
    *,
    padding: bool = False,
    after_epoch: Callable[[], bool] = lambda: True,
    device: str = "cpu",
    warm_up: int = 1,
    **options: Any,
) -> float:
    """Train by `Trainer.train` with these options, until `after_epoch` returns False.

    With `padding` all texts have `max_length`, as in the text-classification example, else the
    length of the longest text of a batch. The device is `cpu` or `cuda`.

    Returns:
        The tokens a second, padding excluded, of the steps after the first `warm_up` ones.
    """
    from transformers import (
        DataCollatorWithPadding,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    moments: list[float] = []
    # Tensors, since the Trainer would wait for a GPU at each step to have their numbers.
    tokens: list[torch.Tensor] = []

    class Stamps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_: Any) -> None:
            # The time between two moments is that of a GPU only if it has finished at both.
            is_timed = state.global_step in {warm_up, state.max_steps}
            if device == "cuda" and is_timed:
                torch.cuda.synchronize()
            moments.append(time.perf_counter())

        def on_epoch_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = not after_epoch()
            bert.model.train()

    def count_tokens(_module: Any, _arguments: Any, inputs: Any) -> None:
        tokens.append(inputs["attention_mask"].sum())

    hook = bert.model.register_forward_pre_hook(count_tokens, with_kwargs=True)
    options = {"per_device_train_batch_size": 32, **options}
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=device == "cpu",
            **options,
        )
        trainer = Trainer(
            model=bert.model.train(),
            args=training,
            train_dataset=bert.rows(texts, padding=padding),
            data_collator=DataCollatorWithPadding(bert.tokenizer),
            callbacks=[Stamps()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    hook.remove()

    timed_tokens = sum(int(number) for number in tokens[warm_up:])
    return timed_tokens / (moments[-1] - moments[warm_up - 1])


def load(path: str, classes: Sequence[str], *, max_length: int, size: Size) -> Bert:
    """A BERT of random weights with the tokenizer of a model folder of encoder-cls."""
    torch.manual_seed(0)
    return Bert(Tokenizer.from_file(path), classes, max_length=max_length, size=size)
