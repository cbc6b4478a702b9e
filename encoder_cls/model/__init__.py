"""The Transformer encoder classifier in PyTorch: logits of tokens and their mask.

The encoder of Vaswani et al., "Attention Is All You Need" (2017), https://arxiv.org/abs/1706.03762,
with three choices: where the norms are, which activation, which positions. Not in that paper: vectors of a word's
character n-grams and of its neighbour (`CharNgramEmbedding`, `BigramEmbedding`, both optional), a learned scale of the
sinusoids, dropout of whole features, and the head, on the mean of the tokens.

Shapes are suffixes of names:
    B batch, T tokens, D d_model, H heads, K width of a head (D / H), C classes,
    W distinct words of a batch, N their character n-grams, M masked tokens, V tokens to choose from.
`input_ids` and `attention_mask` are (B, T). Masks are True on real tokens, everywhere.
No sequence is empty: the tokenizer puts `[CLS]` first.
"""

from encoder_cls.model.classifier import EncoderClassifier
from encoder_cls.model.encoder import CharNgramBatch, Encoder

__all__ = ["CharNgramBatch", "Encoder", "EncoderClassifier"]
