"""The steps of a fit of `ExpandClusters`, its update, and its predictions; package-private."""
