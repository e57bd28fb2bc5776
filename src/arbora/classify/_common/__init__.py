"""What the classifiers share."""
