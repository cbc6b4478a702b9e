"""Lessons: what is learnt in a step is a function of the step, and what it says of each class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoder_cls.batching import pad
from encoder_cls.config import Config
from encoder_cls.lessons import HIDDEN, LabelLessons, TeacherLessons
from encoder_cls.preparation import Preparation, prepare
from encoder_cls.tokenizer import CLS_ID, UNK_ID

CPU = torch.device("cpu")
CLASSES = ["a", "b", "c"]


class Witnesses:
    """Teachers that say how many tokens each sequence has, and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[torch.Tensor] = []

    def probabilities(self, batch, texts, places, lengths) -> torch.Tensor:
        ids = batch.input_ids[batch.attention_mask].numpy()
        assert ((texts.input_ids(places) == ids) | (ids == UNK_ID)).all()
        assert (lengths == batch.attention_mask.sum(dim=1).numpy()).all()
        self.asked.append(batch.input_ids)
        return torch.from_numpy(lengths)[:, None] * torch.tensor([0.5, 0.3, 0.2])


def prepared(folder, **train_values: object) -> Preparation:
    """Thirty texts of five different words each."""
    rows = [f"{' '.join(f'w{i}x{place}' for place in range(5))},{CLASSES[i % 3]}" for i in range(30)]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    values = {
        "name": "test",
        "data": {"train": str(folder / "train.csv"), "validation": str(folder / "train.csv")},
        "model": {"d_model": 8, "num_layers": 1, "num_heads": 1, "d_ff": 8},
        "distillation": {"teachers": 1, "linear": False},
        "train": {"epochs": 2, "batch_size": 4, "accumulation_steps": 2, **train_values},
    }
    return prepare(Config.model_validate(values))


def label_lessons(preparation: Preparation) -> LabelLessons:
    return LabelLessons(preparation, preparation.stages[0], device=CPU)


def teacher_lessons(preparation: Preparation, teachers: Witnesses) -> TeacherLessons:
    return TeacherLessons(preparation, preparation.stages[-1], teachers, device=CPU, precision=torch.float32)


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
    assert hidden / words == pytest.approx(HIDDEN, abs=0.05)


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
