"""Choose the unlabelled texts to label next.

Candidates are the texts with the most uncertain predictions (`Task.uncertainty`): those whose two
best classes are nearly equally probable; in a multi-label task, those whose labels are probably not
all right. Many of these texts are similar to each other.
To choose different texts, the most uncertain texts are clustered, weighted by their uncertainty,
and the text nearest to the centre of each cluster is chosen (Zhdanov, "Diverse Mini-Batch Active
Learning", 2019, https://arxiv.org/abs/1901.05954). The vectors are hashed n-grams (Weinberger et
al., 2009, https://arxiv.org/abs/0902.2206), so that n-grams outside the vocabulary count as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.bulk.input_size import choose_engine
from encoder_cls.bulk.input_texts import Chunk, InputTexts, size_of
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.load_dataset import load_data
from encoder_cls.data.reading.rows import Row
from encoder_cls.errors import EncoderClsError
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear.ngrams import count_features, find
from encoder_cls.run.reloaded_data import config_with_moved_data
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.display import counted, shown
from encoder_cls.system.fields import field_of
from encoder_cls.system.terminal import note
from encoder_cls.text.tokens import TokenizedTexts

# The number of uncertain texts that are kept for each text to choose.
CANDIDATES = 10
# The number of iterations of k-means.
ROUNDS = 10
# The cosine distance below which a text counts as a copy of another text.
NEAR_COPY = 0.1

# The number of dimensions of a vector of hashed n-grams.
DIMENSIONS = 1024
# The multiplier of Knuth's multiplicative hashing, which spreads neighbouring ids.
HASH_MULTIPLIER = 2654435761

Vectors = NDArray[np.float32]


class PoolSuggestions(NamedTuple):
    """The texts of an input that may be labelled next, and the classifier that predicted them.

    Attributes:
        suggestions: the chosen texts, the most useful first.
        texts: the whole input.
    """

    suggestions: list[Suggestion]
    texts: InputTexts
    classifier: Classifier


class Suggestion(NamedTuple):
    """A text that may be labelled next.

    Attributes:
        uncertainty: how uncertain the prediction is, from 0 to 1.
        vector: the hashed n-grams of the text, (DIMENSIONS,).
    """

    row: Row
    prediction: Prediction
    uncertainty: float
    vector: Vectors


def suggest_from(
    source: str,
    run: Path,
    number: int,
    *,
    text_columns: Sequence[str] | None,
    reading: Mapping[str, Any],
) -> PoolSuggestions:
    """Choose `number` texts of an input to label next, by the model of a run.

    Without `text_columns`, and but for the options of `reading`, files are read as in training.

    Rows that have a label in the label column of the training data are left out, and so are the
    texts of the run's data, which have labels there.

    Raises:
        DataError: the input is missing or malformed.
    """
    classifier = load_classifier(run)
    text_format = classifier.text_format
    label_column = text_format.label_column
    texts = InputTexts(
        source,
        text_columns or text_format.columns,
        text_format.reading.overridden(**reading),
        keep_columns=True,
    )
    choose_engine(classifier, size_of(texts.files))

    with Progress(texts.files, doing="classified") as progress:
        known = _hashes_of_run(run)
        rows = _UnlabelledRows(texts, label_column, known, progress)
        suggestions = suggest(classifier, rows.chunks(), number)

    for warning in texts.skipped_rows():
        note(warning)
    if rows.num_labelled:
        note(
            f"{source}: {counted(rows.num_labelled, 'row')} with a label in column "
            f"{shown(label_column)} left out"
        )
    if rows.num_known:
        note(
            f"{source}: {counted(rows.num_known, 'row')} left out whose text has a label "
            "in the data of the run"
        )
    if len(suggestions) < number:
        note(f"warning: {source}: has only {len(suggestions):,} different texts to suggest")
    return PoolSuggestions(suggestions, texts, classifier)


class _UnlabelledRows:
    """The rows of an input that have no label.

    `num_labelled` counts the rows with a label that have been read, and `num_known` those without a
    label whose text has one in the data of the run.
    """

    def __init__(
        self, texts: InputTexts, label_column: str, known: Set[int], progress: Progress
    ) -> None:
        self._texts = texts
        self._known = known
        self._label_column = label_column
        self._progress = progress
        self.num_labelled = 0
        self.num_known = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in chunks, which may be empty, and show how many rows are done."""
        for chunk in self._texts.chunks(self._progress.note):
            unlabelled = [row for row in chunk if not has_label(row, self._label_column)]
            self.num_labelled += len(chunk) - len(unlabelled)
            unknown = [row for row in unlabelled if _hash_of(row.text) not in self._known]
            self.num_known += len(unlabelled) - len(unknown)
            yield unknown
            self._progress.done(chunk[-1].where, len(chunk))


