"""Benchmarks: slow evidence, run by hand or by `make bench`."""
