"""Readers of data files, a module for each format: from a file to rows with their locations."""
