"""Read a model folder without encoder-cls: `probabilities(folder, text)`; see model_folder.md."""

import json
import math
import zlib
from collections import Counter

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer, models

# The ids of the tokens [UNK] and [CLS].
UNKNOWN = 1
CLS = 2
# A pair of tokens is hashed as first * PAIR_MULTIPLIER + second.
PAIR_MULTIPLIER = 1_000_003

# The linear model has this number of ids for each kind of feature: words, adjacent pairs, pairs
# with a word between them, templates, character n-grams. These are the first ids of the last two.
HASHES = 1 << 22
TEMPLATES = 3 * HASHES
CHAR_NGRAMS = 4 * HASHES
# The first and the last id of words and pairs, templates, and character n-grams, and the length of
# the vector of each.
KINDS = [
    (0, TEMPLATES - 1, 1.0),
    (TEMPLATES, CHAR_NGRAMS - 1, 0.4),
    (CHAR_NGRAMS, CHAR_NGRAMS + HASHES - 1, 1.0),
]
# In a template, the placeholder of a word that is not frequent.
WILDCARD = 3


def probabilities(folder, text):
    """The probability of each class, by its name."""
    with safe_open(f"{folder}/model.safetensors", "numpy") as file:
        header = json.loads(file.metadata()["encoder-cls"])
        weights = {name: file.get_tensor(name) for name in file.keys()}
    config = header["config"]
    ids, words = tokens_of(text, config, Tokenizer.from_str(header["tokenizer"]))

    logits = {}
    if "encoder" in header["parts"]:
        logits["encoder"] = encoder_logits(config, weights, ids, words)
    if "linear" in header["parts"]:
        logits["linear"] = linear_logits(config, weights, ids, words)

    combined = sum(header["mixture_weights"][part] * logits[part] for part in logits)
    found = softmax(combined)
    if header["gate"] is not None:
        # Where the linear model is sure, it alone predicts.
        alone = softmax(logits["linear"])
        if alone.max() >= header["gate"]:
            found = alone
    return dict(zip(config["id2label"].values(), found))


def tokens_of(text, config, tokenizer):
    """The ids of the tokens of a text, and their words; [CLS] comes first and has no word."""
    assert isinstance(tokenizer.model, models.WordLevel)
    normal = tokenizer.normalizer.normalize_str(text[: 64 * config["max_seq_len"]])
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
    ids = [tokenizer.token_to_id(word) or UNKNOWN for word in words]
    return [CLS, *ids], ["", *words]


def char_ngrams(word):
    """The hashes of two to five characters of a word between < and >."""
    if not word:
        return []
    marked = f"<{word[:40]}>"
    hashes = []
    for size in range(2, 6):
        for start in range(len(marked) - size + 1):
            hashes.append(zlib.crc32(marked[start : start + size].encode()))
    return hashes


def rows_of(weights, name, indices, num_columns=None):
    """Rows of a table, in float32; a row or value that is not stored is zero."""
    table = weights[name]
    if f"{name}.columns" in weights:
        ends = np.cumsum(weights[f"{name}.row_sizes"])
        rows = np.zeros((len(indices), num_columns), dtype=np.float32)
        for row, index in zip(rows, indices):
            values = slice(ends[index] - weights[f"{name}.row_sizes"][index], ends[index])
            row[weights[f"{name}.columns"][values]] = table[values]
        return rows

    stored = weights.get(f"{name}.rows", np.arange(len(table)))
    places = np.searchsorted(stored, indices).clip(max=len(stored) - 1)

    rows = table[places].astype(np.float32)
    if f"{name}.scales" in weights:
        rows *= weights[f"{name}.scales"][places, None]
    rows[stored[places] != indices] = 0
    return rows


def softmax(logits):
    return np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))


# The encoder


def encoder_logits(config, weights, ids, words):
    shape = config["encoder"]
    assert (shape["norm"], shape["activation"]) == ("pre", "gelu")
    assert shape["positions"] == "sinusoidal"
    assert shape.get("pooling", "mean") == "mean"

    x = embedding(shape, weights, ids[: config["max_seq_len"]], words)
    for number in range(shape["num_layers"]):
        layer = f"encoder.layers.{number}"
        x += attention(weights, layer, norm(weights, f"{layer}.attention_norm", x), shape)
        x += feed_forward(weights, layer, norm(weights, f"{layer}.feed_forward_norm", x))

    pooled = norm(weights, "encoder.final_norm", x).mean(axis=0)
    return linear_map(weights, "head.linear", pooled)


