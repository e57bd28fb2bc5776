"""The engine package."""
