"""Generators with known truth."""
