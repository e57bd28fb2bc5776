"""Multinomial logistic regression: one problem, several solvers."""
