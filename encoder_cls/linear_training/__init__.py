"""The training of the linear model: NB-SVMs fitted to many labels, to few labels, to a stream."""
