"""What of the training texts can be read in the files of a model and of its run."""
