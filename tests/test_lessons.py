"""Lessons: what is learnt in a step is a function of the step, and what it says of each class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoder_cls.batching import pad
from encoder_cls.config import Config
from encoder_cls.lessons import UNKNOWN, LabelLessons, TeacherLessons, WordLessons
from encoder_cls.preparation import Preparation, prepare
from encoder_cls.tokenizer import CLS_ID, MASK_ID, UNK_ID

CPU = torch.device("cpu")
CLASSES = ["a", "b", "c"]


class Witnesses:
    """Teachers that say how many tokens each sequence has, and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[torch.Tensor] = []

    def probabilities(self, batch, texts, places, lengths, random) -> torch.Tensor:
        ids = batch.input_ids[batch.attention_mask].numpy()
        assert ((texts.input_ids(places) == ids) | (ids == UNK_ID)).all()
        assert (lengths == batch.attention_mask.sum(dim=1).numpy()).all()
        self.asked.append(batch.input_ids)
        return torch.from_numpy(lengths)[:, None] * torch.tensor([0.5, 0.3, 0.2])


def prepared(folder, pretrain: dict[str, object] | None = None, **train_values: object) -> Preparation:
    """Thirty texts of five different words each."""
    rows = [f"{' '.join(f'w{i}x{place}' for place in range(5))},{CLASSES[i % 3]}" for i in range(30)]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    values = {
        "name": "test",
        "data": {"train": str(folder / "train.csv"), "validation": str(folder / "train.csv")},
        "model": {"d_model": 8, "num_layers": 1, "num_heads": 1, "d_ff": 8},
        "pretrain": pretrain or {"epochs": 0},
        "distillation": {"teachers": 1, "linear": False},
        "train": {"epochs": 2, "batch_size": 4, "accumulation_steps": 2, **train_values},
    }
    return prepare(Config.model_validate(values))


def label_lessons(preparation: Preparation) -> LabelLessons:
    return LabelLessons(preparation, preparation.stages[0], class_weights=torch.ones(3), device=CPU)


