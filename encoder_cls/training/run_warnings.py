"""What a run warns of before its first step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from encoder_cls.data.codes import code_warnings
from encoder_cls.data.data_warnings import data_warnings
from encoder_cls.system.display import listed
from encoder_cls.system.reporter import Reporter
from encoder_cls.text.row_tokens import known_values
from encoder_cls.text.tokens import MAX_LEARNED_LENGTH
from encoder_cls.training.prepared import Prepared

# The share of the training texts that may be truncated without a warning.
MAX_TRUNCATED = 0.05
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9.]*[0-9],[0-9]+")


def run_warnings(prepared: Prepared) -> Iterator[str]:
    """Warn of the data, and of texts that are not read completely."""
    config = prepared.config
    plan = prepared.plan
    yield from data_warnings(
        prepared.dataset,
        learns_validation=plan.refits_on_validation,
        have_levels=config.data.levels is not None,
    )
    yield from code_warnings(config.data, prepared.dataset.label_names)

    if plan.has_encoder and prepared.base and prepared.base.encoder is None:
        yield f"{config.from_run} has no encoder, so a new one is trained from scratch"

    if prepared.objective and not plan.has_encoder:
        yield "no encoder is trained, so the objective is never called"

    yield from _feature_warnings(known_values(prepared.tokenizer))

    if prepared.long_words:
        yield (
            f"words of more than {MAX_LEARNED_LENGTH} characters, which the "
            f"{config.tokenizer.type} tokenizer does not learn from: "
            f"{prepared.long_words:,}; are they attachments?"
        )

    truncated = prepared.encoder_texts.truncated.mean()
    if plan.has_encoder and truncated > MAX_TRUNCATED:
        yield (
            f"{truncated:.1%} of the training texts are longer than the "
            f"{config.model.max_seq_len:,} tokens that the encoder reads; a larger "
            "model.max_seq_len reads more of them, and takes longer"
        )


def _feature_warnings(known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Warn of columns beside the text of which little is learned."""
    without_values = [name for name, values in known.items() if not values]
    if without_values:
        yield (
            f"data.features: no value of {listed(without_values)} is in two rows, as of an empty "
            "column or an id, so it teaches hardly anything"
        )

    with_commas = []
    for name, values in known.items():
        num_with_comma = sum(bool(_NUMBER_WITH_COMMA.fullmatch(value)) for value in values)
        if 2 * num_with_comma > len(values):
            with_commas.append(name)
    if with_commas:
        yield (
            f"data.features: numbers in {listed(with_commas)} are written with a comma, so none "
            "counts by size; write 12.5 in place of 12,5"
        )


def report_warnings(prepared: Prepared, reporter: Reporter) -> None:
    """Pass the warnings to a reporter."""
    for message in run_warnings(prepared):
        reporter.warning(message)
