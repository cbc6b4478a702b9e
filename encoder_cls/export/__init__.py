"""Export classifiers as JavaScript modules and as web pages."""
