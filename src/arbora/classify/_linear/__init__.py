"""Linear classifiers: training, weights, scores, and the couplings of weights over a structure."""
