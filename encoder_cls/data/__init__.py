"""Data: files, folders and Hub data sets to labelled splits."""
