"""Von Mises-Fisher mixtures in a tree."""