def _hashes_of_run(path: Path) -> set[int]:
    """The hashes of all labelled texts of a run; empty for a model without its run."""
    run = run_of(path)
    if run is None:
        return set()

    try:
        dataset = load_data(config_with_moved_data(run))
    except EncoderClsError as error:
        note(f"warning: texts of the run's data may be suggested, which cannot be read: {error}")
        return set()
    return {_hash_of(text) for split in dataset.splits.values() for text in split.texts}


def _hash_of(text: str) -> int:
    """A hash that is equal for texts that differ only in case and white space."""
    return hash(" ".join(text.casefold().split()))


def has_label(row: Row, label_column: str) -> bool:
    """Whether a row has a label in a column. An empty list is a label: that there are none."""
    try:
        label = field_of(row.record or {}, label_column)
    except KeyError:
        return False
    return label is not None and str(label).strip() != ""


def suggest(classifier: Classifier, chunks: Iterable[Chunk], number: int) -> list[Suggestion]:
    """Choose texts to label next, the most useful first.

    Blank texts are left out, and so are texts that differ from an earlier text only in case and
    white space. There are fewer than `number` if too few texts differ from each other. The memory
    in use is a hash of each text, and `CANDIDATES` texts for each text to choose.
    """
    num_candidates = CANDIDATES * number
    seen: set[int] = set()
    best: list[Suggestion] = []
    for chunk in chunks:
        new_rows = []
        for row in chunk:
            key = _hash_of(row.text)
            if key not in seen:
                seen.add(key)
                new_rows.append(row)

        best += _candidates(classifier, new_rows, num_candidates)
        best.sort(key=lambda candidate: -candidate.uncertainty)
        del best[num_candidates:]

    if not best:
        return []
    uncertainty = np.array([candidate.uncertainty for candidate in best])
    vectors = np.stack([candidate.vector for candidate in best])
    return [best[index] for index in choose(uncertainty, vectors, number)]


def _candidates(classifier: Classifier, rows: Sequence[Row], max_texts: int) -> list[Suggestion]:
    """The most uncertain of these texts, without blank texts."""
    if not rows:
        return []
    tokenized = classifier.tokenize([row.text for row in rows])
    predictions = classifier.predict_tokenized(tokenized)

    probabilities = np.array([[*prediction.probabilities.values()] for prediction in predictions])
    uncertainty = classifier.task.uncertainty(
        probabilities, classifier.task.predictions(probabilities, classifier.thresholds)
    )
    most_uncertain = np.argsort(-uncertainty, kind="stable")[:max_texts].tolist()
    # A blank text has no label.
    indices = [index for index in most_uncertain if predictions[index].label]

    chosen_texts = tokenized.take(np.array(indices, dtype=np.int64))
    vectors = ngram_vectors(chosen_texts, classifier.linear)
    candidates = []
    for index, vector in zip(indices, vectors, strict=True):
        candidate = Suggestion(
            row=rows[index],
            prediction=predictions[index],
            uncertainty=float(uncertainty[index]),
            vector=vector,
        )
        candidates.append(candidate)
    return candidates


