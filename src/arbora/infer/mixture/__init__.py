"""Mixtures: the EM and variational loop, E-step statistics, shards."""
