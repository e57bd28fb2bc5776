"""Von Mises-Fisher mixtures over a tree."""
