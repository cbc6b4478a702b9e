"""Inference: the portable classifier, its calibration, and explanations of what it says."""
