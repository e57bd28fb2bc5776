"""The structure package."""
