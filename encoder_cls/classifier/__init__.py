"""The classifier: encoder and linear model together, their mixture, and the folder in which it is stored."""
