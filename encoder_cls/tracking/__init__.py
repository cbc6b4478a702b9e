"""Tracking: the folder of a run, its metrics, and what TensorBoard shows of it."""
