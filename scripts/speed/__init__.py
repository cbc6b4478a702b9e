"""How fast encoder-cls is: the parts of `benchmark_speed.py`, one module each, and what they share."""
