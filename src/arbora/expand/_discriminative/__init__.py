"""Pure functions of `arbora.expand.DiscriminativeClustering`: rows, cost, starts, optimisers, evidence, reports."""
