"""Bayesian mixtures of Gaussians by sampling: a posterior over partitions."""
