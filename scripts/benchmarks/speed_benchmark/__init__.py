"""How fast encoder-cls is: the parts of `speed.py`, one module each, and what they share."""
