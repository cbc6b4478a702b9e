"""File formats of labelled and unlabelled texts."""