def teacher_lessons(preparation: Preparation, teachers: Witnesses) -> TeacherLessons:
    return TeacherLessons(
        preparation,
        preparation.stages[-1],
        teachers,
        class_weights=torch.ones(3),
        device=CPU,
        precision=torch.float32,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_labels_are_smoothed_over_all_classes(tmp_path, smoothing):
    """The label gets 1 - s + s / C, the others s / C, for the texts of the step's batches."""
    preparation = prepared(tmp_path, label_smoothing=smoothing, word_dropout=0.0)
    lessons = label_lessons(preparation).at(1)
    batches = preparation.stages[0].batches(1)
    assert len(lessons) == len(batches) == 2
    for lesson, indices in zip(lessons, batches, strict=True):
        labels = np.eye(3)[preparation.dataset.train.labels[indices]]
        np.testing.assert_allclose(lesson.targets, labels * (1 - smoothing) + smoothing / 3, rtol=1e-6)
        assert torch.equal(lesson.batch.input_ids, pad(preparation.train_texts, indices).input_ids)


def test_the_part_of_the_words_that_is_asked_for_is_dropped_and_their_letters_stay(tmp_path):
    """About 40% become [UNK], never [CLS]; the spelling is that of the whole text."""
    preparation = prepared(tmp_path, word_dropout=0.4)
    torch.manual_seed(0)
    lessons = [lesson for step in range(8) for lesson in label_lessons(preparation).at(step)]
    ids = torch.cat([lesson.batch.input_ids for lesson in lessons])
    assert (ids[:, 0] == CLS_ID).all()
    assert (ids[:, 1:] == UNK_ID).float().mean() == pytest.approx(0.4, abs=0.08)
    first = pad(preparation.train_texts, preparation.stages[0].batches(0)[0])
    assert torch.equal(lessons[0].batch.spelling.words, first.spelling.words)


def test_teachers_are_asked_about_the_very_variants_that_are_learnt(tmp_path):
    """The targets are what they said, unsmoothed; a tenth of the words they all know by their letters alone."""
    teachers = Witnesses()
    lessons_of_all = teacher_lessons(prepared(tmp_path, label_smoothing=0.3, word_dropout=0.9), teachers)
    torch.manual_seed(0)
    lessons = [lesson for step in range(8) for lesson in lessons_of_all.at(step)]
    assert len(lessons) == len(teachers.asked) == 16
    hidden, words = 0, 0
    for lesson, asked in zip(lessons, teachers.asked, strict=True):
        is_hidden = lesson.batch.input_ids == UNK_ID
        assert torch.equal(lesson.batch.input_ids, asked)
        assert not is_hidden[:, 0].any()
        hidden, words = hidden + int(is_hidden.sum()), words + int((asked > CLS_ID).sum())
        lengths = lesson.batch.attention_mask.sum(dim=1)
        torch.testing.assert_close(lesson.targets, lengths[:, None] * torch.tensor([0.5, 0.3, 0.2]))
    assert hidden / words == pytest.approx(UNKNOWN, abs=0.05)


def test_variants_are_a_function_of_the_step_and_new_in_each(tmp_path):
    """Asked for again, a step gives the same, whatever was asked before; the next epoch's is another."""
    preparation = prepared(tmp_path)
    stage = preparation.stages[-1]

    def ids(step: int) -> list[list[int]]:
        torch.manual_seed(step)  # as training does
        lessons = teacher_lessons(preparation, Witnesses()).at(step)
        return [row.tolist() for lesson in lessons for row in lesson.batch.input_ids]

    assert ids(3) == ids(3)
    assert len({str(ids(step)) for step in range(stage.total_steps)}) == stage.total_steps
    # All texts are equally long, so equal random numbers would show in equal lengths.
    lengths = {str([np.count_nonzero(row) for row in ids(step)]) for step in range(stage.total_steps)}
    assert len(lengths) > stage.total_steps / 2


def test_the_batches_of_a_step_differ_in_their_variants(tmp_path):
    """One stream of random numbers runs through all batches of a step."""
    teachers = Witnesses()
    teacher_lessons(prepared(tmp_path), teachers).at(0)
    shapes = [(ids != 0).sum(dim=1).tolist() for ids in teachers.asked]
    assert shapes[0] != shapes[1]


def word_lessons(preparation: Preparation) -> WordLessons:
    return WordLessons(preparation, preparation.stages[0], device=CPU)


def test_hidden_words_are_to_be_found_among_those_of_the_batch(tmp_path):
    """A third of the words, never [CLS], is `[MASK]` without letters; the answers are what stood there."""
    preparation = prepared(tmp_path, {"epochs": 2, "masked_fraction": 0.3})
    assert [stage.name for stage in preparation.stages] == ["pretraining", "teacher 1", "model"]
    torch.manual_seed(0)
    hidden = words = 0
    for step in range(8):
        for lesson, indices in zip(
            word_lessons(preparation).at(step), preparation.stages[0].batches(step), strict=True
        ):
            whole = pad(preparation.train_texts, indices)
            assert torch.equal(lesson.batch.input_ids == MASK_ID, lesson.is_hidden)
            assert torch.equal(lesson.batch.input_ids[~lesson.is_hidden], whole.input_ids[~lesson.is_hidden])
            assert torch.equal(lesson.candidates[lesson.answers], whole.input_ids[lesson.is_hidden])
            assert set(lesson.candidates.tolist()) == set(whole.input_ids.flatten().tolist())
            assert not lesson.is_hidden[:, 0].any()
            assert lesson.weight == lesson.is_hidden.sum()
            spelling = lesson.batch.spelling
            letters = spelling.offsets.diff()[spelling.words]
            assert (letters[lesson.is_hidden] == 0).all()
            assert (letters[:, 1:][~lesson.is_hidden[:, 1:]] > 0).all()
            hidden, words = hidden + int(lesson.is_hidden.sum()), words + whole.input_ids[:, 1:].numel()
    assert hidden / words == pytest.approx(0.3, abs=0.08)


def test_the_loss_of_hidden_words_is_that_of_a_softmax_with_the_tokens_own_vectors(tmp_path):
    """Over the words of the batch; its gradients stay sparse, so that a step costs what the batch touches."""
    preparation = prepared(tmp_path, {"epochs": 1, "masked_fraction": 0.5})
    model = preparation.new_model(preparation.stages[0]).eval()
    lesson = word_lessons(preparation).at(0)[0]
    vectors = model.encoder(*lesson.batch)[lesson.is_hidden]
    scores = vectors @ model.encoder.embedding.tokens.weight[lesson.candidates].T
    expected = -scores.log_softmax(dim=1)[torch.arange(len(scores)), lesson.answers].sum()
    loss = lesson.loss(model)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert model.encoder.embedding.tokens.weight.grad.is_sparse


def test_a_batch_in_which_nothing_is_hidden_teaches_nothing_and_breaks_nothing(tmp_path):
    """By chance no word is hidden: the loss is 0, not 0 / 0."""
    preparation = prepared(tmp_path, {"epochs": 1, "masked_fraction": 1e-9})
    model = preparation.new_model(preparation.stages[0])
    lesson = word_lessons(preparation).at(0)[0]
    assert not lesson.is_hidden.any()
    loss = lesson.loss(model) / lesson.weight
    loss.backward()
    assert loss.item() == 0


def test_a_validation_of_pretraining_hides_the_same_words_each_time(tmp_path):
    """So that its losses compare; the model is left as it was, and a lower loss ranks higher."""
    preparation = prepared(tmp_path, {"epochs": 1, "masked_fraction": 0.5})
    model = preparation.new_model(preparation.stages[0]).train()
    lessons = word_lessons(preparation)
    calls = []
    first = lessons.validate(model, lambda: calls.append(1))
    torch.rand(3)
    assert lessons.validate(model, lambda: None) == first
    assert calls
    assert model.training
    assert first.rank == (-first.scores["loss"],) * 2
    with torch.no_grad():
        model.encoder.embedding.tokens.weight.fill_(torch.nan)
    assert lessons.validate(model, lambda: None) is None
