"""Work on finished runs: score them, review their labels, compare them."""
