"""Training beside a linear model: what of it is fitted, validated and kept."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.events import Stepped, StepsDecided, Validated, recorded, train_until
from support.small_runs import (
    COLOURS,
    CPU,
    WITH_LINEAR,
    make_config,
    metric_rows,
    model_hash,
    run_all,
)

from encoder_cls.classifier import validation
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.encoder.distributed import ALONE
from encoder_cls.errors import StoppedError
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions
from encoder_cls.evaluation.report_text import full_text
from encoder_cls.linear.features import CountedTexts, LinearOptions
from encoder_cls.linear.nb_svm import fit_linear
from encoder_cls.metrics.classification import cross_entropy, one_hot
from encoder_cls.metrics.logits import softmax
from encoder_cls.run.evaluate import evaluate_run
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT
from encoder_cls.system.stop import stopping_at
from encoder_cls.training import linear_fit
from encoder_cls.training import plan as training_plan
from encoder_cls.training.encoder import Targets
from encoder_cls.training.linear import shared_pseudo_labels
from encoder_cls.training.linear_fit import fit_linear_classifier
from encoder_cls.training.prepare import prepare
from encoder_cls.training.prepared import Prepared
from encoder_cls.training.train import train


@pytest.mark.usefixtures("encoder_joins")
def test_the_linear_classifier_is_the_model_from_the_start(tmp_path):
    """A run that is stopped before the encoder's first validation leaves it; then only its weights' file changes."""
    config, run = (
        make_config(tmp_path, **WITH_LINEAR, pretrain={"epochs": 1}),
        RunDir(tmp_path / "run"),
    )
    *_, event = train_until(
        lambda event: isinstance(event, Validated), prepare(config), run, device=CPU
    )
    assert (event.name, event.step, event.is_best) == ("model", 0, True)
    first, config_json = load_classifier(run.path), (run.model / "config.json").read_bytes()
    assert first.parts == ("linear",)
    assert first.logits(prepare(config).texts).shape == (48, 3)
    assert first.mixture.weights != {"linear": 1.0}
    run_all(config, run.path, resume=True)
    assert load_classifier(run.path).parts == ("encoder", "linear")
    assert (run.model / "config.json").read_bytes() == config_json
    steps = [row["step"] for row in metric_rows(run.path) if row["split"] == "validation"]
    assert steps == [0, 12, 18, 24]


def is_after_first_validation(event) -> bool:
    return isinstance(event, Stepped) and event.step == 7


@pytest.mark.usefixtures("encoder_joins")
def test_a_run_that_goes_on_keeps_the_better_model(tmp_path, monkeypatch):
    """The linear model, which is fitted again, does not take its place."""
    accuracies = iter([0.4, 0.5, 0.9, 0.5, 0.8, 0.7])
    real = validation.compute_metrics
    monkeypatch.setattr(
        validation, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(accuracies))
    )
    config, run = make_config(tmp_path, linear=True, monitor="accuracy"), RunDir(tmp_path / "run")
    train_until(is_after_first_validation, prepare(config), run, device=CPU)
    before = model_hash(run.path)
    events = run_all(config, run.path, resume=True, with_report=False)
    assert [event.is_best for event in events if isinstance(event, Validated)][-2:] == [
        False,
        False,
    ]
    assert model_hash(run.path) == before
    assert load_classifier(run.path).parts == ("encoder", "linear")


@pytest.mark.usefixtures("encoder_joins")
def test_an_encoder_that_brings_nothing_is_left_out(tmp_path, monkeypatch):
    """The model is then the linear model alone, also where its best step was before a stop."""
    # Fitted again, the linear model is as good as it was.
    accuracies = iter([0.4, 0.9, 0.5, 0.9, 0.8, 0.7])
    real = validation.compute_metrics
    monkeypatch.setattr(
        validation, "compute_metrics", lambda *args: replace(real(*args), accuracy=next(accuracies))
    )
    config = make_config(tmp_path, linear=True, monitor="accuracy")
    signals = []

    def stop_after_validation(event) -> None:
        if isinstance(event, Validated) and event.step:
            signals.append(15)

    with pytest.raises(StoppedError), stopping_at(lambda: signals[0] if signals else None):
        run = RunDir(tmp_path / "run")
        recorded(prepare(config), run, on_event=stop_after_validation, device=CPU)
    events = run_all(config, tmp_path / "run", resume=True)
    assert [event.is_best for event in events if isinstance(event, Validated)] == [False, False]
    assert events[-1].best_step == 0
    assert events[-1].gain == ("accuracy", 0.9, 0.8)
    assert load_classifier(tmp_path / "run").parts == ("linear",)


def test_without_time_for_an_encoder_there_is_a_linear_classifier(tmp_path):
    """Of a run that may take next to no time, with the report on it."""
    config = make_config(tmp_path, linear=True, pretrain={"epochs": 1}, time_budget="0.001s")
    events = run_all(config, tmp_path / "run")
    decided = [(event.name, event.steps) for event in events if isinstance(event, StepsDecided)]
    assert decided == [("pretraining", 0), ("model", 0)]
    assert not any(isinstance(event, Stepped) for event in events)
    assert events[-1].gain.with_encoder is None
    assert RunDir(tmp_path / "run").is_finished()
    assert load_classifier(tmp_path / "run").parts == ("linear",)


@pytest.mark.parametrize("fit", ["fit_linear", "fit_linear_from_few_labels"])
def test_a_model_exists_while_the_linear_classifier_is_fitted(tmp_path, monkeypatch, fit):
    """Calibrated, and it answers; of a run that goes on, the model that was there stays."""
    run, found = RunDir(tmp_path / "run"), []
    monkeypatch.setattr(training_plan, "MOST_LABELLED", 100 if "few" in fit else 0)
    setup = prepare(make_config(tmp_path, linear=True))
    real = getattr(linear_fit, fit)

    def looked(*args, **options):
        if options.get("is_quick"):  # of words and pairs alone
            assert not args[0].vocabulary.options.char_ngrams
        if not (options.get("is_quick") or options.get("choice")):
            classifier = load_classifier(run.path)
            found.append((model_hash(run.path), classifier.predict(["w1 red end"])[0].label))
        return real(*args, **options)

    monkeypatch.setattr(linear_fit, fit, looked)
    train_until(is_after_first_validation, setup, run, device=CPU)
    before = model_hash(run.path)
    run_all(setup.config, run.path, resume=True, with_report=False)
    (first, label), (again, _) = found
    assert label == "red"
    assert first != before == again


def test_too_much_text_for_a_linear_classifier_leaves_the_encoder_as_the_model(
    tmp_path, monkeypatch
):
    for limit in ("MOST_LINEAR_TEXT", "MOST_STREAMED_WORK"):
        monkeypatch.setattr(training_plan, limit, 10)
    run_all(make_config(tmp_path, linear=True), tmp_path / "run")
    classifier = load_classifier(tmp_path / "run")
    assert (classifier.linear, len(classifier.mixture.weights)) == (None, 1)
    assert not [
        key for row in metric_rows(tmp_path / "run") for key in row if key.startswith("linear")
    ]


def test_a_heavier_class_is_preferred_in_doubt(tmp_path):
    """By the encoder: where words decide nothing, all texts are of that class, or none."""
    texts = [f"w{i // 3 % 20}" for i in range(180)]  # each word is as often in each class
    rows = [f"{text},{COLOURS[i % 3]}" for i, text in enumerate(texts)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    shares = []
    for weight in (0.1, 10.0):
        # One validation, at the end: which weights are best is chance here.
        run_all(
            make_config(tmp_path, class_weights={"red": weight}, validate_every=1000),
            tmp_path / str(weight),
        )
        predictions = load_classifier(tmp_path / str(weight)).predict(texts)
        shares.append(np.mean([prediction.label == "red" for prediction in predictions]))
    assert shares[0] < 0.1
    assert shares[1] > 0.9


def test_the_loss_of_the_best_validation_is_that_of_the_report(tmp_path):
    """Also where classes have weights in training: both rows are of the same texts, each counting once."""
    run_all(make_config(tmp_path, **WITH_LINEAR, class_weights={"red": 10.0}), tmp_path / "run")
    rows = metric_rows(tmp_path / "run")
    best = next(row for row in rows if row["split"] == "best_validation")
    (validation,) = (
        row for row in rows if (row["split"], row["step"]) == ("validation", best["step"])
    )
    for name in ("loss", "accuracy", "macro_f1", "ece"):
        assert best[name] == pytest.approx(validation[name], abs=0.01), name


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory) -> Prepared:
    """Sixty texts with a label, 200 without: two words of their class's, and one of anybody's."""
    folder = tmp_path_factory.mktemp("few")
    random = np.random.default_rng(1)
    words = random.permutation([f"{a}{b}{c}" for a in "bdfgklmnpr" for b in "aeiou" for c in "xz"])
    texts = [
        " ".join([*random.choice(words[30 * (i % 3) :][:30], 2), random.choice(words)])
        for i in range(260)
    ]
    (folder / "train.csv").write_text(
        "\n".join(["text,label", *(f"{texts[i]},{COLOURS[i % 3]}" for i in range(60))])
    )
    (folder / "more.txt").write_text("\n".join(texts[60:]))
    data = {"unlabelled": str(folder / "more.txt")}
    return prepare(make_config(folder, linear=True, epochs=2, data=data, model={"encoder": True}))


def test_few_labels_held_out_are_learned_from_and_judged_by_cross_validation(
    tmp_path, few_and_many
):
    """The classifier of all labels is saved; validation, report and `eval` go by what it said before it knew them."""
    setup, run = few_and_many, RunDir(tmp_path / "run")
    train(setup, run, device=CPU)
    fitted = fit_linear_classifier(setup)
    saved, labels = load_classifier(run.model), setup.dataset.selection.labels
    known = saved.linear.logits(setup.validation_texts)
    assert np.array_equal(
        known.argmax(axis=1), fitted.classifier.linear.logits(setup.validation_texts).argmax(axis=1)
    )
    teacher = fitted.few_labels.teacher.logits(setup.validation_texts)
    # It has seen none of them, and some more texts without a label.
    assert np.corrcoef(fitted.validation_logits.ravel(), teacher.ravel())[0, 1] > 0.9
    assert cross_entropy(softmax(known), one_hot(labels, 3)) < cross_entropy(
        softmax(teacher), one_hot(labels, 3)
    )
    table = HeldOutPredictions.read(run.held_out_predictions)
    assert sorted(table.train.rows) == list(range(len(setup.dataset.train)))
    assert table.validation.rows.tolist() == list(range(len(labels)))
    kept = table.validation.logits
    assert np.array_equal(kept, fitted.validation_logits)
    accuracy = (kept.argmax(axis=1) == labels).mean()
    (first, row, *_) = (row for row in metric_rows(run.path) if row["split"] == "validation")
    assert first["accuracy"] == row["linear_accuracy"] == accuracy
    report = json.loads((run.eval / "report.json").read_bytes())
    assert report["parts"]["linear"]["accuracy"] == accuracy
    again = evaluate_run(run.path, data=None, folder=None, reporter=SILENT)
    assert again.evaluation.parts["linear"]["accuracy"] == accuracy
    assert again.metrics.accuracy == report["accuracy"]
    assert report["num_refitted"] == again.run_findings.num_refitted == len(labels) > 1
    line = f"also trained on {len(labels)} validation texts; the scores here are from before"
    assert line in full_text(again)
    assert line in (run.eval / "report.html").read_text(encoding="utf-8")


def test_texts_held_out_are_learned_from_in_the_end(tmp_path, monkeypatch):
    """With the penalty and the calibration that they have chosen; validation goes by what was said of them before."""
    monkeypatch.setattr(training_plan, "MOST_LABELLED", 0)
    config, run = make_config(tmp_path, linear=True), RunDir(tmp_path / "run")
    setup = prepare(config)
    train(setup, run, device=CPU)
    saved, read, texts = (
        load_classifier(run.model).linear,
        setup.plan.linear,
        setup.validation_texts,
    )
    reading = LinearOptions(read.max_tokens, True, np.ones(3, np.float32))
    train_split = setup.dataset.train
    before, _ = fit_linear(
        CountedTexts.of(setup.train_texts, train_split.labels, reading),
        together=train_split.together,
    )
    kept = HeldOutPredictions.read(run.held_out_predictions).validation.logits
    assert np.allclose(kept, before.logits(texts), atol=1e-4)
    labels = one_hot(setup.dataset.selection.labels, 3)
    assert cross_entropy(softmax(saved.logits(texts)), labels) < cross_entropy(
        softmax(kept), labels
    )
    assert len(saved.feature_ids) > len(before.feature_ids)
    assert (
        "the linear model in the end also on the 12 held out for validation"
        in run.model_card.read_text()
    )


@pytest.mark.parametrize("names_a_file", [False, True])
def test_texts_that_a_base_run_held_out_are_not_learned_from(tmp_path, monkeypatch, names_a_file):
    """The plan's tests have the other reasons."""
    if not names_a_file:  # whose labels are left alone also where labels are few
        monkeypatch.setattr(training_plan, "MOST_LABELLED", 0)
    data = {"validation": str(tmp_path / "train.csv")} if names_a_file else {}
    run_all(make_config(tmp_path, **WITH_LINEAR, epochs=1, data=data), tmp_path / "former")
    (tmp_path / "new").mkdir()
    new = make_config(tmp_path / "new", linear=True, texts=90)
    setup = prepare(new.model_copy(update={"from_run": str(tmp_path / "former")}))
    fitted = fit_linear_classifier(setup)
    assert np.array_equal(
        fitted.validation_logits, fitted.classifier.linear.logits(setup.validation_texts)
    )