def choose(uncertainty: NDArray[np.float64], vectors: Vectors, number: int) -> list[int]:
    """Choose texts that represent many uncertain texts and are unlike each other, at most `number`.

    The uncertainty of each text is from 0 to 1, (texts,), and its vector has length 1, (texts,
    dimensions). The result has indices, the most useful text first.
    """
    centres = vectors[_spread_out(uncertainty, vectors, [], number)]
    for _ in range(ROUNDS):
        # Each text is a member of the cluster with the nearest centre.
        # nearest: (texts,); is_member: (clusters, texts).
        nearest = (vectors @ centres.T).argmax(axis=1)
        is_member = nearest == np.arange(len(centres))[:, None]

        # The new centre is the mean of the members, weighted by their uncertainty and scaled to
        # length 1. The centre stays as it was if there are no members or their weights are 0.
        sums = (is_member * uncertainty).astype(np.float32) @ vectors
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        is_zero = lengths == 0
        centres = np.where(is_zero, centres, sums / np.where(is_zero, 1, lengths))

    # Choose the member that is nearest to the centre of each cluster, unless it is a copy of a
    # text that has been chosen.
    nearness = np.where(is_member, centres @ vectors.T, -np.inf)
    chosen: list[int] = []
    for cluster in np.flatnonzero(is_member.any(axis=1)):
        index = int(nearness[cluster].argmax())
        if all(1 - vectors[index] @ vectors[other] >= NEAR_COPY for other in chosen):
            chosen.append(index)
    return _spread_out(uncertainty, vectors, chosen, number)


def _spread_out(
    uncertainty: NDArray[np.float64], vectors: Vectors, chosen: Sequence[int], number: int
) -> list[int]:
    """Add uncertain texts that are far from the chosen ones, without near copies, up to `number`.

    `uncertainty` is (texts,), from 0 to 1; `vectors` are of length 1, (texts, dimensions); texts
    are given and returned as indices.
    """
    chosen = list(chosen)

    # The cosine distance of each text to the nearest chosen text, (texts,).
    distances = np.ones(len(uncertainty))
    for index in chosen:
        distances = np.minimum(distances, 1 - vectors @ vectors[index])

    while len(chosen) < min(number, len(uncertainty)):
        scores = np.where(distances < NEAR_COPY, -1, uncertainty * distances)
        scores[chosen] = -1
        best = int(scores.argmax())
        if scores[best] < 0:
            break
        chosen.append(best)
        distances = np.minimum(distances, 1 - vectors @ vectors[best])
    return chosen


def ngram_vectors(texts: TokenizedTexts, linear: LinearModel | None) -> Vectors:
    """Hash the n-grams of texts, weighted by inverse document frequency.

    The vectors are of length 1, (texts, DIMENSIONS).
    """
    max_tokens = texts.max_seq_len
    frequent_token_ids = np.zeros(0, dtype=np.int32)
    if linear:
        max_tokens = linear.max_tokens
        frequent_token_ids = linear.frequent_token_ids

    pieces = [np.zeros((0, DIMENSIONS), dtype=np.float32)]
    for counts in count_features(
        texts,
        max_tokens=max_tokens,
        frequent_token_ids=frequent_token_ids,
        use_char_ngrams=True,
    ):
        # Weight each n-gram of each text by its count and its inverse document frequency,
        # (n-grams,). An n-gram that the linear model does not know counts like the rarest n-gram
        # that the model knows, which is added at the end: `find` returns -1 for unknown n-grams.
        weights = 1 + np.log(counts.values)
        if linear:
            idf = np.append(linear.idf, linear.idf.max())
            weights *= idf[find(counts.ids, linear.feature_ids)][counts.columns]

        # Hash each n-gram to a dimension and a sign.
        ids = counts.ids[counts.columns].astype(np.int64)
        hashes = (ids * HASH_MULTIPLIER) >> 7
        dimensions = hashes % DIMENSIONS
        signs = np.where((hashes >> 20) & 1, 1, -1)

        # Add up the n-grams of each text in each dimension, (texts, DIMENSIONS).
        num_texts = len(counts)
        rows = np.repeat(np.arange(num_texts), np.diff(counts.offsets))
        sums = np.bincount(
            rows * DIMENSIONS + dimensions,
            weights=weights * signs,
            minlength=num_texts * DIMENSIONS,
        ).reshape(num_texts, DIMENSIONS)

        # Scale the vectors to length 1; a text without n-grams stays 0.
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        vectors = sums / np.where(lengths > 0, lengths, 1)
        pieces.append(vectors.astype(np.float32))
    return np.concatenate(pieces)
