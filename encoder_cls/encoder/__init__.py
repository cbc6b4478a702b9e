"""The Transformer encoder: how it computes, in PyTorch and in NumPy."""
