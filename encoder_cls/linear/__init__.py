"""The linear model: n-gram features, an NB-SVM, and how it is fitted."""
