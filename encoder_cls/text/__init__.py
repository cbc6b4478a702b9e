"""Text: tokenizers, and the tokens of many texts in arrays."""
