"""The classify package."""
