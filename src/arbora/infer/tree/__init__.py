"""Gaussian trees of weights: elimination, MAP and variational inference."""
