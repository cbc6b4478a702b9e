"""The classifier: encoder and linear model together, and the folder in which they are stored."""
