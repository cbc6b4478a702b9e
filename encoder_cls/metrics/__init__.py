"""Logits and labels to numbers: probabilities, scores, losses."""