def embedding(shape, weights, ids, words):
    """The sum of the vectors of tokens, pairs of tokens, character n-grams and positions."""
    name = "encoder.embedding"
    x = rows_of(weights, f"{name}.tokens.weight", np.array(ids))

    before = np.array([0, *ids[:-1]])
    pairs = (before * PAIR_MULTIPLIER + ids) % shape["bigram_buckets"]
    x += rows_of(weights, f"{name}.bigrams.table.weight", pairs)

    for place in range(1, len(ids)):
        buckets = np.array(char_ngrams(words[place])) % shape["char_ngram_buckets"]
        x[place] += rows_of(weights, f"{name}.char_ngrams.table.weight", buckets).mean(axis=0)

    width = shape["d_model"]
    frequencies = np.exp(np.arange(0, width, 2) * -math.log(10_000) / width)
    angles = np.arange(len(ids))[:, None] * frequencies
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(ids), width)
    return x + weights[f"{name}.positions.scale"] * positions


def attention(weights, layer, x, shape):
    qkv = linear_map(weights, f"{layer}.attention.qkv_proj", x)
    q, k, v = qkv.reshape(len(x), 3, shape["num_heads"], -1).transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    heads = softmax(scores) @ v
    return linear_map(weights, f"{layer}.attention.out_proj", heads.swapaxes(0, 1).reshape(x.shape))


def feed_forward(weights, layer, x):
    z = linear_map(weights, f"{layer}.feed_forward.up_proj", x)
    gelu = z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2
    return linear_map(weights, f"{layer}.feed_forward.down_proj", gelu)


def linear_map(weights, name, x):
    return x @ weights[f"{name}.weight"].astype(np.float32).T + weights[f"{name}.bias"]


def norm(weights, name, x):
    centered = x - x.mean(axis=-1, keepdims=True)
    scaled = centered / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


# The linear model


def linear_logits(config, weights, ids, words):
    max_tokens = config["linear"]["max_tokens"]
    counts = count_features(weights, ids[:max_tokens], words[:max_tokens])

    # Find the features that the model knows.
    feature_ids = weights["linear.feature_ids"]
    if "linear.feature_ids.high" in weights:
        # The ids are stored without their high halves; of each half there is the number of ids.
        num_ids = weights["linear.feature_ids.high"]
        feature_ids = feature_ids + (np.repeat(np.arange(len(num_ids)), num_ids) << 16)
    known = np.flatnonzero(np.isin(feature_ids, list(counts)))
    feature_ids = feature_ids[known]

    # Compute their TF-IDF values. The vector of each kind of feature has a fixed length.
    occurrences = np.array([counts[feature_id] for feature_id in feature_ids.tolist()])
    values = (1 + np.log(occurrences)) * weights["linear.idf"][known]
    for first, last, length in KINDS:
        is_of_kind = (feature_ids >= first) & (feature_ids <= last)
        if is_of_kind.any():
            values[is_of_kind] *= length / np.linalg.norm(values[is_of_kind])

    biases = weights["linear.biases"]
    margins = biases + values @ rows_of(weights, "linear.weights", known, len(biases))
    if len(margins) == 1:
        # Of two classes, there is one margin, that of the second class.
        return np.append(-margins, margins)
    return -np.logaddexp(0, -margins)


def count_features(weights, ids, words):
    """How often a text has each feature, by the id of the feature."""
    counts = Counter(ids[1:])

    # Pairs of tokens: adjacent ones, and those with a token between them.
    for distance in (1, 2):
        for first, second in zip(ids, ids[distance:]):
            pair = (first * PAIR_MULTIPLIER + second) % HASHES
            counts[distance * HASHES + pair] += 1

    # Templates of two to six tokens.
    kept = {CLS, *weights["linear.frequent_token_ids"].tolist()}
    slots = [token if token in kept else WILDCARD for token in ids]
    hashes = slots
    for size in range(2, 7):
        last_slots = slots[size - 1 :]
        hashes = [
            (before * PAIR_MULTIPLIER + last) % HASHES for before, last in zip(hashes, last_slots)
        ]
        counts.update(TEMPLATES + template for template in hashes)

    for word in words:
        counts.update(CHAR_NGRAMS + ngram % HASHES for ngram in char_ngrams(word))
    return counts
