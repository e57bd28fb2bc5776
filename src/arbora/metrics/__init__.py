"""The metrics package."""
