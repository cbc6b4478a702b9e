"""Pretraining: the tokens that are hidden, and the loss of guessing them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.small_runs import make_training
from support.thirty_texts import prepare_thirty_texts, rows_of_step

from encoder_cls.encoder.torch_encoder import Batch, make_batch
from encoder_cls.encoder.transformer import DenoisingAutoencoder
from encoder_cls.encoder_training import pretraining_loss
from encoder_cls.encoder_training.pretraining_loss import GuessedTokens, MaskedTokens, delete_tokens
from encoder_cls.text.tokens import MASK_ID, PAD_ID
from encoder_cls.training.encoder_stage import PRETRAINING


def test_masked_tokens_are_guessed_among_those_of_the_batch(tmp_path):
    """About the chosen fraction of the words becomes `[MASK]` without n-grams; [CLS] stays."""
    setup = prepare_thirty_texts(tmp_path, {"epochs": 2, "mask_probability": 0.3})
    training = make_training(setup, PRETRAINING)
    num_masked = 0
    num_words = 0

    torch.manual_seed(0)
    for step in range(8):
        batches = training.trainer.task.batches_at(step, 0, 1)
        for batch, rows in zip(batches, rows_of_step(setup, training, step), strict=True):
            whole = make_batch(setup.train_texts, rows)
            assert_masked(batch, whole)
            num_masked += len(batch.positions)
            num_words += whole.input_ids[:, 1:].numel()

    assert num_masked / num_words == pytest.approx(0.3, abs=0.08)


def assert_masked(batch: MaskedTokens, whole: Batch) -> None:
    """Assert that a batch has some tokens of a whole batch masked, and lists these tokens."""
    input_ids = batch.inputs.input_ids
    has_target = input_ids == MASK_ID
    assert torch.equal(has_target.flatten().nonzero().flatten(), batch.positions)
    assert torch.equal(input_ids[~has_target], whole.input_ids[~has_target])
    assert not has_target[:, 0].any()

    assert torch.equal(batch.target_ids, whole.input_ids[has_target])
    assert batch.normalizer == has_target.sum()
    assert set(batch.candidates.tolist()) == set(whole.input_ids.flatten().tolist())

    # [CLS] has no character n-grams.
    char_ngrams = batch.inputs.char_ngrams
    num_char_ngrams = char_ngrams.offsets.diff()[char_ngrams.words]
    assert (num_char_ngrams[has_target] == 0).all()
    assert (num_char_ngrams[:, 1:][~has_target[:, 1:]] > 0).all()


def test_the_loss_of_masked_tokens_is_a_softmax_over_the_vectors_of_the_batchs_tokens(tmp_path):
    """The gradients of the embeddings stay sparse, so that a step is fast."""
    setup = prepare_thirty_texts(tmp_path, {"epochs": 1, "mask_probability": 0.5})
    training = make_training(setup, PRETRAINING)
    model = training.trainer.model.eval()
    batch = training.trainer.task.batches_at(0, 0, 1)[0]
    token_vectors = model.encoder.embedding.tokens.weight

    loss = batch.loss(model)
    loss.backward()

    vectors = model.encoder(*batch.inputs).flatten(0, 1)[batch.positions]
    expected = summed_cross_entropy(vectors, token_vectors, batch)
    torch.testing.assert_close(loss, expected)
    assert token_vectors.grad.is_sparse


def summed_cross_entropy(
    vectors: torch.Tensor, token_vectors: torch.Tensor, batch: GuessedTokens
) -> torch.Tensor:
    """Return the cross-entropy of guessing tokens among candidates by vectors, (guessed, width)."""
    logits = vectors @ token_vectors[batch.candidates].T
    is_guessed_token = batch.candidates == batch.target_ids[:, None]
    return -logits.log_softmax(dim=1)[is_guessed_token].sum()


def test_a_batch_in_which_nothing_is_guessed_teaches_nothing_and_breaks_nothing(tmp_path):
    """The loss is 0, not 0 / 0, if by chance no token is masked."""
    setup = prepare_thirty_texts(tmp_path, {"epochs": 1, "mask_probability": 1e-9})
    training = make_training(setup, PRETRAINING)
    batch = training.trainer.task.batches_at(0, 0, 1)[0]
    assert len(batch.positions) == 0

    loss = batch.loss(training.trainer.model) / batch.normalizer
    loss.backward()

    assert loss.item() == 0


def test_a_validation_of_pretraining_reads_every_validation_text_once(tmp_path, monkeypatch):
    setup = prepare_thirty_texts(tmp_path, {"epochs": 1}, batch_tokens=20)
    training = make_training(setup, PRETRAINING)
    rows_read = []

    def make_recorded_batch(texts, rows, *options):
        rows_read.append(rows)
        return make_batch(texts, rows, *options)

    monkeypatch.setattr(pretraining_loss, "make_batch", make_recorded_batch)
    training.trainer.task.validate(training.trainer.model)

    assert len(rows_read) > 1
    assert sorted(np.concatenate(rows_read)) == list(range(len(setup.validation_texts)))


def test_deleted_tokens_leave_no_trace(tmp_path):
    """The remaining words and [CLS] keep their order and their character n-grams."""
    whole = make_batch(prepare_thirty_texts(tmp_path).train_texts, np.arange(30))

    torch.manual_seed(0)
    left = delete_tokens(whole, fraction=0.3)

    # Each word occurs in one text only.
    is_kept = torch.isin(whole.input_ids, left.input_ids)
    assert (~is_kept[:, 1:]).float().mean() == pytest.approx(0.3, abs=0.08)

    longest = int(is_kept.sum(dim=1).max())
    assert left.input_ids.shape == left.attention_mask.shape == (30, longest)
    assert torch.equal(left.attention_mask.sum(dim=1), is_kept.sum(dim=1))
    assert (left.input_ids[~left.attention_mask] == PAD_ID).all()

    assert torch.equal(left.input_ids[left.attention_mask], whole.input_ids[is_kept])
    kept_words = whole.char_ngrams.words[is_kept]
    assert torch.equal(left.char_ngrams.words[left.attention_mask], kept_words)


DENOISING = {"epochs": 2, "objective": "denoising", "mask_probability": 0.4}


def test_denoising_guesses_each_word_from_those_before_it_and_what_the_encoder_read(tmp_path):
    """The loss is a softmax over the words of the batch; all weights except the head's learn."""
    setup = prepare_thirty_texts(tmp_path, DENOISING)
    training = make_training(setup, PRETRAINING)
    model = training.trainer.model.eval()
    assert isinstance(model, DenoisingAutoencoder)

    torch.manual_seed(0)
    batch = training.trainer.task.batches_at(0, 0, 1)[0]
    loss = batch.loss(model)
    loss.backward()

    # The encoder reads the texts without the deleted tokens.
    whole = make_batch(setup.train_texts, rows_of_step(setup, training, 0)[0])
    torch.manual_seed(0)
    shortened = delete_tokens(whole, fraction=0.4)
    memory = model.encoder(*shortened)

    # The decoder guesses all words of the whole texts.
    words = whole.input_ids[:, 1:]
    is_word = whole.attention_mask[:, 1:]
    assert torch.equal(batch.inputs.input_ids, whole.input_ids)
    assert torch.equal(batch.target_ids, words[is_word])
    assert batch.normalizer == is_word.sum()

    # The vector of each token guesses the next token. All texts have the same length here.
    embedding = model.encoder.embedding
    vectors = model.decoder(
        embedding(whole.input_ids, whole.char_ngrams),
        whole.attention_mask,
        memory,
        shortened.attention_mask,
    )
    guessing_vectors = vectors[:, :-1].flatten(0, 1)
    expected = summed_cross_entropy(guessing_vectors, embedding.tokens.weight, batch)
    torch.testing.assert_close(loss, expected)

    without_gradient = [
        name for name, parameter in model.named_parameters() if parameter.grad is None
    ]
    assert without_gradient == ["head.linear.weight", "head.linear.bias"]
