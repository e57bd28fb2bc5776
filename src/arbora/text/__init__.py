"""The text package."""
