"""Von Mises-Fisher mixtures over time."""
