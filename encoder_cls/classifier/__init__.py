"""The classifier, of encoder and linear model, and the folder in which it is stored."""
