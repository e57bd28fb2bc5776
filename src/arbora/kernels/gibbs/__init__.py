"""Gibbs sweeps: partitions of rows, Gaussian clusters, cluster topic models, and summaries of their draws."""
