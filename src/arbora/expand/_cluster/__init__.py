"""Clusterers that keep known groups: k-means, mixtures, spectral clustering, and how many new groups there are."""
