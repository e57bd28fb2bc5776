"""Numerical methods; models arrive as arguments."""
