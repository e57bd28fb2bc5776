"""Discriminative clustering: clusters that are local in the features and say much about the labels."""
