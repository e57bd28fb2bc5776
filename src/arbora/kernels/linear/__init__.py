"""Dual coordinate descent: flat classes, classes that share weights, softmax, and choices of paths."""
