"""Dirichlet-process mixtures of von Mises-Fisher distributions."""