def test_the_encoder_learns_a_teachers_predictions_for_texts_without_labels(few_and_many):
    """One that has not seen the validation labels; labels stay what they are, and every text is there."""
    setup = few_and_many
    fitted = fit_linear_classifier(setup)
    num_labelled = len(setup.dataset.train)
    rows = setup.model_rows
    assert len(rows) == len(setup.texts) == num_labelled + 200
    pseudo_labels = shared_pseudo_labels(setup, fitted, ALONE)
    targets = Targets(setup, pseudo_labels, device=CPU).of(np.arange(len(rows))).numpy()
    labels = np.eye(3)[setup.dataset.train.labels]
    assert np.array_equal(targets[:num_labelled], labels)
    said = softmax(fitted.few_labels.teacher.logits(setup.texts))[num_labelled:]
    assert np.allclose(targets[num_labelled:], said, atol=1e-6)
    assert setup.where(rows[num_labelled]).endswith("more.txt:1")
    train_config, learned = setup.config.train, []
    for is_on in (True, False):
        changed = train_config.model_copy(update={"epochs": "auto", "pseudo_labels": is_on})
        learned.append(prepare(setup.config.model_copy(update={"train": changed})))
    assert [len(it.model_texts) for it in learned] == [num_labelled + 200, num_labelled]
    assert learned[0].plan.training.epochs < learned[1].plan.training.epochs
    assert fit_linear_classifier(learned[1]).few_labels.teacher is None


def test_texts_that_were_learned_from_are_no_measure_of_what_is_usual(tmp_path, few_and_many):
    """New texts of the same kind are not called unfamiliar, as they would be beside texts whose words are known."""
    setup, run = few_and_many, RunDir(tmp_path / "run")
    config = setup.config.model_copy(
        update={"model": setup.config.model.model_copy(update={"encoder": False})}
    )
    # Half of the labels, so that there are held-out texts enough.
    data = config.data.model_copy(update={"validation_fraction": 0.5, "unlabelled": None})
    train(prepare(config.model_copy(update={"data": data})), run, device=CPU)
    classifier = load_classifier(run.model)
    assert classifier.familiarity
    new = [setup.dataset.unlabelled.texts[i] for i in range(100)]
    assert np.mean([prediction.unfamiliar for prediction in classifier.predict(new)]) < 0.2
    assert all(
        prediction.unfamiliar for prediction in classifier.predict(["zzz yyy xxx qqq", "qqq zzz"])
    )
