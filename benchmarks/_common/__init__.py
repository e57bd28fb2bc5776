"""Shared code of the benchmarks: cells, tasks, contestants, published figures, reports."""
