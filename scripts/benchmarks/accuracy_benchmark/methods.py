"""The methods that are encoder-cls: the default config, a plain encoder, and the default without one of its parts."""

from __future__ import annotations

DEFAULT, PLAIN_ENCODER = "encoder-cls", "plain-encoder"
LABELS_ALONE = ("pretrain.epochs=0", "model.linear=false")
ABLATIONS = {
    "no pretraining": ("pretrain.epochs=0",),
    "no linear classifier": ("model.linear=false",),
    "no pretraining or linear classifier": LABELS_ALONE,
    "no character n-grams": ("model.char_ngram_buckets=0",),
    "no word bigrams": ("model.bigram_buckets=0",),
    "no word dropout": ("train.word_dropout=0",),
    "no R-Drop": ("train.rdrop_weight=0",),
    "one layer": ("model.num_layers=1",),
    "float32": ("train.precision=float32",),
}
# Each method of ours, and the config overrides that make it.
OURS: dict[str, tuple[str, ...]] = {
    DEFAULT: (),
    PLAIN_ENCODER: (*LABELS_ALONE, "model.char_ngram_buckets=0", "model.bigram_buckets=0", "train.rdrop_weight=0"),
    **ABLATIONS,
}
