"""The infer package."""
