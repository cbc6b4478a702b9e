"""Objective: what is learned in a step, what it says of each class, and how a validation judges a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import small_runs

from encoder_cls.classifier.validation import score_mixture
from encoder_cls.encoder import pretraining
from encoder_cls.encoder.batches import BatchSampler, drop_tokens
from encoder_cls.encoder.distributed import ALONE, ProcessGroup
from encoder_cls.encoder.pretraining import delete_tokens
from encoder_cls.encoder.torch_encoder import TorchEncoder, make_batch
from encoder_cls.encoder.training import EncoderTraining
from encoder_cls.encoder.transformer import DenoisingAutoencoder
from encoder_cls.linear.calibration import fit_inverse_temperature, fit_mixture_weights
from encoder_cls.metrics.classification import compute_metrics, one_hot
from encoder_cls.metrics.logits import Logits, combine_logits
from encoder_cls.metrics.score import Score
from encoder_cls.system.stop import checking
from encoder_cls.text.tokens import CLS_ID, MASK_ID, PAD_ID, UNK_ID
from encoder_cls.training.encoder import PRETRAINING, pretraining_of, training_on_labels
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared

CPU = torch.device("cpu")
CLASSES = ["a", "b", "c"]


def often_right(setup: Prepared, *, seed: int) -> Logits:
    """Scores of the validation texts."""
    labels = setup.dataset.validation.labels
    noise = np.random.default_rng(seed).standard_normal((len(labels), 3))
    return (noise + one_hot(labels, 3)).astype(np.float32)


def prepared(folder, pretrain: dict[str, object] | None = None, **train_values: object) -> Prepared:
    """Thirty texts of five different words each."""
    rows = [
        f"{' '.join(f'w{i}x{position}' for position in range(5))},{CLASSES[i % 3]}"
        for i in range(30)
    ]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    data = dict.fromkeys(("train", "validation"), str(folder / "train.csv"))
    values = {
        "epochs": 2,
        "batch_size": 4,
        "accumulation_steps": 2,
        "learning_rate": 0.001,
    } | train_values
    return prepare(
        small_runs.make_config(folder, data=data, pretrain=pretrain, linear=True, **values)
    )


def on_labels(setup: Prepared, linear_logits: Logits | None = None) -> EncoderTraining:
    """The training on labels, beside a linear model with these logits of the validation texts."""
    return training_on_labels(setup, device=CPU, group=ALONE, linear_logits=linear_logits)


def on_hidden_words(setup: Prepared) -> EncoderTraining:
    """The pretraining."""
    return small_runs.make_training(setup, PRETRAINING)


def rows_of_step(setup: Prepared, training: EncoderTraining, step: int) -> list[np.ndarray]:
    """The texts of each batch of a step."""
    texts = setup.texts if training.name == PRETRAINING else setup.model_texts
    sampler = BatchSampler(texts.lengths, setup.config.train, seed=training.seed)
    return sampler.batches_of_step(step)


def test_texts_are_read_twice_and_both_readings_are_to_agree(tmp_path):
    """Other words are dropped in each; losses, of smoothed labels, and how far readings differ count by the classes."""
    weighted = {"class_weights": {"a": 3.0, "c": 0.5}, "label_smoothing": 0.3}
    setup = prepared(tmp_path, **weighted, rdrop_weight=2.0, word_dropout=0.5)
    training = on_labels(setup)
    model = training.model.eval()
    torch.nn.init.normal_(model.head.linear.weight)  # or else all readings would be nearly the same
    torch.manual_seed(0)
    batch = training.batches_at(0, 0, 1)[0]
    labels = setup.dataset.train.labels[rows_of_step(setup, training, 0)[0]]
    first, second = batch.inputs.input_ids.chunk(2)
    assert first.shape == second.shape == (len(labels), 6)
    assert not torch.equal(first, second)
    assert torch.equal(*batch.inputs.char_ngrams.words.chunk(2))
    # 1 - 0.3 + 0.3 / 3 of the label.
    weights = torch.tensor([3.0, 1.0, 0.5]) * (torch.eye(3)[labels] * 0.7 + 0.1)
    assert batch.normalizer.item() == pytest.approx(2 * float(weights.sum()))
    p, q = (log.double() for log in model(*batch.inputs).log_softmax(dim=1).detach().chunk(2))
    divergences = (p.exp() * (p - q)).sum(dim=1) + (q.exp() * (q - p)).sum(dim=1)
    assert divergences.min() > 0.001
    expected = -(weights * (p + q)).sum() + 2.0 * (weights.sum(dim=1) * divergences / 2).sum()
    assert batch.loss(model).item() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("monitor", "with_linear"), [("accuracy", False), ("macro_f1", True), ("loss", True)]
)
def test_a_validation_judges_the_sum_of_all_scores(tmp_path, monkeypatch, with_linear, monitor):
    """Under the weights that explain the validation labels best; what is monitored is compared, then the loss."""
    setup = prepared(tmp_path, monitor=monitor, class_weights={"a": 30.0})
    labels = setup.dataset.validation.labels
    encoder_logits = often_right(setup, seed=1)
    linear_logits = often_right(setup, seed=0) if with_linear else None
    monkeypatch.setattr(TorchEncoder, "logits", lambda *_arguments, **_options: encoder_logits)
    training = on_labels(setup, linear_logits)
    result = training.validate(training.model)

    # The weights of the mixture, and the scores of the weighted sum.
    parts = [encoder_logits]
    weights, shares = (fit_inverse_temperature(encoder_logits, labels),), (1.0,)
    if with_linear:
        parts.append(linear_logits)
        weights, shares = fit_mixture_weights(parts, labels)
    assert (tuple(result.mixture.weights.values()), tuple(result.mixture.shares.values())) == (
        weights,
        shares,
    )
    mixture_logits = combine_logits(parts, weights).astype(np.float32)
    metrics = compute_metrics(mixture_logits, labels, CLASSES)
    assert result.metrics == metrics

    # Beside them each part's own accuracy.
    expected = metrics.scalars()
    if with_linear:
        expected["encoder_accuracy"] = (encoder_logits.argmax(axis=1) == labels).mean()
        expected["linear_accuracy"] = (linear_logits.argmax(axis=1) == labels).mean()
        expected["linear_weight"] = shares[1]
        alone = {expected["encoder_accuracy"], expected["linear_accuracy"]}
        assert len({metrics.accuracy, *alone}) == 3
    assert result.scores == expected
    assert result.score == Score(
        is_sure=result.score.is_sure,
        monitored=metrics.scalars()[monitor],
        loss=metrics.loss,
        lower_is_better=monitor == "loss",
    )


@pytest.mark.parametrize("name", ["pretraining", "model"])
def test_a_validation_repeats_and_leaves_the_model_as_it_was(tmp_path, name):
    """The same tokens are masked each time; a stop is heard after each batch; numbers that are not finite are none."""
    setup = prepared(tmp_path, {"epochs": 1, "mask_probability": 0.5}, batch_tokens=24)
    training = on_hidden_words(setup)
    if name == "model":
        training = on_labels(setup, often_right(setup, seed=0))
    model = training.model.train()

    asked = []
    with checking(lambda: asked.append(1)):
        first = training.validate(model)
    assert len(asked) >= 8  # thirty texts of six tokens, four in a batch
    torch.rand(3)
    assert training.validate(model) == first
    assert model.training
    assert first.score.monitored == first.score.loss == first.scores["loss"]

    with torch.no_grad():
        model.encoder.embedding.tokens.weight.fill_(torch.nan)
    assert training.validate(model) is None


def test_masked_tokens_are_to_be_found_among_those_of_the_batch(tmp_path):
    """A third of the words, never [CLS], is `[MASK]` without letters; the answers are what stood there."""
    setup = prepared(tmp_path, {"epochs": 2, "mask_probability": 0.3})
    training = on_hidden_words(setup)
    torch.manual_seed(0)
    masked = 0
    words = 0
    for step in range(8):
        batches = training.batches_at(step, 0, 1)
        for batch, indices in zip(batches, rows_of_step(setup, training, step), strict=True):
            whole = make_batch(setup.train_texts, indices)
            assert torch.equal(batch.inputs.input_ids == MASK_ID, batch.is_guessed)
            assert torch.equal(
                batch.inputs.input_ids[~batch.is_guessed], whole.input_ids[~batch.is_guessed]
            )
            assert torch.equal(batch.guessed, whole.input_ids[batch.is_guessed])
            assert set(batch.candidates.tolist()) == set(whole.input_ids.flatten().tolist())
            assert not batch.is_guessed[:, 0].any()
            assert batch.normalizer == batch.is_guessed.sum()
            char_ngrams = batch.inputs.char_ngrams
            letters = char_ngrams.offsets.diff()[char_ngrams.words]
            assert (letters[batch.is_guessed] == 0).all()
            assert (letters[:, 1:][~batch.is_guessed[:, 1:]] > 0).all()
            masked += int(batch.is_guessed.sum())
            words += whole.input_ids[:, 1:].numel()
    assert masked / words == pytest.approx(0.3, abs=0.08)


def test_the_loss_of_masked_tokens_is_that_of_a_softmax_with_the_tokens_own_vectors(tmp_path):
    """Over the words of the batch; its gradients stay sparse, so that a step costs what the batch touches."""
    setup = prepared(tmp_path, {"epochs": 1, "mask_probability": 0.5})
    training = on_hidden_words(setup)
    model = training.model.eval()
    batch = training.batches_at(0, 0, 1)[0]
    vectors = model.encoder(*batch.inputs)[batch.is_guessed]
    scores = vectors @ model.encoder.embedding.tokens.weight[batch.candidates].T
    expected = -scores.log_softmax(dim=1)[batch.candidates == batch.guessed[:, None]].sum()
    loss = batch.loss(model)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert model.encoder.embedding.tokens.weight.grad.is_sparse


def test_a_batch_in_which_nothing_is_guessed_teaches_nothing_and_breaks_nothing(tmp_path):
    """By chance no token is masked: the loss is 0, not 0 / 0."""
    setup = prepared(tmp_path, {"epochs": 1, "mask_probability": 1e-9})
    training = on_hidden_words(setup)
    model = training.model
    batch = training.batches_at(0, 0, 1)[0]
    assert not batch.is_guessed.any()
    loss = batch.loss(model) / batch.normalizer
    loss.backward()
    assert loss.item() == 0


def test_a_validation_of_pretraining_reads_every_validation_text_once(tmp_path, monkeypatch):
    setup = prepared(tmp_path, {"epochs": 1}, batch_tokens=20)
    training = on_hidden_words(setup)
    read = []

    def recorded(texts, rows, *more):
        read.append(rows)
        return make_batch(texts, rows, *more)

    monkeypatch.setattr(pretraining, "make_batch", recorded)
    training.validate(training.model)
    assert len(read) > 1
    assert sorted(np.concatenate(read)) == list(range(len(setup.validation_texts)))


@pytest.mark.parametrize("name", ["pretraining", "model"])
def test_the_first_process_alone_has_the_result_of_a_validation(tmp_path, name):
    """So that no other one logs it, or saves the model."""

    class Another(ProcessGroup):
        """The second of two processes, without the first."""

        def sum(self, tensor: torch.Tensor) -> None:
            pass

    setup = prepared(tmp_path, {"epochs": 1})
    make = pretraining_of if name == "pretraining" else training_on_labels
    training = make(setup, device=CPU, group=Another(rank=1, size=2))
    assert training.validate(training.model) is None


def test_deleted_tokens_leave_no_trace(tmp_path):
    """A third of the words, never [CLS]; what is left is in order, with its letters, as if there were no others."""
    whole = make_batch(prepared(tmp_path).train_texts, np.arange(30))
    torch.manual_seed(0)
    left = delete_tokens(whole, fraction=0.3)
    is_kept = torch.isin(whole.input_ids, left.input_ids)  # each word is in one text
    assert (~is_kept[:, 1:]).float().mean() == pytest.approx(0.3, abs=0.08)
    assert left.input_ids.shape == left.attention_mask.shape == (30, int(is_kept.sum(dim=1).max()))
    assert torch.equal(left.input_ids[left.attention_mask], whole.input_ids[is_kept])
    assert torch.equal(left.attention_mask.sum(dim=1), is_kept.sum(dim=1))
    assert (left.input_ids[~left.attention_mask] == PAD_ID).all()
    assert torch.equal(
        left.char_ngrams.words[left.attention_mask], whole.char_ngrams.words[is_kept]
    )


def test_denoising_guesses_each_word_from_those_before_it_and_what_the_encoder_read(tmp_path):
    """Its loss is that of a softmax over the words of the batch; all weights but those of the classes learn."""
    setup = prepared(tmp_path, {"epochs": 2, "objective": "denoising", "mask_probability": 0.4})
    training = on_hidden_words(setup)
    whole = make_batch(setup.train_texts, rows_of_step(setup, training, 0)[0])
    model = training.model.eval()
    assert isinstance(model, DenoisingAutoencoder)
    torch.manual_seed(0)
    batch = training.batches_at(0, 0, 1)[0]
    torch.manual_seed(0)
    corrupted = delete_tokens(whole, fraction=0.4)
    assert torch.equal(batch.inputs.input_ids, whole.input_ids)
    assert torch.equal(batch.guessed, whole.input_ids[:, 1:][whole.attention_mask[:, 1:]])
    assert batch.normalizer == whole.attention_mask[:, 1:].sum()
    embedding, memory = model.encoder.embedding, model.encoder(*corrupted)
    vectors = model.decoder(
        embedding(whole.input_ids, whole.char_ngrams),
        whole.attention_mask,
        memory,
        corrupted.attention_mask,
    )
    scores = vectors[:, :-1].flatten(0, 1) @ embedding.tokens.weight[batch.candidates].T
    expected = -scores.log_softmax(dim=1)[batch.candidates == batch.guessed[:, None]].sum()
    loss = batch.loss(model)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    without = [name for name, it in model.named_parameters() if it.grad is None]
    assert without == ["head.linear.weight", "head.linear.bias"]


def test_word_dropout_replaces_words_only():
    """About the wanted part of the words becomes [UNK]; [CLS] and padding stay."""
    torch.manual_seed(0)
    input_ids = torch.full((100, 50), 7)
    input_ids[:, 0], input_ids[:, 40:] = CLS_ID, PAD_ID
    dropped = drop_tokens(input_ids, fraction=0.3)
    assert (dropped[:, 0] == CLS_ID).all()
    assert (dropped[:, 40:] == PAD_ID).all()
    assert (dropped[:, 1:40] == UNK_ID).float().mean() == pytest.approx(0.3, abs=0.02)
    assert drop_tokens(input_ids, fraction=0) is input_ids


@pytest.mark.parametrize(
    ("helped", "harmed", "is_sure"), [(40, 0, True), (6, 10, False), (0, 0, False)]
)
def test_an_encoder_has_to_lower_the_loss_by_more_than_its_standard_error(
    tmp_path, helped, harmed, is_sure
):
    """Counted in pairs over the validation texts: a lower loss alone may be chance."""
    dataset = prepare(
        small_runs.make_config(tmp_path, texts=600, data={"validation_fraction": 0.4})
    ).dataset
    labels = dataset.selection.labels
    shifts = np.array([0, 0, 0, 1, 2])  # three of five are right
    predictions = (labels + shifts[np.arange(len(labels)) % 5]) % 3
    linear = np.log(np.full((len(labels), 3), 0.2) + 0.4 * np.eye(3)[predictions]).astype(
        np.float32
    )
    encoder = np.zeros_like(linear)
    ours, theirs = np.split(
        np.random.default_rng(0).permutation(len(labels))[: helped + harmed], [helped]
    )
    encoder[ours, labels[ours]] = encoder[theirs, (labels[theirs] + 1) % 3] = 1
    assert score_mixture(encoder, linear, dataset, monitor="loss").score.is_sure == is_sure
    assert score_mixture(None, linear, dataset, monitor="loss").score.is_sure
