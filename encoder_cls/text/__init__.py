"""Text: tokenizers, token arrays and n-gram features."""
