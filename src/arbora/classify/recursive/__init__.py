"""Recursive regularisation over a tree, a DAG or a graph of labels."""
