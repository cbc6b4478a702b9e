"""Training of the encoder, stage by stage."""
