"""The encoder in NumPy and in PyTorch."""
