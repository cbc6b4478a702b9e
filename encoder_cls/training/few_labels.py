"""Few labelled texts in, many without labels beside them; a better linear classifier out than the labels alone give.

What is known to help with few labels is tried one after the other, and kept where the labelled texts show by
cross-validation that it helps: latent semantics, names of classes as texts, self-training, naive Bayes by EM. Whatever
is kept, the result is one weight a feature and class, so a model looks as it would without. Where nothing is kept it is
the classifier that `training/nbsvm` fits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import TrainConfig
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.logits import Logits
from encoder_cls.inference.row_table import compress
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.feature_corpus import FeatureCorpus, read_corpus
from encoder_cls.training.folds import NO_TEXTS, folds
from encoder_cls.training.nbsvm import fit_linear
from encoder_cls.training.recipe import LinearInput
from encoder_cls.training.technique_search import Techniques, TechniqueSearch

MOST_LABELLED = 2000  # texts: with 1,000 of them the gain is a point or two, or none, and the search takes its seconds
FEWEST_EXTRAPOLATED = 40  # labelled texts, from a quarter of which nothing is to be learned
FRACTIONS = (1.0, 0.5, 0.25)  # of the labels, from whose accuracies that with twice the labels is extrapolated


class FewLabelsResult(NamedTuple):
    """A classifier, and what cross-validation found out.

    Attributes:
        classifier: of all labelled texts.
        kept: the techniques that help.
        accuracy_before: of texts held out, without these.
        accuracy: the same with them.
        accuracy_with_twice: the one to be expected with twice as many labels; none: there are too few to tell.
        teacher: a classifier of all but the texts that were named to be held out, and
        logits_held_out: its logits of these.
    """

    classifier: LinearClassifier
    kept: Techniques
    accuracy_before: float
    accuracy: float
    accuracy_with_twice: float | None
    teacher: LinearClassifier
    logits_held_out: Logits


def fit_linear_from_few_labels(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    *,
    class_weights: NDArray[np.float32],
    read: LinearInput,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
) -> FewLabelsResult:
    """Train a linear classifier with whatever the labelled texts show to help.

    Args:
        texts: those with labels, then those without.
        labels: the classes of the first of them.
        names: the name of each class, as a text.
        class_weights: how much each class counts, (classes,).
        read: what of the texts is looked at.
        config: what is to be tried.
        together: of the texts with labels, as in `folds`.
        held_out: labelled texts that are one part of the cross-validation.
    """
    choices: dict[str, Any] = {
        "class_weights": class_weights,
        "max_tokens": read.max_tokens,
        "use_char_ngrams": read.use_char_ngrams,
    }
    corpus = read_corpus(texts, labels, names, dimensions=config.lsa_dimensions, **choices)
    parts = folds(together, first=held_out)
    search = TechniqueSearch(corpus, parts)
    before = search.best
    search.try_each(_worth_trying(config, corpus))
    found = search.best

    def learned_from(rows: NDArray[np.int64]) -> LinearClassifier:
        learned = search.learn_from(rows)
        return LinearClassifier(
            max_tokens=read.max_tokens,
            frequent_token_ids=corpus.frequent_token_ids,
            feature_ids=corpus.feature_ids,
            idf=corpus.idf,
            weights=compress(learned.weights, "float32"),
            biases=learned.biases,
        )

    rows = np.arange(len(labels))
    if found is before:
        classifier = fit_linear(texts.first(len(labels)), labels, parts=parts, **choices)
    else:
        classifier = learned_from(rows)
    return FewLabelsResult(
        classifier=classifier,
        kept=found.techniques,
        accuracy_before=before.accuracy,
        accuracy=found.accuracy,
        accuracy_with_twice=_accuracy_with_twice(search) if len(labels) >= FEWEST_EXTRAPOLATED else None,
        teacher=learned_from(np.setdiff1d(rows, held_out)) if len(held_out) else classifier,
        logits_held_out=found.logits[: len(held_out)],
    )


def _worth_trying(config: TrainConfig, corpus: FeatureCorpus) -> list[str]:
    """The techniques to try, in this order: those that the config wants and that have texts to learn from."""
    has_texts = len(corpus.unlabelled) > 0
    wanted = {
        "naive_bayes_em": config.naive_bayes_em and has_texts,
        "label_names": config.label_names_as_texts and len(corpus.names) > 0,
        "latent_semantics": config.lsa_dimensions > 0 and has_texts,
        "self_training": config.self_training and has_texts,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _accuracy_with_twice(search: TechniqueSearch) -> float:
    """The accuracy to be expected with twice as many labels, from a learning curve.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409), by least squares in logarithms; they never rise.
    """
    errors = 1 - np.array([search.accuracy_with(fraction) for fraction in FRACTIONS])
    slope, _ = np.polyfit(np.log(FRACTIONS), np.log(np.maximum(errors, 1e-3)), 1)
    return float(1 - errors[0] * 2 ** min(slope, 0.0))
