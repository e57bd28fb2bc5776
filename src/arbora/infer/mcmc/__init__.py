"""Markov chain Monte Carlo: chains, diagnostics, HMC, slice sampling."""
