"""Readers of the file formats of the field."""
