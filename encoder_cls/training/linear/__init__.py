"""Training of the linear classifier."""
