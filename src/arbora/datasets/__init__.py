"""The datasets package."""
