"""What all mixtures share."""
