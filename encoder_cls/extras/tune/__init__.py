"""Hyperparameter search by Optuna: `encoder-cls tune`."""
