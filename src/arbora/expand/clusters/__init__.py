"""`ExpandClusters`: learn a metric from labelled groups, cluster the other rows, find new groups."""
