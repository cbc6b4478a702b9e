"""Classifiers as web pages and JavaScript modules: `encoder-cls export`."""
