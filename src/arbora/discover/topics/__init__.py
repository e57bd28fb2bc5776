"""Topic models with clusters of documents."""
