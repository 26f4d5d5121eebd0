"""Does a model answer from the data as they are now, or from what was said before? Measured on real answers."""
