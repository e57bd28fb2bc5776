"""Metrics that are learned from labelled groups: one transformer, or a pair of related ones, in each file."""
