"""The data and the config of a run that trains in a second."""

from __future__ import annotations

# Each class has words of its own, so that a tiny model learns them in a second.
TOPICS = {
    "küche": ["soup", "bread", "salt", "pan", "oven", "garlic"],
    "sport": ["ball", "goal", "team", "coach", "race", "medal"],
    "weather": ["rain", "snow", "cloud", "storm", "wind", "frost"],
}
FILLERS = ["the", "a", "of", "and", "with", "for", "today", "big"]

CONFIG = """\
name: tiny
data: {{train: {folder}/train.csv, validation: {folder}/validation.csv, test: {folder}/test.csv}}
model:
  {{d_model: 16, num_layers: 1, num_heads: 2, d_ff: 32, max_seq_len: 16, char_ngram_buckets: 64, bigram_buckets: 64,
  cascade: false}}
pretrain: {{epochs: 0}}
train: {{epochs: 6, batch_size: 12, learning_rate: 0.01, precision: float32}}
"""
