"""Linear classifiers: dual coordinate descent, flat and coupled over a structure."""
