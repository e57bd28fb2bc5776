"""Functions and the base class that all mixtures share."""
