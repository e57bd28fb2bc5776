"""Generators of data sets with known truth."""
