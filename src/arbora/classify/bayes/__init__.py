"""Bayesian classifiers over a tree of labels."""
