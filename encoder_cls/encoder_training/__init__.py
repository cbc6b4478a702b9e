"""The training of the encoder: batches, losses, optimizers, the step and the loop."""
