"""Choose the unlabelled texts to label next.

Margin sampling (Scheffer et al., 2001, https://doi.org/10.1007/3-540-44816-0_31) takes the texts whose two best classes
are nearly equally probable. In a batch, many of these are alike. So the most uncertain texts are clustered, weighted by
their uncertainty, and the text nearest to the centre of each cluster is taken (Zhdanov, "Diverse Mini-Batch Active
Learning", 2019, https://arxiv.org/abs/1901.05954). The vectors are hashed n-grams (Weinberger et al., 2009,
https://arxiv.org/abs/0902.2206), so unknown words count, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.bulk.inputs import Progress, Source, choose_engine, size_of
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import ConfigError
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.ngrams import count_features, find
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.system.terminal import note
from encoder_cls.text.tokens import TokenizedTexts

CANDIDATES = 10  # the most uncertain texts, for each one to choose
ROUNDS = 10  # of k-means
NEAR_COPY = 0.1  # cosine distance below which a text is a copy
DIMENSIONS = 1024
HASH_MULTIPLIER = 2654435761  # Knuth's, which spreads neighbouring ids

Vectors = NDArray[np.float32]


class Suggestion(NamedTuple):
    """An unlabelled text, its prediction, the uncertainty of this, from 0 to 1, and its vector of n-grams."""

    item: Row
    prediction: Prediction
    uncertainty: float
    vector: Vectors


def suggest_from(request: Request, run: Path, number: int) -> tuple[list[Suggestion], Source]:
    """Choose texts to label next, with all columns, by the classifier of a run; also returns their source.

    A `ConfigError` if the classifier is multi-label; a `DataError` if the source is missing or malformed.
    """
    classifier = load_classifier(run)
    if classifier.task is MULTI_LABEL:
        raise ConfigError(
            f"{run}: suggest is for models with one label a text; this one is multi-label"
        )
    source = Source(request._replace(keep_columns=True), classifier)
    choose_engine(classifier, size_of(source.files))
    with Progress(source.files, doing="classified") as source.progress:
        suggestions = suggest(classifier, source.read(), number)
    for warning in source.skipped():
        note(warning)
    if len(suggestions) < number:
        note(f"warning: {request.source}: has only {len(suggestions):,} different texts to suggest")
    return suggestions, source


def suggest(classifier: Classifier, chunks: Iterable[list[Row]], number: int) -> list[Suggestion]:
    """Choose texts to label next, the most useful first; fewer if there are too few different ones.

    Blank texts, and those that differ from another in case and white space only, are left out. Memory holds a hash of
    each text, and `CANDIDATES` texts for each one to choose.
    """
    seen: set[int] = set()
    best: list[Suggestion] = []
    for chunk in chunks:
        new = []
        for item in chunk:
            key = hash(" ".join(item.text.casefold().split()))
            if key not in seen:
                seen.add(key)
                new.append(item)
        best += _candidates(classifier, new, CANDIDATES * number)
        best = sorted(best, key=lambda candidate: -candidate.uncertainty)[: CANDIDATES * number]
    if not best:
        return []
    uncertainty, vectors = (
        np.array([it.uncertainty for it in best]),
        np.stack([it.vector for it in best]),
    )
    return [best[index] for index in choose(uncertainty, vectors, number)]


def _candidates(classifier: Classifier, items: Sequence[Row], most: int) -> Iterator[Suggestion]:
    """The texts whose best class is least more probable than the next."""
    tokenized = classifier.tokenize([item.text for item in items])
    predictions = classifier.predict_tokenized(tokenized) if items else []
    two_best = np.array(
        [[probability for _, probability in it.top(2)] for it in predictions]
    ).reshape(-1, 2)
    uncertainty = 1 - (two_best[:, 0] - two_best[:, 1])
    rows = [
        row
        for row in np.argsort(-uncertainty, kind="stable")[:most].tolist()
        if predictions[row].label
    ]
    vectors = ngram_vectors(tokenized.take(np.array(rows, dtype=np.int64)), classifier.linear)
    for row, vector in zip(rows, vectors, strict=True):
        yield Suggestion(items[row], predictions[row], float(uncertainty[row]), vector)


def choose(uncertainty: NDArray[np.float64], vectors: Vectors, number: int) -> list[int]:
    """Choose texts that represent many uncertain ones and are unlike each other; returns their indices.

    Uncertainty is (texts,), from 0 to 1; vectors are (texts, dimensions), of length 1.
    """
    centres = vectors[_spread_out(uncertainty, vectors, [], number)]
    for _ in range(ROUNDS):
        cluster_of = (vectors @ centres.T).argmax(axis=1)
        is_member = cluster_of == np.arange(len(centres))[:, None]
        sums = (is_member * uncertainty).astype(np.float32) @ vectors
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), centres)
    nearness = np.where(is_member, centres @ vectors.T, -np.inf)
    chosen: list[int] = []
    for cluster in np.flatnonzero(is_member.any(axis=1)):
        index = int(nearness[cluster].argmax())
        if all(1 - vectors[index] @ vectors[other] >= NEAR_COPY for other in chosen):
            chosen.append(index)
    return _spread_out(uncertainty, vectors, chosen, number)


def _spread_out(
    uncertainty: NDArray[np.float64], vectors: Vectors, chosen: list[int], number: int
) -> list[int]:
    """Add uncertain texts that are far from those already chosen, up to `number` in all, without near copies."""
    chosen = list(chosen)
    distances = np.min(
        [np.ones(len(uncertainty)), *(1 - vectors @ vectors[index] for index in chosen)], axis=0
    )
    while len(chosen) < min(number, len(uncertainty)):
        scores = np.where(distances < NEAR_COPY, -1, uncertainty * distances)
        scores[chosen] = -1
        index = int(scores.argmax())
        if scores[index] < 0:
            break
        chosen.append(index)
        distances = np.minimum(distances, 1 - vectors @ vectors[index])
    return chosen


def ngram_vectors(texts: TokenizedTexts, linear: LinearClassifier | None) -> Vectors:
    """Hashed n-grams of texts, weighted by inverse document frequency, of length 1, (texts, DIMENSIONS)."""
    pieces = [np.zeros((0, DIMENSIONS), dtype=np.float32)]
    for counts in count_features(
        texts,
        max_tokens=linear.max_tokens if linear else texts.max_seq_len,
        frequent_token_ids=linear.frequent_token_ids if linear else np.zeros(0, dtype=np.int32),
        use_char_ngrams=True,
    ):
        weights = 1 + np.log(counts.values)
        if linear:
            weights *= np.append(linear.idf, linear.idf.max())[
                find(counts.ids, linear.feature_ids)
            ][counts.columns]
        hashes = counts.ids[counts.columns].astype(np.int64) * HASH_MULTIPLIER >> 7
        signs = np.where(hashes >> 20 & 1, 1, -1)
        rows = np.repeat(np.arange(len(counts)), np.diff(counts.offsets))
        cells = np.bincount(
            rows * DIMENSIONS + hashes % DIMENSIONS,
            weights=weights * signs,
            minlength=len(counts) * DIMENSIONS,
        ).reshape(len(counts), DIMENSIONS)
        lengths = np.linalg.norm(cells, axis=1, keepdims=True)
        pieces.append((cells / np.where(lengths > 0, lengths, 1)).astype(np.float32))
    return np.concatenate(pieces)
