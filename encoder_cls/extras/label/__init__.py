"""Texts are labelled in the browser, chosen for labelling, and their labels reviewed."""
