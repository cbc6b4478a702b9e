"""Read the data, train the tokenizer and make the plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import Config
from encoder_cls.data.load import config_of_base, load_all_data
from encoder_cls.data.reading.rows import Row
from encoder_cls.encoder.architecture import EncoderArchitecture
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.held_out_answers import HeldOutAnswers
from encoder_cls.run.checkpoint import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.text.tokenized_data import tokenized_data
from encoder_cls.training.plan import (
    LINEAR_LENGTHS,
    CorpusSize,
    Counts,
    TimeBudget,
    check_fits,
    check_least_fits,
    make_plan,
)
from encoder_cls.training.prepared import Prepared, model_rows


def prepare(
    config: Config,
    *,
    train_rows: Iterable[Row] | None = None,
    started: float | None = None,
    reporter: Reporter = SILENT,
) -> Prepared:
    """Prepare a run; `train_rows` as in `load_dataset`, `started` as in `TimeBudget`.

    Raises:
        StoppedError: a signal arrived while a sub-word tokenizer was trained.
        DataError: the data is missing, malformed or not enough.
        ConfigError: the config does not fit the data or the base run, or the time budget ends before training starts.
    """
    budget = TimeBudget(config, started=started)

    def check_budget() -> None:
        if budget.seconds_for(pretraining=False) == 0:
            raise ConfigError(
                f"train.time_budget: it ends while the {config.tokenizer.type} tokenizer is trained; give it more "
                "time, or set tokenizer.type=word_level, which takes seconds"
            )

    reporter.working(f"reading {config.data.train}")
    run = _base_run(config.from_run, config) if config.from_run else None
    base = load_classifier(run.model, device="cpu", engine="numpy") if run else None
    # Without one a new one is trained.
    base_encoder = base.encoder if base and config.model.encoder else None
    if run and base_encoder and base_encoder.architecture != EncoderArchitecture.of(config.model):
        raise ConfigError(
            f"model: the encoder of {run.path} has another shape; leave the section out to keep it"
        )
    if train_rows is None:
        check_least_fits(config, seconds=budget.left)
    dataset = load_all_data(config, train_rows=train_rows, reporter=reporter)
    if run and dataset.base:
        known = newest_fingerprint(run.checkpoints)
        for kind, split in (
            ("training", dataset.base.train),
            ("validation", dataset.base.selection),
        ):
            if known.get(f"{kind}_data", split.fingerprint) != split.fingerprint:
                source = run.load_config().data.train
                raise DataError(
                    f"{run.path}: its {kind} data ({source}) has changed since it was trained"
                )
    check_fits(config, dataset)
    reporter.working(f"tokenizing {len(dataset.train):,} texts")
    tokens = tokenized_data(
        dataset.texts_to_learn,
        dataset.selection.texts,
        config,
        fingerprints=[
            part.fingerprint for part in (dataset.train, dataset.unlabelled, dataset.selection)
        ],
        base=base.tokenizer if base else None,
        check=check_budget,
        reporter=reporter,
    )
    texts, num_labelled = tokens.texts, len(dataset.train)
    lengths = [part * config.model.max_seq_len for part in LINEAR_LENGTHS]
    counts = Counts(
        labelled=num_labelled,
        unlabelled=len(texts) - num_labelled,
        validation=len(tokens.validation_texts),
        classes=len(dataset.label_names),
        corpus=CorpusSize.of(texts.lengths, config),
        linear_tokens={it: int(texts.lengths_within(it)[:num_labelled].sum()) for it in lengths},
        is_multi_label=dataset.is_multi_label,
        has_base_encoder=base is not None and base.encoder is not None,
    )

    def model_corpus(has_pseudo_labels: bool) -> CorpusSize:
        return CorpusSize.of(
            texts.lengths[model_rows(texts, num_labelled, has_pseudo_labels)], config
        )

    plan = make_plan(config, counts, model_corpus=model_corpus)
    reporter.working("")
    return Prepared(
        config=config, dataset=dataset, plan=plan, budget=budget, base=base, **tokens._asdict()
    )


def _base_run(path: str, config: Config) -> RunDir:
    """Check that a base run is finished and has the same tokenizer."""
    run, base_config = RunDir(Path(path)), config_of_base(path)
    if not run.is_finished():
        raise ConfigError(f"{run.path}: is not a finished run; finish it first (train --resume)")
    if base_config.tokenizer != config.tokenizer:
        raise ConfigError(
            f"tokenizer: {run.path} has another tokenizer, which has to stay; leave the section out"
        )
    if run.held_out_answers.exists():
        HeldOutAnswers.read(run.held_out_answers)  # which the report needs
    return run
