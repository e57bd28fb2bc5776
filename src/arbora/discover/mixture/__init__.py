"""What all mixtures share: the loop of a fit, rows, starts, and the number of components."""
