"""Inference: the portable classifier, its calibration, and explanations of its answers."""
