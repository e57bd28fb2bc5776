"""The special package."""
